"""Fits of mixtures, and the choice among them."""

import numpy as np
import pytest
from common import rng_of, slow

from replicax.algorithm import fitting
from replicax.algorithm.fitting import (
    choose,
    fit,
    harmonic_acceptance,
    joined,
    log_density,
    with_wide,
)
from replicax.algorithm.mixture import Mixture, make_mixture

CENTRES = np.array([[-4.0, 0.0, 1.0], [3.0, 3.0, -2.0]])
WIDTHS = np.array([0.5, 1.5])


def draws_of(shares, n, rng):
    mode = rng.choice(2, size=n, p=shares)
    return CENTRES[mode] + WIDTHS[mode, None] * rng.standard_normal((n, 3))


def energy_of(shares):
    law = make_mixture(np.log(shares), CENTRES, WIDTHS[:, None, None] * np.eye(3))
    return lambda x: -log_density(law, np.asarray(x, float))


def test_a_fit_finds_the_components() -> None:
    x = draws_of([0.3, 0.7], 4000, rng_of(0))
    found = fit(x, 2, rng_of(1))
    order = np.argsort(found.mean[:, 0])
    assert np.allclose(found.mean[order], CENTRES, atol=0.15)
    assert np.allclose(np.exp(found.log_weight[order]), [0.3, 0.7], atol=0.03)
    sd = np.sqrt(np.diagonal(found.root @ found.root.swapaxes(1, 2), axis1=1, axis2=2))[order]
    assert np.allclose(sd, WIDTHS[:, None], rtol=0.1)


def test_repeats_count_as_often_as_they_occur() -> None:
    x = draws_of([0.5, 0.5], 2000, rng_of(0))
    repeated = np.concatenate([x, *3 * [x[x[:, 0] > 0]]])
    found = fit(repeated, 2, rng_of(1))
    assert np.exp(found.log_weight.max()) == pytest.approx(0.8, abs=0.03)


def test_heavy_tails_do_not_widen_a_heavy_tailed_component() -> None:
    x = rng_of(0).standard_t(4, (6000, 1))
    widths = [float(fit(x, 1, rng_of(1), freedom=f).root[0, 0, 0]) for f in (4.0, np.inf)]
    assert widths[0] == pytest.approx(1.0, abs=0.05) and widths[1] > 1.25


def test_few_draws_in_many_dimensions_are_shrunk_to_the_covariance_of_the_search() -> None:
    d, n = 60, 200
    x = rng_of(0).standard_normal((n, d))
    condition = [np.linalg.cond(fit(x, 1, rng_of(1), towards=t).root[0]) for t in (None, np.eye(d))]
    assert condition[1] < 1.2 < 2 < condition[0]


def test_a_small_mode_counts() -> None:
    """One state of 50 that no proposal reaches halves the acceptance, or worse; their mean hardly
    sees it."""
    state = np.zeros(50)
    state[0] = 30.0  # its weight is large: nothing is accepted there
    proposal = np.zeros(400)
    assert harmonic_acceptance(np.zeros(50), proposal, 64) == pytest.approx(1.0, abs=0.02)
    assert harmonic_acceptance(state, proposal, 64) < 0.5
    assert harmonic_acceptance(state, np.full(400, np.nan), 64) < 0.02


def test_what_an_earlier_round_found_is_not_forgotten() -> None:
    """Draws that miss a mode leave the component that had found it where it was."""
    rng = rng_of(0)
    old = fit(draws_of([0.5, 0.5], 2000, rng), 2, rng)
    one = draws_of([0.0, 1.0], 2000, rng)
    both = joined(old, fit(one, 1, rng), one)
    at_lost = log_density(both, CENTRES[:1])[0] - log_density(old, CENTRES[:1])[0]
    assert -9 < at_lost < -5
    assert np.exp(both.log_weight).sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("shares", "least"), [([0.5, 0.5], 0.6), slow([0.03, 0.97], 0.6)])
def test_the_choice_is_close_to_the_target(shares, least) -> None:
    rng, energy = rng_of(0), energy_of(shares)
    draws = draws_of(shares, 4 * 1500, rng).reshape(4, 1500, 3).astype(np.float32)
    start = with_wide(
        make_mixture(np.zeros(1), CENTRES[1:], np.eye(3)[None]), CENTRES[1], np.eye(3)
    )
    energies = energy(draws.reshape(-1, 3)).reshape(4, 1500)
    chosen = choose(start, draws, energies, energy, rng, 64)
    assert chosen.acceptance > least and chosen.name != "old"
    assert chosen.evaluations % 400 == 0 and chosen.evaluations < 20_000
    again = choose(start, draws, energies, energy, rng_of(0), 64)
    assert again.acceptance != chosen.acceptance, "other proposals: the generator went on"


@pytest.mark.parametrize("held", [slice(350, 500), slow(slice(250, 340))])
def test_a_place_where_the_chain_was_held_leads_to_a_new_fit(held) -> None:
    """One of four chains was there once, in its last third, too, or before it."""
    rng, energy = rng_of(0), energy_of([0.1, 0.9])
    draws = draws_of([0.0, 1.0], 4 * 600, rng).reshape(4, 600, 3)
    some = CENTRES[0] + WIDTHS[0] * rng.standard_normal((15, 3))
    draws[1, held] = np.repeat(some, -(-(held.stop - held.start) // 15), axis=0)[
        : held.stop - held.start
    ]
    draws = draws.astype(np.float32)
    one = make_mixture(np.zeros(1), CENTRES[1:], WIDTHS[1] * np.eye(3)[None])
    energies = energy(draws.reshape(-1, 3)).reshape(4, 600)
    chosen = choose(one, draws, energies, energy, rng, 64)
    assert chosen.name != "old"
    gained = log_density(chosen.mixture, CENTRES[:1]) - log_density(one, CENTRES[:1])
    assert log_density(chosen.mixture, CENTRES[:1])[0] > -6 and gained > 3


def test_the_old_mixture_stays_where_draws_are_few() -> None:
    rng, energy = rng_of(0), energy_of([0.5, 0.5])
    old = with_wide(fit(draws_of([0.5, 0.5], 2000, rng), 2, rng), np.zeros(3), 9 * np.eye(3))
    draws = draws_of([0.5, 0.5], 12, rng).reshape(2, 6, 3).astype(np.float32)
    energies = energy(draws.reshape(-1, 3)).reshape(2, 6)
    assert choose(old, draws, energies, energy, rng, 64).name == "old"


def test_a_mixture_is_renewed_by_the_weights_of_its_own_proposals() -> None:
    rng = rng_of(8)
    old = make_mixture(np.zeros(1), np.zeros((1, 2)), 3 * np.eye(2)[None])
    points = fitting.draw(old, rng, 1_000)
    centre, sd = np.array([1.5, -1.0]), np.array([0.6, 0.3])
    energies = 0.5 * np.sum(((points - centre) / sd) ** 2, axis=1)
    chosen = fitting.refit(old, points, energies, old, rng)
    assert chosen.mixture is not None and chosen.acceptance > 0.2
    drawn = fitting.draw(chosen.mixture, rng, 4_000)
    np.testing.assert_allclose(np.median(drawn, axis=0), centre, atol=0.3)
    weight = -0.5 * np.sum(((drawn - centre) / sd) ** 2, axis=1)
    weight = weight - fitting.log_density(chosen.mixture, drawn)
    assert fitting.harmonic_from_proposals(weight) > 0.2
    before = -energies - fitting.log_density(old, points)
    assert fitting.harmonic_from_proposals(before) < 0.06
    assert fitting.effective(weight) > 600 > fitting.effective(before)


def test_a_mixture_far_from_where_the_mass_is_moves_there() -> None:
    rng = rng_of(9)
    mixture = make_mixture(np.zeros(1), np.zeros((1, 3)), np.eye(3)[None])
    first = mixture
    for _ in range(6):  # each with proposals of its own
        points = fitting.draw(mixture, rng, 1_000)
        energies = 0.5 * np.sum(((points - 4) / 0.5) ** 2, axis=1)
        mixture = fitting.refit(mixture, points, energies, mixture, rng).mixture
        assert mixture is not None
    near = np.linalg.norm(fitting.draw(mixture, rng, 1_000) - 4, axis=1)
    assert np.median(near) < 2 < np.median(np.linalg.norm(fitting.draw(first, rng, 99) - 4, axis=1))


def test_a_merged_mixture_has_the_density_of_both() -> None:
    one = make_mixture(np.zeros(1), np.zeros((1, 2)), np.eye(2)[None])
    other = make_mixture(np.zeros(2), np.ones((2, 2)), np.eye(2)[None] * np.ones((2, 1, 1)), 4.0)
    points = rng_of(1).normal(size=(50, 2))
    both = fitting.log_density(fitting.merged(one, other, 0.3), points)
    apart = [np.exp(fitting.log_density(mixture, points)) for mixture in (one, other)]
    np.testing.assert_allclose(np.exp(both), 0.7 * apart[0] + 0.3 * apart[1])


@pytest.mark.parametrize(("num_draws", "sizes"), [(19, []), (40, [1, 2]), (49, [1, 2, 4])])
def test_every_component_has_three_draws_for_each_dimension(num_draws, sizes) -> None:
    points, seen = np.random.default_rng(0).standard_normal((num_draws, 4)), []

    def consider(name: str, mixture: Mixture) -> bool:
        seen.append(name)
        return True

    fitting._consider_sizes(points, np.random.default_rng(1), None, consider)
    heavy = [f"{sizes[-1]}, heavy-tailed"] if sizes else []
    assert seen == [*map(str, sizes), *heavy]
