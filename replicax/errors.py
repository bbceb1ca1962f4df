"""Errors as sentences with the remedy: shared checks of what users pass."""

import difflib
from collections.abc import Iterable
from typing import Any


def choose(what: str, value: Any, known: Iterable[str]) -> Any:
    """Return `value` if it is one of `known`; otherwise raise and suggest the closest name."""
    known = tuple(known)
    if value in known:
        return value
    raise ValueError(
        f"{what} is {value!r}; it must be one of {', '.join(known)}.{suggest(str(value), known)}"
    )


def suggest(wanted: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'energy'?` for the closest known name, or an empty string."""
    closest = difflib.get_close_matches(wanted, tuple(known), n=1, cutoff=0.4)
    return f" Did you mean {closest[0]!r}?" if closest else ""


def is_concrete(value: Any) -> bool:
    """Return whether a value is known now, and not a tracer of `jit` or `vmap`."""
    import jax
    from jax.core import Tracer

    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))
