"""Restarts of broken replicas, and the memory of replicas that changed their rung."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.kernel import Kernel
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.spread import WHOLE, Spread

_SMALL = 4096  # arrays up to this size are checked together


def find_broken(replicas: Any, energy_of: Array, model_state: Any = None) -> Array:
    """Return which replicas have a non-finite energy, parameter or statistic  -> (replica,)."""
    leaves = jax.tree.leaves((replicas.params, model_state))
    floating = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    rows = [leaf.reshape(len(leaf), -1) for leaf in floating]
    large = [row for row in rows if row.shape[1] > _SMALL]
    small = [row for row in rows if row.shape[1] <= _SMALL]
    if small:  # together: a hundred little sums would cost a GPU a hundred launches
        large.append(jnp.concatenate(small, axis=1))
    total = sum(jnp.sum(row.astype(jnp.float32), axis=1) for row in large)
    return ~(jnp.isfinite(energy_of) & jnp.isfinite(total))


def restart(
    tree: Any,
    broken: Array,
    replica_at: Array,
    spread: Spread = WHOLE,
    settle: Callable[[Any, Array, Array], Any] = lambda tree, old_rung_of, new_rung_of: tree,
) -> Any:
    """Overwrite every broken replica with a copy of its nearest sound neighbour on a colder rung.

    `settle(tree, old_rung_of, new_rung_of)` adjusts copies to their new rungs. If no colder rung is
    sound, nothing is copied: the run must stop.
    """

    def copied() -> Any:
        rungs = jnp.arange(replica_at.shape[0], dtype=replica_at.dtype)
        sound_below = jax.lax.cummax(jnp.where(broken[replica_at], -1, rungs))
        source = jnp.where(sound_below >= 0, sound_below, rungs)
        source_of, old_rung_of, new_rung_of = (
            jnp.zeros_like(replica_at).at[replica_at].set(by_rung)
            for by_rung in (replica_at[source], source, rungs)
        )
        copies = spread.take(tree, source_of)
        return settle(copies, spread.here(old_rung_of), spread.here(new_rung_of))

    return jax.lax.cond(spread.of_any_chain(jnp.any(broken)), copied, lambda: tree)


def change_rungs(
    kernel: Kernel, replicas: Any, ladder: Ladder, old_rung_of: Array, new_rung_of: Array
) -> Any:
    """Convert the memory of replicas to the law of their new rungs (`Kernel.change_rung`)."""
    change_rung = kernel.change_rung
    if change_rung is None:
        return replicas

    def changed() -> Any:
        old, new = (
            jax.tree.map(lambda by_rung, at=at: by_rung[at], ladder)
            for at in (old_rung_of, new_rung_of)
        )
        return jax.vmap(change_rung)(replicas, old, new)

    return jax.lax.cond(jnp.any(old_rung_of != new_rung_of), changed, lambda: replicas)


def reset_memory(kernel: Kernel, replicas: Any, swapped: Array) -> Any:
    """Reset the kernel's memory of replicas that swapped; their parameters stay."""

    def reset() -> Any:
        def one(replica: Any, swaps: Array) -> Any:
            fresh = kernel.init(replica.params)
            return jax.tree.map(lambda new, old: jnp.where(swaps, new, old), fresh, replica)

        return jax.vmap(one)(replicas, swapped)

    return jax.lax.cond(jnp.any(swapped), reset, lambda: replicas)
