"""A fingerprint of target and data, so that a run is not continued with others by mistake."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm.randomness import seed_keys
from replicax.run import plain
from replicax.run.machine import describe_machine
from replicax.run.program import Program
from replicax.run.storage import files
from replicax.run.storage.metadata import Fingerprint

_FILE = "start.npz"  # in the run folder: the start of one replica
_ROWS = 4096  # as many rows of the data, evenly spaced, are digested
_SHIFT = 0.1  # from the start to a second point where the energy is measured
_TOLERANCE = 1e-5  # of energies, relative
_ELSEWHERE = 1e-3  # on another platform, which rounds differently


def write(folder: Path, program: Program, points: Any) -> Fingerprint:
    """Return the fingerprint of a run, and keep the start that it belongs to in the folder."""
    start = plain.first(points)
    leaves = {str(number): np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves(start))}
    stored = {name: leaf for name, leaf in leaves.items() if leaf.dtype.isbuiltin}
    return Fingerprint(
        energies=_energies(program, start) if len(stored) == len(leaves) else None,
        start=files.write_arrays(folder / _FILE, stored),
        data=_digest(program),
        machine=describe_machine(),
    )


def check(folder: Path, program: Program, like: Any, stored: Fingerprint | None) -> None:
    """Raise unless target and data have the fingerprint that is stored."""
    if stored is None:  # of a copy that was in memory
        return
    difference = None
    if _digest(program) != stored.data:
        difference = "the data are not those that the run was started with"
    elif stored.energies is not None:
        arrays = files.read_arrays(folder / _FILE, stored.start)
        leaves = [jnp.asarray(arrays[str(number)]) for number in range(len(arrays))]
        energies = _energies(program, jax.tree.structure(like).unflatten(leaves))
        tolerance = _TOLERANCE if stored.machine == describe_machine() else _ELSEWHERE
        if not np.allclose(energies, stored.energies, rtol=tolerance, equal_nan=True):
            now, before = (", ".join(f"{x:.6g}" for x in e) for e in (energies, stored.energies))
            difference = f"energies near its start are {now} and were {before} when it was started"
    if difference is not None:
        raise ValueError(
            f"The target does not fit the run in {folder}: {difference}. Give the same target and "
            "data again, or force=True to go on with others."
        )


def _energies(program: Program, start: Any) -> tuple[float, ...]:
    """Return the energies at the start and beside it, on the first mini-batch."""
    target = program.target
    keys, _ = seed_keys(program.seed, 1)
    batch = program.batches.first(keys[0])

    def shifted(leaf: Any) -> Any:
        ramp = jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape)
        return leaf + _SHIFT * ramp

    def energies(point: Any, batch: Any, key: Any) -> Any:
        noise = target.draw(key)
        points = [point] if target.has_state else [point, jax.tree.map(shifted, point)]
        values = [target.energy_at(point, batch, noise) for point in points]
        if target.prior is not None:
            values += [target.prior(point[0] if target.has_state else point) for point in points]
        return jnp.stack(values)

    return tuple(np.asarray(jax.jit(energies)(start, batch, keys[0]), float).tolist())


def _digest(program: Program) -> str:
    """Return a digest of shapes and rows of the data, or of the first batch of a source."""
    data = program.batches.data
    if data is None:
        keys, _ = seed_keys(program.seed, 1)
        data = program.batches.first(keys[0])
    parts = []
    for leaf in jax.tree.leaves(data):
        rows = np.unique(np.linspace(0, len(leaf) - 1, _ROWS).astype(int)) if leaf.ndim else ...
        values = np.asarray(leaf[rows])
        parts.append(f"{leaf.shape} {leaf.dtype} {files.digest(values.tobytes())}")
    return files.digest("\n".join(parts).encode())
