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
from replicax.results.gradient_problems import (
    _PLACES,
    _evaluate,
    _find_jumps,
    _gradient_words,
    _temperature,
    _unexplained,
    gradient_problem,
)

_ROWS = jnp.asarray(np.random.default_rng(0).normal(1.0, 1.0, 200), jnp.float32)


def log_likelihood(mean: Any, rows: Any) -> Any:
    return -((rows - mean) ** 2) / 2


def posterior_of(likelihood: Callable, batch_size: int | None = 20) -> Any:
    return rx.bayesian(likelihood, lambda mean: -(mean**2) / 200, _ROWS, batch_size=batch_size)


@pytest.fixture(scope="module")
def smooth() -> rx.Posterior:
    """Short steps on mini-batches of half of the rows."""
    options = {"num_steps": 12_000, "num_replicas": 2, "num_chains": 4, "progress": False}
    method = rx.deo(1e-4, temperature=(1.0, 4.0), rule="metropolis", energy_at="all_rows")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target = posterior_of(log_likelihood, 100)
        return rx.sample(target, jnp.array(1.0), method=method, burn_in=2_000, **options)


def said(run: rx.Posterior, likelihood: Callable) -> str:
    """What is said of the draws of the run if they are to be those of another likelihood."""
    judged = rx.Posterior(run._records, run._like, posterior_of(likelihood))
    found = judged._gradient_problem
    assert found is None or found in judged.problems()
    return found or ""


def test_a_sound_run_is_silent(smooth: rx.Posterior) -> None:
    assert said(smooth, log_likelihood) == ""


def test_a_wrong_gradient_is_found(smooth: rx.Posterior) -> None:
    other = said(smooth, lambda m, rows: 9 * log_likelihood(jax.lax.stop_gradient(m), rows))
    assert "gradient says otherwise" in other and "Leave out batch_size" in other


def test_a_change_of_energy_is_the_integral_of_the_gradient_along_a_step() -> None:
    """A cubic, whose slope the quadrature integrates exactly, from the first place to the last."""
    rng = np.random.default_rng(0)
    starts, steps = rng.normal(size=(2, 50, 3))
    points = starts[:, None] + _PLACES[:, None] * steps[:, None]  # (step, place, component)
    energies, gradients = np.sum(points**3, axis=2), 3 * points**2
    assert _unexplained(energies, gradients, steps).max() < 1e-9
    for place, found in ((0, True), (-1, True), (-2, False), (1, False)):
        jumped = energies.copy()
        jumped[:, place] += 1.0
        rest = _unexplained(jumped, gradients, steps)
        np.testing.assert_allclose(rest, float(found), atol=1e-9)
        assert (_gradient_words(energies, rest) is not None) == found
    energies[3, 4] = np.inf
    assert np.flatnonzero(np.isnan(_unexplained(energies, gradients, steps))).tolist() == [3]
    assert "changes by 1 where" in str(_gradient_words(energies, np.array([0.0, 1.0, 1.0, np.nan])))


# Jumps and walls


def test_jumps_are_found(smooth: rx.Posterior) -> None:
    many = said(smooth, lambda m, rows: log_likelihood(m, rows) + 0.02 * jnp.floor(m / 0.01))
    assert "The energy jumps by 4 in params (where, floor, an index), which moves do not" in many
    assert "or leave out batch_size" in many and "sum over the position of a change point" in many
    one = said(smooth, lambda m, rows: log_likelihood(m, rows) - 0.01 * (m > 1.05))
    assert "The energy jumps by 2 in params, at 1.05 " in one


def test_walls_are_found(smooth: rx.Posterior) -> None:
    """The mean of 200 rows is about 1, with a standard error of 0.07."""
    wall = said(smooth, lambda m, rows: jnp.where(m > 0.95, log_likelihood(m, rows), -jnp.inf))
    assert "falls to minus infinity at a wall in params, at 0.95, which moves do not see" in wall
    assert "x = exp(z) for x > 0, and add z to the log density" in wall
    two = said(
        smooth, lambda m, rows: jnp.where(jnp.abs(m - 1) < 0.05, log_likelihood(m, rows), jnp.nan)
    )
    assert "at 0.95 and 1.05" in two and "x = sigmoid(z) for 0 < x < 1" in two


@pytest.mark.parametrize(
    "change",
    [
        lambda m: jnp.where(m > 0.8, 0.0, -jnp.inf),  # three standard deviations away
        lambda m: 0.02 * jnp.log(m - 0.8),  # a density that vanishes there
        lambda m: -jnp.exp(1e3 * (m - 1.0)),  # an overflow
        lambda m: -0.1 * jnp.tanh(300 * (m - 1.0)),  # steep
        lambda m: -jnp.abs(m - 1.0),  # a kink
    ],
)
def test_what_rises_or_bends_is_no_jump(smooth: rx.Posterior, change: Callable) -> None:
    found = said(smooth, lambda m, rows: log_likelihood(m, rows) + change(m))
    assert "wall" not in found and "jumps by" not in found


def found_jumps(energy: Callable, starts: np.ndarray, steps: np.ndarray) -> Any:
    ways = starts[:, None] + _PLACES[:, None] * steps[:, None]
    (energies, gradients) = _evaluate(energy, ways)[0]
    return _find_jumps(energy, ways, energies, _unexplained(energies, gradients, steps))


@pytest.mark.parametrize("sign", [1, -1])
def test_walls_are_found_from_inside_and_from_outside(sign: int) -> None:
    """Ways that cross the wall of the second parameter, at 1, up or down."""

    def energy(x: Any) -> Any:
        return jnp.where(x[1] > 1, jnp.sum(x**2) / 2, jnp.inf)

    starts = np.float32([[0.3, 1 - 0.4 * sign], [0.7, 1 - 0.2 * sign], [0.0, 3.0]])
    steps = np.float32([[1.0, sign], [-1.0, sign], [1.0, 1.0]])
    found = found_jumps(energy, starts, steps)
    np.testing.assert_allclose(found.before[:, 1], [1.0, 1.0], atol=1e-5)
    assert np.all(found.before[:, 1] > 1) and np.isinf(found.size).all()
    assert found.crossed.tolist() == [[False, True]] * 2
    assert found_jumps(energy, starts[1:], steps[1:]) is None, "one alone"


def test_walls_of_many_parameters_are_found_without_their_names() -> None:
    rng = np.random.default_rng(0)
    starts = np.abs(rng.standard_normal((10, 300), np.float32))
    half_normals = lambda x: jnp.where(jnp.min(x) > 0, jnp.sum(x**2) / 2, jnp.inf)  # noqa: E731
    steps = rng.standard_normal((10, 300), np.float32)
    assert not found_jumps(half_normals, starts, steps).crossed.any()
    vanish = lambda x: jnp.sum(x**2 / 2 - 2 * jnp.log(x))  # noqa: E731
    assert found_jumps(vanish, starts, steps) is None


def walled(x: Any) -> Any:
    return jnp.where(jnp.min(x["b"]) > 0, jnp.sum(x["b"] ** 2) / 2 + x["a"] ** 2 / 2, jnp.inf)


def test_a_wall_is_told_as_the_cause_where_moves_across_it_are_rejected_and_draws_mix_slowly() -> (
    None
):
    start = lambda key: {"a": 0.0, "b": jnp.abs(jax.random.normal(key, (10,)))}  # noqa: E731
    with pytest.warns(rx.errors.RunProblem, match=r"a wall in b\[\d\] and others, at 0, and moves"):
        run = rx.sample(walled, start, num_steps=1_500, num_replicas=2, num_chains=2)
    assert any("R-hat" in sentence for sentence in run.problems())


def test_jumps_of_an_energy_are_found_where_its_moves_are_not_adjusted() -> None:
    method = rx.deo(learning_rate=0.05, temperature=(1.0, 4.0), rule="metropolis")
    options = {"num_steps": 2_000, "num_replicas": 2, "num_chains": 2, "method": method}
    with pytest.warns(rx.errors.RunProblem, match="The energy jumps by 2 in params, at 0 .*kernel"):
        run = rx.sample(lambda x: x**2 / 2 + 2.0 * (x < 0), 1.0, **options)
    unknown = lambda x, batch, key: x**2 / 2 + 2.0 * (x < 0)  # noqa: E731
    assert rx.Posterior(run._records, run._like, unknown)._gradient_problem is None, "has noise"
    assert rx.Posterior(run._records, run._like, lambda x: x**2)._gradient_problem is None


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
    assert said(smooth, steep) != ""
    rowless = posterior_of(steep).target
    assert rowless.whole_energy is not None
    found = rx.Posterior(smooth._records, smooth._like, rowless)._gradient_problem
    assert found is None, "its rows are not at hand"
    cold = lambda m, rows: 0.5 * log_likelihood(m, rows)  # noqa: E731
    exact = rx.Posterior(alter(smooth, adjusted=True)._records, smooth._like, posterior_of(cold))
    assert exact._gradient_problem is None, "accepted or rejected at the right temperature"
    blind = posterior_of(lambda m, rows: 9 * log_likelihood(jax.lax.stop_gradient(m), rows))
    exact = rx.Posterior(exact._records, smooth._like, blind)
    assert exact._gradient_problem is None, "and whatever the gradient"


def test_sgld_with_steps_that_are_too_long_is_a_warning() -> None:
    """It mixes well, and all chains agree on draws that are twice as wide as the posterior."""
    options = {"num_steps": 3_000, "num_replicas": 2, "num_chains": 2, "progress": False}
    with pytest.warns(rx.errors.RunProblem, match="too hot: according to gradients over all rows"):
        run = rx.sample(
            posterior_of(log_likelihood),
            1.0,
            method=rx.deo(3e-3, temperature=(1.0, 4.0), rule="metropolis", energy_at="all_rows"),
            **options,
        )
    assert run.draws.std() > 1.3 * 200**-0.5


def test_jumps_are_told_of_sweeps_over_few_rows() -> None:
    """Gaussians at minima do not see them, and the chains agree."""
    jumping = posterior_of(lambda m, rows: log_likelihood(m, rows) - 0.01 * (m > 1.05))
    with pytest.warns(rx.errors.RunProblem, match="The energy jumps by 2 in params, at 1.05 "):
        rx.sample(jumping, 1.0, num_steps=4, progress=False)
