"""The rows that a chunk of steps writes: their layout on the device, and as records.

`rung_of` has a row for every step, draws and energies one for every draw, history one for every
point; what is not kept goes to one row too many, which is never read.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm.state import State
from replicax.algorithm.window_correction import Correction
from replicax.run import plain
from replicax.run.counters import Counters
from replicax.run.program import Program

# Only `step` is shared by the chains; everything else has a leading chain axis.
STATE_AXES: Any = State._make([None] + [0] * (len(State._fields) - 1))


class Carry(NamedTuple):
    """Everything that the rest of the run depends on: the content of a checkpoint."""

    state: State
    counters: Counters


def per_chain(change: Callable[[Array], Array], carry: Carry) -> Carry:
    """Change every array that has a value per chain."""
    return jax.tree.map(
        lambda axis, part: part if axis is None else jax.tree.map(change, part),
        Carry._make([STATE_AXES, 0]),
        carry,
        is_leaf=lambda axis: axis is None,
    )


class Rows(NamedTuple):
    """The rows of one chunk; those beyond `count` are empty."""

    count: Any  # steps done
    rung_of: Array  # (step, chain, replica)
    draws: Any  # (draw, chain, rung, ...)
    energies: Array  # (draw, chain, rung)
    rung_energies: Array | None  # of all rungs before the swap  (draw, chain, rung)
    history: dict[str, Array]  # (point, chain, ...)


def empty(program: Program, carry: Carry, capacity: int) -> Rows:
    """Return empty rows for up to `capacity` steps, without a chain axis if `carry` has none."""
    *chains, num_replicas = carry.state.rung_of.shape
    num_rungs, num_draws = len(program.draw_rungs), _num_draws(program, capacity) + 1
    num_points = _num_points(program, capacity) + 1
    small = jnp.int8 if num_replicas <= 128 else jnp.int16
    return Rows(
        count=jnp.array(0),
        rung_of=jnp.zeros((capacity, *chains, num_replicas), small),
        draws=jax.tree.map(
            lambda leaf: jnp.zeros(
                (num_draws, *chains, num_rungs, *leaf.shape[len(chains) + 1 :]), leaf.dtype
            ),
            carry.state.points if program.keep_draws else None,
        ),
        energies=jnp.zeros((num_draws, *chains, num_rungs), carry.counters.energy.dtype),
        rung_energies=jnp.zeros((num_draws, *chains, num_replicas), carry.counters.energy.dtype)
        if program.keeps_rung_energies
        else None,
        history={
            name: jnp.zeros((num_points, *value.shape), value.dtype)
            for name, value in _history(carry).items()
        },
    )


def _num_draws(program: Program, capacity: int) -> int:
    return capacity // program.thin + 1


def _num_points(program: Program, capacity: int) -> int:
    return capacity // program.history_every + 1


def draw_slots(program: Program, step: int, count: int, capacity: int) -> np.ndarray:
    """Return the row of each step's draw; steps without one share the last row."""
    drawn = program.is_drawn(np.arange(step, step + count))
    slots = np.full(capacity, _num_draws(program, capacity), np.int32)
    slots[:count][drawn] = np.arange(drawn.sum())
    return slots


def put_step(
    rows: Rows, rung_of: Array, draw: tuple[Any, Array, Array], place: Array, slot: Array
) -> Rows:
    """Write the step at `place` of the chunk, and its draw, (point, energy, energies of all rungs),
    to row `slot`."""
    point, energy, by_rung = draw
    kept = rows.rung_energies
    return rows._replace(
        rung_of=put(rows.rung_of, rung_of.astype(rows.rung_of.dtype), place),
        draws=jax.tree.map(lambda column, value: put(column, value, slot), rows.draws, point),
        energies=put(rows.energies, energy, slot),
        rung_energies=None if kept is None else put(kept, by_rung.astype(kept.dtype), slot),
    )


def put_history(
    program: Program, rows: Rows, carry: Carry, start: Array, step: Array, capacity: int
) -> Rows:
    """Write a point of history if one is due after `step` steps; the chunk began at `start`."""
    every = program.history_every
    number = step // every - start // every - 1
    row = jnp.where(step % every == 0, number, _num_points(program, capacity))
    history = {name: put(rows.history[name], value, row) for name, value in _history(carry).items()}
    return rows._replace(history=history)


def _history(carry: Carry) -> dict[str, Array]:
    state, counters = carry
    tuned = isinstance(state.correction, Correction)
    return {
        "learning_rate": state.ladder.learning_rate,
        "temperature": state.ladder.temperature,
        "buffer": state.buffer,
        "pairs": counters.pairs,
        "energy": counters.energy,
        **({"window_correction": state.correction.value} if tuned else {}),
    }


def to_records(program: Program, rows: Rows, step: int, done: int) -> dict[str, dict]:
    """Return the rows of `done` steps from `step` on, by group of records and variable."""
    num_draws = int(program.is_drawn(np.arange(step, step + done)).sum())
    num_points = (step + done) // program.history_every - step // program.history_every
    draws = {"energy": first_rows(rows.energies, num_draws)}
    if rows.rung_energies is not None:
        draws["rung_energy"] = first_rows(rows.rung_energies, num_draws)
    for name, leaf in zip(plain.leaf_names(rows.draws), jax.tree.leaves(rows.draws), strict=True):
        draws[f"params.{name}"] = first_rows(leaf, num_draws)
    return {
        "steps": {"rung_of": first_rows(rows.rung_of, done)},
        "draws": draws,
        "history": {name: first_rows(x, num_points) for name, x in rows.history.items()},
    }


def first_rows(rows: Any, count: int) -> np.ndarray:
    """Return a copy of the first rows, cut on the host: the device would compile every length."""
    return np.asarray(rows)[:count].copy()


def put(rows: Array, value: Array, place: Array) -> Array:
    """Write one row."""
    return jax.lax.dynamic_update_index_in_dim(rows, value, place, 0)


def get(rows: Array, place: Array) -> Array:
    """Read one row."""
    return jax.lax.dynamic_index_in_dim(rows, place, keepdims=False)
