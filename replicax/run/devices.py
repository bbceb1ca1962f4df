"""The devices of a run: their memory, the mesh that they form, where arrays are, and programs for
several of them.

Replicas are spread over the axis "replica" of a mesh of devices, chains over the axis "chain".
Points, kernel memory and model states stay on the device of their replica for the whole run; all
else (ladder, index process, energies, counters) is small and the same on all devices. The devices
along the axis "data", where there is one, have the same replicas and share the rows of
mini-batches.
"""

import functools
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from replicax.algorithm.kernel import PyTree
from replicax.algorithm.spread import CHAIN, DATA, REPLICA, Spread, on_all
from replicax.algorithm.state import State
from replicax.errors import at_least, is_whole, memory_of_machine, show
from replicax.run.batches import Batches, HostBatches, NoBatches
from replicax.run.carry import Carry, Counters, per_chain
from replicax.run.program import Program

_AXES = (CHAIN, REPLICA, DATA)
_EVERYWHERE = PartitionSpec()
_BY_CHAIN = PartitionSpec(CHAIN)
_BY_REPLICA = PartitionSpec(CHAIN, REPLICA)


def choose_mesh(
    num_chains: int,
    num_replicas: int,
    devices: int | str | Mesh | None = None,
    data_parallel: int = 1,
) -> Mesh | None:
    """Return a mesh with the axes "chain" and "replica" and, where several devices share a replica,
    "data"; None for a single device.

    >>> choose_mesh(num_chains=1, num_replicas=8, devices=1) is None
    True
    """
    at_least("data_parallel", data_parallel, 1)
    if isinstance(devices, Mesh):
        return _checked_mesh(devices, num_chains, num_replicas, data_parallel)
    sizes = chosen_sizes(num_chains, num_replicas, devices, data_parallel)
    if sizes == (1, 1, 1) and jax.process_count() == 1:
        return None
    return _mesh(np.array(first_devices(jax.devices(), int(np.prod(sizes)))), sizes)


def _mesh(devices: np.ndarray, sizes: tuple[int, int, int]) -> Mesh:
    """Return the mesh of so many parts of chains, replicas and rows."""
    axes = _AXES if sizes[2] > 1 else _AXES[:2]
    return Mesh(devices.reshape(sizes[: len(axes)]), axes)


def chosen_sizes(
    num_chains: int, num_replicas: int, devices: int | str | None, data_parallel: int = 1
) -> tuple[int, int, int]:
    """Return the sizes of the axes "chain", "replica" and "data" for the devices that are asked
    for."""
    if devices is None and data_parallel > 1:
        devices = "all"
    wanted = _number_of(devices, jax.devices())
    if wanted % data_parallel:
        raise ValueError(
            f"data_parallel is {data_parallel}, which does not divide the {wanted} devices: write "
            "another number, or devices=... with a multiple of it."
        )
    sizes = *largest_mesh(num_chains, num_replicas, wanted // data_parallel), data_parallel
    used = sizes[0] * sizes[1] * sizes[2]
    if used < wanted and (num_chains * num_replicas > 1 or devices is not None):
        told = (
            f"{used} of {wanted} devices can share {num_replicas} replicas of {num_chains} chains "
            "evenly: let the number of replicas be a multiple of the devices, or several devices "
            "share each replica of a run on mini-batches (data_parallel)."
        )
        if devices is not None and devices != "all":
            raise ValueError(f"devices is {devices}, but only {told}")
        warnings.warn(f"Only {told}", stacklevel=5)
    return sizes


def _number_of(devices: int | str | None, available: list) -> int:
    """Return how many devices are asked for."""
    if devices is None:
        many = available[0].platform != "cpu" or jax.process_count() > 1
        return len(available) if many else 1
    if devices == "all":
        return len(available)
    if not is_whole(devices) or not 1 <= devices <= len(available):
        raise ValueError(
            f'devices is {show(devices)}; write "all", a number up to {len(available)}, as many as '
            f'there are of the kind "{available[0].platform}", or a mesh.'
        )
    return int(devices)


def largest_mesh(num_chains: int, num_replicas: int, devices: int) -> tuple[int, int]:
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


def first_devices(available: list, count: int) -> list:
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


def _checked_mesh(mesh: Mesh, num_chains: int, num_replicas: int, data_parallel: int) -> Mesh:
    """Return the mesh with its axes in order, if chains and replicas can be spread over them
    evenly."""
    unknown = set(mesh.axis_names) - set(_AXES)
    if unknown or not mesh.axis_names:
        raise ValueError(f"The mesh has the axes {mesh.axis_names}; they must be among {_AXES}.")
    if data_parallel > 1:
        raise ValueError(
            f'data_parallel is {data_parallel}, and devices is a mesh, whose axis "data" says how '
            "many devices share a replica: leave data_parallel out."
        )
    for axis, count in ((CHAIN, num_chains), (REPLICA, num_replicas)):
        parts = mesh.shape.get(axis, 1)
        if count % parts:
            raise ValueError(
                f'The axis "{axis}" of the mesh has {parts} devices, over which {count} '
                f"{axis}s cannot be spread evenly."
            )
    order = [mesh.axis_names.index(axis) for axis in _AXES if axis in mesh.axis_names]
    chains, replicas, rows = (mesh.shape.get(axis, 1) for axis in _AXES)
    return _mesh(mesh.devices.transpose(order), (chains, replicas, rows))


def check_rows(batches: Batches, parts: int) -> None:
    """Raise unless every mini-batch has rows that so many devices can share evenly."""
    if isinstance(batches, NoBatches):
        raise ValueError(
            f"{parts} devices are to share each replica (data_parallel), and the energy has no "
            "batches whose rows they could share: leave that out, or write the target as "
            "rx.bayesian(log_likelihood, log_prior, rows)."
        )
    if isinstance(batches, HostBatches):
        sizes = {len(leaf) for leaf in jax.tree.leaves(batches.at(0)) if np.ndim(leaf)}
    else:  # all rows can be shared, however many they are
        rows = getattr(batches, "rows_seen", batches.batch_size)  # type: ignore[attr-defined]
        sizes = {0 if batches.has_all_rows else rows}
    if all(size % parts for size in sizes):
        raise ValueError(
            f"{parts} devices are to share each replica (data_parallel), and batches have "
            f"{sorted(sizes)} rows, of which no number is a multiple of {parts}: write another "
            "batch_size."
        )


def spread_over(
    program: Program, devices: int | str | Mesh | None = None, data_parallel: int = 1
) -> Program:
    """Return the program for the devices that are asked for: "all", a number, or a mesh.

    None is all devices where they are accelerators, belong to several processes or share replicas,
    else one. So many as `data_parallel` says share each replica.
    """
    alone = devices is None and is_whole(data_parallel) and data_parallel == 1
    if alone and len(jax.devices()) == 1:
        return program
    mesh = choose_mesh(program.num_chains, program.num_replicas, devices, data_parallel)
    if mesh is None:
        return program
    if DATA in mesh.axis_names:
        check_rows(program.batches, mesh.shape[DATA])
    sizes = mesh.shape[CHAIN], mesh.shape[REPLICA]
    spread = Spread(*sizes, several_chains=program.num_chains > 1)
    return replace(program, mesh=mesh, settings=replace(program.settings, spread=spread))


def place(mesh: Mesh, carry: Carry) -> Carry:
    """Return the carry with its arrays on the devices where they stay."""
    return _put(carry, mesh, _carry_parts())


class SpreadChunk:
    """A chunk compiled for a mesh of devices, `chunk(carry, data, count, slots) -> carry, rows`.

    Draws and the best point stay on the devices that found them until the chunk ends. Outside of
    the chunk every device has all of the carry but the replicas.
    """

    def __init__(self, mesh: Mesh, spread: Spread, chunk: Callable, keys: Array) -> None:
        def part(carry: Carry, *rest: PyTree) -> tuple[Carry, Any]:
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
        mapped = _map_parts(part, mesh, inputs, (carry, _EVERYWHERE))
        self.compiled = jax.jit(mapped, donate_argnums=0)
        self._mesh, self._data = mesh, _Placed(mesh)
        self._keys = _put(keys, mesh, _BY_CHAIN)

    def __call__(
        self, carry: Carry, data: PyTree, count: int, slots: np.ndarray
    ) -> tuple[Carry, Any]:
        return self.compiled(*self.arguments(carry, data, count, slots))

    def arguments(self, carry: Carry, data: PyTree, count: int, slots: np.ndarray) -> tuple:
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


def map_replicas(function: Callable, replicas: PyTree, shared: PyTree) -> Any:
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
    def part(replicas: PyTree, shared: PyTree) -> Any:
        values = function(jax.tree.map(lambda leaf: leaf[0], replicas), shared)
        values = jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, REPLICA, tiled=True), values)
        is_first = jax.lax.axis_index(CHAIN) == 0
        return on_all(jax.tree.map(lambda leaf: jax.lax.psum(leaf * is_first, CHAIN), values))

    spread = _map_parts(part, mesh, (_BY_REPLICA, _EVERYWHERE), _EVERYWHERE)
    return jax.jit(spread), _Placed(mesh)


def _map_parts(part: Callable, mesh: Mesh, inputs: PyTree, outputs: PyTree) -> Callable:
    """Return the function whose share for one part of chains and replicas is `part`; those who
    share the rows of a part have one program, which XLA takes apart.

    Arrays without elements are made anew in each part: as arguments they end the process while jax
    0.11.2 compiles the program.
    """

    def mapped(*arguments: PyTree) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        spread = jax.tree.broadcast(inputs, arguments, is_leaf=_is_part)
        places = jax.tree.leaves(spread, is_leaf=_is_part)
        passed = [number for number, leaf in enumerate(leaves) if leaf.size]

        def share(*given: PyTree) -> Any:
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

    return mapped


def _is_part(value: object) -> bool:
    return isinstance(value, PartitionSpec)


class _Placed:
    """Data on all devices, sent again only when they change."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh, self._data, self._copy = mesh, None, None

    def of(self, data: PyTree) -> Any:
        if data is None:
            return None
        if data is not self._data:
            self._data, self._copy = data, _put(data, self._mesh, _EVERYWHERE)
        return self._copy


def to_host(tree: PyTree) -> Any:
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


def _is_local(leaf: object) -> bool:
    return not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated


def _carry_parts() -> Carry:
    """Return where the arrays of a carry are, by field."""
    state = State._make([_EVERYWHERE] * len(State._fields))
    state = state._replace(replicas=_BY_REPLICA, model_state=_BY_REPLICA)
    return Carry(state, Counters._make([_EVERYWHERE] * len(Counters._fields)))


def _put(tree: PyTree, mesh: Mesh, parts: PyTree) -> Any:
    """Return arrays on the devices of the mesh; every process has all of each array before."""

    def put(part: PartitionSpec, branch: PyTree) -> Any:
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


def describe_machine() -> str:
    """Return device and JAX version in words."""
    return f"{jax.devices()[0].device_kind}, jax {jax.__version__}"


def memory_bytes() -> float:
    """Return the memory of the device in bytes, or that of the machine if it is not known."""
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    return memory_of_machine() if limit is None else float(limit)


def memory_in_use() -> int:
    """Return the bytes in use: of the accelerators if there are any, else of this process."""
    if in_use := _on_devices("bytes_in_use"):
        return in_use
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return peak_memory()


def peak_memory() -> int:
    """Return the most bytes that were in use: of the accelerators if there are any, else of this
    process."""
    if peak := _on_devices("peak_bytes_in_use"):
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _on_devices(name: str) -> int:
    return sum((device.memory_stats() or {}).get(name, 0) for device in jax.local_devices())
