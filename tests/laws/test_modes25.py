"""The paper's 25 modes (section 5.1): round trips, mode masses and pair rates of DEO* and DEO.

Settings and numbers to land on are those of the paper's scripts; eight chains are eight seeds.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax import targets

NUM_STEPS, NUM_SEEDS, BURN_IN, THIN = 20_000, 8, 100, 10
TARGET = targets.modes25()


@functools.cache
def truth() -> np.ndarray:
    return targets.modes25_truth()


@functools.cache
def run(window: int, buffer: float | str = 4.0) -> rx.Posterior:
    return rx.sample(
        TARGET,
        targets.modes25_start,
        num_steps=NUM_STEPS,
        num_replicas=16,
        num_chains=NUM_SEEDS,
        method=rx.deo_star(
            learning_rate=(0.003, 0.6),
            target_swap_rate=0.4,
            window=window,
            gain=rx.Gain(),
            buffer=buffer,
            buffer_gain="auto" if buffer == "auto" else rx.Gain(),
        ),
        burn_in=BURN_IN,
        thin=THIN,
        seed=1,
    )


def trips_per_1000_steps(posterior: rx.Posterior) -> float:
    return float(posterior.round_trips.mean()) * 1000 / NUM_STEPS


def mode_distance(posterior: rx.Posterior) -> float:
    return float(np.mean([targets.mode_distance(x, truth()) for x in posterior.draws]))


def mass_outside(posterior: rx.Posterior) -> float:
    return float(np.mean([targets.mode_masses(x)[25] for x in posterior.draws]))


# Over chains, trips have a standard deviation of 0.6, mode distances of 0.011 and pair rates of
# 0.005; divide by sqrt(8) for the standard error of a mean over seeds.


def test_the_window_of_theorem_1_makes_41_round_trips_per_1000_steps() -> None:
    assert trips_per_1000_steps(run(window=8)) == pytest.approx(41, abs=3)


def test_window_1_makes_16_round_trips_per_1000_steps() -> None:
    assert trips_per_1000_steps(run(window=1)) == pytest.approx(16, abs=2)


def test_the_window_of_theorem_1_finds_the_masses_of_the_modes_and_window_1_does_not() -> None:
    # 1,990 independent exact draws of each chain would be 0.043 away.
    assert run(window=8).num_draws == (NUM_STEPS - BURN_IN) // THIN == 1990
    assert mode_distance(run(window=8)) <= 0.12
    assert mode_distance(run(window=1)) >= 0.40


def test_the_window_of_theorem_1_reaches_what_lies_outside_the_cells() -> None:
    # The sampler is biased towards the middle: half of the true mass outside, window 1 none.
    assert 0.06 < mass_outside(run(window=8)) < truth()[25]
    assert mass_outside(run(window=1)) < 0.005


@pytest.mark.parametrize("window", [8, 1])
def test_every_pair_wants_to_swap_at_nearly_the_target_rate(window: int) -> None:
    rates = run(window=window).verdict_rate.mean(axis=0)
    assert np.all((rates > 0.35) & (rates < 0.46))
    assert rates.mean() == pytest.approx(0.4, abs=0.01)  # Eq. 12 sees to it


@pytest.mark.parametrize("window", [8, 1])
def test_the_buffer_settles_where_it_should(window: int) -> None:
    assert run(window=window).buffer.mean() == pytest.approx({8: 0.37, 1: 0.30}[window], abs=0.1)


@pytest.mark.slow
def test_the_automatic_buffer_gives_the_same_picture() -> None:
    posterior = run(window=8, buffer="auto")
    assert trips_per_1000_steps(posterior) == pytest.approx(41, abs=3)
    assert mode_distance(posterior) <= 0.12
    rates = posterior.verdict_rate.mean(axis=0)
    assert np.all((rates > 0.35) & (rates < 0.46))


def test_window_8_is_the_default_for_16_replicas() -> None:
    assert rx.theory.optimal_window(16, 0.4) == run(window=8).window


# The target itself


def test_the_true_masses_are_a_distribution_with_the_symmetry_of_the_square() -> None:
    assert truth().shape == (26,)
    assert truth().sum() == pytest.approx(1)
    cells = truth()[:25].reshape(5, 5)
    np.testing.assert_allclose(cells, cells.T, rtol=1e-9)
    np.testing.assert_allclose(cells, cells[::-1], rtol=1e-9)
    assert np.argmax(cells) == 12  # the mode at the origin
    np.testing.assert_allclose(truth(), targets.modes25_truth(points_per_unit=50), atol=1e-5)


def mass_outside_by_quadrature(wall: bool) -> float:
    """Outside [-2.5, 2.5]^2, by the midpoint rule on a grid of its own."""
    x = (np.arange(-1_500, 1_500) + 0.5) / 150
    well = 0.2 * x**2 - 2 * np.cos(2 * np.pi * x)
    outside_wall = np.maximum(0.0, x[:, None] ** 2 + x**2 - 20)
    mass = np.exp(-well[:, None] - well - wall * outside_wall)
    inside = np.abs(x) < 2.5
    return 1 - mass[np.ix_(inside, inside)].sum() / mass.sum()


def test_a_fifth_of_the_mass_lies_outside_the_cells() -> None:
    # paper-facts.md gives 0.195 as the mass "without the wall"; it is the mass with it.
    assert truth()[25] == pytest.approx(0.1954, abs=1e-4)
    assert mass_outside_by_quadrature(wall=True) == pytest.approx(truth()[25], abs=1e-4)
    assert mass_outside_by_quadrature(wall=False) == pytest.approx(0.2065, abs=1e-4)


def test_the_gradient_is_that_of_the_energy_on_both_sides_of_the_wall() -> None:
    radius = np.array([0.0, 1.3, 3.0, 4.4, 4.5, 6.0, 9.0])  # the wall stands at 4.47
    angle = np.linspace(0.1, 6.0, 12)
    around = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points = (radius[:, None, None] * around).reshape(-1, 2).astype(np.float32)
    target = targets.modes25(noise_std=0.0)
    silent = jnp.zeros(2)
    given = jax.jit(jax.vmap(lambda x: target.gradient(x, None, silent)))(points)
    found = jax.jit(jax.vmap(jax.grad(targets.modes25_energy)))(points)
    np.testing.assert_allclose(given, found, rtol=1e-4, atol=1e-4)


def test_energy_and_gradient_are_seen_through_noise_of_standard_deviation_two() -> None:
    target = targets.modes25()
    keys = jax.random.split(jax.random.key(0), 20_000)
    point = jnp.array([0.4, -1.2])

    @jax.jit
    @jax.vmap
    def look(key):
        noise = target.draw(key)
        return target.energy(point, None, noise), target.gradient(point, None, noise)

    energies, gradients = (np.asarray(seen) for seen in look(keys))
    # Standard errors: 0.014 of a mean, 0.01 of a standard deviation.
    assert energies.mean() == pytest.approx(float(targets.modes25_energy(point)), abs=0.06)
    assert energies.std() == pytest.approx(2.0, abs=0.04)
    exact = jax.grad(targets.modes25_energy)(point)
    np.testing.assert_allclose(gradients.mean(axis=0), exact, atol=0.06)
    np.testing.assert_allclose(gradients.std(axis=0), 2.0, atol=0.04)


def test_masses_and_distance_of_a_few_points_are_what_a_hand_count_gives() -> None:
    at = np.array([[0.0, 0.0], [0.4, -0.4], [2.0, 2.0], [2.6, 0.0]])
    masses = targets.mode_masses(at)
    assert masses[12] == 0.5 and masses[24] == 0.25 and masses[25] == 0.25
    even = np.full(26, 1 / 26)
    # Two thirds and one third of the mass in two of 25 cells, against a 25th in each.
    assert targets.mode_distance(at, even) == pytest.approx(23 / 25)
