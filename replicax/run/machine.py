"""The machine of a run: its device in words, and its memory."""

import os
import sys

import jax


def describe_machine() -> str:
    """Return device and JAX version in words, for results that are read elsewhere."""
    return f"{jax.devices()[0].device_kind}, jax {jax.__version__}"


def memory_bytes() -> float:
    """Return the memory of the device, or of the machine where devices do not tell."""
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit is not None:
        return float(limit)
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # not known on this platform
        return float("inf")


def memory_in_use() -> int:
    """Return the bytes in use: of the accelerators if there are any, else of this process."""
    on_devices = [(device.memory_stats() or {}) for device in jax.local_devices()]
    if in_use := sum(stats.get("bytes_in_use", 0) for stats in on_devices):
        return in_use
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return peak_memory()


def peak_memory() -> int:
    """Return the most bytes that were in use: of the accelerators if there are any, else of this
    process."""
    on_devices = [(device.memory_stats() or {}) for device in jax.local_devices()]
    if peak := sum(stats.get("peak_bytes_in_use", 0) for stats in on_devices):
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
