"""Replicas that stand still while a batch tells their energies: paths and tuning are known."""

import itertools

import chunks
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from common import quick_jit, quietly, slow
from oracle_cases import bowl_target
from single_steps import told_energies

import replicax as rx
from replicax.algorithm import randomness, schedule, swap


def straight_orbit(num_replicas: int, num_windows: int) -> np.ndarray:
    """Rungs after each window when every swap happens: a circle of 2P places.

    Up P-1 rungs, one window of waiting at the top, down P-1 rungs, one window at the bottom.
    Replica 0 waits first; odd replicas climb first, even ones fall.
    """
    replica = np.arange(num_replicas)
    place = np.where(replica % 2, replica + 1, (2 * num_replicas - replica) % (2 * num_replicas))
    place = (place + np.arange(1, num_windows + 1)[:, None]) % (2 * num_replicas)
    return np.where(place <= num_replicas, np.maximum(place - 1, 0), 2 * num_replicas - place)


def orbit_trips(num_replicas: int, num_windows: int) -> int:
    """Replica 0 is back every 2P windows; the others must reach the bottom once before."""
    period = 2 * num_replicas
    replica = np.arange(1, num_replicas)
    place = np.where(replica % 2, replica + 1, period - replica)
    others = np.maximum((place + num_windows) // period - 1, 0)
    return num_windows // period + int(others.sum())


@pytest.mark.parametrize(
    ("num_replicas", "window", "why"),
    [
        (2, 1, "wanted"),
        (3, 1, "metropolis"),
        slow(4, 3, "wanted"),
        slow(5, 1, "wanted"),
        (5, 3, "forced"),
        slow(6, 2, "forced"),
    ],
)
def test_where_every_swap_happens_paths_are_straight(num_replicas, window, why) -> None:
    swaps = "exactly_one" if why == "forced" else "at_most_one"
    rule = swap.metropolis() if why == "metropolis" else swap.deterministic()
    always = -1e6 if why == "wanted" else 1e6
    step, state = told_energies(
        schedule.windowed_deo(window, swaps), rule, num_replicas, buffer=always
    )
    num_windows = 6 * num_replicas + 3
    energies = jnp.zeros(num_replicas)

    def one_step(state, place):
        state, _ = step(randomness.make_key(0), state, energies)
        return state, state.rung_of

    steps = jnp.arange(num_windows * window)
    rung_of = np.asarray(quick_jit(lambda s: jax.lax.scan(one_step, s, steps)[1])(state))
    at_window_end = rung_of[window - 1 :: window]
    np.testing.assert_array_equal(at_window_end, straight_orbit(num_replicas, num_windows))
    np.testing.assert_array_equal(
        at_window_end[2 * num_replicas :], at_window_end[: -2 * num_replicas]
    )
    started = np.concatenate([[np.arange(num_replicas)], rung_of])
    for seen in (2 * num_replicas, 4 * num_replicas - 1, num_windows):
        so_far = started[: seen * window + 1]
        expected = orbit_trips(num_replicas, seen)
        assert rx.diagnostics.round_trips(so_far[None]).tolist() == [expected]
        assert reference.round_trips(so_far) == expected
    assert orbit_trips(num_replicas, 6 * num_replicas) == 3 + 2 * (num_replicas - 1)


def test_swaps_are_attempted_every_so_many_steps_by_a_clock_of_attempts() -> None:
    """Every third step from step 0 on, where energies are evaluated: windows of two attempts."""
    num_replicas, every = 4, 3
    step, state = told_energies(
        schedule.windowed_deo(2), swap.deterministic(), num_replicas, buffer=-1e6, swap_every=every
    )
    energies = jnp.array([5.0, 6.0, 7.0, 8.0])

    def one_step(state, place):
        after, info = step(randomness.make_key(0), state, energies)
        return after, (after.rung_of, state.replica_at, info)

    steps = jnp.arange(16 * every)
    scan = quick_jit(lambda state: jax.lax.scan(one_step, state, steps)[1])
    rung_of, replica_at, info = jax.device_get(scan(state))
    orbit = np.repeat(straight_orbit(num_replicas, 8), 2 * every, axis=0)
    np.testing.assert_array_equal(rung_of, orbit)
    attempted = np.asarray(steps) % every == 0
    np.testing.assert_array_equal(info.attempted, attempted)
    np.testing.assert_array_equal(info.wanted.all(axis=1), attempted)
    assert info.swapped[attempted].any(axis=0).all() and not info.swapped[~attempted].any()
    told = np.asarray(energies)[replica_at] * attempted[:, None]  # the kernel itself says 0
    np.testing.assert_array_equal(info.energy, told)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_sampled_straight_orbit_counts_its_round_trips() -> None:
    """A flat energy: Metropolis always agrees."""
    num_replicas, window, num_windows = 4, 3, 29
    posterior = chunks.sample(
        lambda x: 0.0 * jnp.sum(x),
        jnp.zeros(1),
        num_steps=num_windows * window,
        num_replicas=num_replicas,
        method=rx.deo_star(
            learning_rate=0.1, temperature=(1.0, 2.0), rule="metropolis", window=window
        ),
        progress=False,
    )
    orbit = straight_orbit(num_replicas, num_windows)
    np.testing.assert_array_equal(posterior.rung_of[0], np.repeat(orbit, window, axis=0))
    assert posterior.round_trips.tolist() == [orbit_trips(num_replicas, num_windows)]
    assert posterior.window_swap_rate.tolist() == [[1.0] * (num_replicas - 1)]


def test_a_lone_pair_that_never_rests_goes_round_in_two_windows() -> None:
    step, state = told_energies(
        schedule.windowed_deo(2, alternate=False), swap.deterministic(), 2, buffer=-1.0
    )
    step, seen = quick_jit(step), []
    for _ in range(8):
        state, _ = step(randomness.make_key(0), state, jnp.zeros(2))
        seen.append(state.rung_of.tolist())
    assert seen == [[1, 0], [1, 0], [0, 1], [0, 1]] * 2


@pytest.mark.parametrize(
    ("made", "rule"),
    [
        (schedule.windowed_deo(1, "exactly_one"), swap.deterministic()),
        slow(schedule.windowed_deo(1, "exactly_one"), swap.bias_corrected(0.1)),
        slow(schedule.windowed_deo(2, "no_gate"), swap.metropolis()),
        (schedule.adj(), swap.deterministic()),
        (schedule.ape(), swap.metropolis()),
    ],
    ids=["forced", "forced-bias_corrected", "no_gate-metropolis", "adj", "ape-metropolis"],
)
def test_a_non_finite_energy_never_swaps(made: schedule.Schedule, rule: swap.Rule) -> None:
    """Replica 2 is ill; whatever is tried, it stays where it is and spoils nothing."""
    adapts = "temperature" if rule.uses_temperature else "learning_rate"
    step, state = told_energies(
        made, rule, 4, buffer=-1e6, adapts=adapts, adapts_buffer=True, measure_steps=2
    )
    step = quick_jit(step)
    healthy = jnp.array([3.0, 2.0, 1.0, 0.0])
    for bad in (jnp.nan, jnp.inf, -jnp.inf):
        ill, others_moved = state, False
        for k in range(8):
            ill, info = step(randomness.make_key(k), ill, healthy.at[2].set(bad))
            assert int(ill.rung_of[2]) == 2
            assert not info.wanted[1:].any() and not info.swapped[1:].any()
            others_moved |= bool(info.swapped.any())
        assert others_moved
        for value in jax.tree.leaves((ill.ladder, ill.buffer, ill.energy_unit)):
            assert np.isfinite(value).all()
    moved = []
    for k in range(8):
        state, info = step(randomness.make_key(k), state, healthy)
        moved.append(int(state.rung_of[2]))
    assert set(moved) != {2}, "a finite energy would have swapped"


def test_ladder_and_buffer_are_measured_then_adapted_then_frozen() -> None:
    step, state = told_energies(
        schedule.deo(),
        swap.deterministic(),
        4,
        adapts="learning_rate",
        adapts_buffer=True,
        measure_steps=3,
        measure_buffer=True,
        until=6,
    )
    energies = jnp.array([10.0, 0.0, 1.0, 0.5])
    step, states = quick_jit(step), [state]
    for _ in range(9):
        state, _ = step(randomness.make_key(0), states[-1], energies)
        states.append(state)
    unit = 1.887 * np.exp(np.mean(np.log([10.0, 1.0, 0.5])))
    np.testing.assert_allclose([s.buffer for s in states[1:4]], unit, rtol=1e-5)
    assert [s.rung_of.tolist() for s in states[:4]] == [[0, 1, 2, 3]] * 4, "no swap so far"
    changed = [
        [
            bool(np.any(a != b))
            for a, b in ((old.ladder[0], new.ladder[0]), (old.buffer, new.buffer))
        ]
        for old, new in itertools.pairwise(states)
    ]
    assert changed[1:] == [[False, False]] * 2 + [[True, True]] * 3 + [[False, False]] * 3
    assert states[6].rung_of.tolist() != [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_unit_of_the_energy_does_not_matter() -> None:
    """Energies times 1e4, gradients as they were: buffer and its gain find their own unit."""
    options = {
        "num_steps": 1200,
        "num_replicas": 6,
        "method": rx.deo_star((0.01, 0.3), kernel="momentum"),
        "seed": 2,
        "progress": False,
    }
    plain = rx.targets.modes25()
    target = plain._replace(energy=lambda x, batch, noise: batch * plain.energy(x, None, noise))

    def scaled(factor: float) -> rx.Posterior:
        return rx.sample(
            target,
            rx.targets.modes25_start,
            batches=lambda step: np.float32(factor),
            **options,
        )

    one, large = scaled(1.0), scaled(1e4)
    swaps = (np.diff(one.rung_of.astype(int), axis=1) != 0).sum() // 2
    assert swaps > 50
    np.testing.assert_array_equal(large.rung_of, one.rung_of)
    np.testing.assert_array_equal(large.draws, one.draws)
    np.testing.assert_allclose(large.learning_rates, one.learning_rates, rtol=1e-6)
    np.testing.assert_allclose(large.buffer, 1e4 * one.buffer, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_energy_temperature_and_rates_scale_together() -> None:
    """c U at temperature c tau and rates eta / c is the same law, and the same run."""
    factor, plain = 2.0**13, bowl_target(False)
    target = plain._replace(energy=lambda x, batch, noise: batch * plain.energy(x, None, noise))

    def scaled(factor: float) -> rx.Posterior:
        return rx.sample(
            target,
            jnp.ones(2),
            batches=lambda step: np.float32(factor),
            num_steps=600,
            num_replicas=5,
            method=rx.deo_star(
                learning_rate=(0.01 / factor, 0.2 / factor), temperature=factor, window=3
            ),
            progress=False,
        )

    one, large = scaled(1.0), scaled(factor)
    assert (np.diff(one.rung_of.astype(int), axis=1) != 0).sum() > 100
    np.testing.assert_array_equal(large.rung_of, one.rung_of)
    np.testing.assert_allclose(large.draws, one.draws, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(factor * large.learning_rates, one.learning_rates, rtol=1e-5)
    np.testing.assert_allclose(large.buffer / factor, one.buffer, rtol=1e-3)


@pytest.mark.slow
def test_replicas_that_do_not_exchange_keep_their_learning_rates() -> None:
    target, start = bowl_target(own_gradient=False), np.zeros(2)
    alone = quietly(target, start, schedule="none")
    np.testing.assert_allclose(alone.learning_rates[0], np.geomspace(0.02, 0.1, 4), rtol=1e-6)
    moved = quietly(target, start)  # with exchange they adapt
    assert np.abs(moved.learning_rates[0, 1:-1] / np.geomspace(0.02, 0.1, 4)[1:-1] - 1).max() > 1e-3
