"""The carry of a run: the state of all chains, and what is counted beside it.

A round trip is over when a replica that was on the coldest rung has been on the hottest and is
back on the coldest. A replica heads for the coldest rung first, then for the hottest, and so on;
`turns` counts how often it arrived where it headed for.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm.kernel import PyTree
from replicax.algorithm.spread import Spread
from replicax.algorithm.state import Info, Settings, State

# How often the rule said yes; in how many windows a pair was active; in how many it swapped.
PAIR_COUNTS = ("verdicts", "windows", "window_swaps")


Numbers = np.ndarray | Array


class Counters(NamedTuple):
    """Counts from step `Program.counted_from` on, and the energies of the last step."""

    pairs: Array  # rows as in PAIR_COUNTS                  shape (count, pair)
    turns: Array  # arrivals at the ends of the ladder      shape (replica,)
    nonfinite: Array  # steps with a non-finite energy      shape ()
    restarts: Array  # restarts from a colder neighbour     shape (rung,)
    energy: Array  # of each rung at the last attempt to swap     shape (rung,)
    acceptance: Array  # sum over the counted steps         shape (rung,); (0,) if not observed
    empty: Array  # nothing: compiled programs stay those of 0.2    shape (0,)
    best_energy: Array  #                                   shape ()
    best: Any  # the point that had it, or None where not tracked
    redrawn: Any = ()  # accepted draws from the prior      shape (rung,); empty without redraws


class Carry(NamedTuple):
    """Everything that the rest of the run depends on: the content of a checkpoint."""

    state: State
    counters: Counters


# What the chains share: the step, the mixture that jumps are proposed from and the order of labels.
# Everything else has a leading chain axis.
_SHARED = ("step", "mixture", "order")
STATE_AXES: Any = State._make(None if name in _SHARED else 0 for name in State._fields)


def per_chain(change: Callable[[Array], Array], carry: Carry) -> Carry:
    """Change every array that has a value per chain."""
    return jax.tree.map(
        lambda axis, part: part if axis is None else jax.tree.map(change, part),
        Carry._make([STATE_AXES, 0]),
        carry,
        is_leaf=lambda axis: axis is None,
    )


def start_counters(
    state: State, track_best: bool, observes: bool = False, redraws: bool = False
) -> Counters:
    """Return the counters before the first step."""
    num_replicas = state.rung_of.shape[0]
    none = jnp.zeros(num_replicas if observes else 0, state.buffer.dtype)
    dtype = state.buffer.dtype
    first = jax.tree.map(lambda leaf: leaf[0], state.points)
    return Counters(
        pairs=jnp.zeros((len(PAIR_COUNTS), num_replicas - 1), jnp.int32),
        turns=start_turns(state.rung_of),
        nonfinite=jnp.array(0, jnp.int32),
        restarts=jnp.zeros(num_replicas, jnp.int32),
        energy=jnp.full(num_replicas, jnp.nan, dtype),
        acceptance=none,
        empty=jnp.zeros(0, dtype),
        best_energy=jnp.array(jnp.inf, dtype),
        best=first if track_best else None,
        redrawn=jnp.zeros(num_replicas, dtype) if redraws else (),
    )


def count_step(
    counters: Counters,
    before: State,
    after: State,
    info: Info,
    settings: Settings,
    counted_from: int | Array,
    scored: PyTree,
) -> Counters:
    """Add one step. `scored` are the points, by replica, that `info.energy` belongs to."""
    schedule, every = settings.schedule, settings.swap_every
    attempt = settings.attempt(before.step)
    opens = schedule.window_opens(attempt) & info.attempted
    first_swap = info.swapped & (before.gate | opens)
    # A window counts whole or not at all, with the swap in it.
    counted = before.step >= counted_from
    window_counted = schedule.window_start(attempt) * every >= counted_from
    added = jnp.stack(
        [info.wanted & counted, info.active & opens & window_counted, first_swap & window_counted]
    )
    turns = count_turns(counters.turns, after.rung_of, after.rung_of.shape[0] - 1)
    starts = after.step == counted_from
    best_energy, best = _update_best(counters, before, info, scored, settings.spread)
    # A restarted replica is no reason to stop; the coldest has no neighbour to restart from.
    mended = info.restarted.at[0].set(False)
    acceptance = counters.acceptance
    if info.observed is not None:
        acceptance = acceptance + jnp.where(counted, info.observed.acceptance, 0)
    redrawn = counters.redrawn
    if info.redrawn is not None:
        redrawn = redrawn + jnp.where(counted, info.redrawn, 0).astype(redrawn.dtype)
    energy = info.energy.astype(counters.energy.dtype)
    return Counters(
        pairs=counters.pairs + added,
        turns=jnp.where(starts, forget_trips(turns), turns),
        nonfinite=counters.nonfinite + ~jnp.all(jnp.isfinite(info.energy) | mended),
        restarts=counters.restarts + mended,
        energy=jnp.where(info.attempted | ~jnp.isfinite(energy), energy, counters.energy),
        acceptance=acceptance.astype(counters.acceptance.dtype),
        empty=counters.empty,
        best_energy=best_energy,
        best=best,
        redrawn=redrawn,
    )


def num_attempts(first: int, last: int | np.ndarray, swap_every: int) -> Any:
    """Return how often swaps were attempted, in steps from `first` to before `last`."""
    return -(-last // swap_every) + -first // swap_every


def _update_best(
    counters: Counters, before: State, info: Info, scored: PyTree, spread: Spread
) -> tuple[Array, Any]:
    if counters.best is None:
        return counters.best_energy, None
    energy = jnp.where(jnp.isfinite(info.energy), info.energy, jnp.inf)
    rung = jnp.argmin(energy)
    better = energy[rung] < counters.best_energy
    replica = before.replica_at[rung]
    best = jax.tree.map(
        lambda old, new: jnp.where(better, new, old), counters.best, spread.rows(scored, replica)
    )
    return jnp.minimum(counters.best_energy, energy[rung]), best


def start_turns(rung_of: Numbers) -> Any:
    """Return the turns of replicas that start on the rungs `rung_of`."""
    return (rung_of == 0).astype("int32")


def count_turns(turns: Numbers, rung_of: Numbers, hottest: int) -> Any:
    """Return the turns of replicas on their new rungs; NumPy or JAX arrays of any shape."""
    if hottest == 0:  # a single rung has no way
        return turns
    return turns + (rung_of == (turns % 2) * hottest)


def forget_trips(turns: Numbers) -> Any:
    """Return turns without completed round trips, but with the direction of each replica."""
    return (turns > 0) * (2 - turns % 2)


def completed_trips(turns: Numbers) -> Any:
    """Return the number of round trips completed by these turns: one after 3, two after 5, ..."""
    return (turns - (turns > 0)) // 2


@functools.partial(jax.jit, static_argnums=2)
def _trips_by_step(turns: Array, rung_of: Array, hottest: int) -> Array:
    def step(turns: Array, rung_of: Array) -> tuple[Array, Array]:
        turns = count_turns(turns, rung_of, hottest)
        return turns, completed_trips(turns)

    return jax.lax.scan(step, turns, rung_of)[1]


def round_trips(rung_of: np.ndarray) -> np.ndarray:
    """Count the round trips of all replicas in index paths (chain, step, replica)  -> (chain,).

    >>> straight = np.array([[[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]]])
    >>> round_trips(straight).tolist()
    [3]
    """
    by_step = jnp.moveaxis(jnp.asarray(rung_of), 1, 0)
    trips = _trips_by_step(start_turns(by_step[0]), by_step, rung_of.shape[2] - 1)
    return np.asarray(trips[-1]).sum(axis=1)


def trip_ends(rung_of: np.ndarray) -> list[np.ndarray]:
    """Return, for each replica, the numbers of steps after which it completed a round trip.

    `rung_of` has shape (step, replica); before the first step replica i is on rung i.
    """
    num_replicas = rung_of.shape[1]
    turns = start_turns(jnp.arange(num_replicas))
    trips = np.asarray(_trips_by_step(turns, jnp.asarray(rung_of), num_replicas - 1))
    ended = np.diff(trips, axis=0, prepend=0) > 0
    return [np.flatnonzero(steps) + 1 for steps in ended.T]
