"""What a run counts as it goes, one chain: rates and the best point seen."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm import schedule as schedules
from replicax.algorithm.schedule import Schedule
from replicax.algorithm.step import Info, State


class Tally(NamedTuple):
    """Counts over the steps after burn-in, and what the last step saw."""

    pairs: Array  # rows as in PAIR_COUNTS                  shape (count, pair)
    nonfinite: Array  # steps with a non-finite energy      shape ()
    restarts: Array  # replicas that began again            shape (rung,)
    energy: Array  # of each rung at the last step          shape (rung,)
    best_energy: Array  #                                   shape ()
    best: Any  # the parameters that had it, or None where not tracked


# How often the rule said yes; in how many windows a pair was active; in how many it swapped.
PAIR_COUNTS = ("verdicts", "windows", "window_swaps")


def start(state: State, track_best: bool) -> Tally:
    num_replicas = state.rung_of.shape[0]
    dtype = state.buffer.dtype
    first = jax.tree.map(lambda leaf: leaf[0], state.points)
    return Tally(
        pairs=jnp.zeros((len(PAIR_COUNTS), num_replicas - 1), jnp.int32),
        nonfinite=jnp.array(0, jnp.int32),
        restarts=jnp.zeros(num_replicas, jnp.int32),
        energy=jnp.full(num_replicas, jnp.nan, dtype),
        best_energy=jnp.array(jnp.inf, dtype),
        best=first if track_best else None,
    )


def count(
    tally: Tally,
    before: State,
    info: Info,
    schedule: Schedule,
    burn_in: int,
    scored: Any,
) -> Tally:
    """Add one step. `scored` are the points, by replica, that `info.energy` belongs to."""
    opens = schedules.window_opens(schedule, before.step)
    first_swap = info.swapped & (before.gate | opens)
    # A window counts whole or not at all, with the swap in it.
    counted = before.step >= burn_in
    window_counted = schedules.window_start(schedule, before.step) >= burn_in
    seen = jnp.stack(
        [info.wanted & counted, info.active & opens & window_counted, first_swap & window_counted]
    )
    best_energy, best = _better(tally, before, info, scored)
    # A replica that began again is no reason to stop; nobody can stand in for the coldest.
    mended = info.restarted.at[0].set(False)
    return Tally(
        pairs=tally.pairs + seen,
        nonfinite=tally.nonfinite + ~jnp.all(jnp.isfinite(info.energy) | mended),
        restarts=tally.restarts + mended,
        energy=info.energy.astype(tally.energy.dtype),
        best_energy=best_energy,
        best=best,
    )


def _better(tally: Tally, before: State, info: Info, scored: Any) -> tuple[Array, Any]:
    if tally.best is None:
        return tally.best_energy, None
    energy = jnp.where(jnp.isfinite(info.energy), info.energy, jnp.inf)
    rung = jnp.argmin(energy)
    better = energy[rung] < tally.best_energy
    replica = before.replica_at[rung]
    best = jax.tree.map(lambda old, new: jnp.where(better, new[replica], old), tally.best, scored)
    return jnp.minimum(tally.best_energy, energy[rung]), best
