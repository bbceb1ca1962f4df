"""The laws that whole chains leave behind, against exact answers.

Two replicas on a two-mode target against the same chain solved on a grid.

Seeds are fixed; beside every bound stands the Monte Carlo standard error it must cover.
"""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from common import slow

import replicax as rx
from replicax.algorithm import schedule as schedules
from replicax.algorithm.swap import Rule, bias_corrected, metropolis, window_corrected
from studies import two_modes
from studies.two_modes import OF_THE_PAPER, TwoModes

solve = functools.cache(two_modes.solve)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("energy_noise_std", "window", "window_correction", "left", "swaps"),
    [
        (3.0, 1, 0.0, 0.4034, 0.0305),
        (2.0, 10, 0.0, 0.452, 0.566),
        (3.0, 10, 0.0, 0.425, 0.249),
        (3.0, 10, 1.13, 0.4034, 0.147),
    ],
)
def test_the_grid_solution_is_that_of_the_window_correction_table(
    energy_noise_std: float, window: int, window_correction: float, left: float, swaps: float
) -> None:
    solution = solve(OF_THE_PAPER, energy_noise_std, window, window_correction)
    assert solution.left == pytest.approx(left, abs=0.001)
    assert solution.swaps_per_window == pytest.approx(swaps, abs=0.001)


@pytest.mark.slow
def test_a_long_window_of_the_table_is_solved_too() -> None:
    solution = solve(OF_THE_PAPER, 3.0, 100)
    found = (solution.left, solution.distance, solution.swaps_per_window)
    assert found == pytest.approx((0.482, 0.083, 0.902), abs=0.001)


def test_many_steps_at_once_are_as_many_steps_one_by_one() -> None:
    for gated in (True, False):
        window = two_modes._Window(NEAR, 1.5, 30, 0.7, gated)
        before = np.exp(-NEAR.energy()[:, None] - NEAR.energy()[None, :] / 10)
        before = before / before.sum()
        masses = np.stack([before, np.zeros_like(before)], axis=1)
        seen, swapped = [], 0.0
        for _ in range(30):
            swapped += np.sum(window.move(masses)[:, 0] * window.swaps)
            masses = window.step(masses)
            seen.append(masses.sum(axis=1))
        assert masses.sum() == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(window.end(before), seen[-1], atol=1e-9)
        mean, swaps = window.average(before)
        np.testing.assert_allclose(mean, np.mean(seen, axis=0), atol=1e-9)
        assert swaps == pytest.approx(swapped, abs=1e-6)


# Modes so near that hot replicas cross in about 30 steps: a chain forgets its start quickly.
NEAR = TwoModes((-2.0, 1.5), (0.6, 0.4), 0.04, grid=(-9.0, 6.9, 160))


def sample_near(rule: Rule, energy_noise_std: float, window: int, swaps: str) -> rx.Posterior:
    return rx.sample(
        NEAR.target(energy_noise_std),
        jnp.zeros(()),
        num_steps=1_500,
        num_replicas=2,
        num_chains=1_000,
        method=rx.Method(
            "own",
            learning_rate=NEAR.learning_rate,
            temperature=NEAR.temperatures,
            schedule=schedules.windowed_deo(window, swaps, alternate=False),
            rule=rule,
        ),
        burn_in=300,
        thin=12,
    )


@pytest.mark.filterwarnings("ignore:Pair", "ignore:The rule")
@pytest.mark.parametrize(
    ("rule", "energy_noise_std", "window", "swaps"),
    [
        slow(metropolis(), 0.0, 1, "at_most_one"),
        slow(metropolis(), 0.0, 5, "at_most_one"),
        slow(bias_corrected(1.5), 1.5, 10, "at_most_one"),
        slow(bias_corrected(1.5), 1.5, 10, "no_gate"),
        slow(window_corrected(1.0, 1.5), 1.5, 10, "at_most_one"),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_the_chain_on_two_modes_has_the_law_of_its_grid_solution(
    rule: Rule, energy_noise_std: float, window: int, swaps: str
) -> None:
    gated = swaps == "at_most_one"
    solution = solve(NEAR, energy_noise_std, window, rule.window_correction, gated)
    posterior = sample_near(rule, energy_noise_std, window, swaps)
    # Standard error 0.003.
    left = (posterior.draws < 0).mean(axis=1)
    assert left.mean() == pytest.approx(solution.left, abs=4 * left.std() / np.sqrt(left.size))
    # Total variation over cells of four grid points; 0.005 to 0.007 comes from chance alone.
    edges = np.append(NEAR.points()[::4], 7.0) - 0.05
    seen = np.histogram(posterior.draws, edges)[0] / posterior.draws.size
    assert np.abs(seen - solution.cold.reshape(-1, 4).sum(axis=1)).sum() / 2 < 0.015
    # Standard error 0.001 or less.
    rates = posterior.window_swap_rate if gated else window * posterior.verdict_rate
    assert rates.mean() == pytest.approx(solution.swaps_per_window, abs=0.005 if gated else 0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("energy_noise_std", "window"), [(0.0, 5), (1.5, 10)])
def test_the_bias_of_a_gate_is_large_enough_to_be_seen_above(
    energy_noise_std: float, window: int
) -> None:
    gated = solve(NEAR, energy_noise_std, window).left
    assert gated - solve(NEAR, energy_noise_std, window, gated=False).left > 0.04
