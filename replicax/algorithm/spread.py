"""Where the replicas of a chain are: all in one place, or an equal part of them on each device.

In a program for several devices each has the arrays of its own replicas. What
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

from replicax.algorithm.kernel import Observed, PyTree
from replicax.algorithm.tuning import StepSizeTuning

REPLICA = "replica"  # the axis of devices over which the replicas of a chain are spread
CHAIN = "chain"  # the axis of devices over which chains are spread
DATA = "data"  # the axis of devices that share each replica, and the rows of its mini-batches

_FEW = 2**14  # numbers that are summed rather than gathered
_CHAINS_HERE = "chains_here"  # the chains of one device, mapped over


@dataclass(frozen=True)
class Spread:
    """Which part of the chains and of the replicas of a chain each device has, in their order.

    In one place every function returns what it is given.
    """

    chain_parts: int = 1  # devices that have a part of the chains each
    parts: int = 1  # devices that have a part of the replicas each
    several_chains: bool = False  # whether a device maps over chains, in `map_chains`

    @property
    def in_one_place(self) -> bool:
        """Whether one device has all replicas of its chains."""
        return self.parts == 1

    def count(self, replicas: PyTree) -> int:
        """Return the number of all replicas, given those that are here."""
        return jax.tree.leaves(replicas)[0].shape[0] * self.parts

    def here(self, tree: PyTree) -> Any:
        """Return the rows of the replicas that are here; leading axis: replica."""
        if self.in_one_place:
            return tree
        return jax.tree.map(lambda leaf: _part(leaf, REPLICA, self.parts), tree)

    def gathered(self, tree: PyTree) -> Any:
        """Return the rows of all replicas on every device, from those of each."""
        return tree if self.in_one_place else jax.tree.map(self._gather, tree)

    def take(self, tree: PyTree, replicas: Array) -> Any:
        """Return rows of replicas wherever they are, one for each replica that is here."""
        replicas = self.here(replicas)
        return jax.tree.map(lambda leaf: leaf[replicas], self.gathered(tree))

    def rows(self, tree: PyTree, replicas: Array) -> Any:
        """Return the rows of the given replicas; of those elsewhere, zeros (see `join`)."""

        def known(leaf: Array) -> Array:
            if self.in_one_place:
                return leaf[replicas]
            place = replicas - jax.lax.axis_index(REPLICA) * leaf.shape[0]
            is_here = (place >= 0) & (place < leaf.shape[0])
            values = leaf[jnp.clip(place, 0, leaf.shape[0] - 1)]
            is_here = is_here.reshape(is_here.shape + (1,) * (values.ndim - is_here.ndim))
            return jnp.where(is_here, values, jnp.zeros_like(values))

        return jax.tree.map(known, tree)

    def join(self, tree: PyTree) -> Any:
        """Return the rows of `rows` in full on every device: each is zero but where it is known."""
        return tree if self.in_one_place else jax.tree.map(_sum_bits, tree)

    def on_first(self, tree: PyTree) -> Any:
        """Return arrays that all devices have as they are on the first one, zeros on the others."""
        if self.in_one_place:
            return tree
        is_first = jax.lax.axis_index(REPLICA) == 0
        return jax.tree.map(lambda leaf: jnp.where(is_first, leaf, jnp.zeros_like(leaf)), tree)

    def of_any_chain(self, happened: Array) -> Array:
        """Return whether something happened in any chain of this device, one value for them all:
        a branch that moves arrays between devices is then not taken for nothing."""
        if self.in_one_place or not self.several_chains:
            return happened
        return jax.lax.pmax(happened.astype(jnp.int32), _CHAINS_HERE) > 0

    def everywhere(self, holds: Array) -> Array:
        """Return whether something holds for the chains of all devices."""
        if self.chain_parts == 1:
            return holds
        return jax.lax.pmin(holds.astype(jnp.int32), CHAIN) > 0

    def own_chains(self, tree: PyTree) -> Any:
        """Return the rows of the chains of this device; leading axis: chain."""
        if self.chain_parts == 1:
            return tree
        return jax.tree.map(lambda leaf: _part(leaf, CHAIN, self.chain_parts), tree)

    def all_chains(self, tree: PyTree, axis: int = 0) -> Any:
        """Return the rows of all chains on every device."""
        if self.chain_parts == 1:
            return tree
        return jax.tree.map(
            lambda leaf: jax.lax.all_gather(leaf, CHAIN, axis=axis, tiled=True), tree
        )

    def map_chains(self, function: Callable, in_axes: Any, out_axes: Any = 0) -> Callable:
        """Map a function of one chain over those of this device."""
        name = None if self.in_one_place else _CHAINS_HERE
        return jax.vmap(function, in_axes, out_axes, axis_name=name)

    def _gather(self, leaf: Array) -> Array:
        """Return the rows of all devices. A few numbers are summed instead, each device having
        zeros in the rows of the others: that takes a number of messages in sequence that grows
        with the logarithm of the number of devices, and not with the number."""
        length = leaf.shape[0]
        if leaf.size * self.parts > _FEW:
            return jax.lax.all_gather(leaf, REPLICA, tiled=True)
        rows = jnp.zeros((length * self.parts, *leaf.shape[1:]), leaf.dtype)
        first = jax.lax.axis_index(REPLICA) * length
        return _sum_bits(jax.lax.dynamic_update_slice_in_dim(rows, leaf, first, 0))


IN_ONE_PLACE = Spread()


def share_rows(batch: PyTree) -> Any:
    """Share out the rows of a batch among the devices of the axis "data", where there is one."""
    if not _has_data_axis():
        return batch
    part = PartitionSpec(DATA)
    return jax.tree.map(
        lambda leaf: jax.lax.with_sharding_constraint(leaf, part) if jnp.ndim(leaf) else leaf, batch
    )


def on_all(tree: PyTree) -> Any:
    """Let all devices of the axis "data", where there is one, have the arrays in full."""
    if not _has_data_axis():
        return tree
    everywhere = PartitionSpec()
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, everywhere), tree)


def _has_data_axis() -> bool:
    """Return whether this is traced for devices of which several share a replica."""
    mesh = jax.sharding.get_abstract_mesh()
    return REPLICA in mesh.manual_axes and DATA in mesh.axis_names


def gather_observed(
    tuning: StepSizeTuning | None, spread: Spread, step: Array, observed: Observed | None
) -> Observed | None:
    """Return the observations of all replicas on every device.

    The steepness is as large as the parameters: it is sent while step sizes are tuned, and zero
    afterwards.
    """
    if observed is None:
        return None
    numbers = spread.gathered(observed._replace(steepness=None))
    if tuning is None:
        return numbers

    def none() -> Any:
        count = spread.parts
        return jax.tree.map(
            lambda leaf: jnp.zeros((leaf.shape[0] * count, *leaf.shape[1:]), leaf.dtype),
            observed.steepness,
        )

    sent = jax.lax.cond(step < tuning.until, lambda: spread.gathered(observed.steepness), none)
    return numbers._replace(steepness=sent)


def _part(leaf: Array, axis: str, parts: int) -> Array:
    """Return the rows of this device, one of the parts along an axis of devices."""
    length = leaf.shape[0] // parts
    return jax.lax.dynamic_slice_in_dim(leaf, jax.lax.axis_index(axis) * length, length)


def _sum_bits(leaf: Array) -> Array:
    """Sum over devices the bits of values of which all but one are zero; -0.0 stays what it is."""
    if leaf.dtype == bool or not jnp.issubdtype(leaf.dtype, jnp.floating):
        return jax.lax.psum(leaf.astype(jnp.int32), REPLICA).astype(leaf.dtype)
    bits = jax.lax.bitcast_convert_type(leaf, f"uint{8 * leaf.dtype.itemsize}")
    wide = bits.astype(jnp.uint32) if leaf.dtype.itemsize < 4 else bits
    total = jax.lax.psum(wide, REPLICA).astype(bits.dtype)
    return jax.lax.bitcast_convert_type(total, leaf.dtype)
