"""The evidence from energies whose law on every rung is known, and by bridges to densities."""

import numpy as np
import pytest
from scipy.special import ndtr

from replicax.results.diagnostics import effective_size
from replicax.results.evidence import (
    Estimates,
    Evidence,
    _bennett,
    bridge,
    by_ladder,
    certainty,
    disagree,
    mean_error,
)

SHAPE, RATE = 3.0, 0.5
EXACT = SHAPE * np.log(RATE / (RATE + 1))
LADDERS = np.array(
    [[1.0, 1.6, 4.0, np.inf], [1.0, 2.5, 9.0, np.inf], [1.0, 1.2, 1.9, np.inf]]
)  # one for each chain


def energies(num_draws: int, seed: int = 0, ladders: np.ndarray = LADDERS) -> np.ndarray:
    """Energies with the density of states U^(k-1) e^(-cU): a Gamma law of rate c + 1/tau on a rung
    of temperature tau, and the evidence (c / (c + 1))^k  (chain, draw, rung)."""
    rng = np.random.default_rng(seed)
    drawn = rng.gamma(SHAPE, size=(len(ladders), num_draws, ladders.shape[1]))
    return drawn / (RATE + 1 / ladders[:, None, :])


def correlated(rng: np.random.Generator, shape: tuple[int, ...], correlation: float) -> np.ndarray:
    """Normal numbers of (chain, draw, ...), each draw correlated with the one before."""
    noise = rng.standard_normal(shape)
    for draw in range(1, shape[1]):
        noise[:, draw] *= np.sqrt(1 - correlation**2)
        noise[:, draw] += correlation * noise[:, draw - 1]
    return noise


# The ladder


def test_every_chain_has_its_own_ladder_and_the_mean_is_reported() -> None:
    found = by_ladder(energies(4000), LADDERS)
    assert np.all(np.abs(found.values - EXACT) < 4 * found.errors) and found.errors.max() < 0.03
    assert found.combined().value == pytest.approx(np.mean(found.values))
    for chain in range(3):
        alone = by_ladder(energies(4000)[[chain]], LADDERS[[chain]])
        assert alone.values[0] == found.values[chain] and alone.errors[0] == found.errors[chain]
    other = by_ladder(energies(4000), LADDERS[[1, 2, 0]]).values
    assert np.abs(other - EXACT).min() > 10 * found.errors.max()


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_standard_errors_are_those_of_repeated_runs(correlation: float) -> None:
    """Energies that are correlated within chains, of 120 runs of two chains."""
    rng, chances = np.random.default_rng(1), np.linspace(0, 1, 20_001)[1:-1]
    table = np.sort(np.random.default_rng(2).gamma(SHAPE, size=400_000))
    table = np.interp(chances, np.linspace(0, 1, len(table)), table)
    errors, found = [], []
    for _ in range(120):
        ranks = ndtr(correlated(rng, (2, 600, 4), correlation))
        drawn = np.interp(ranks, chances, table) / (RATE + 1 / LADDERS[:2, None, :])
        estimates = by_ladder(drawn, LADDERS[:2])
        errors.append(estimates.errors)
        found.append(estimates)
    values = np.stack([estimates.values for estimates in found])
    assert np.mean(errors, axis=0) == pytest.approx(values.std(axis=0), rel=0.2)
    combined = np.array([estimates.combined() for estimates in found])
    assert np.mean(np.abs(combined[:, 0] - EXACT) < 2 * combined[:, 1]) > 0.93
    assert sum(estimates.differ() for estimates in found) <= 1


def test_the_standard_error_is_at_least_that_of_the_spread_of_chains() -> None:
    values, errors = np.array([1.0, 2.0, 6.0]), np.array([0.3, 0.6, 0.6])
    assert Estimates(values, errors).combined() == pytest.approx((3.0, np.sqrt(7 / 3)))
    assert Estimates(values, 10 * errors).combined() == pytest.approx((3.0, 3.0))
    assert Estimates(values[:1], errors[:1]).combined() == (1.0, 0.3)


def test_chains_differ_beyond_noise_and_half_a_nat() -> None:
    """The ratio of variances, between and within, has an F distribution of 3 and 80 degrees of
    freedom: one in a thousand is above 5.97."""
    spread = np.array([-1.0, 1.0, -1.0, 1.0]) * np.sqrt(0.75)  # of variance 1
    for size, error, told in (
        (1.0, 5.9**-0.5, False),
        (1.0, 6.1**-0.5, True),
        (0.28, 0.01, False),
        (0.3, 0.01, True),
    ):
        assert Estimates(size * spread, np.full(4, error)).differ() == told
    assert not Estimates(np.zeros(1), np.ones(1)).differ()
    assert not Estimates(np.array([0.0, np.nan]), np.ones(2)).differ()


def test_a_chain_whose_hot_rungs_missed_a_mode_makes_chains_differ() -> None:
    """Two modes, of which one has three quarters of the prior's mass and energies that are higher
    by 30: with its ladder in the other, a chain gives an evidence that is too high."""
    rng, ladders = np.random.default_rng(0), np.array([[1.0, 2.0, 5.0, 20.0, np.inf]] * 4)
    for missed in (False, True):
        drawn = energies(500, seed=1, ladders=ladders)
        weights = np.exp(-30 / ladders)  # of the mode, on every rung
        there = rng.random(drawn.shape) < (0.75 * weights / (0.25 + 0.75 * weights))[:, None, :]
        there[2] &= not missed
        found = by_ladder(drawn + 30 * there, ladders)
        exact = EXACT + np.log(0.25 + 0.75 * np.exp(-30))
        assert found.differ() == missed
        assert found.combined().value == pytest.approx(exact, abs=3 * found.combined()[1])
        assert (found.combined().standard_error > 0.3) == missed


def test_points_without_likelihood_are_infinite_energies() -> None:
    """Half of the prior's mass has none: the evidence is lower by log 2."""
    drawn = energies(4000).astype(np.float32)
    without = np.random.default_rng(5).random(drawn.shape[:2]) < 0.5
    drawn[..., -1][without] = np.resize([np.inf, np.nan, 3e38], without.sum())
    found = by_ladder(drawn, LADDERS)
    assert np.all(np.abs(found.values - EXACT + np.log(2)) < 4 * found.errors)
    drawn[..., -1] = np.inf
    unknown = by_ladder(drawn, LADDERS)
    assert np.isnan(unknown.values).all() and not unknown.differ()


def test_rungs_that_share_no_energies_have_an_infinite_error() -> None:
    """The error of an estimate from next to no shared draws would be .04, where it is off by 40."""
    ladder = np.array([[1.0, 30.0, np.inf]])
    rng, rates = np.random.default_rng(2), 0.001 + 1 / ladder[0]
    drawn = rng.gamma(10.0, size=(1, 500, 3)) / rates  # the rungs of a longer ladder are left out
    exact = 10 * np.log(0.001 / 1.001)
    found = by_ladder(drawn, ladder)
    assert abs(found.values[0] - exact) > 10 and found.errors[0] == np.inf
    assert found.combined().standard_error == np.inf
    others = Estimates(np.array([1.0, 9.0, 1.2]), np.array([0.1, np.inf, 0.1]))
    assert not others.differ() and others.combined().standard_error == np.inf
    assert others._replace(values=np.array([1.0, 9.0, 3.0])).differ(), "of the two others"


def test_rungs_of_one_temperature_add_nothing() -> None:
    drawn = energies(500)
    drawn[:, ::7, -1] = np.inf
    twice = by_ladder(drawn[..., [0, 1, 1, 2, 3, 3]], LADDERS[:, [0, 1, 1, 2, 3, 3]])
    np.testing.assert_array_equal(twice.values, by_ladder(drawn, LADDERS).values)


@pytest.mark.parametrize("hot", [1, -1])
def test_a_ratio_is_found_where_few_draws_are_near_those_of_the_other_rung(hot: int) -> None:
    """One cold energy in five is as high as all hot ones: 5 f(t) = f(-t) at t = 10 + x, up to
    exp(-28), so that e^t = 5. By symmetry for one hot energy as low as all cold ones."""
    some, others = np.resize([10.0, -20, -20, -20, -20], 100), np.full(100, 10.0)
    pair = np.stack([some, others] if hot == 1 else [-others, -some], axis=1)
    found = by_ladder(pair[None], np.array([[1.0, np.inf]])).values[0]
    assert found == pytest.approx(hot * (np.log(5) - 10), abs=1e-6)


# A bridge


def gaussians(
    rng: np.random.Generator, width: float, mean: float = 0.0, num_draws: int = 2000, rho: float = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Log e^2 N(0, 1) / N(mean, width^2) in three dimensions, at draws of four chains and at
    proposals."""
    draws = correlated(rng, (4, num_draws, 3), rho)
    proposals = mean + width * rng.standard_normal((4, num_draws, 2000 // num_draws, 3))

    def ratio(x: np.ndarray) -> np.ndarray:
        scaled = (x - mean) / width
        return 2.0 + np.sum((scaled**2 - x**2) / 2 + np.log(width), axis=-1)

    return ratio(draws), ratio(proposals)


@pytest.mark.parametrize(("width", "mean"), [(1.3, 0.3), (0.4, 0.0), (3.0, 1.0)])
def test_a_bridge_finds_the_evidence_from_wide_and_from_narrow_proposals(width, mean) -> None:
    rng = np.random.default_rng(3)
    found = [bridge(*gaussians(rng, width, mean)) for _ in range(25)]
    values = np.array([estimates.values for estimates in found])
    errors = np.array([estimates.errors for estimates in found])
    assert np.abs(values.mean() - 2.0) < 4 * values.std() / 10
    assert errors.mean() == pytest.approx(values.std(), rel=0.25)
    away = [abs(value - 2.0) / error for value, error in (e.combined() for e in found)]
    assert np.mean(np.array(away) < 2) >= 0.9 and max(away) < 4


def jumping(rng: np.random.Generator, num_runs: int, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Log weights of draws (run, chain, draw) and proposals (..., 1) of independence chains that
    take two jumps a step: a proposal is often the draw of its step, and those that follow."""
    shape = (num_runs, 2, 2 * 400, 3)
    proposals, uniform = 0.3 + width * rng.standard_normal(shape), rng.random(shape[:-1])

    def log_weight(x: np.ndarray) -> np.ndarray:
        return 2.0 + np.sum(((x - 0.3) / width) ** 2 / 2 - x**2 / 2 + np.log(width), axis=-1)

    proposed = log_weight(proposals)
    state, path = log_weight(rng.standard_normal((num_runs, 2, 3))), []
    for at, u in zip(np.moveaxis(proposed, 2, 0), np.moveaxis(uniform, 2, 0)):
        state = np.where(np.log(u) < at - state, at, state)
        path.append(state)
    return np.stack(path[1::2], axis=2), proposed[:, :, 1::2, None]


@pytest.mark.parametrize("width", [0.8, 1.2, 2.0])
def test_errors_of_a_bridge_hold_where_draws_are_proposals(width: float) -> None:
    """In 200 runs of two chains, whose draws are mostly accepted proposals."""
    draws, proposals = jumping(np.random.default_rng(9), 200, width)
    found = [bridge(*run) for run in zip(draws, proposals)]
    values = np.array([estimates.values for estimates in found])
    errors = np.array([estimates.errors for estimates in found])
    assert errors.mean() == pytest.approx(values.std(), rel=0.2)
    away = np.array([abs(e.combined().value - 2.0) / e.combined().standard_error for e in found])
    assert np.mean(away < 2) > 0.92 and away.max() < 4.5
    assert sum(estimates.differ() for estimates in found) <= 1
    if width == 1.2:  # errors as if one knew nothing of the other are too small
        one = [_bennett(d, p.ravel()) for d, p in zip(draws[:, 0], proposals[:, 0])]
        apart = [np.hypot(mean_error(a), np.std(b) / len(b) ** 0.5) for _, a, b in one]
        assert np.mean(apart) < 0.9 * values.std()


def test_importance_weights_of_narrow_proposals_would_be_low() -> None:
    """Of proposals half as wide weights have no finite variance; the bridge needs none."""
    at_draws, at_proposals = gaussians(np.random.default_rng(4), width=0.4)
    by_weights = np.log(np.mean(np.exp(at_proposals)))
    value, error = bridge(at_draws, at_proposals).combined()
    assert abs(value - 2.0) < 3 * error < 0.1 < abs(by_weights - 2.0)


def test_the_effective_size_of_draws_enters_a_bridge() -> None:
    """Correlated draws have a larger error, and weigh less against proposals."""
    rng = np.random.default_rng(5)
    found = [bridge(*gaussians(rng, 0.5, num_draws=500, rho=0.9)) for _ in range(40)]
    values = np.array([estimates.values for estimates in found])
    errors = np.array([estimates.errors for estimates in found])
    assert errors.mean() == pytest.approx(values.std(), rel=0.25)
    independent = bridge(*gaussians(rng, 0.5, num_draws=500)).errors.mean()
    assert errors.mean() > 1.5 * independent
    at_draws, at_proposals = gaussians(rng, 0.5, num_draws=500)
    repeated = bridge(np.repeat(at_draws, 4, axis=1), at_proposals.reshape(4, 2000, 1))
    once = bridge(at_draws, at_proposals)
    np.testing.assert_allclose(repeated.values, once.values, atol=0.1 * once.errors.max())
    np.testing.assert_allclose(repeated.errors, once.errors, rtol=0.1)


def test_a_bridge_to_one_of_two_modes_is_right_if_the_draws_are() -> None:
    """Draws of two equal modes, 12 apart, proposals from one: half of the draws are there. Where
    draws miss the other mode as well, a bridge is low by log 2, and cannot know."""
    rng = np.random.default_rng(6)
    draws, proposals = rng.standard_normal((4, 3000)), rng.standard_normal((4, 3000, 1))
    modes = 12 * (rng.random(draws.shape) < 0.5)

    def ratio(x: np.ndarray) -> np.ndarray:
        return np.logaddexp(0, -((x - 12) ** 2 - x**2) / 2)

    right = bridge(ratio(draws + modes), ratio(proposals)).combined()
    low = bridge(ratio(draws), ratio(proposals)).combined()
    assert abs(right.value - np.log(2)) < 3 * right.standard_error < 0.1
    assert abs(low.value) < 3 * low.standard_error + 1e-6
    ladder = Evidence(np.log(2) + 0.05, 0.04)
    assert disagree(ladder, low) and not disagree(ladder, right)


def test_proposals_outside_of_the_posterior_have_no_density() -> None:
    """A half normal and proposals from the whole one, of which half are lost: Z = 1 / 2."""
    rng = np.random.default_rng(7)
    proposals = np.where(rng.random((2, 500, 8)) < 0.5, -np.inf, 0.0)
    value, error = bridge(np.zeros((2, 500)), proposals).combined()
    assert abs(value - np.log(0.5)) < 3 * error < 0.1
    assert np.isnan(bridge(np.zeros((2, 500)), np.full((2, 500, 1), -np.inf)).values).all()


# Two estimates


def test_two_estimates_disagree_beyond_noise_and_half_a_nat() -> None:
    bound = certainty(2)
    assert 3 < bound < 5
    for apart, error, told in (
        (0.49, 0.001, False),
        (0.51, 0.001, True),
        (0.99 * bound, 1.0, False),
        (1.01 * bound, 1.0, True),
    ):
        for sign in (1, -1):
            one, other = Evidence(sign * apart, 0.6 * error), Evidence(0.0, 0.8 * error)
            assert disagree(one, other) == told
    assert not disagree(Evidence(9.0, np.inf), Evidence(0.0, 1.0))


def test_the_error_of_a_mean_is_that_of_its_effective_size() -> None:
    series = correlated(np.random.default_rng(8), (1, 4000), 0.9)
    assert mean_error(series[0]) == pytest.approx(series.std() / np.sqrt(effective_size(series)))
    assert mean_error(series[0]) == pytest.approx(np.sqrt(1.9 / 0.1 / 4000), rel=0.3)


@pytest.mark.parametrize("odds", [1e-6, 0.3, 1.0, 1e6])
def test_a_ratio_of_constants_is_found_whatever_the_odds_are(odds: float) -> None:
    """Of equal ratios c at both laws, and of a single finite one among many."""
    for count in (1, 7, 10_000):
        found, *_ = _bennett(np.full(count, 3.0), np.full(5, 3.0), odds)
        assert found == pytest.approx(3.0, abs=1e-6)
    rare = np.full(10_000, -np.inf)
    rare[0] = 2.0
    assert np.isfinite(_bennett(np.full(3, 2.0), rare, odds)[0])


def test_without_a_finite_ratio_on_both_sides_nothing_is_known() -> None:
    none, some = np.full(4, -np.inf), np.zeros(5)
    for cold, hot in ((none, some), (some, none), (none, none)):
        found, of_cold, of_hot = _bennett(cold, hot)
        assert np.isnan(found) and (len(of_cold), len(of_hot)) == (len(cold), len(hot))
        assert np.isnan(of_cold).all() and np.isnan(of_hot).all()
