"""The mesh of devices that share a run: chosen, or checked, so that each has an equal share."""

import warnings
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from replicax.algorithm.spread import CHAIN, DATA, REPLICA
from replicax.errors import at_least
from replicax.run.batch_source import Batches, NoBatches
from replicax.run.host_batches import HostBatches

_AXES = (CHAIN, REPLICA, DATA)


def choose_mesh(
    num_chains: int, num_replicas: int, devices: Any = None, data_parallel: int = 1
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
    num_chains: int, num_replicas: int, devices: Any, data_parallel: int = 1
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
        work = f"{num_replicas} replicas"
        if num_chains > 1:
            work = f"{num_chains} chains of {work}"
        hint = " With mini-batches several devices may share a replica: data_parallel=2."
        hint = hint if data_parallel == 1 else ""
        if devices is not None and devices != "all":
            raise ValueError(
                f"devices is {devices}, but {work} cannot be shared out evenly among them; "
                f"{used} would do. Or let the number of replicas be a multiple of the devices."
                f"{hint}"
            )
        warnings.warn(
            f"Only {used} of {wanted} devices are used: {work} cannot be shared out evenly among "
            f"more. Let the number of replicas be a multiple of the devices.{hint}",
            stacklevel=5,
        )
    return sizes


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
        if all(size % parts for size in sizes):
            raise ValueError(
                f"{parts} devices are to share each replica (data_parallel), and the batches have "
                f"{sorted(sizes)} rows, of which no number is a multiple of {parts}."
            )
        return
    size = batches.batch_size  # type: ignore[attr-defined]
    if size % parts and not batches.is_whole:
        raise ValueError(
            f"batch_size is {size}, which {parts} devices (data_parallel) cannot share evenly; "
            f"write a multiple of {parts}."
        )
