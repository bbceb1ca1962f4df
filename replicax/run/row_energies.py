"""Energies by row of a mini-batch, for rules that estimate the noise of energies."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm.target import Target
from replicax.run import plain
from replicax.run.program import Program
from replicax.run.rows import Carry


def with_row_energies(target: Target) -> Target:
    """Return the target with the energies of batches of one row as `row_energies`."""

    def row_energies(point: Any, batch: Any, noise: Any) -> Array:
        def energy(row: Any) -> Array:
            return target.energy_at(point, jax.tree.map(lambda leaf: leaf[None], row), noise)

        return jax.vmap(energy)(batch)

    return target._replace(row_energies=row_energies)


def use_rows(program: Program, carry: Carry) -> Program:
    """Return the program with energies by row, if the energy of a batch is the mean of those of
    its rows (as at the starting points)."""
    target = program.target
    keys = program.keys
    batch = program.batches.first(keys[0])
    if batch is None or target.row_energies:
        return program
    with_rows = with_row_energies(target)

    @jax.jit
    def compare(points: Any, batch: Any, key: Array) -> tuple[Array, Array]:
        point, noise = plain.first(points), target.draw(key)
        rows = with_rows.row_energies(point, batch, noise)  # type: ignore[misc]
        return target.energy_at(point, batch, noise), jnp.mean(rows)

    energy, mean = (float(value) for value in compare(carry.state.points, batch, keys[0]))
    same = np.isclose(energy, mean, rtol=1e-3)
    return replace(program, target=with_rows) if same else program
