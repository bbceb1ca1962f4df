"""Weight decay: one number for all parameters, or one for each group of them."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import check_function, is_number, not_negative, show
from replicax.run.plain import leaf_names

Decay = float | dict[str, float] | Callable[[str], float]


def check_weight_decay(weight_decay: Any) -> bool:
    """Return whether there is any weight decay; raise unless it is a number, a dict or a
    function."""
    if isinstance(weight_decay, dict):
        for pattern, value in weight_decay.items():
            if not isinstance(pattern, str):
                raise ValueError(
                    f"weight_decay has the entry {show(pattern)}; its entries are patterns of "
                    'names, such as {"*bias": 0.0, "*": 5e-4}.'
                )
            not_negative(f"weight_decay[{pattern!r}]", value)
        # Without a pattern for the rest it is looked at in any case: who writes {"*bias": 0.0}
        # wants something for the others.
        return "*" not in weight_decay or any(value > 0 for value in weight_decay.values())
    if callable(weight_decay) and not isinstance(weight_decay, type):
        check_function("weight_decay", weight_decay, "name")
        return True
    not_negative("weight_decay", weight_decay)
    return float(weight_decay) > 0  # type: ignore[arg-type]


def decayed_square(weight_decay: Any, params: Any) -> Array:
    """Return the sum over parameters of their weight decay times their square."""
    squares = [jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)]
    if is_number(weight_decay):
        return jnp.asarray(weight_decay * sum(squares))
    names = leaf_names(params)
    decays = [_decay_of(weight_decay, name) for name in names]
    if isinstance(weight_decay, dict):
        _check_used(weight_decay, names)
    return sum((decay * square for decay, square in zip(decays, squares)), jnp.zeros(()))


def _decay_of(weight_decay: Any, name: str) -> float:
    if not isinstance(weight_decay, dict):
        value = weight_decay(name)
        if not is_number(value) or value < 0:
            raise ValueError(
                f"weight_decay returned {show(value)} for {name}; it must return a number of at "
                "least 0 for every name of a parameter."
            )
        return value
    for pattern, value in weight_decay.items():
        if fnmatchcase(name, pattern):
            return value
    raise ValueError(
        f'weight_decay has no pattern that fits the parameter {name}: add one for the rest, "*".'
    )


def _check_used(weight_decay: dict[str, float], names: list[str]) -> None:
    for pattern in weight_decay:
        if pattern != "*" and not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(
                f"weight_decay has the pattern {pattern!r}, which fits no parameter; they are "
                f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}."
            )
