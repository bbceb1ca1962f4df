"""Temperatures that tune themselves: equal rejection along the ladder, and a free hottest rung."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import betainc

import replicax as rx
from replicax.algorithm.tuning import BarrierTuning, Verdicts, start_verdicts, tune_temperatures

DIMENSIONS = 8


def swap_rate(cold: np.ndarray, hot: np.ndarray) -> np.ndarray:
    """Acceptance of neighbours on N(0, tau I): the ratio of two Gamma energies is a Beta."""
    half = DIMENSIONS / 2
    return 2 * betainc(half, half, 1 / (1 + hot / cold))


@functools.partial(jax.jit, static_argnums=0)
def run(tuning: BarrierTuning, temperature: jax.Array) -> jax.Array:
    """Tune on verdicts drawn with the exact rates of the ladder as it is at every step."""
    half = DIMENSIONS / 2

    def step(carry, k):
        temperature, verdicts = carry
        share = 1 / (1 + temperature[1:] / temperature[:-1])
        rate = 2 * jax.scipy.special.betainc(half, half, share)
        wanted = jax.random.uniform(jax.random.fold_in(jax.random.key(0), k), rate.shape) < rate
        wanted = wanted & ((k >= 500) | (tuning.first_step == 0))
        return tune_temperatures(tuning, k, temperature, verdicts, wanted), None

    start = temperature, start_verdicts(temperature.shape[0] - 1, temperature.dtype)
    (temperature, _), _ = jax.lax.scan(step, start, jnp.arange(40_000))
    return temperature


ENDS = (2_500, 5_000, 10_000, 20_000, 32_000)


def tuned(temperature, **options) -> np.ndarray:
    ladder = jnp.asarray(temperature, jnp.float32)
    return np.asarray(run(BarrierTuning(ENDS, **options), ladder), float)


@pytest.mark.parametrize("bad", [[1, 1.05, 1.1, 1.2, 30], [1, 20, 24, 27, 30]])
def test_a_bad_ladder_ends_with_equal_rates(bad) -> None:
    ladder = tuned(bad)
    rates = swap_rate(ladder[:-1], ladder[1:])
    assert ladder[0] == 1 and ladder[-1] == 30
    assert np.ptp(rates) < 0.1 * rates.mean()
    before = swap_rate(np.array(bad[:-1], float), np.array(bad[1:], float))
    assert rates.min() > 4 * before.min(), "no pair blocks the ladder"


@pytest.mark.slow
def test_a_ladder_that_is_too_long_is_made_shorter() -> None:
    ladder = tuned(np.geomspace(1, 1e4, 5), hottest=1e4, free_until=20_001)
    rates = swap_rate(ladder[:-1], ladder[1:])
    assert 0.35 < rates.mean() < 0.65 and np.ptp(rates) < 0.1


@pytest.mark.slow
def test_a_ladder_that_is_too_short_is_made_longer() -> None:
    ladder = tuned(np.geomspace(1, 1.2, 5), hottest=1e4, free_until=20_001)
    rates = swap_rate(ladder[:-1], ladder[1:])
    assert 0.35 < rates.mean() < 0.65 and np.ptp(rates) < 0.1
    assert tuned(np.geomspace(1, 1.2, 5), hottest=2.0, free_until=20_001)[-1] <= 2.001


@pytest.mark.slow
def test_the_hottest_temperature_is_fixed_in_the_end() -> None:
    early = tuned(np.geomspace(1, 1.2, 5), hottest=1e4, free_until=2_501)
    assert 1.2 < early[-1] < 2.5, "one round may double the barrier, and no other followed"


def test_an_infinite_temperature_stays_the_prior() -> None:
    tuning = BarrierTuning((10,))
    temperature = jnp.array([1.0, 10.0, jnp.inf])
    verdicts = Verdicts(jnp.array(9), jnp.array([1.0, 8.0]))
    after, _ = tune_temperatures(
        tuning, jnp.array(9), temperature, verdicts, jnp.array([False, True])
    )
    assert after[0] == 1 and np.isinf(after[2]) and 1 < after[1] < 10


def test_a_free_ladder_that_reaches_the_prior_is_not_rounded_off_it() -> None:
    tuning = BarrierTuning((100,), hottest=np.inf, free_until=1_000)
    ladder = jnp.array([*np.geomspace(1, 50, 5), np.inf], jnp.float32)
    counts = np.random.default_rng(0).integers(20, 95, (400, 12, 5))  # of 100 verdicts each

    def one_round(ladder, wanted):
        verdicts = Verdicts(jnp.array(99, jnp.int32), wanted.astype(jnp.float32))
        ladder, _ = tune_temperatures(tuning, jnp.array(99), ladder, verdicts, jnp.zeros(5, bool))
        return ladder, ladder[-1]

    ends = jax.jit(jax.vmap(lambda wanted: jax.lax.scan(one_round, ladder, wanted)[1]))
    hottest = np.asarray(ends(jnp.asarray(counts)))
    assert np.isinf(hottest).any() and np.isfinite(hottest).any()
    assert not np.any(np.isfinite(hottest) & (hottest > 1e23))


@pytest.mark.slow
def test_verdicts_count_from_their_first_step() -> None:
    late = tuned(np.geomspace(1, 30, 5), first_step=500)
    rates = swap_rate(late[:-1], late[1:])
    assert np.ptp(rates) < 0.1 * rates.mean()
    tuning, wanted = BarrierTuning((9,), first_step=5), jnp.array([True, False])
    verdicts = start_verdicts(2, jnp.float32)
    for step in range(7):
        _, verdicts = tune_temperatures(tuning, jnp.array(step), jnp.ones(3), verdicts, wanted)
    assert int(verdicts.count) == 2 and verdicts.wanted.tolist() == [2, 0]


@pytest.mark.slow
def test_two_replicas_find_their_hottest_temperature() -> None:
    posterior = rx.sample(
        lambda x: jnp.sum(x**2) / 2,
        lambda key: jax.random.normal(key, (DIMENSIONS,)),
        num_steps=3_000,
        num_replicas=2,
        progress=False,
    )
    assert 0.3 < posterior.verdict_rate[0, 0] < 0.7


def tuned_by_hand(tuning: BarrierTuning, temperature, wanted, attempted) -> list[np.ndarray]:
    """Temperatures after every step; `wanted` is (step, pair)."""
    temperature, num_pairs = np.array(temperature, float), wanted.shape[1]
    count, yes, seen = 0, np.zeros(num_pairs), []
    for step in range(len(wanted)):
        counts = attempted[step] and step >= tuning.first_step
        count, yes = count + counts, yes + counts * wanted[step]
        if step + 1 in tuning.round_ends and count:
            rejection = 1.01 - yes / count
            barrier = np.append(0.0, rejection.cumsum())
            place = temperature**-0.25
            end, hot = barrier[-1], place[-1]
            if step < tuning.free_until:
                best, most = num_pairs / 2, 0.6 * num_pairs
                longer = min(best, 2 * end)
                slope = (place[-2] - place[-1]) / max(rejection[-1], 0.1)
                if end < best:
                    hot = max(hot - slope * (longer - end), tuning.hottest**-0.25)
                end = best if end > most else max(end, longer)
            cuts = np.linspace(0.0, end, num_pairs + 1)
            barrier[-1], place[-1] = max(barrier[-1], end), hot
            tuned = np.interp(cuts, barrier, place) ** -4.0
            tuned[0] = temperature[0]
            tuned[-1] = tuned[-1] if tuning.free_until else temperature[-1]
            temperature, count, yes = tuned, 0, np.zeros(num_pairs)
        seen.append(temperature)
    return seen


@pytest.mark.parametrize("rate", [0.15, 0.45, 0.7], ids=["too long", "right", "too short"])
@pytest.mark.parametrize("free_until", [0, 9])
def test_every_round_is_that_of_the_equations(rate: float, free_until: int) -> None:
    """Rounds end after steps 6, 10 and 14; steps 0, 1 and every fifth do not count."""
    tuning = BarrierTuning((7, 11, 15), first_step=2, hottest=4_000.0, free_until=free_until)
    wanted = np.random.default_rng(8).uniform(size=(18, 3)) < rate * np.array([1.1, 0.8, 1.0])
    attempted = np.arange(18) % 5 != 4
    temperature = jnp.array([1.0, 1.5, 6.0, 20.0])
    verdicts = start_verdicts(3, temperature.dtype)
    tune = jax.jit(lambda *arguments: tune_temperatures(tuning, *arguments))
    by_hand = tuned_by_hand(tuning, temperature, wanted, attempted)
    assert not np.allclose(by_hand[6], by_hand[0]) and not np.allclose(by_hand[-1], by_hand[6])
    for step, expected in enumerate(by_hand):
        temperature, verdicts = tune(
            jnp.int32(step), temperature, verdicts, wanted[step], attempted[step]
        )
        np.testing.assert_allclose(temperature, expected, rtol=2e-4, err_msg=f"{step}")
        assert temperature[0] == 1 and (free_until or temperature[-1] == 20), "not even rounded"
