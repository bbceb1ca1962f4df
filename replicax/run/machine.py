"""The machine of a run: its device, its memory, and the processes that share the run.

Every process runs the same program on its own devices. Only the first one prints and writes; the
others keep their records in memory, and write their parts of checkpoints.
"""

import os
import sys
from typing import Any

import jax
import numpy as np


def describe_machine() -> str:
    """Return device and JAX version in words."""
    return f"{jax.devices()[0].device_kind}, jax {jax.__version__}"


def memory_bytes() -> float:
    """Return the memory of the device in bytes, or that of the machine if it is not known."""
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit is not None:
        return float(limit)
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # not known on this platform
        return float("inf")


def memory_in_use() -> int:
    """Return the bytes in use: of the accelerators if there are any, else of this process."""
    if in_use := _on_devices("bytes_in_use"):
        return in_use
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return peak_memory()


def peak_memory() -> int:
    """Return the most bytes that were in use: of the accelerators if there are any, else of this
    process."""
    if peak := _on_devices("peak_bytes_in_use"):
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _on_devices(name: str) -> int:
    return sum((device.memory_stats() or {}).get(name, 0) for device in jax.local_devices())


def is_first() -> bool:
    """Return whether this process prints and writes."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def agree(*values: int | bool) -> list[int]:
    """Return the maximum of each value over all processes, which must all call this together."""
    return _gather(values).max(axis=0).tolist()


def follow(value: int) -> int:
    """Return the value of the first process."""
    return int(_gather([value])[0, 0])


def wait() -> None:
    """Wait until all processes call this."""
    _gather([0])


def _gather(values: Any) -> np.ndarray:
    """Return the values of all processes  -> (process, value)."""
    mine = np.asarray(values, np.int64)
    if not jax.distributed.is_initialized() or jax.process_count() == 1:
        return mine[None]
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(mine.astype(np.int32)))
