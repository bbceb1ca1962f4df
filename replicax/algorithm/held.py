"""Arrays that a function of the user's holds, such as data without batches."""

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from replicax.errors import check_kept

_DEEPEST = 6  # functions and containers around an array


def held_arrays(traced: Any) -> list[Any]:
    """Return the arrays that a traced function holds, also those of functions that it calls, as
    under `jax.jit`."""
    inner = traced.jaxpr if hasattr(traced, "jaxpr") else traced
    held = [*getattr(traced, "consts", ())]
    for step in inner.eqns:
        held += [part.val for part in step.invars if hasattr(part, "val")]
        for value in step.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                if hasattr(part, "jaxpr") or hasattr(part, "eqns"):
                    held += held_arrays(part)
    return [array for array in held if np.ndim(array)]


def check_held(what: str, function: Callable, traced: Any) -> None:
    """Look at the numbers that a function holds as at rows of batches: those that it can reach, and
    that a traced one has as JAX keeps them."""
    held = [np.asarray(array) for array in held_arrays(traced)]
    for array in _arrays_within(function, _DEEPEST):
        with np.errstate(over="ignore"):
            kept = [x for x in held if x.shape == array.shape and x.dtype.itemsize < 8]
            if any(np.array_equal(array.astype(x.dtype), x, equal_nan=True) for x in kept):
                check_kept(what, [array])


def _arrays_within(value: Any, depth: int) -> Iterator[np.ndarray]:
    """Yield arrays of 64 bits that a function or object can reach by its names."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "iuf" and value.dtype.itemsize == 8 and value.ndim:
            yield value
        return
    for part in _parts(value) if depth else ():
        yield from _arrays_within(part, depth - 1)


def _parts(value: Any) -> Any:
    if isinstance(value, types.FunctionType):
        cells = [cell for cell in value.__closure__ or () if _is_filled(cell)]
        used = [value.__globals__.get(name) for name in value.__code__.co_names]
        return [*(cell.cell_contents for cell in cells), *used, *(value.__defaults__ or ())]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, types.ModuleType | type):
        return ()
    within = getattr(value, "__dict__", {})
    return [*within.values(), getattr(value, "__wrapped__", None)]


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # of a name that has no value yet
        return False
