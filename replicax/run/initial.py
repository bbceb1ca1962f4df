"""Where replicas start: one point for all, one for each, or a function that draws them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class PerReplica(NamedTuple):
    """A tree whose leaves have leading axes (replica, ...) or (chain, replica, ...)."""

    tree: Any


def per_replica(tree: Any) -> PerReplica:
    """Mark starts that differ by replica: leading axes (replica, ...) or (chain, replica, ...)."""
    return PerReplica(tree)


def make_starts(
    params: Any, key: Array, num_chains: int, num_replicas: int, with_state: bool = False
) -> Any:
    """Starts with leading axes (chain, replica, ...); `with_state`: pairs (params, model_state)."""
    if isinstance(params, PerReplica):
        starts = _spread(params.tree, num_chains, num_replicas)
    elif callable(params) and not _is_array_tree(params):

        def draw_chain(chain: Array) -> Any:
            keys = jax.random.split(jax.random.fold_in(key, chain), num_replicas)
            return jax.vmap(params)(keys)

        starts = jax.jit(jax.vmap(draw_chain))(jnp.arange(num_chains))
    else:
        one = jax.tree.map(_as_array, params)
        starts = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (num_chains, num_replicas, *leaf.shape)), one
        )
    if with_state and not (isinstance(starts, tuple | list) and len(starts) == 2):
        raise ValueError(
            "The start must be a pair (params, model_state), or a function of a key that returns "
            "one; where there is nothing to remember, model_state is {}."
        )
    leaves = jax.tree.leaves(starts[0] if with_state else starts)
    if not leaves:
        raise ValueError("params holds no arrays; give the point where sampling starts.")
    for leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"params holds an array of dtype {leaf.dtype}; sampling moves real floating-point "
                "numbers: write 0.0 instead of 0, or close over what stays fixed."
            )
    # A weak type would become a strong one after the first chunk and compile the loop again.
    starts = jax.tree.map(lambda leaf: jnp.array(leaf, dtype=leaf.dtype), starts)
    return tuple(starts) if with_state else starts


def _as_array(leaf: Any) -> Array:
    try:
        return jnp.asarray(leaf)
    except TypeError:
        raise ValueError(
            f"params holds {leaf!r}; give numbers and arrays: the point where sampling starts."
        ) from None


def _is_array_tree(params: Any) -> bool:
    """Callable pytrees (an Equinox module, say) are starts, not functions that draw them."""
    leaves = jax.tree.leaves(params)
    return bool(leaves) and all(isinstance(x, jax.Array | np.ndarray | float) for x in leaves)


def _spread(tree: Any, num_chains: int, num_replicas: int) -> Any:
    tree = jax.tree.map(_as_array, tree)
    shapes = [leaf.shape for leaf in jax.tree.leaves(tree)]
    if shapes and all(shape[:2] == (num_chains, num_replicas) for shape in shapes):
        by_chain = num_chains > 1 or not all(shape[:1] == (num_replicas,) for shape in shapes)
        if by_chain:
            return tree
    if shapes and all(shape[:1] == (num_replicas,) for shape in shapes):
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_chains, *x.shape)), tree)
    raise ValueError(
        f"per_replica params have leading axes {sorted({shape[:2] for shape in shapes})}; with "
        f"{num_chains} chains of {num_replicas} replicas every leaf must begin with "
        f"({num_replicas}, ...) or ({num_chains}, {num_replicas}, ...)."
    )
