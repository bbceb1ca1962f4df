"""The checks of energies and steps: each on a run that is wrong, and silent on one that is not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from altered_runs import with_properties
from common import in_method

import replicax as rx
from replicax.results.energy_problems import find_energy_problems, mean_and_error


def bowl(x: Any) -> Any:
    return jnp.sum(x**2) / 2


def run(energy: Any, num_steps: int, hottest: float, **options: Any) -> rx.Posterior:
    defaults = {"num_chains": 4, "num_replicas": 4, "rule": "metropolis", "window": 1}
    defaults |= {"learning_rate": 0.3, "temperature": (1.0, hottest)}
    return rx.sample(energy, jnp.zeros(3), num_steps=num_steps, **in_method(defaults | options))


@pytest.fixture(scope="module")
def settled() -> rx.Posterior:
    return run(bowl, num_steps=3_000, hottest=40.0, burn_in=200)


def says(posterior: rx.Posterior, words: str) -> bool:
    return any(words in sentence for sentence in find_energy_problems(posterior) if sentence)


def test_a_settled_run_has_no_problem(settled: rx.Posterior) -> None:
    assert settled.problems() == []


# Energies that fall


def test_a_sign_error_is_found() -> None:
    with pytest.warns(UserWarning, match="falls through the whole run.*minus the log density"):
        posterior = run(lambda x: -jnp.sum(jnp.sqrt(1 + x**2)), num_steps=800, hottest=4.0)
    assert posterior.result.code == "finished"


def with_energies(settled: rx.Posterior, course: Any, seed: int = 0) -> rx.Posterior:
    """Cold energies around `course`, a function of the time in [0, 1]."""
    shape = settled.energies.shape
    scatter = np.random.default_rng(seed).standard_normal(shape)
    return with_properties(settled, energies=scatter + course(np.linspace(0, 1, shape[1])))


@pytest.mark.parametrize(
    "course", [lambda t: -30 * t, lambda t: -np.exp(80 * t), lambda t: -30 * t**3]
)
def test_energies_that_fall_to_the_end_are_found(settled: rx.Posterior, course: Any) -> None:
    assert says(with_energies(settled, course), "falls through the whole run")


@pytest.mark.parametrize(
    "course", [lambda t: 0 * t, lambda t: 100 * np.exp(-20 * t), lambda t: -t, lambda t: 30 * t]
)
def test_energies_that_come_to_rest_are_not(settled: rx.Posterior, course: Any) -> None:
    assert not says(with_energies(settled, course), "falls through the whole run")


def test_what_was_finite_before_a_nan_is_looked_at(settled: rx.Posterior) -> None:
    energies = with_energies(settled, lambda t: -30 * t).energies.copy()
    energies[1, -3:], energies[2, -1] = -np.inf, np.nan
    assert says(with_properties(settled, energies=energies), "falls through the whole run")


# Energies whose differences are rounded away


def test_an_energy_with_a_large_constant_is_found_and_right_in_double_precision() -> None:
    """Near 4e7, float32 has every fourth whole number."""

    def wide(x: Any) -> Any:
        return x**2 / 2 + 4e7

    with pytest.warns(UserWarning, match="about 4e[+]07, where .* float32 are 4 apart"):
        posterior = rx.sample(wide, 0.0, num_steps=3_000, num_chains=4)
    assert posterior.draws.std() > 1.1  # and that is what it does: the truth is 1
    with jax.enable_x64(True):
        posterior = rx.sample(wide, 0.0, num_steps=3_000, num_chains=4)
    assert posterior.draws.std() == pytest.approx(1.0, abs=0.05)
    assert not says(posterior, "Energies are about")


# The hottest rung


def test_a_hottest_rung_without_finite_mass_is_found() -> None:
    with pytest.warns(UserWarning, match="The hottest rung runs away"):
        run(lambda x: 1.5 * jnp.sum(jnp.log1p(x**2)), num_steps=6_000, hottest=40.0, burn_in=200)


def with_history(settled: rx.Posterior, **shifts: Any) -> rx.Posterior:
    """All rungs with independent energies of the cold rung's law, shifted by (point, rung)."""
    history = settled.history
    rng = np.random.default_rng(shifts.get("seed", 0))
    energy = rng.gamma(1.5, size=history["energy"].shape) + shifts["by"]
    return with_properties(settled, history={**history, "energy": energy})


def ramp(settled: rx.Posterior, rise: float) -> np.ndarray:
    """A rise of the hottest rung  (point, rung)."""
    num_points = len(settled.history["step"])
    return np.linspace(0, rise, num_points)[:, None] * np.array([0, 0, 0, 1.0])


def test_a_rise_must_be_larger_than_noise(settled: rx.Posterior) -> None:
    found = [
        says(with_history(settled, by=ramp(settled, rise), seed=seed), "runs away")
        for rise in (0.0, -5.0, 5.0)
        for seed in range(20)
    ]
    assert found == [False] * 40 + [True] * 20


# Rungs colder than the target


def test_rungs_of_sgd_that_are_colder_than_the_target_are_found() -> None:
    paper = {"rule": "deterministic", "temperature": 1.0, "learning_rate": (0.02, 0.2)}
    with pytest.warns(UserWarning, match=r"Rung \d has a lower mean energy than the target's"):
        posterior = run(bowl, num_steps=3_000, hottest=1.0, burn_in=200, window=None, **paper)
    assert posterior.draws.std() < 0.9  # and that is what it does: the truth is 1
    assert any("The ladder has collapsed" in sentence for sentence in posterior.problems())


def test_a_colder_rung_must_be_certain_and_matter(settled: rx.Posterior) -> None:
    at = np.array([0, 0, 1.0, 0])
    for seed in range(20):
        assert not says(with_history(settled, by=0.0, seed=seed), "lower mean energy")
        assert not says(with_history(settled, by=5 * at, seed=seed), "lower mean energy")
        assert says(with_history(settled, by=-1.5 * at, seed=seed), "Rung 2 has a lower mean")
    few = settled.history["energy"].shape[1]
    exact = np.zeros((4, few, 4)) - 0.1 * at + 1e-6 * np.random.default_rng(0).normal(size=(few, 1))
    history = {**settled.history, "energy": exact}
    assert not says(
        with_properties(settled, history=history), "lower mean energy"
    )  # 0.1 of 1.5: too small


def test_batch_means_know_about_correlation() -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((200, 2, 500))
    for draw in range(1, 500):
        noise[:, :, draw] = 0.8 * noise[:, :, draw - 1] + 0.6 * noise[:, :, draw]
    means, errors = zip(*(mean_and_error(values) for values in noise), strict=True)
    # The closed form is sqrt((1 + 0.8) / (1 - 0.8) / 1000) = 0.095; independent draws have 0.032.
    assert np.std(means) == pytest.approx(0.095, rel=0.15)
    assert np.mean(errors) == pytest.approx(0.095, rel=0.15)
    assert mean_and_error(noise[0, :, :9]) == (None, None)


def test_as_many_points_as_batches_are_enough() -> None:
    """Ten points of each of two chains are twenty batches of one."""
    values = np.random.default_rng(0).standard_normal((2, 10))
    mean, error = mean_and_error(values)
    assert mean == pytest.approx(values.mean())
    assert error == pytest.approx(values.std(ddof=1) / np.sqrt(20))
    assert mean_and_error(values[:, :9]) == (None, None)


# Replicas that break, and steps


def test_replicas_that_break_often_are_found() -> None:
    def walled(x: Any) -> Any:
        return jnp.where(jnp.max(jnp.abs(x)) > 5, jnp.nan, bowl(x))

    with pytest.warns(UserWarning, match=r"The energy on rung 3 was not finite in .* of steps"):
        posterior = run(walled, num_steps=400, hottest=20.0, on_nonfinite="restart")
    assert posterior.restart_rate[:, 3].max() > 0.01
    assert posterior.restart_rate[:, 0].max() == 0


def test_acceptance_far_from_its_target_is_found(settled: rx.Posterior) -> None:
    rates = np.full((4, 4), 0.7)
    unknown = np.full((4, 4), np.nan)
    assert with_properties(settled, acceptance=rates, excess_temperature=unknown).problems() == []
    for rate, step in ((0.1, "too large"), (1.0, "needlessly small")):
        rates[1, 2] = rate
        found = with_properties(settled, acceptance=rates)
        assert says(found, f"Rung 2 accepts {rate:.0%} of its moves: its step is {step}")
    assert "accepts" in str(found.summary()) and found.summary()["acceptance"][1][2] == 1.0


def test_a_target_heated_by_gradient_noise_is_found(settled: rx.Posterior) -> None:
    heat = np.full((4, 4), 0.05)
    heat[:, 3] = 0.5  # hot rungs may be hotter
    assert with_properties(settled, excess_temperature=heat).problems() == []
    heat[2, 0] = 0.23
    assert says(with_properties(settled, excess_temperature=heat), "heats the cold rung by 23%")
