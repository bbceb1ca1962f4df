"""Errors as sentences with the remedy: shared checks of what users pass."""

import contextlib
import difflib
import inspect
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeGuard

_LARGEST = 2**63 - 1
_LOOKED_AT = 2**22  # numbers of an array that are looked at
_LEVELS = 2**20  # of float32 between the extremes of a column; 2**24 without an offset


class EndedBySignal(SystemExit):
    """The end of a process that a signal asked for, once all is saved."""


class TooLarge(ValueError):
    """Numbers that do not fit into the memory."""


class RunProblem(UserWarning):
    """A reason not to trust a run, which its summary tells, too."""


def choose(what: str, value: Any, known: Iterable[str]) -> Any:
    """Return `value` if it is one of `known`; otherwise raise and suggest the closest name."""
    known = tuple(known)
    if isinstance(value, str) and value in known:
        return value
    near = suggest(value, known) if isinstance(value, str) else ""
    raise ValueError(f"{what} is {show(value)}; it must be one of {', '.join(known)}.{near}")


def suggest(wanted: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'energy'?` for the closest known name, or an empty string."""
    closest = difflib.get_close_matches(wanted, tuple(known), n=1, cutoff=0.4)
    return f" Did you mean {closest[0]!r}?" if closest else ""


def show(value: object) -> str:
    """Return a short description of a wrong value: itself, or of which type it is.

    >>> show(2.5), show("fast"), show(print), show(list(range(1000)))
    ('2.5', "'fast'", 'a function', 'of type list')
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if inspect.isroutine(value):
        return "a function"
    if is_whole(value) and abs(value) > _LARGEST:
        return "a number beyond 2**63"
    text = " ".join(repr(value).split())
    if len(text) > 60 or text.startswith("<") or "object at 0x" in text:
        return f"of type {type(value).__name__}"
    return text


def printable(text: str) -> str:
    """Return a text without what would steer the terminal that shows it.

    >>> printable("a\x1b[2Jb")
    'a [2Jb'
    """
    return "".join(sign if sign.isprintable() else " " for sign in text)


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether `value` is one whole number, of Python or NumPy; True is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether `value` is one finite real number, of Python or NumPy; True is none."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def at_least(name: str, value: object, lowest: int, highest: int = _LARGEST) -> None:
    """Raise unless `value` is a whole number from `lowest` to `highest`."""
    if is_whole(value) and lowest <= value <= highest:
        return
    is_low = highest >= 2**31 - 1 and not (is_whole(value) and value > highest)
    bound = f" of at least {lowest}" if is_low else f" from {lowest} to {highest}"
    raise ValueError(f"{name} is {show(value)}; it must be a whole number{bound}.")


def check_number(name: str, value: object, holds: Callable[[Any], bool], needed: str) -> None:
    """Raise unless `value` is a finite number for which `holds`; `needed` says which those are."""
    if not is_number(value) or not holds(value):
        raise ValueError(f"{name} is {show(value)}; {needed}.")


def not_negative(name: str, value: object) -> None:
    """Raise unless `value` is a finite number of at least 0."""
    check_number(name, value, lambda x: x >= 0, "it must be a number of at least 0")


def check_flag(name: str, value: object, *others: object) -> None:
    """Raise unless `value` is True, False or one of the `others`."""
    if not isinstance(value, bool) and not any(value is other for other in others):
        known = ", ".join(str(flag) for flag in (True, False, *others))
        raise ValueError(f"{name} is {show(value)}; write one of {known}.")


def check_path(name: str, value: object, of: str = "a folder") -> Path:
    """Return `value` as a path, with the home folder in the place of ~; raise unless it can be the
    path `of` what is wanted."""
    if not isinstance(value, str | os.PathLike) or not str(value).strip() or "\0" in str(value):
        raise ValueError(f"{name} is {show(value)}; give the path of {of}.")
    path = os.path.expanduser(value)
    if path.startswith("~"):
        raise ValueError(f"{name} is {show(path)}, and there is no such user: write ./{path}.")
    return Path(path)


def check_function(name: str, value: object, *arguments: str) -> None:
    """Raise unless `value` can be called with so many positional arguments."""
    needed = f"{name}({', '.join(arguments)})"
    if not callable(value):
        raise ValueError(f"{name} is {show(value)}; give a function {needed}.")
    try:
        inspect.signature(value).bind(*arguments)
    except TypeError:
        count = f"{len(arguments)} argument{'s'[: len(arguments) - 1]}"
        raise ValueError(f"{name} must take {count}: write it as {needed}.") from None
    except ValueError:  # no signature, as some built-in functions
        pass


def check_numeric(name: str, leaves: list[Any]) -> None:
    """Raise unless all leaves are numbers or arrays of numbers that JAX knows."""
    import jax.numpy as jnp
    import numpy as np

    for leaf in leaves:
        kind = getattr(leaf, "dtype", None)
        if kind is None:
            kind = np.asarray(leaf).dtype
        is_known = jnp.issubdtype(kind, jnp.number) or jnp.issubdtype(kind, jnp.bool_)
        if not is_known or np.dtype(kind).char in "gG":
            words = {"U": "text", "S": "text", "O": "Python objects", "M": "dates", "m": "times"}
            what = words.get(getattr(kind, "kind", ""), f"numbers of the type {kind}")
            raise ValueError(
                f"{name} holds {what}; give arrays of numbers (code categories as whole numbers)."
            )


def check_kept(name: str, leaves: list[Any]) -> None:
    """Raise if whole numbers do not fit the type that JAX gives them, and warn if it makes
    neighbouring real numbers equal. Arrays of JAX are as they are."""
    import jax
    import numpy as np

    arrays = [leaf for leaf in leaves if not isinstance(leaf, jax.Array)]
    for array in map(np.asarray, () if jax.config.read("jax_enable_x64") else arrays):
        remedy = (
            "subtract what they have in common (and divide by their spread), or write "
            'jax.config.update("jax_enable_x64", True) before anything else'
        )
        if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and array.size:
            kept = np.iinfo(np.int32 if array.dtype.kind == "i" else np.uint32)
            if array.min() < kept.min or array.max() > kept.max:
                raise ValueError(
                    f"{name} holds whole numbers from {array.min()} to {array.max()}, beyond the "
                    f"{kept.dtype} that JAX gives them: {remedy}."
                )
        if array.dtype.kind == "c":
            array = np.stack([np.real(array), np.imag(array)], axis=-1)
        is_longer = array.dtype.kind == "f" and array.dtype.itemsize > 4
        if is_longer and array.size and _collapses(array):
            warnings.warn(
                f"{name} holds numbers from {array.min():.10g} to {array.max():.10g}, which JAX "
                f"rounds to float32, where neighbouring ones become equal: {remedy}.",
                stacklevel=4,
            )


def _collapses(array: Any) -> bool:
    """Return whether neighbouring values of a column become equal in float32 because of what all
    have in common, and not for their number alone."""
    import numpy as np

    columns = array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
    columns = columns[:: max(1, columns.size // _LOOKED_AT)]
    for column in columns.T:
        values = np.unique(column[np.isfinite(column)])
        if len(values) < 2:
            continue
        with np.errstate(over="ignore"):
            rounded = values.astype(np.float32)
        largest = np.float32(min(np.abs(values).max(), np.finfo(np.float32).max))
        levels = (values[-1] - values[0]) / float(np.spacing(largest))
        if (rounded[1:] == rounded[:-1]).any() and levels < _LEVELS:
            return True
    return False


def memory_of_machine() -> float:
    """Return the memory of the machine in bytes, infinity if it is not known."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # not known on this platform
        return math.inf


def check_memory_for(what: str, num_bytes: float) -> None:
    """Raise if an array that is to be read would not fit into the memory of the machine."""
    present = memory_of_machine()
    if num_bytes > present:
        raise TooLarge(
            f"{what} holds {num_bytes / 1e9:,.1f} GB of numbers, and this machine has "
            f"{present / 1e9:,.1f} GB of memory."
        )


def is_concrete(value: object) -> bool:
    """Return whether a value is known now, and not a tracer of `jit` or `vmap`."""
    import jax
    from jax.core import Tracer

    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))


@contextlib.contextmanager
def explained(what: str, hint: str = "", if_none: str = "") -> Iterator[None]:
    """Raise a sentence for any error inside: `what` failed, at which line, and the cure.

    `hint` follows the error's own words; `if_none` takes their place where they speak of None.
    """
    try:
        yield
    except SystemExit as error:
        raise ValueError(f"{what} calls sys.exit({error.code!r}): leave that out.") from error
    except Exception as error:
        from replicax.tracing import explain

        sentence = explain(what, error, hint, if_none)
        if sentence is None:
            raise
        raise ValueError(sentence) from error
