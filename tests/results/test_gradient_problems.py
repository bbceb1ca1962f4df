"""Whether gradients explain energies, of runs whose moves follow gradients alone."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from altered_runs import alter

import replicax as rx
from replicax.results.gradient_problems import _PLACES, _temperature, _unexplained, gradient_problem

_ROWS = jnp.asarray(np.random.default_rng(0).normal(1.0, 1.0, 200), jnp.float32)


def log_likelihood(mean: Any, rows: Any) -> Any:
    return -((rows - mean) ** 2) / 2


def posterior_of(likelihood: Callable, batch_size: int | None = 20) -> Any:
    return rx.bayesian(likelihood, lambda mean: -(mean**2) / 200, _ROWS, batch_size=batch_size)


@pytest.fixture(scope="module")
def smooth() -> rx.Posterior:
    options = {"num_steps": 6_000, "num_replicas": 2, "num_chains": 4, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rx.sample(posterior_of(log_likelihood), jnp.array(1.0), **options)


def said(run: rx.Posterior, likelihood: Callable) -> str:
    """What is said of the draws of the run if they are to be those of another likelihood."""
    judged = rx.Posterior(run._records, run._like, posterior_of(likelihood))
    found = judged._gradient_problem
    assert found is None or found in judged.problems()
    return found or ""


def test_a_sound_run_is_silent(smooth: rx.Posterior) -> None:
    assert said(smooth, log_likelihood) == ""


def test_jumps_are_found(smooth: rx.Posterior) -> None:
    jumps = said(smooth, lambda m, rows: log_likelihood(m, rows) + 0.02 * jnp.floor(m / 0.01))
    assert "gradient says otherwise" in jumps and "Leave out batch_size" in jumps
    other = said(smooth, lambda m, rows: 9 * log_likelihood(jax.lax.stop_gradient(m), rows))
    assert "a wrong gradient" in other


def test_a_change_of_energy_is_the_integral_of_the_gradient_along_a_step() -> None:
    """A cubic, whose slope the quadrature integrates exactly, from the first place to the last."""
    rng = np.random.default_rng(0)
    starts, steps = rng.normal(size=(2, 50, 3))
    points = starts[:, None] + _PLACES[:, None] * steps[:, None]  # (step, place, component)
    energies, gradients = np.sum(points**3, axis=2), 3 * points**2
    assert _unexplained(energies, gradients, steps) is None
    for place, found in ((0, True), (-1, True), (-2, False), (1, False)):
        jumped = energies.copy()
        jumped[:, place] += 1.0
        assert (_unexplained(jumped, gradients, steps) is not None) == found
    assert "changes by 1 where" in str(_unexplained(energies + (_PLACES == 1), gradients, steps))


def test_too_many_rows_are_not_evaluated(smooth: rx.Posterior, monkeypatch) -> None:
    monkeypatch.setattr("replicax.results.gradient_problems._MOST_ROWS", len(_ROWS) - 1)
    assert said(smooth, lambda m, rows: 2.0 * log_likelihood(m, rows)) == ""


def test_kinks_and_rounding_are_no_jumps(smooth: rx.Posterior) -> None:
    assert "otherwise" not in said(smooth, lambda m, rows: -jnp.abs(rows - m))
    offset = said(smooth, lambda m, rows: log_likelihood(m, rows) - 1e5)
    assert "otherwise" not in offset, "energies of 2e7"


def test_draws_of_another_temperature_are_found(smooth: rx.Posterior) -> None:
    assert "too hot" in said(smooth, lambda m, rows: 2.0 * log_likelihood(m, rows))
    assert "too cold" in said(smooth, lambda m, rows: 0.5 * log_likelihood(m, rows))


@pytest.mark.parametrize("temperature, word", [(1.0, None), (1.15, "too hot"), (0.75, "too cold")])
def test_the_temperature_of_gaussian_draws(temperature: float, word: str | None) -> None:
    """Parameters of very different scales, far from 0, of which two are correlated."""
    rng, scale = np.random.default_rng(3), np.array([1e-3, 1.0, 1e3])
    root = np.linalg.cholesky([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    white = np.sqrt(temperature) * rng.standard_normal((4, 250, 3))
    gradients = white @ np.linalg.inv(root) / scale
    found = _temperature(5 * scale + white @ root.T * scale, gradients)
    assert (found is None) if word is None else (word in str(found))
    one = np.concatenate([gradients[..., :2], 1.6 * gradients[..., 2:]], axis=2)
    assert "too hot" in str(_temperature(5 * scale + white @ root.T * scale, one))


def test_what_cannot_be_checked_is_not(smooth: rx.Posterior) -> None:
    assert gradient_problem(rx.Posterior(smooth._records, smooth._like)) is None, "no target"
    steep = lambda m, rows: 100.0 * jnp.floor(m / 0.05) + 0 * rows  # noqa: E731
    exact = alter(smooth, adjusted=True)
    assert said(exact, steep) == "", "moves that are accepted or rejected need no gradient"
    assert said(smooth, steep) != ""


def test_sgld_with_steps_that_are_too_long_is_a_warning() -> None:
    """It mixes well, and all chains agree on draws that are twice as wide as the posterior."""
    options = {"num_steps": 3_000, "num_replicas": 2, "num_chains": 2, "progress": False}
    with pytest.warns(rx.errors.RunProblem, match="too hot: according to gradients over all rows"):
        run = rx.sample(
            posterior_of(log_likelihood),
            1.0,
            method=rx.posterior("sgld", learning_rate=3e-3),
            **options,
        )
    assert run.draws.std() > 1.3 * 200**-0.5
