"""The devices of a run: which of them share the work, and where its arrays are.

Replicas are spread over the axis "replica" of a mesh of devices, chains over the axis "chain".
Points, kernel memory and model states stay on the device of their replica for the whole run; all
else (ladder, index process, energies, counters) is small and the same on all devices of a chain.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from replicax.algorithm.spread import CHAIN, REPLICA, Spread
from replicax.algorithm.state import State
from replicax.run.counters import Counters
from replicax.run.program import Program
from replicax.run.rows import Carry, Rows

_EVERYWHERE = PartitionSpec()
_BY_CHAIN = PartitionSpec(CHAIN)
_BY_REPLICA = PartitionSpec(CHAIN, REPLICA)


def spread_over(program: Program, devices: Any = None) -> Program:
    """Return the program for the devices that are asked for: "all", a number, or a mesh.

    None is all devices where they are accelerators or belong to several processes, else one.
    """
    mesh = choose_mesh(program.num_chains, program.num_replicas, devices)
    if mesh is None:
        return program
    spread = Spread(mesh.shape[REPLICA], mesh.shape[CHAIN], program.num_chains > 1)
    return replace(program, mesh=mesh, settings=replace(program.settings, spread=spread))


def choose_mesh(num_chains: int, num_replicas: int, devices: Any = None) -> Mesh | None:
    """Return a mesh with the axes "chain" and "replica", or None for a single device.

    >>> choose_mesh(num_chains=1, num_replicas=8, devices=1) is None
    True
    """
    if isinstance(devices, Mesh):
        return _checked_mesh(devices, num_chains, num_replicas)
    available = jax.devices()
    wanted = _number_of(devices, available)
    sizes = _largest_mesh(num_chains, num_replicas, wanted)
    used = sizes[0] * sizes[1]
    if used < wanted:
        work = f"{num_chains} chains of {num_replicas} replicas"
        if devices is not None and devices != "all":
            raise ValueError(
                f"devices is {devices}, but {work} cannot be shared out evenly among them; "
                f"{used} would do. Or let the number of replicas be a multiple of the devices."
            )
        warnings.warn(
            f"Only {used} of {wanted} devices are used: {work} cannot be shared out evenly among "
            "more. Let the number of replicas be a multiple of the devices.",
            stacklevel=3,
        )
    if used == 1 and jax.process_count() == 1:
        return None
    return Mesh(np.array(_first_devices(available, used)).reshape(sizes), (CHAIN, REPLICA))


def _number_of(devices: Any, available: list) -> int:
    """Return how many devices are asked for."""
    if devices is None:
        many = available[0].platform != "cpu" or jax.process_count() > 1
        return len(available) if many else 1
    if isinstance(devices, str):
        if devices != "all":
            raise ValueError(f'devices is {devices!r}; write "all", a number or a mesh.')
        return len(available)
    if isinstance(devices, bool) or not isinstance(devices, int | np.integer) or devices < 1:
        raise ValueError(f'devices is {devices!r}; write "all", a number from 1 on, or a mesh.')
    if devices > len(available):
        raise ValueError(
            f"devices is {devices}, but there are {len(available)} devices of the kind "
            f'"{available[0].platform}".'
        )
    return int(devices)


def _largest_mesh(num_chains: int, num_replicas: int, devices: int) -> tuple[int, int]:
    """Return parts of the chains and of the replicas, as many as there are devices if possible;
    replicas are spread before chains."""
    choices = [
        (parts, chain_parts)
        for parts in range(1, min(num_replicas, devices) + 1)
        for chain_parts in range(1, min(num_chains, devices // parts) + 1)
        if num_replicas % parts == 0 and num_chains % chain_parts == 0
    ]
    parts, chain_parts = max(choices, key=lambda sizes: (sizes[0] * sizes[1], sizes[0]))
    return chain_parts, parts


def _first_devices(available: list, count: int) -> list:
    """Return the first devices, equally many of each process."""
    processes = sorted({device.process_index for device in available})
    if count % len(processes):
        raise ValueError(
            f"{len(processes)} processes cannot share {count} devices evenly; let the number of "
            "replicas be a multiple of the processes."
        )
    each = count // len(processes)
    own = {p: [d for d in available if d.process_index == p] for p in processes}
    if any(len(devices) < each for devices in own.values()):
        raise ValueError(f"Not every process has {each} devices; give each the same number.")
    return [device for process in processes for device in own[process][:each]]


def _checked_mesh(mesh: Mesh, num_chains: int, num_replicas: int) -> Mesh:
    """Return the mesh with both axes, if chains and replicas can be spread over them evenly."""
    unknown = set(mesh.axis_names) - {CHAIN, REPLICA}
    if unknown or not mesh.axis_names:
        raise ValueError(
            f"The mesh has the axes {mesh.axis_names}; they must be among {(CHAIN, REPLICA)}."
        )
    for axis, count in ((CHAIN, num_chains), (REPLICA, num_replicas)):
        parts = mesh.shape.get(axis, 1)
        if count % parts:
            raise ValueError(
                f'The axis "{axis}" of the mesh has {parts} devices, over which {count} '
                f"{axis}s cannot be spread evenly."
            )
    sizes = mesh.shape.get(CHAIN, 1), mesh.shape.get(REPLICA, 1)
    grid = mesh.devices if mesh.axis_names != (REPLICA, CHAIN) else mesh.devices.T
    return Mesh(grid.reshape(sizes), (CHAIN, REPLICA))


def place(program: Program, carry: Carry) -> Carry:
    """Return the carry with its arrays on the devices where they stay."""
    if program.mesh is None:
        return carry
    return _put(carry, program.mesh, _carry_parts())


def compile_chunk(program: Program, part: Callable, keys: Array) -> Callable:
    """Compile `chunk(carry, data, count, slots) -> carry, rows` from the share of one device,
    `part(carry, keys, data, count, slots)`."""
    mesh, carry, rows = program.mesh, _carry_parts(), _row_parts()
    assert mesh is not None
    inputs = (carry, _BY_CHAIN, _EVERYWHERE, _EVERYWHERE, _EVERYWHERE)
    spread = jax.shard_map(
        part, mesh=mesh, in_specs=inputs, out_specs=(carry, rows), check_vma=False
    )
    compiled = jax.jit(spread, donate_argnums=0)
    keys, data = _put(keys, mesh, _BY_CHAIN), _Placed(mesh)

    def chunk(carry: Carry, fed: Any, count: int, slots: np.ndarray) -> tuple[Carry, Any]:
        numbers = _put((np.int32(count), slots), mesh, _EVERYWHERE)
        return compiled(carry, keys, data.of(fed), *numbers)

    chunk.lower = lambda carry, fed, count, slots: compiled.lower(  # type: ignore[attr-defined]
        carry, keys, data.of(fed), np.int32(count), slots
    )
    return chunk


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
    state = State._make([_BY_CHAIN] * len(State._fields))
    state = state._replace(step=_EVERYWHERE, replicas=_BY_REPLICA, model_state=_BY_REPLICA)
    return Carry(state, Counters._make([_BY_CHAIN] * len(Counters._fields)))


def _row_parts() -> Rows:
    """Return where the rows of a chunk are, by field; their second axis is the chain."""
    parts = Rows._make([PartitionSpec(None, CHAIN)] * len(Rows._fields))
    return parts._replace(count=_EVERYWHERE)


def _put(tree: Any, mesh: Mesh, parts: Any) -> Any:
    """Return arrays on the devices of the mesh; every process has all of each array before."""

    def put(part: PartitionSpec, branch: Any) -> Any:
        return jax.tree.map(lambda leaf: _put_one(leaf, NamedSharding(mesh, part)), branch)

    return jax.tree.map(put, parts, tree, is_leaf=lambda part: isinstance(part, PartitionSpec))


def _put_one(leaf: Any, sharding: NamedSharding) -> Array:
    if jax.process_count() == 1:
        return jax.device_put(leaf, sharding)
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = _put_one(jax.random.key_data(leaf), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    host = np.asarray(leaf)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
