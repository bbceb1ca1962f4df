"""Errors as sentences with the remedy: shared checks of what users hand in."""

import difflib
from collections.abc import Iterable
from typing import Any

import jax
from jax.core import Tracer


def choose(what: str, value: Any, known: Iterable[str]) -> Any:
    """Return `value` if it is one of `known`; otherwise say which name is near."""
    known = tuple(known)
    if value in known:
        return value
    near = difflib.get_close_matches(str(value), known, n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{what} is {value!r}; it must be one of {', '.join(known)}.{hint}")


def is_concrete(value: Any) -> bool:
    """Whether a value can be looked at now: tracers of jit and vmap cannot."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))
