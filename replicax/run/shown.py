"""What draws show of params: values in the units of the user, labels in order, entries by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm.labels import label_axis
from replicax.errors import check_function, show, suggest


@dataclass(frozen=True)
class Shown:
    """`shown(params) -> values`: labels sorted, then constrained, then named; false if it has
    nothing to do."""

    constrain: Callable[[Any], Any] | None
    exchangeable: Any
    order_by: str | None
    names: Any

    def __post_init__(self) -> None:
        if self.constrain is not None:
            check_function("constrain", self.constrain, "params")
        by_axis = not isinstance(self.exchangeable, np.ndarray)
        if self.order_by is not None and (self.exchangeable is None or not by_axis):
            raise ValueError(
                f"order_by is {show(self.order_by)}, which needs exchangeable labels by axis: "
                "write exchangeable=0, or sort them in constrain."
            )

    def __bool__(self) -> bool:
        return any(part is not None for part in (self.constrain, self.order_by, self.names))

    def __call__(self, params: Any) -> Any:
        values = params
        if self.order_by is not None:
            values = _sorted(values, self.order_by, self.exchangeable)
        if self.constrain is not None:
            values = self.constrain(values)
        return values if self.names is None else _named(values, self.names)


def _sorted(values: Any, by: str, exchangeable: Any) -> Any:
    """Return values with their labels in the order of the array of a name."""
    found = jax.tree_util.tree_leaves_with_path(values)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in found]
    if by not in names:
        raise ValueError(
            f"order_by is {show(by)}; the arrays of params are {', '.join(names)}."
            f"{suggest(by, names)}"
        )
    path, key = found[names.index(by)]
    if label_axis(exchangeable, path) is None or jnp.ndim(key) != 1:
        raise ValueError(f"order_by is {show(by)}, which must have one number for each label.")
    rank = jnp.argsort(key)

    def in_order(path: tuple, leaf: Any) -> Any:
        axis = label_axis(exchangeable, path)
        return leaf if axis is None else jnp.take(leaf, rank, axis=axis)

    return jax.tree_util.tree_map_with_path(in_order, values)


def _named(values: Any, names: Any) -> Any:
    """Return values in which entries of a last axis are arrays with names."""
    if not isinstance(names, dict):
        return _split(values, names, "params")
    if not isinstance(values, dict) or not set(names) <= set(values):
        raise ValueError(
            f"names has {sorted(names)}, and params are {show(values)}: give the names of one "
            "array as a list, or those of arrays in a dict by the name of each."
        )
    shown = {name: value for name, value in values.items() if name not in names}
    for name, entries in names.items():
        split = _split(values[name], entries, name)
        if set(split) & set(shown):
            raise ValueError(f"names gives {sorted(set(split) & set(shown))} twice.")
        shown |= split
    return shown


def _split(array: Any, names: Any, of: str) -> dict[str, Any]:
    entries = list(names)
    shape = getattr(array, "shape", None)
    if not shape or shape[-1] != len(entries) or len(set(entries)) < len(entries):
        raise ValueError(
            f"names are {show(names)} for {of} of shape {shape}; give a different one for each "
            "entry of its last axis."
        )
    return {str(name): array[..., i] for i, name in enumerate(entries)}
