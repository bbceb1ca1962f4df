"""Starts that differ by replica: `per_replica`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from replicax.errors import check_flag


class PerReplica(NamedTuple):
    """A tree whose leaves have leading axes (replica, ...) or (chain, replica, ...)."""

    tree: Any
    by_chain: bool | None = None  # None: the shapes tell


def per_replica(tree: Any, by_chain: bool | None = None) -> PerReplica:
    """Mark starts that differ by replica: leading axes (replica, ...) or (chain, replica, ...).

    `by_chain=True` says that the leading axes are (chain, replica, ...), `by_chain=False` that
    there is no axis of chains. Without it the shapes decide; where they fit both, it is needed.
    """
    check_flag("by_chain", by_chain, None)
    return PerReplica(tree, by_chain)


def spread_starts(tree: Any, by_chain: bool | None, num_chains: int, num_replicas: int) -> Any:
    """Return starts with leading axes (chain, replica, ...)."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(tree)]
    both = (num_chains, num_replicas)
    fits_chains = all(shape[:2] == both for shape in shapes)
    fits_replicas = all(shape[:1] == (num_replicas,) for shape in shapes)
    if shapes and by_chain is None and fits_chains and fits_replicas:
        raise ValueError(
            f"per_replica params begin with {both}, and there are {num_chains} chains of "
            f"{num_replicas} replicas: write rx.per_replica(tree, by_chain=True) if the first axis "
            "is the chain and the second the replica, by_chain=False if the first is the replica."
        )
    if shapes and fits_chains and by_chain is not False:
        return tree
    if shapes and fits_replicas and not by_chain:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_chains, *x.shape)), tree)
    alone, by_chains = f"({num_replicas}, ...)", f"({num_chains}, {num_replicas}, ...)"
    needed = {None: f"{alone} or {by_chains}", True: by_chains, False: alone}[by_chain]
    raise ValueError(
        f"per_replica params have leading axes {sorted({shape[:2] for shape in shapes})}; with "
        f"{num_chains} chains of {num_replicas} replicas every leaf must begin with "
        f"{needed}."
    )
