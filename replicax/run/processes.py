"""Several processes that share a run: how they agree, and who writes.

Every process runs the same program on its own devices. The first one alone prints and writes; the
others keep their records in memory, and write their parts of checkpoints.
"""

from typing import Any

import jax
import numpy as np


def is_first() -> bool:
    """Return whether this process prints and writes."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def agree(*values: int | bool) -> list[int]:
    """Return the largest of each value over all processes, which must all ask at the same time."""
    return _gather(values).max(axis=0).tolist()


def follow(value: int) -> int:
    """Return the value of the first process."""
    return int(_gather([value])[0, 0])


def wait() -> None:
    """Wait until all processes are here."""
    _gather([0])


def _gather(values: Any) -> np.ndarray:
    """Return the values of all processes  -> (process, value)."""
    mine = np.asarray(values, np.int64)
    if not jax.distributed.is_initialized() or jax.process_count() == 1:
        return mine[None]
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(mine.astype(np.int32)))
