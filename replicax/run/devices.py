"""The devices of a run: where its arrays are, and programs for several of them.

Replicas are spread over the axis "replica" of a mesh of devices, chains over the axis "chain".
Points, kernel memory and model states stay on the device of their replica for the whole run; all
else (ladder, index process, energies, counters) is small and the same on all devices. The devices
along the axis "data", where there is one, have the same replicas and share the rows of
mini-batches.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from replicax.algorithm.spread import CHAIN, REPLICA, Spread, on_all
from replicax.algorithm.state import State
from replicax.run.counters import Counters
from replicax.run.rows import Carry, Rows, per_chain

_EVERYWHERE = PartitionSpec()
_BY_CHAIN = PartitionSpec(CHAIN)
_BY_REPLICA = PartitionSpec(CHAIN, REPLICA)


def place(mesh: Mesh, carry: Carry) -> Carry:
    """Return the carry with its arrays on the devices where they stay."""
    return _put(carry, mesh, _carry_parts())


class SpreadChunk:
    """A chunk compiled for a mesh of devices, `chunk(carry, data, count, slots) -> carry, rows`.

    Draws and the best point stay on the devices that found them until the chunk ends. Outside of
    the chunk every device has all of the carry but the replicas.
    """

    def __init__(self, mesh: Mesh, spread: Spread, chunk: Callable, keys: Array) -> None:
        def part(carry: Carry, *rest: Any) -> tuple[Carry, Rows]:
            carry = _but_replicas(spread.own_chains, carry)
            counts = carry.counters
            counts = counts._replace(best=spread.on_first(counts.best))
            carry, rows = chunk(carry._replace(counters=counts), *rest)
            counts = carry.counters
            counts = counts._replace(best=spread.join(counts.best))
            rows = rows._replace(count=None, draws=spread.join(rows.draws)), rows.count
            carry = _but_replicas(spread.all_chains, carry._replace(counters=counts))
            return on_all((carry, spread.all_chains(rows[0], axis=1)._replace(count=rows[1])))

        carry = _carry_parts()
        inputs = (carry, _BY_CHAIN, _EVERYWHERE, _EVERYWHERE, _EVERYWHERE)
        whole = _map_parts(part, mesh, inputs, (carry, _EVERYWHERE))
        self.compiled = jax.jit(whole, donate_argnums=0)
        self._mesh, self._data = mesh, _Placed(mesh)
        self._keys = _put(keys, mesh, _BY_CHAIN)

    def __call__(self, carry: Carry, data: Any, count: int, slots: np.ndarray) -> tuple[Carry, Any]:
        return self.compiled(*self.arguments(carry, data, count, slots))

    def arguments(self, carry: Carry, data: Any, count: int, slots: np.ndarray) -> tuple:
        """Return the arguments of `compiled`, on its devices."""
        numbers = _put((np.int32(count), slots), self._mesh, _EVERYWHERE)
        return carry, self._keys, self._data.of(data), *numbers


def _but_replicas(change: Callable[[Array], Array], carry: Carry) -> Carry:
    """Change every array that has a value per chain, but not those of the replicas."""
    state = carry.state
    rest = carry._replace(state=state._replace(replicas=None, model_state=None))
    changed = per_chain(change, rest)
    own = {"replicas": state.replicas, "model_state": state.model_state}
    return changed._replace(state=changed.state._replace(**own))


def map_replicas(function: Callable, replicas: Any, shared: Any) -> Any:
    """Return `function(replicas, shared)` for the first chain, leading axes: replica.

    It is computed where the replicas are, whose leaves have the axes (chain, replica, ...); the
    result is on one device.
    """
    sharding = jax.tree.leaves(replicas)[0].sharding
    if not isinstance(sharding, NamedSharding):
        return function(jax.tree.map(lambda leaf: leaf[0], replicas), shared)
    mapped, data = _mapped(function, sharding.mesh)
    values = mapped(replicas, data.of(shared))
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), values)


@functools.lru_cache(maxsize=8)
def _mapped(function: Callable, mesh: Mesh) -> tuple[Callable, "_Placed"]:
    def part(replicas: Any, shared: Any) -> Any:
        values = function(jax.tree.map(lambda leaf: leaf[0], replicas), shared)
        values = jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, REPLICA, tiled=True), values)
        is_first = jax.lax.axis_index(CHAIN) == 0
        return on_all(jax.tree.map(lambda leaf: jax.lax.psum(leaf * is_first, CHAIN), values))

    spread = _map_parts(part, mesh, (_BY_REPLICA, _EVERYWHERE), _EVERYWHERE)
    return jax.jit(spread), _Placed(mesh)


def _map_parts(part: Callable, mesh: Mesh, inputs: Any, outputs: Any) -> Callable:
    """Return the function whose share for one part of chains and replicas is `part`; those who
    share the rows of a part have one program, which XLA takes apart.

    Arrays without elements are made anew in each part: as arguments they end the process while jax
    0.11.2 compiles the program.
    """

    def whole(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        spread = jax.tree.map(
            lambda part, branch: jax.tree.map(lambda _: part, branch),
            inputs,
            arguments,
            is_leaf=_is_part,
        )
        places = jax.tree.leaves(spread, is_leaf=_is_part)
        passed = [number for number, leaf in enumerate(leaves) if leaf.size]

        def share(*given: Any) -> Any:
            own = dict(zip(passed, given, strict=True))
            for number, (leaf, place) in enumerate(zip(leaves, places, strict=True)):
                if number not in own:
                    shape = NamedSharding(mesh, place).shard_shape(leaf.shape)
                    own[number] = jnp.zeros(shape, leaf.dtype)
            return part(*structure.unflatten(own[number] for number in range(len(leaves))))

        return jax.shard_map(
            share,
            mesh=mesh,
            in_specs=tuple(places[number] for number in passed),
            out_specs=outputs,
            axis_names={CHAIN, REPLICA},
            check_vma=False,
        )(*(leaves[number] for number in passed))

    return whole


def _is_part(value: Any) -> bool:
    return isinstance(value, PartitionSpec)


class _Placed:
    """Data on all devices, sent again only when they change."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh, self._data, self._copy = mesh, None, None

    def of(self, data: Any) -> Any:
        if data is None:
            return None
        if data is not self._data:
            self._data, self._copy = data, _put(data, self._mesh, _EVERYWHERE)
        return self._copy


def to_host(tree: Any) -> Any:
    """Return arrays as NumPy arrays, whichever devices and processes have their parts.

    Every process has to call this, at the same time.
    """
    if all(_is_local(leaf) for leaf in jax.tree.leaves(tree)):
        return jax.tree.map(np.asarray, tree)
    from jax.experimental.multihost_utils import process_allgather

    return jax.tree.map(
        lambda leaf: np.asarray(leaf if _is_local(leaf) else process_allgather(leaf, tiled=True)),
        tree,
    )


def _is_local(leaf: Any) -> bool:
    return not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated


def _carry_parts() -> Carry:
    """Return where the arrays of a carry are, by field."""
    state = State._make([_EVERYWHERE] * len(State._fields))
    state = state._replace(replicas=_BY_REPLICA, model_state=_BY_REPLICA)
    return Carry(state, Counters._make([_EVERYWHERE] * len(Counters._fields)))


def _put(tree: Any, mesh: Mesh, parts: Any) -> Any:
    """Return arrays on the devices of the mesh; every process has all of each array before."""

    def put(part: PartitionSpec, branch: Any) -> Any:
        return jax.tree.map(lambda leaf: _put_one(leaf, NamedSharding(mesh, part)), branch)

    return jax.tree.map(put, parts, tree, is_leaf=_is_part)


def _put_one(leaf: Any, sharding: NamedSharding) -> Array:
    if jax.process_count() == 1:
        return jax.device_put(leaf, sharding)
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = _put_one(jax.random.key_data(leaf), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    host = np.asarray(leaf)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
