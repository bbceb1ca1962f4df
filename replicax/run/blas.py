"""Linear algebra on the host by one thread.

The matrices of a fit are small: threads that wait for each other take many times the processor time
of one, and where cores have other work the time on the clock, too. What is learned is also the same
whatever the number of cores.
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import scipy

_NAMES = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let NumPy and SciPy use one thread, where they have OpenBLAS, as their wheels do."""
    before = [(choose, count()) for count, choose in _openblas()]
    for choose, _ in before:
        choose(1)
    try:
        yield
    finally:
        for choose, number in before:
            choose(number)


@cache
def _openblas() -> list[tuple[Callable[[], int], Callable[[int], None]]]:
    """Return how to ask for and to choose the number of threads of each OpenBLAS."""
    found = []
    for package in (np, scipy):
        folder = Path(str(package.__file__)).parent.with_suffix(".libs")
        for file in folder.glob("*openblas*"):
            with contextlib.suppress(OSError):
                library = ctypes.CDLL(str(file))  # the one that is loaded
                names = [name for name in _NAMES if hasattr(library, name.format("get"))]
                found += [[getattr(library, n.format(w)) for w in ("get", "set")] for n in names]
    return [tuple(both) for both in found]
