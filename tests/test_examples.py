"""The notebooks in examples/, scripts with cells, run from top to bottom and find what they say."""

import runpy
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import optimize, stats

import replicax as rx

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_two_groups_finds_both_namings_and_prefers_two_groups(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = runpy.run_path(str(EXAMPLES / "two_groups.py"), run_name="__main__")
    assert scope["posterior"].problems() == []
    assert 0.4 < scope["first_is_short"] < 0.6
    assert scope["ordered"].mean(0) == pytest.approx([54.5, 80], abs=2)
    assert scope["posterior"].log_evidence().value > scope["single"].log_evidence().value + 20


def scope_of(name):
    return runpy.run_path(str(EXAMPLES / name))


def test_orbits_solve_the_equation_of_kepler():
    orbit, rng = scope_of("planets.py")["orbit"], np.random.default_rng(0)
    for _ in range(20):
        e, mean = rng.uniform(0, 0.9), rng.uniform(-np.pi, np.pi)
        angle = optimize.brentq(lambda x, e=e, mean=mean: x - e * np.sin(x) - mean, -4, 4)
        far = 1 / (1 - e * np.cos(angle))
        there = [(np.cos(angle) - e) * far + e, -np.sqrt(1 - e**2) * np.sin(angle) * far]
        np.testing.assert_allclose(orbit(np.zeros(1), 1.0, e, mean)[0], there, atol=3e-6)


@pytest.mark.parametrize("num_planets", [0, 2])
def test_the_likelihood_of_planets_has_amplitudes_and_offsets_integrated_out(num_planets):
    """It is that of a normal law whose covariance has the columns of both."""
    planets = scope_of("planets.py")
    star = planets["simulated"]()
    posterior = planets["build"](star, num_planets)
    params = posterior.start(jax.random.key(2))
    held = params["standard"]
    jitter = np.asarray(rx.priors.half_normal(5.0).value(held["jitter"]))
    shown = posterior.constrain(params)
    np.testing.assert_allclose(shown["jitter"], jitter)
    columns = [100.0 * (star.instrument == i)[:, None] for i in range(2)]
    for i in range(num_planets):
        e, anomaly = shown["eccentricity"][i], shown["anomaly"][i]
        columns.append(
            10.0 * np.asarray(planets["orbit"](star.time, shown["period"][i], e, anomaly))
        )
    columns = np.concatenate(columns, axis=1).astype(float)
    noise = star.error**2 + jitter[star.instrument] ** 2
    law = stats.multivariate_normal(cov=np.diag(noise) + columns @ columns.T)
    got = -posterior.target.energy(params, np.zeros((1, 0)), None)
    assert float(got) == pytest.approx(law.logpdf(star.velocity), abs=0.05)


@pytest.mark.slow
def test_two_planets_are_found_blind():
    planets = scope_of("planets.py")
    star = planets["simulated"]()
    runs = [rx.sample(planets["build"](star, count)) for count in (1, 2)]
    period = np.median(runs[1].draws["period"], axis=1)  # (chain, planet)
    np.testing.assert_allclose(period, np.tile([23.7, 310.0], (4, 1)), rtol=0.05)
    one, two = (run.log_evidence() for run in runs)
    assert two.value > one.value + 5 and two.standard_error < 0.3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_moons_are_learnt_and_far_away_is_less_certain_than_inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = runpy.run_path(str(EXAMPLES / "moons.py"), run_name="__main__")
    assert scope["exchanged"].metrics().accuracy > 0.88
    assert scope["exchanged"].metrics().nll < scope["single"]
    epistemic = {place: float(parts.epistemic[0]) for place, parts in scope["doubt"].items()}
    assert epistemic["far away"] > 0.05 > 5 * epistemic["inside a moon"]


@pytest.mark.slow
def test_the_last_layer_of_a_trained_network_tells_strange_digits_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = runpy.run_path(str(EXAMPLES / "last_layer.py"), run_name="__main__")
    assert scope["posterior"].problems() == []
    found = scope["found"]
    assert found["posterior"]["auroc"] > found["network"]["auroc"] > 0.8
    assert max(one["nll"] for one in found.values()) < 0.25
    np.testing.assert_allclose(scope["head"].best["weight"].shape, (32, 8))
