"""A fingerprint of target and data, so that a run is not continued with others by mistake."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm.kernel import PyTree
from replicax.algorithm.labels import label_places
from replicax.algorithm.randomness import seed_keys
from replicax.algorithm.target import held_arrays
from replicax.run import trees
from replicax.run.compiled_once import program_of
from replicax.run.devices import describe_machine
from replicax.run.program import Program
from replicax.run.storage import files
from replicax.run.storage.files import Damaged
from replicax.run.storage.folder import START
from replicax.run.storage.metadata import Fingerprint

_ROWS = 4096  # of the data, evenly spaced, that version 0.2 digested
_PIECE = 2**28  # bytes of the data that are on the host at once
# Settings of JAX on which every number depends, in the words of its configuration.
_PRECISION = ("jax_enable_x64", "jax_default_matmul_precision", "jax_threefry_partitionable",
              "jax_random_seed_offset")  # fmt: skip
_SHIFT = 0.1  # from the start to a second point where the energy is measured
_TOLERANCE = 1e-5  # of energies, relative
_ELSEWHERE = 1e-3  # on another platform, which rounds differently


def write(folder: Path, program: Program, points: PyTree) -> Fingerprint:
    """Return the fingerprint of a run, and keep the start that it belongs to in the folder."""
    start = trees.first(points)
    leaves = {str(number): np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves(start))}
    stored = {name: leaf for name, leaf in leaves.items() if leaf.dtype.isbuiltin}
    energies, held = _energies(program, start)
    return Fingerprint(
        energies=energies if len(stored) == len(leaves) else None,
        start=files.write_arrays(folder / START, stored),
        data=_digest(program),
        held=held,
        test=_digest_test(program),
        precision=_precision(),
        machine=describe_machine(),
    )


def check(folder: Path, program: Program, like: PyTree, stored: Fingerprint | None) -> None:
    """Raise unless target and data have the fingerprint that is stored."""
    if stored is None:  # of a copy that was in memory
        return
    for difference in _differences(folder, program, like, stored):
        raise ValueError(
            f"The target does not fit the run in {folder}: {difference}. Give the same target and "
            "data again, or force=True to go on with others."
        )


def _differences(
    folder: Path, program: Program, like: PyTree, stored: Fingerprint
) -> Iterator[str]:
    """Yield what is not as it was when the run was started."""
    for name, now in _precision().items():
        before = (stored.precision or {}).get(name, now)
        if now != before:
            yield (
                f"it was started with {name} at {before}, and it is {now} now, which gives other "
                f"numbers (write jax.config.update({name!r}, {before!r}) first)"
            )
    if _digest(program, stored.all_rows) != stored.data:
        yield "the data are not those that the run was started with"
    if stored.test is not None and stored.test != _digest_test(program):
        yield "the data of the test are not those that the run was started with"
    if stored.energies is None:
        return
    arrays = files.read_arrays(folder / START, stored.start)
    try:
        leaves = [jnp.asarray(arrays[str(number)]) for number in range(len(arrays))]
        start = jax.tree.structure(like).unflatten(leaves)
    except (KeyError, ValueError):
        raise Damaged(f"{folder / START} is damaged: it holds another start.") from None
    energies, held = _energies(program, start)
    same_machine = stored.machine == describe_machine()
    tolerance = _TOLERANCE if same_machine else _ELSEWHERE
    if not np.allclose(energies, stored.energies, rtol=tolerance, equal_nan=True):
        now, before = (", ".join(f"{x:.6g}" for x in e) for e in (energies, stored.energies))
        yield f"energies near its start are {now} and were {before} when it was started"
    if same_machine and stored.held is not None and held != stored.held:
        yield "the energy holds other arrays than when it was started"


def _precision() -> dict[str, Any]:
    return {name: getattr(jax.config, name) for name in _PRECISION}


def _energies(program: Program, start: PyTree) -> tuple[tuple[float, ...], str]:
    """Return the energies at the start and beside it, on the first mini-batch; and a digest of the
    arrays that the energy holds, such as data without batches."""
    target = program.target
    keys, _ = seed_keys(program.seed, 1)
    batch = program.batches.first(keys[0])

    def shifted(leaf: jax.Array) -> jax.Array:
        ramp = jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)).reshape(leaf.shape)
        return leaf + _SHIFT * ramp

    def energies(point: PyTree, batch: PyTree, key: jax.Array) -> Any:
        noise = target.draw(key)
        points = [point] if target.has_state else [point, jax.tree.map(shifted, point)]
        values = [target.energy_at(point, batch, noise) for point in points]
        if target.prior is not None:
            values += [target.prior(point[0] if target.has_state else point) for point in points]
        return jnp.stack(values)

    arguments = start, batch, keys[0]
    traced = jax.jit(energies).trace(*arguments)
    held = sorted(map(_digest_rows, held_arrays(traced.jaxpr)))
    places = label_places(target.exchangeable, start)
    if places is not None:
        held.append(f"exchangeable {places.tolist()}")
    values = program_of(traced.lower(), arguments)(*arguments)
    return tuple(np.asarray(values, float).tolist()), files.digest("\n".join(held).encode())


def _digest(program: Program, all_rows: bool = True) -> str:
    """Return a digest of shapes and rows of the data, or of the first batch of a source."""
    data = program.batches.data
    if data is None:
        keys, _ = seed_keys(program.seed, 1)
        data = program.batches.first(keys[0])
    return _digest_leaves(data, _digest_rows if all_rows else _digest_some)


def _digest_test(program: Program) -> str | None:
    """Return a digest of all that networks are tested on, whose predictions are averaged."""
    tested = program.task.tested_on
    return None if tested is None else _digest_leaves(tested, _digest_rows)


def _digest_leaves(data: PyTree, digest: Callable[[Any], str]) -> str:
    return files.digest("\n".join(map(digest, jax.tree.leaves(data))).encode())


def _digest_rows(leaf: np.ndarray | jax.Array) -> str:
    """Return shape and dtype of an array and a digest of all its rows, a part at a time."""
    on_host = isinstance(leaf, np.ndarray) or all(x.platform == "cpu" for x in leaf.devices())
    leaf = np.asarray(leaf) if on_host else leaf
    rows = leaf[None] if leaf.ndim == 0 else leaf
    step = max(1, _PIECE * len(rows) // max(rows.nbytes, 1))
    parts = (np.asarray(rows[start : start + step]) for start in range(0, len(rows), step))
    return f"{leaf.shape} {leaf.dtype} {files.digest_values(parts)}"


def _digest_some(leaf: np.ndarray | jax.Array) -> str:
    rows = np.unique(np.linspace(0, len(leaf) - 1, _ROWS).astype(int)) if leaf.ndim else ...
    return f"{leaf.shape} {leaf.dtype} {files.digest(np.asarray(leaf[rows]).tobytes())}"
