"""Properties that must hold for any input: the ladder, the unit of energy, round trips."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from common import FINITE, SEEDS, few, rng_of
from hypothesis import example, given
from hypothesis import strategies as st

from replicax.algorithm import ladder, tuning
from replicax.algorithm.tuning import ConstantGain, EnergyUnit
from replicax.run import carry

# Ladder.
adapt_rungs = jax.jit(tuning.adapt_rungs, static_argnums=2)
LADDER_SIZES = st.sampled_from([2, 3, 5, 40])


def random_ladder(num_rungs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rungs with gaps of very different sizes, some zero, and verdicts."""
    rng = rng_of(seed)
    gaps = np.exp(3 * rng.normal(size=num_rungs - 1)) * (rng.random(num_rungs - 1) < 0.9)
    rungs = np.cumsum(np.concatenate([[0.01], gaps])).astype(np.float32)
    return rungs, rng.random(num_rungs - 1) < rng.random()


@given(
    num_rungs=LADDER_SIZES,
    seed=SEEDS,
    gain=st.sampled_from([0.0, 0.1, 0.5, 3.0]),
)
def test_an_adapted_ladder_is_sorted_between_its_fixed_ends(num_rungs, seed, gain) -> None:
    rungs, wanted = random_ladder(num_rungs, seed)
    adapted = np.asarray(adapt_rungs(rungs, wanted, 0.4, jnp.float32(gain)))
    assert adapted.dtype == np.float32 and adapted.shape == rungs.shape
    assert (np.diff(adapted) >= 0).all()
    assert adapted[0] == rungs[0] and adapted[-1] == rungs[-1]
    expected = reference.adapt_ladder(rungs.astype(float), list(wanted), 0.4, gain)
    np.testing.assert_allclose(adapted, expected, rtol=2e-5, atol=2e-5 * rungs[-1])


@given(num_rungs=LADDER_SIZES, seed=SEEDS, power=st.integers(-12, 12))
@few
def test_an_adapted_ladder_scales_with_its_unit(num_rungs, seed, power) -> None:
    rungs, wanted = random_ladder(num_rungs, seed)
    unit = np.float32(2.0**power)
    one, other = (adapt_rungs(x, wanted, 0.4, jnp.float32(0.3)) for x in (rungs, unit * rungs))
    np.testing.assert_array_equal(unit * np.asarray(one), other)


@given(num_rungs=st.sampled_from([3, 5]), seed=SEEDS, rate=st.sampled_from([0.1, 0.4, 0.9]))
def test_a_gap_grows_where_the_rule_says_yes(num_rungs, seed, rate) -> None:
    """One verdict differs, all gaps equal: its own gap is the larger for the yes."""
    rng = rng_of(seed)
    rungs = np.linspace(1.0, 2.0, num_rungs).astype(np.float32)
    pair = int(rng.integers(num_rungs - 1))
    others = rng.random(num_rungs - 1) < 0.5
    yes, no = others.copy(), others.copy()
    yes[pair], no[pair] = True, False
    gaps = [np.diff(adapt_rungs(rungs, w, rate, jnp.float32(0.2)))[pair] for w in (yes, no)]
    assert gaps[0] > gaps[1]
    # And with the same verdict everywhere nothing moves: both sides push alike.
    same = adapt_rungs(rungs, np.full(num_rungs - 1, yes[pair]), rate, jnp.float32(0.2))
    np.testing.assert_allclose(same, rungs, rtol=1e-6)


@given(seed=SEEDS, buffer=FINITE, rate=st.sampled_from([0.1, 0.5]))
@few
def test_the_buffer_follows_the_mean_verdict(seed, buffer, rate) -> None:
    wanted = rng_of(seed).random(7) < 0.5
    moved = tuning.adapt_buffer(jnp.float32(buffer), jnp.asarray(wanted), rate, jnp.float32(0.5))
    assert float(moved) == pytest.approx(buffer + 0.5 * (wanted.mean() - rate), abs=1e-5)


@functools.cache
def sort_all_sizes() -> Callable[[Any], list[jax.Array]]:
    def sort(values: jax.Array) -> list[jax.Array]:
        return [tuning.sort_positive(values[:size]) for size in range(1, 101)]

    return jax.jit(sort, compiler_options={"xla_backend_optimization_level": 0})


@pytest.mark.parametrize("kind", ["spread", "duplicates", "sorted", "reversed", "tiny"])
def test_positive_numbers_of_any_count_are_sorted(kind: str) -> None:
    values = np.exp(4 * rng_of(1).normal(size=100)).astype(np.float32)
    if kind == "duplicates":
        values = rng_of(2).integers(1, 9, 100).astype(np.float32)
    elif kind in ("sorted", "reversed"):
        values = np.sort(values)[:: 1 if kind == "sorted" else -1]
    elif kind == "tiny":
        values = np.float32(1e-30) * values
    for size, ordered in enumerate(sort_all_sizes()(values.copy()), start=1):
        np.testing.assert_array_equal(ordered, np.sort(values[:size]))


@pytest.mark.parametrize("size", [5, 40])
def test_positive_doubles_are_sorted(size: int) -> None:
    values = np.exp(rng_of(3).normal(size=size))
    with jax.enable_x64(True):
        ordered = tuning.sort_positive(jnp.asarray(values))
        assert ordered.dtype == jnp.float64
        np.testing.assert_array_equal(ordered, np.sort(values))


def test_before_anything_is_measured_the_unit_is_one_and_two_of_five_swap() -> None:
    assert float(EnergyUnit(jnp.array(0.0), jnp.array(0)).value()) == 1
    assert tuning.Tuning().target_swap_rate == 0.4


def test_a_constant_gain_is_its_value_at_every_step() -> None:
    gain = ConstantGain(0.25)
    assert float(gain(0)) == float(gain(10**6)) == 0.25
    np.testing.assert_array_equal(gain(jnp.arange(3)), [0.25] * 3)


@given(cold=st.floats(1e-4, 1.0), ratio=st.floats(1.0, 1e4), num_rungs=st.integers(1, 50))
@example(cold=0.5, ratio=3.0, num_rungs=1)
def test_a_geometric_ladder_has_equal_ratios_and_exact_ends(cold, ratio, num_rungs) -> None:
    rungs = ladder.geometric(cold, cold * ratio, num_rungs)
    assert rungs[0] == cold and rungs.shape == (num_rungs,)
    if num_rungs > 1:
        assert rungs[-1] == cold * ratio
        ratios = rungs[1:] / rungs[:-1]
        np.testing.assert_allclose(ratios, ratio ** (1 / (num_rungs - 1)), rtol=1e-9)


@given(cold=st.floats(1e-6, 1e3), num_rungs=st.integers(1, 50))
@example(cold=3e-4, num_rungs=8)
def test_a_geometric_ladder_of_equal_ends_is_flat(cold, num_rungs) -> None:
    assert (ladder.geometric(cold, cold, num_rungs) == cold).all()


# The unit of energy.
@jax.jit
def measured(energies: jax.Array) -> EnergyUnit:
    start = EnergyUnit(jnp.float32(0.0), jnp.int32(0))
    return jax.lax.scan(lambda unit, row: (unit.measure(row), None), start, energies)[0]


@given(seed=SEEDS, scale=st.sampled_from([1e-6, 0.5, 3.0, 1e4, 1e12]), shift=FINITE)
@few
def test_the_unit_of_energy_scales_with_the_energy(seed, scale, shift) -> None:
    energies = rng_of(seed).normal(size=(20, 5)).astype(np.float32)
    one = float(measured(energies).value())
    assert float(measured(np.float32(scale) * energies).value()) == pytest.approx(
        scale * one, rel=1e-4
    )
    assert float(measured(energies + np.float32(shift)).value()) == pytest.approx(one, rel=2e-3)
    flipped = energies[:, ::-1]
    assert float(measured(flipped).value()) == pytest.approx(one, rel=1e-5)


def test_the_unit_of_gaussian_differences_is_their_standard_deviation() -> None:
    steps = rng_of(0).normal(scale=3.0, size=(4000, 2)).astype(np.float32)
    assert float(measured(steps).value()) == pytest.approx(3.0 * np.sqrt(2), rel=0.05)


@given(seed=SEEDS, bad=st.sampled_from([np.nan, np.inf, -np.inf]))
@few
def test_ties_and_non_finite_energies_say_nothing_of_the_unit(seed, bad) -> None:
    energies = rng_of(seed).normal(size=(20, 5)).astype(np.float32)
    energies[3, 2], energies[7] = bad, 1.0
    logs = np.log(np.abs(np.diff(np.delete(energies, [3, 7], axis=0), axis=1)))
    beside = np.log(np.abs([energies[3, 1] - energies[3, 0], energies[3, 4] - energies[3, 3]]))
    logs = np.append(logs, beside)
    unit = measured(energies)
    assert int(unit.count) == logs.size
    assert float(unit.value()) == pytest.approx(1.887 * np.exp(logs.mean()), rel=1e-4)


# Round trips.
def random_paths(num_replicas: int, num_steps: int, seed: int, wild: bool) -> np.ndarray:
    """Index paths (step, replica): all pairs may meet, or neighbours only."""
    rng = rng_of(seed)
    replica_at, paths = np.arange(num_replicas), []
    for _ in range(num_steps):
        one = rng.integers(num_replicas - (not wild))
        other = rng.integers(num_replicas) if wild else one + 1
        replica_at[[one, other]] = replica_at[[other, one]]
        paths.append(np.argsort(replica_at))
    return np.array(paths)


@given(
    num_replicas=st.sampled_from([2, 3, 6]),
    num_steps=st.sampled_from([1, 7, 200]),  # every length is compiled
    seed=SEEDS,
    wild=st.booleans(),
)
@example(num_replicas=2, num_steps=200, seed=0, wild=False)
def test_round_trips_are_those_of_the_oracle(num_replicas, num_steps, seed, wild) -> None:
    chains = [random_paths(num_replicas, num_steps, seed + i, wild) for i in range(2)]
    paths = np.stack(chains).astype(np.int8)
    expected = [reference.round_trips(path) for path in paths]
    assert carry.round_trips(paths).tolist() == expected

    # From step 0, where replica i is on rung i, in pieces.
    home = np.arange(num_replicas)[None]
    started = [reference.round_trips(np.concatenate([home, path])) for path in paths]
    ended = [np.concatenate(carry.trip_ends(path)) for path in paths]
    assert [len(steps) for steps in ended] == started
    # The state machine, one step after another, with NumPy.
    turns = carry.start_turns(np.tile(home, (2, 1)))
    for step in range(num_steps):
        turns = carry.count_turns(turns, paths[:, step], num_replicas - 1)
    assert carry.completed_trips(turns).sum(axis=1).tolist() == started


# When ladder and buffer are tuned.
@pytest.mark.parametrize(("step", "moves"), [(2, False), (3, True), (7, True), (8, False)])
def test_nothing_is_tuned_while_the_unit_is_measured_or_after_the_end(step, moves) -> None:
    chosen = tuning.Tuning(measure_steps=3, until=8)
    rungs = ladder.Ladder(jnp.array([0.1, 0.2, 0.4, 0.8]), jnp.ones(4))
    unit = EnergyUnit(jnp.float32(0.0), jnp.int32(0))
    tuned, buffer, _ = tuning.tune(
        chosen, jnp.array(step), rungs, jnp.float32(0.5), unit, jnp.arange(4.0), jnp.zeros(3, bool)
    )
    assert bool(np.any(tuned.learning_rate != rungs.learning_rate)) is moves
    assert (float(buffer) != 0.5) is moves
