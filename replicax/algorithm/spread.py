"""Where the replicas of a chain are: all in one place, or an equal part of them on each device.

In a program for several devices (`device_parts.py`), each has the arrays of its own replicas. What
belongs to rungs, to pairs or to the chain is the same on all of them, because each takes the same
decisions from the same energies.

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

REPLICA = "replica"  # the axis of devices over which the replicas of a chain are spread
CHAIN = "chain"  # the axis of devices over which chains are spread
DATA = "data"  # the axis of devices that share each replica, and the rows of its mini-batches


@dataclass(frozen=True)
class Spread:
    """All replicas of all chains in one place: every function returns what it is given."""

    chain_parts: int = 1  # devices that have a part of the chains each
    parts: int = 1  # devices that have a part of the replicas each

    @property
    def is_whole(self) -> bool:
        """Whether one device has all replicas of its chains."""
        return self.parts == 1

    def count(self, replicas: Any) -> int:
        """Return the number of all replicas, given those that are here."""
        return jax.tree.leaves(replicas)[0].shape[0] * self.parts

    def here(self, tree: Any) -> Any:
        """Return the rows of the replicas that are here; leading axis: replica."""
        return tree

    def whole(self, tree: Any) -> Any:
        """Return the rows of all replicas on every device, from those of each."""
        return tree

    def take(self, tree: Any, replicas: Array) -> Any:
        """Return rows of replicas wherever they are, one for each replica that is here."""
        replicas = self.here(replicas)
        return jax.tree.map(lambda leaf: leaf[replicas], self.whole(tree))

    def rows(self, tree: Any, replicas: Array) -> Any:
        """Return the rows of the given replicas; of those elsewhere, zeros (see `join`)."""
        return jax.tree.map(lambda leaf: leaf[replicas], tree)

    def join(self, tree: Any) -> Any:
        """Return the rows of `rows` in full on every device: each is zero but where it is known."""
        return tree

    def on_first(self, tree: Any) -> Any:
        """Return arrays that all devices have as they are on the first one, zeros on the others."""
        return tree

    def has(self, replica: Array, replicas: Any) -> Array | bool:
        """Return whether a replica is here, given those that are."""
        return True

    def of_any_chain(self, happened: Array) -> Array:
        """Return whether something happened in any chain of this device, one value for them all:
        a branch that moves arrays between devices is then not taken for nothing."""
        return happened

    def everywhere(self, holds: Array) -> Array:
        """Return whether something holds for the chains of all devices."""
        return holds

    def own_chains(self, tree: Any) -> Any:
        """Return the rows of the chains of this device; leading axis: chain."""
        return tree

    def all_chains(self, tree: Any, axis: int = 0) -> Any:
        """Return the rows of all chains on every device."""
        return tree

    def map_chains(self, function: Callable, in_axes: Any, out_axes: Any = 0) -> Callable:
        """Map a function of one chain over those of this device."""
        return jax.vmap(function, in_axes, out_axes)


WHOLE = Spread()


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
