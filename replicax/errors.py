"""Errors as sentences with the remedy: shared checks of what users pass."""

import contextlib
import difflib
import inspect
import math
import os
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeGuard

_LARGEST = 2**63 - 1


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


def show(value: Any) -> str:
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


def is_whole(value: Any) -> TypeGuard[int]:
    """Return whether `value` is one whole number, of Python or NumPy; True is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether `value` is one finite real number, of Python or NumPy; True is none."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def at_least(name: str, value: Any, lowest: int, highest: int = _LARGEST) -> None:
    """Raise unless `value` is a whole number from `lowest` to `highest`."""
    if is_whole(value) and lowest <= value <= highest:
        return
    bound = f" of at least {lowest}" if highest == _LARGEST else f" from {lowest} to {highest}"
    raise ValueError(f"{name} is {show(value)}; it must be a whole number{bound}.")


def check_number(name: str, value: Any, holds: Callable[[Any], bool], needed: str) -> None:
    """Raise unless `value` is a finite number for which `holds`; `needed` says which those are."""
    if not is_number(value) or not holds(value):
        raise ValueError(f"{name} is {show(value)}; {needed}.")


def not_negative(name: str, value: Any) -> None:
    """Raise unless `value` is a finite number of at least 0."""
    check_number(name, value, lambda x: x >= 0, "it must be a number of at least 0")


def check_flag(name: str, value: Any, *others: Any) -> None:
    """Raise unless `value` is True, False or one of the `others`."""
    if not isinstance(value, bool) and not any(value is other for other in others):
        known = ", ".join(str(flag) for flag in (True, False, *others))
        raise ValueError(f"{name} is {show(value)}; write one of {known}.")


def check_folder(name: str, value: Any) -> Path:
    """Return `value` as a path; raise unless it can be one of a folder."""
    if not isinstance(value, str | os.PathLike) or not str(value).strip() or "\0" in str(value):
        raise ValueError(f"{name} is {show(value)}; give the path of a folder.")
    return Path(value)


def check_function(name: str, value: Any, *arguments: str) -> None:
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


def check_watchers(progress: Any, callback: Any) -> None:
    """Raise unless `progress` and `callback` can watch a run."""
    check_flag("progress", progress, None)
    several = isinstance(callback, list | tuple)
    for function in callback if several else [callback]:
        if several or function is not None:
            check_function("callback", function, "progress")


def check_numeric(name: str, leaves: list[Any]) -> None:
    """Raise unless all leaves are numbers or arrays of numbers that JAX knows."""
    import jax.numpy as jnp
    import numpy as np

    for leaf in leaves:
        kind = getattr(leaf, "dtype", None)
        if kind is None:
            kind = np.asarray(leaf).dtype
        if not jnp.issubdtype(kind, jnp.number) and not jnp.issubdtype(kind, jnp.bool_):
            words = {"U": "text", "S": "text", "O": "Python objects", "M": "dates", "m": "times"}
            what = words.get(getattr(kind, "kind", ""), str(kind))
            raise ValueError(
                f"{name} holds {what}; give arrays of numbers (code categories as whole numbers)."
            )


def is_concrete(value: Any) -> bool:
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
    except Exception as error:
        from replicax.tracing import explain

        sentence = explain(what, error, hint, if_none)
        if sentence is None:
            raise
        raise ValueError(sentence) from error
