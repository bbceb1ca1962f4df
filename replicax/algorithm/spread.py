"""Where the replicas of a chain are: all in one place, or an equal part of them on each device.

In a program for several devices, each has the arrays of its own replicas. What belongs to rungs, to
pairs or to the chain is the same on all of them, because each takes the same decisions from the
same energies.

Several devices may share a replica: all of them have its arrays, and each computes with a part of
the rows of a mini-batch (`share_rows`). The functions that are computed stay what they are, so that
means over a mini-batch are means over all of its rows; XLA adds the sums over devices.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import PartitionSpec

from replicax.algorithm import collectives
from replicax.algorithm.collectives import CHAIN, DATA, REPLICA

_CHAINS_HERE = "chains_here"  # the chains of one device, mapped over


@dataclass(frozen=True)
class Spread:
    """An equal part of the replicas on each of `parts` devices, in their order.

    By default all replicas are in one place, and every function returns what it is given.
    """

    parts: int = 1
    chain_parts: int = 1
    several_chains: bool = False  # whether a device maps over chains, in `map_chains`

    @property
    def is_whole(self) -> bool:
        """Whether one device has all replicas of its chains."""
        return self.parts == 1

    def count(self, replicas: Any) -> int:
        """Return the number of all replicas, given those that are here."""
        return jax.tree.leaves(replicas)[0].shape[0] * self.parts

    def here(self, tree: Any) -> Any:
        """Return the rows of the replicas that are here; leading axis: replica."""
        if self.is_whole:
            return tree
        return jax.tree.map(lambda leaf: collectives.part(leaf, REPLICA, self.parts), tree)

    def whole(self, tree: Any) -> Any:
        """Return the rows of all replicas on every device, from those of each."""
        if self.is_whole:
            return tree
        return jax.tree.map(lambda leaf: collectives.gather(leaf, self.parts), tree)

    def take(self, tree: Any, replicas: Array) -> Any:
        """Return rows of replicas wherever they are, one for each replica that is here."""
        replicas = self.here(replicas)
        return jax.tree.map(lambda leaf: leaf[replicas], self.whole(tree))

    def rows(self, tree: Any, replicas: Array) -> Any:
        """Return the rows of the given replicas; of those elsewhere, zeros (see `join`)."""
        if self.is_whole:
            return jax.tree.map(lambda leaf: leaf[replicas], tree)
        return jax.tree.map(lambda leaf: collectives.own_rows(leaf, replicas), tree)

    def join(self, tree: Any) -> Any:
        """Return the rows of `rows` in full on every device: each is zero but where it is known."""
        return tree if self.is_whole else jax.tree.map(collectives.sum_bits, tree)

    def on_first(self, tree: Any) -> Any:
        """Return arrays that all devices have as they are on the first one, zeros on the others."""
        if self.is_whole:
            return tree
        is_first = jax.lax.axis_index(REPLICA) == 0
        return jax.tree.map(lambda leaf: jnp.where(is_first, leaf, jnp.zeros_like(leaf)), tree)

    def has(self, replica: Array, replicas: Any) -> Array | bool:
        """Return whether a replica is here, given those that are."""
        if self.is_whole:
            return True
        length = jax.tree.leaves(replicas)[0].shape[0]
        return replica // length == jax.lax.axis_index(REPLICA)

    def of_any_chain(self, happened: Array) -> Array:
        """Return whether something happened in any chain of this device, one value for them all:
        a branch that moves arrays between devices is then not taken for nothing."""
        if self.is_whole or not self.several_chains:
            return happened
        return jax.lax.pmax(happened.astype(jnp.int32), _CHAINS_HERE) > 0

    def everywhere(self, holds: Array) -> Array:
        """Return whether something holds for the chains of all devices."""
        if self.chain_parts == 1:
            return holds
        return jax.lax.pmin(holds.astype(jnp.int32), CHAIN) > 0

    def own_chains(self, tree: Any) -> Any:
        """Return the rows of the chains of this device; leading axis: chain."""
        if self.chain_parts == 1:
            return tree
        return jax.tree.map(lambda leaf: collectives.part(leaf, CHAIN, self.chain_parts), tree)

    def all_chains(self, tree: Any, axis: int = 0) -> Any:
        """Return the rows of all chains on every device."""
        if self.chain_parts == 1:
            return tree
        return jax.tree.map(
            lambda leaf: jax.lax.all_gather(leaf, CHAIN, axis=axis, tiled=True), tree
        )

    def map_chains(self, function: Callable, in_axes: Any, out_axes: Any = 0) -> Callable:
        """Map a function of one chain over those of this device."""
        if self.is_whole:
            return jax.vmap(function, in_axes, out_axes)
        return jax.vmap(function, in_axes, out_axes, axis_name=_CHAINS_HERE)


WHOLE = Spread()  # all replicas in one place


def share_rows(batch: Any) -> Any:
    """Share out the rows of a batch among the devices of the axis "data", where there is one."""
    if not _has_data_axis():
        return batch
    part = PartitionSpec(DATA)
    return jax.tree.map(
        lambda leaf: jax.lax.with_sharding_constraint(leaf, part) if jnp.ndim(leaf) else leaf, batch
    )


def on_all(tree: Any) -> Any:
    """Let all devices of the axis "data", where there is one, have the arrays in full."""
    if not _has_data_axis():
        return tree
    whole = PartitionSpec()
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, whole), tree)


def _has_data_axis() -> bool:
    """Return whether this is traced for devices of which several share a replica."""
    mesh = jax.sharding.get_abstract_mesh()
    return REPLICA in mesh.manual_axes and DATA in mesh.axis_names
