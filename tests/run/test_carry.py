"""What a run counts, one step at a time."""

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from replicax.algorithm import schedule
from replicax.algorithm.kernel import Observed
from replicax.algorithm.state import Info, Settings
from replicax.run.carry import (
    PAIR_COUNTS,
    Counters,
    completed_trips,
    count_step,
    count_turns,
    forget_trips,
    num_attempts,
    start_counters,
    start_turns,
)

NUM_REPLICAS = 3
REPLICA_AT = jnp.array([2, 0, 1])
POINTS = jnp.array([[0.0, 10.0], [1.0, 11.0], [2.0, 12.0]])  # by replica


def start(track_best: bool = True, observes: bool = False) -> Counters:
    state: Any = SimpleNamespace(
        rung_of=jnp.arange(NUM_REPLICAS), buffer=jnp.float32(0), points=POINTS
    )
    return start_counters(state, track_best, observes)


def count(
    before: Counters, step: int = 0, gate: Any = (True, True), every: int = 1, **seen: Any
) -> Counters:
    """Add a step with windows of 4 attempts, one `every` so many steps, counted from step 6 on."""
    no = jnp.zeros(NUM_REPLICAS - 1, bool)
    told = {
        "energy": jnp.zeros(NUM_REPLICAS),
        "wanted": no,
        "swapped": no,
        "active": no,
        "restarted": jnp.zeros(NUM_REPLICAS, bool),
    }
    observed = seen.pop("observed", None)
    told |= {name: jnp.array(value) for name, value in seen.items()} | {"observed": observed}
    rungs = jnp.argsort(REPLICA_AT)
    old: Any = SimpleNamespace(step=jnp.array(step), gate=jnp.array(gate), replica_at=REPLICA_AT)
    new: Any = SimpleNamespace(step=jnp.array(step + 1), rung_of=rungs, replica_at=REPLICA_AT)
    made = Settings(schedule.windowed_deo(4), swap_every=every)
    return count_step(before, old, new, Info(**told), made, 6, POINTS)


def pairs(found: Counters, name: str) -> list[int]:
    return found.pairs[PAIR_COUNTS.index(name)].tolist()


def test_verdicts_count_from_their_first_step_and_windows_when_they_are_whole() -> None:
    yes = [True, False]
    for step, verdicts, windows, swaps in (
        (4, 0, 0, 0),  # a window that began before
        (5, 0, 0, 0),
        (6, 1, 0, 0),
        (7, 1, 0, 0),
        (8, 1, 1, 1),  # the first that is counted whole
        (9, 1, 0, 1),
    ):
        found = count(start(), step, wanted=yes, active=yes, swapped=yes)
        assert pairs(found, "verdicts") == [verdicts, 0], step
        assert pairs(found, "windows") == [windows, 0], step
        assert pairs(found, "window_swaps") == [swaps, 0], step


def test_windows_of_rare_attempts_are_counted_in_steps() -> None:
    """With an attempt every second step, a window has 8 steps: the one from step 8 counts."""
    yes = [True, True]
    for step, windows in ((0, 0), (4, 0), (6, 0), (8, 1), (9, 0), (10, 0), (12, 0), (16, 1)):
        found = count(start(), step, every=2, active=yes, attempted=step % 2 == 0)
        assert pairs(found, "windows") == [windows, windows], step


def test_energies_are_those_of_the_last_attempt_unless_one_is_not_finite() -> None:
    first = count(start(), energy=[5.0, 6.0, 7.0])
    assert first.energy.tolist() == [5.0, 6.0, 7.0] and np.isnan(start().energy).all()
    between = count(first, 1, every=2, energy=[1.0, np.inf, 3.0], attempted=False)
    assert between.energy.tolist() == [5.0, np.inf, 7.0]


def test_what_kernels_observe_is_summed_over_the_counted_steps() -> None:
    observed = Observed(None, None, jnp.array([0.5, 0.25, 1.0]))
    found = start(observes=True)
    for step in (4, 5, 6, 7):
        found = count(found, step, observed=observed)
    np.testing.assert_allclose(found.acceptance, [1.0, 0.5, 2.0])


def test_a_window_counts_one_swap() -> None:
    """Without a gate a pair may swap again; a closed gate says that it has."""
    yes = [True, True]
    found = count(start(), 9, gate=(False, True), swapped=yes)
    assert pairs(found, "window_swaps") == [0, 1]
    found = count(start(), 12, gate=(False, True), swapped=yes)
    assert pairs(found, "window_swaps") == [1, 1], "a new window opens all gates"


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_the_best_point_is_the_lowest_finite_energy(bad: float) -> None:
    found = count(start(), energy=[5.0, bad, 7.0])
    assert float(found.best_energy) == 5.0
    np.testing.assert_array_equal(found.best, POINTS[2], "replica 2 is on rung 0")
    later = count(found, energy=[6.0, 8.0, 5.5])
    assert float(later.best_energy) == 5.0
    np.testing.assert_array_equal(later.best, POINTS[2])
    lower = count(later, energy=[bad, 9.0, 4.0])
    assert float(lower.best_energy) == 4.0
    np.testing.assert_array_equal(lower.best, POINTS[1])
    nothing = count(start(), energy=[bad, bad, bad])
    assert float(nothing.best_energy) == np.inf
    np.testing.assert_array_equal(nothing.best, start().best)
    assert count(start(track_best=False), energy=[5.0, bad, 7.0]).best is None


def test_non_finite_energies_and_restarts() -> None:
    found = count(start(), energy=[1.0, np.nan, 2.0])
    assert int(found.nonfinite) == 1 and found.restarts.tolist() == [0, 0, 0]
    mended = count(start(), energy=[1.0, np.nan, 2.0], restarted=[False, True, False])
    assert int(mended.nonfinite) == 0 and mended.restarts.tolist() == [0, 1, 0]
    coldest = count(start(), energy=[np.nan, 1.0, 2.0], restarted=[True, False, False])
    assert int(coldest.nonfinite) == 1 and coldest.restarts.tolist() == [0, 0, 0]
    np.testing.assert_array_equal(coldest.energy, [np.nan, 1.0, 2.0])
    assert int(count(found, energy=[1.0, 1.0, 1.0]).nonfinite) == 1, "what was is not forgotten"


def test_round_trips_begin_with_the_counted_steps() -> None:
    """Before step 6 trips are forgotten, but not where a replica heads for."""
    turns = np.array([5, 4, 0])  # two trips and on its way up; on its way down; not yet at the end
    before = start()._replace(turns=jnp.array(turns, jnp.int32))
    kept = count(before, step=4).turns
    assert completed_trips(kept).tolist() == [2, 1, 0]
    found = count(before, step=5).turns
    assert completed_trips(found).tolist() == [0, 0, 0]
    np.testing.assert_array_equal(found % 2, kept % 2)
    np.testing.assert_array_equal(found > 0, kept > 0)


@pytest.mark.parametrize("every", [1, 2, 5])
def test_attempts_are_the_multiples_of_their_distance(every: int) -> None:
    for first in range(8):
        for last in range(first, 16):
            wanted = sum(step % every == 0 for step in range(first, last))
            assert num_attempts(first, last, every) == wanted
    lasts = np.arange(3, 20)
    found = num_attempts(3, lasts, every)
    np.testing.assert_array_equal(found, [num_attempts(3, last, every) for last in lasts])


def test_turns_are_arrivals_at_the_ends_in_turn() -> None:
    """One after the start on the coldest rung; a trip is over after 3, 5, ... of them."""
    path = [1, 0, 0, 1, 2, 1, 2, 0, 1, 0, 2, 0]
    turns, seen = start_turns(np.array([path[0]])), []
    for rung in path:
        turns = count_turns(turns, np.array([rung]), 2)
        seen.append(int(turns[0]))
    assert seen == [0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 5]
    assert start_turns(np.array([0, 1, 2])).tolist() == [1, 0, 0]
    assert [int(completed_trips(np.array(n))) for n in range(8)] == [0, 0, 0, 1, 1, 2, 2, 3]
    kept = forget_trips(np.arange(8))
    assert kept.tolist() == [0, 1, 2, 1, 2, 1, 2, 1], "where each heads for is kept"
    assert not np.any(completed_trips(kept))
