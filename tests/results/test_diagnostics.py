"""R-hat and effective size against ArviZ, and round trips against a count by hand."""

import numpy as np
import pytest

from replicax.results import diagnostics
from replicax.results.diagnostics import bulk_size, effective_size, rhat, tail_size
from replicax.run.carry import completed_trips, count_turns, round_trips, start_turns, trip_ends

# R-hat and effective size


def autoregression(correlation: float, num_chains: int, num_draws: int, seed: int) -> np.ndarray:
    """Stationary AR(1) of variance 1  -> (chain, draw)."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((num_chains, num_draws))
    values = np.empty_like(noise)
    values[:, 0] = noise[:, 0]
    for draw in range(1, num_draws):
        fresh = np.sqrt(1 - correlation**2) * noise[:, draw]
        values[:, draw] = correlation * values[:, draw - 1] + fresh
    return values


def test_the_error_of_a_standard_deviation_is_that_of_many_chains() -> None:
    every = autoregression(0.8, 400, 2_000, 3)
    errors = np.array([diagnostics.sd_error(runs) for runs in every.reshape(100, 4, -1)])
    spread = np.std([runs.std() for runs in every.reshape(100, 4, -1)])
    assert np.mean(errors) == pytest.approx(spread, rel=0.3)


def test_rare_wide_places_and_heavy_tails_have_an_error_of_the_standard_deviation() -> None:
    """Four excursions with 1 % of the draws: no tail, at 5 %, is short of draws."""
    values = np.random.default_rng(1).standard_normal((4, 10_000))
    assert diagnostics.sd_error(values) < 0.01
    values[:, 5_000:5_100] *= 10
    assert tail_size(values) > 1_000 and 0.05 < diagnostics.sd_error(values) < 1
    cauchy = np.random.default_rng(1).standard_cauchy((4, 10_000))
    assert diagnostics.sd_error(cauchy) < 0.02


def shifted(values: np.ndarray) -> np.ndarray:
    """Chains that do not agree about the mean."""
    return values + np.arange(len(values))[:, None]


def trending(values: np.ndarray) -> np.ndarray:
    """Chains that agree with each other but drift."""
    return values + np.linspace(0.0, 2.0, values.shape[1])


DATA = {
    "independent": autoregression(0.0, 4, 1_000, seed=0),
    "correlated": autoregression(0.9, 4, 1_000, seed=1),
    "antithetic": autoregression(-0.5, 4, 1_000, seed=2),
    "odd length": autoregression(0.5, 3, 777, seed=4),
    "short": autoregression(0.3, 2, 10, seed=5),
    "shifted": shifted(autoregression(0.5, 4, 500, seed=6)),
    "trending": trending(autoregression(0.5, 4, 500, seed=7)),
}


@pytest.mark.parametrize("name", DATA)
def test_effective_size_is_that_of_arviz(name: str) -> None:
    az = pytest.importorskip("arviz")
    for values in (DATA[name], DATA[name][:1], np.round(DATA[name], 1), DATA[name] ** 3):
        sizes = [size(values) for size in (effective_size, bulk_size, tail_size)]
        expected = [az.ess(values, method=method) for method in ("mean", "bulk")]
        expected += [az.ess(values, method="tail", prob=(0.05, 0.95))]
        np.testing.assert_allclose(sizes, expected, rtol=1e-6)


@pytest.mark.parametrize("name", DATA)
def test_rhat_is_that_of_arviz(name: str) -> None:
    az = pytest.importorskip("arviz")
    for values in (DATA[name], np.round(DATA[name], 1), DATA[name] ** 3):
        assert rhat(values) == pytest.approx(az.rhat(values), rel=1e-9)


def test_rhat_sees_chains_that_differ_in_spread_or_have_no_mean() -> None:
    rng = np.random.default_rng(0)
    scaled = rng.standard_normal((4, 500)) * np.array([1.0, 1.0, 1.0, 3.0])[:, None]
    assert rhat(scaled) > 1.05
    shifted_tails = rng.standard_cauchy((4, 500)) + np.array([0.0, 0.0, 0.0, 2.0])[:, None]
    assert rhat(shifted_tails) > 1.05


def test_effective_size_of_an_autoregression_is_its_closed_form() -> None:
    # n (1 - a) / (1 + a) = 80,000 / 19 at a = 0.9; the estimate's spread is about 3 %.
    values = autoregression(0.9, 8, 10_000, seed=8)
    assert effective_size(values) == pytest.approx(80_000 / 19, rel=0.1)


def test_constant_and_very_short_draws() -> None:
    assert rhat(np.repeat([[0.0], [1.0]], 10, axis=1)) == float("inf")
    assert np.isnan(effective_size(np.ones((2, 3))))
    assert rhat(np.ones((2, 10))) == 1.0 and np.isnan(rhat(np.ones((2, 3))))
    assert effective_size(np.ones((2, 10))) == 20


# Round trips


def paths(*of_replicas: list[int]) -> np.ndarray:
    """One chain  -> (1, step, replica)."""
    return np.array(of_replicas).T[None]


@pytest.mark.parametrize(
    ("path", "trips"),
    [
        ([0, 1, 2, 1, 0], 1),
        ([0, 1, 2, 1, 0, 1, 2, 1, 0], 2),
        ([0, 1, 2, 1], 0),  # not back yet
        ([0, 1, 0, 1, 1, 0], 0),  # never hot
        ([2, 1, 0], 0),  # began hot: half a trip
        ([2, 1, 0, 1, 2, 1, 0], 1),
        ([1, 2, 1, 0, 1, 2, 2, 0], 1),
        ([0, 1, 0, 1, 2, 1, 2, 1, 1, 0, 0], 1),  # slowly
        ([0, 2, 0, 2, 0], 2),
        ([1, 1, 1, 1, 1], 0),
    ],
)
def test_a_round_trip_goes_from_the_coldest_rung_to_the_hottest_and_back(
    path: list[int], trips: int
) -> None:
    stay_cold, stay_hot = [0] * len(path), [2] * len(path)
    assert round_trips(paths(path, stay_cold, stay_hot)).tolist() == [trips]


def test_round_trips_are_summed_over_replicas_for_each_chain() -> None:
    swaps = np.array([[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]])  # both replicas all the time
    once = np.array([[0, 1], [0, 1], [1, 0], [1, 0], [0, 1]])
    stays = np.array([[0, 1]] * 5)
    assert round_trips(np.stack([swaps, once, stays])).tolist() == [3, 1, 0]


def test_trips_end_where_replicas_are_back_and_begin_where_they_started() -> None:
    """Before the first step replica i is on rung i; a trip begins on the coldest."""
    rung_of = np.array(
        [[1, 0, 2], [2, 0, 1], [2, 1, 0], [1, 2, 0], [0, 2, 1], [0, 1, 2], [1, 0, 2]]
    )
    assert [ends.tolist() for ends in trip_ends(rung_of)] == [[5], [7], []]
    lone = np.array([[0, 1], [1, 0], [0, 1], [1, 0]])
    assert [ends.tolist() for ends in trip_ends(lone)] == [[3], [4]]


def count_by_hand(rung_of: np.ndarray) -> int:
    """Count the round trips of one chain, replica by replica."""
    hottest, trips = rung_of.shape[1] - 1, 0
    for path in rung_of.T:
        heading = "nowhere"
        for rung in path:
            if rung == 0:
                trips += heading == "down"
                heading = "up"
            elif rung == hottest and heading == "up":
                heading = "down"
    return trips


def random_paths(num_chains: int, num_steps: int, num_replicas: int, seed: int) -> np.ndarray:
    """Random swaps of neighbours; replica i starts on rung i  -> (chain, step, replica)."""
    rng = np.random.default_rng(seed)
    rung_of = np.tile(np.arange(num_replicas), (num_chains, num_steps + 1, 1))
    for chain in range(num_chains):
        now = np.arange(num_replicas)
        for step in range(num_steps):
            cold = rng.integers(num_replicas - 1)
            now = np.where(now == cold, cold + 1, np.where(now == cold + 1, cold, now))
            rung_of[chain, step + 1] = now
    return rung_of


def test_round_trips_agree_with_a_count_by_hand() -> None:
    rung_of = random_paths(num_chains=3, num_steps=600, num_replicas=3, seed=0)
    expected = [count_by_hand(chain) for chain in rung_of]
    assert min(expected) > 10
    assert round_trips(rung_of).tolist() == expected
    turns = start_turns(rung_of[:, 0])
    for step in range(1, 601):
        turns = count_turns(turns, rung_of[:, step], hottest=2)
    assert completed_trips(turns).sum(axis=1).tolist() == expected


def test_a_tail_that_is_left_slowly_is_told() -> None:
    rng = np.random.default_rng(0)
    even = rng.normal(size=(4, 4_000))
    neck = even.copy()
    for chain in neck:  # a few long stays far below
        for first in rng.integers(0, 3_900, 5):
            chain[first : first + 60] = -4 + 0.1 * rng.normal(size=60)
    assert diagnostics.sticky_tail({"x": even, "energy": neck}) is None
    assert "lower tail of x" in diagnostics.sticky_tail({"x": neck})
    assert "upper tail of x" in diagnostics.sticky_tail({"x": -neck})
