"""Many replicas of a network from a function of one."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp


def vmap(function: Callable, in_axes: int | Sequence[int | None] | None = 0) -> Callable:
    """`jax.vmap` over first axes, in the layout that the device is quick at.

    On GPUs it is `jax.vmap`, under which `conv` folds replicas into channels. On CPUs the replicas
    are written out one after the other, so that what one computes stays in the cache from layer
    to layer.

    >>> vmap(lambda scale, x: scale * jnp.sum(x), in_axes=(0, None))(jnp.arange(3.0), jnp.ones(4))
    Array([0., 4., 8.], dtype=float32)

    Args:
        function: of one replica; arguments and results are trees of arrays.
        in_axes: 0 or None (the same for all replicas), for all arguments or for each.
    """
    on_cpu = jax.default_backend() == "cpu"
    return one_by_one(function, in_axes) if on_cpu else jax.vmap(function, in_axes)


def one_by_one(function: Callable, in_axes: int | Sequence[int | None] | None = 0) -> Callable:
    """`vmap` written out, whatever the device."""

    def mapped(*arguments: Any) -> Any:
        axes = _axes_of(arguments, in_axes)
        sizes = {
            leaf.shape[0]
            for argument, axis in zip(arguments, axes, strict=True)
            if axis == 0
            for leaf in jax.tree.leaves(argument)
        }
        if len(sizes) != 1:
            found = ", ".join(map(str, sorted(sizes))) or "none"
            raise ValueError(f"Replicas need one number of rows in all arguments; found: {found}.")

        def of(replica: int, argument: Any, axis: int | None) -> Any:
            return argument if axis is None else jax.tree.map(lambda x: x[replica], argument)

        once = jax.jit(function)  # traced once
        found = [
            once(*(of(replica, *pair) for pair in zip(arguments, axes, strict=True)))
            for replica in range(*sizes)
        ]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)

    return mapped


def _axes_of(arguments: tuple, in_axes: Any) -> tuple[int | None, ...]:
    axes = tuple(in_axes) if isinstance(in_axes, Sequence) else (in_axes,) * len(arguments)
    if len(axes) != len(arguments) or not set(axes) <= {0, None}:
        raise ValueError(
            f"in_axes is {in_axes}; replicas are mapped over first axes: give 0 or None for each "
            f"of the {len(arguments)} arguments, or use jax.vmap."
        )
    return axes
