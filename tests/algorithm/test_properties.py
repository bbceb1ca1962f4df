"""Properties that must hold for any input: schedules and swaps.

Sizes come from short lists, so that each property is compiled a few times only.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import FINITE, SEEDS, SIZES, few, rng_of
from hypothesis import given
from hypothesis import strategies as st

from replicax.algorithm import energy_noise, schedule, swap
from replicax.algorithm.randomness import Attempts


# Schedules.
@functools.cache
def active_over(made: schedule.Schedule, num_pairs: int, num_steps: int) -> np.ndarray:
    steps = jnp.arange(num_steps)
    odd = jnp.asarray(rng_of(0).integers(0, 2, num_steps).astype(bool))
    active = jax.vmap(lambda step, odd: made.active_pairs(step, odd, num_pairs))
    return np.asarray(active(steps, odd))


@given(num_replicas=SIZES, window=st.sampled_from([1, 3]), coin=st.booleans())
def test_active_pairs_are_disjoint_and_all_get_their_turn(num_replicas, window, coin) -> None:
    made = schedule.seo() if coin else schedule.windowed_deo(window)
    window = made.window
    active = active_over(made, num_replicas - 1, 12 * window)
    assert not (active[:, 1:] & active[:, :-1]).any(), "a rung cannot be in two pairs"
    pairs = np.arange(num_replicas - 1)
    turns = active.reshape(-1, window, num_replicas - 1)
    assert (turns == turns[:, :1]).all(), "a turn lasts one window"
    assert active.any(axis=0).all(), "every pair gets its turn"
    # All even pairs or all odd ones, never some of them.
    assert all(set(pairs[row]) in ({*pairs[::2]}, {*pairs[1::2]}) for row in active)
    if not coin:
        clock = np.arange(12 * window)
        np.testing.assert_array_equal(active, (pairs + 1) % 2 == (clock // window % 2)[:, None])


def test_pairs_that_are_active_by_schedule() -> None:
    """By a coin odd pairs, counted from 1, or even ones; none without exchange, all in a sweep."""
    odd = rng_of(0).integers(0, 2, 6).astype(bool)
    by_coin = active_over(schedule.seo(), 3, 6)
    np.testing.assert_array_equal(by_coin, (np.arange(3) + 1) % 2 == odd[:, None])
    assert not active_over(schedule.none(), 3, 6).any()
    assert active_over(schedule.adj(), 3, 6).all() and active_over(schedule.ape(), 3, 6).all()
    lone = schedule.windowed_deo(2, alternate=False)
    assert active_over(lone, 1, 6).all()


@given(window=st.sampled_from([1, 2, 3, 7, 20]), step=st.integers(0, 10**6))
def test_windows_open_and_close_by_one_clock(window: int, step: int) -> None:
    made = schedule.windowed_deo(window)
    assert bool(made.window_opens(step)) == (step % window == 0)
    assert made.window_start(step) == step // window * window
    forced = schedule.windowed_deo(window, "exactly_one").swapping_pairs(
        step, *(np.array([flag]) for flag in (True, True, False, True))
    )
    assert bool(forced[0]) == bool(made.window_opens(step + 1)), "forced at the last step"


def bits(count: int, size: int) -> st.SearchStrategy[list[np.ndarray]]:
    one = st.lists(st.booleans(), min_size=size, max_size=size).map(np.array)
    return st.lists(one, min_size=count, max_size=count)


@given(
    seen=bits(4, 6),
    swaps=st.sampled_from(schedule.SWAPS_PER_WINDOW),
    step=st.integers(0, 50),
)
def test_who_swaps_is_active_and_agreed_or_forced(seen, swaps, step) -> None:
    active, gate, wanted, finite = seen
    wanted = wanted & finite
    made = schedule.windowed_deo(3, swaps)
    swapped = np.asarray(made.swapping_pairs(step, active, gate, wanted, finite))
    last = swaps == "exactly_one" and step % 3 == 2
    agreed = finite if last else wanted
    expected = active & agreed & (gate | (swaps == "no_gate"))
    np.testing.assert_array_equal(swapped, expected)


@pytest.mark.parametrize("num_replicas", [2, 5])
def test_sweeps_attempt_the_pairs_they_promise(num_replicas: int) -> None:
    every = list(itertools.combinations(range(num_replicas), 2))
    adjacent = [(i, i + 1) for i in range(num_replicas - 1)]
    for made, pairs in ((schedule.adj(), adjacent), (schedule.ape(), every)):
        assert made.num_attempts(num_replicas) == len(pairs)
        orders = [
            made.attempt_order(jax.random.key(seed), num_replicas).tolist() for seed in range(4)
        ]
        assert all(sorted(map(tuple, order)) == pairs for order in orders)
        if made.name == "adj":
            assert all(order == [list(pair) for pair in pairs] for order in orders)
        elif num_replicas > 2:
            assert len({str(order) for order in orders}) > 1, "in random order"


# Swaps.
def index_of(replica_at: np.ndarray) -> swap.Index:
    return swap.Index(jnp.asarray(np.argsort(replica_at)), jnp.asarray(replica_at))


def assert_inverse(index: swap.Index) -> None:
    rung_of, replica_at = np.asarray(index.rung_of), np.asarray(index.replica_at)
    np.testing.assert_array_equal(rung_of[replica_at], np.arange(len(rung_of)))
    np.testing.assert_array_equal(replica_at[rung_of], np.arange(len(rung_of)))


swap_adjacent, swap_two = jax.jit(swap.swap_adjacent), jax.jit(swap.swap_two)


@given(num_replicas=SIZES, seed=SEEDS, parity=st.integers(0, 1))
def test_disjoint_swaps_are_those_of_moving_parameters(num_replicas, seed, parity) -> None:
    rng = rng_of(seed)
    before = index_of(rng.permutation(num_replicas).astype(np.int32))
    pairs = np.arange(num_replicas - 1)
    swapped = (pairs % 2 == parity) & (rng.random(num_replicas - 1) < 0.6)
    after = swap_adjacent(before, swapped)
    by_hand = before.replica_at.tolist()
    for i in np.nonzero(swapped)[0]:
        by_hand[i], by_hand[i + 1] = by_hand[i + 1], by_hand[i]
    assert after.replica_at.tolist() == by_hand
    assert_inverse(after)
    assert after.rung_of.dtype == before.rung_of.dtype == jnp.int32
    again = swap_adjacent(after, swapped)
    np.testing.assert_array_equal(again.replica_at, before.replica_at)
    np.testing.assert_array_equal(again.rung_of, before.rung_of)


@given(num_replicas=SIZES, seed=SEEDS, swapped=st.booleans())
def test_a_swap_of_any_two_is_that_of_moving_parameters(num_replicas, seed, swapped) -> None:
    rng = rng_of(seed)
    before = index_of(rng.permutation(num_replicas).astype(np.int32))
    cold, hot = np.sort(rng.choice(num_replicas, 2, replace=False)).astype(np.int32)
    after = swap_two(before, cold, hot, swapped)
    by_hand = before.replica_at.tolist()
    if swapped:
        by_hand[cold], by_hand[hot] = by_hand[hot], by_hand[cold]
    assert after.replica_at.tolist() == by_hand
    assert_inverse(after)
    again = swap_two(after, cold, hot, swapped)
    np.testing.assert_array_equal(again.rung_of, before.rung_of)


@functools.partial(jax.jit, static_argnums=0)
def sweep_by_energy(made, index: swap.Index, attempts: Attempts, energy_of: jax.Array):
    def wanted(attempt: Attempts, cold: jax.Array, hot: jax.Array) -> jax.Array:
        return attempt.log_uniform < energy_of[cold] - energy_of[hot]

    return made.sweep(index, attempts, wanted)


@given(num_replicas=SIZES, seed=SEEDS, made=st.sampled_from([schedule.ape(), schedule.adj()]))
def test_a_sweep_is_one_swap_after_another(num_replicas, seed, made) -> None:
    rng = rng_of(seed)
    before = index_of(rng.permutation(num_replicas).astype(np.int32))
    order = np.array(list(itertools.combinations(range(num_replicas), 2)), np.int32)
    order = rng.permutation(order) if made.name == "ape" else order[order[:, 1] == order[:, 0] + 1]
    log_uniform = -rng.exponential(size=len(order)).astype(np.float32)
    energy_of = rng.normal(size=num_replicas).astype(np.float32)
    attempts = Attempts(order, log_uniform, None, None)
    after, swapped = sweep_by_energy(made, before, attempts, energy_of)

    by_hand, adjacent = before.replica_at.tolist(), [False] * (num_replicas - 1)
    for (cold, hot), log_u in zip(order, log_uniform):
        if log_u < energy_of[by_hand[cold]] - energy_of[by_hand[hot]]:
            by_hand[cold], by_hand[hot] = by_hand[hot], by_hand[cold]
            if hot == cold + 1:
                adjacent[cold] = True
    assert after.replica_at.tolist() == by_hand
    assert swapped.tolist() == adjacent
    assert_inverse(after)


@given(num_draws=st.sampled_from([2, 8]), num_replicas=st.sampled_from([2, 5]), seed=SEEDS)
@few
def test_the_noise_of_a_pair_is_half_the_variance_of_its_difference(
    num_draws, num_replicas, seed
) -> None:
    energies = rng_of(seed).normal(size=(num_draws, num_replicas)).astype(np.float32)
    seen = energy_noise.difference_variance(jnp.asarray(energies))
    difference = energies[:, :, None] - energies[:, None, :]
    np.testing.assert_allclose(seen, difference.var(axis=0, ddof=1) / 2, rtol=1e-3, atol=1e-5)


@given(cold=FINITE, hot=FINITE, gap=st.floats(0.0, 3.0), std=st.floats(0, 3), late=FINITE)
def test_corrections_only_lower_the_probability(cold, hot, gap, std, late) -> None:
    def log_probability(noise_var: float, correction: float) -> float:
        cold_energy, hot_energy = np.float64(cold), np.float64(hot)
        pair = swap.Proposal(cold_energy, hot_energy, gap, noise_var, 0.0, jnp.array(0.0))
        return float(swap.log_swap_probability(pair, correction))

    plain, corrected = log_probability(0.0, 0.0), log_probability(std**2, abs(late))
    assert corrected <= plain <= 0
    expected = min(0.0, gap * (cold - hot))
    assert plain == pytest.approx(expected, rel=1e-5, abs=1e-5)
    uncapped = gap * (cold - hot) - gap**2 * std**2 - abs(late)
    assert corrected == pytest.approx(min(0.0, uncapped), rel=1e-5, abs=1e-4)
