"""Redraws in a run: on where the prior can be drawn from, the same when it resumes and on several
devices, and counted."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import chunks_of
from jax.scipy.stats import norm
from layouts import optimised

import replicax as rx
from replicax.results import done
from replicax.run.options import Session

ROWS = jnp.linspace(0.0, 1.0, 30)
OPTIONS = {"num_steps": 240, "num_replicas": 4, "num_chains": 2, "seed": 5, "progress": False}

FIXED = rx.posterior(temperature=[1, 2, 5, np.inf], learning_rate=0.05, adapt=False)


def log_likelihood(params, rows):
    return -jnp.square(params["scale"] * rows + params["at"][0] - 2)


def log_prior(params):
    return norm.logpdf(params["scale"]) + jnp.sum(norm.logpdf(params["at"]))


def make(batch_size=None, draw_prior=None):
    draws = {"scale": jax.random.normal, "at": (jax.random.normal, 2)}
    draw_prior = draws if draw_prior is None else draw_prior or None
    return rx.bayesian(
        log_likelihood, log_prior, ROWS, batch_size=batch_size, draw_prior=draw_prior
    )


def sample(target=None, chunk_steps=None, **options):
    with chunks_of(chunk_steps):
        return rx.sample(target or make(), **(OPTIONS | options))


@pytest.fixture(scope="module")
def whole():
    return sample()


def same(one, other):
    np.testing.assert_array_equal(one.energies, other.energies)
    np.testing.assert_array_equal(one.rung_of, other.rung_of)
    np.testing.assert_array_equal(one.redraw_rate, other.redraw_rate)
    jax.tree.map(np.testing.assert_array_equal, one.draws, other.draws)


def test_a_run_that_resumes_is_equal_bit_for_bit(whole, tmp_path) -> None:
    stopped = sample(
        run_dir=tmp_path / "run",
        callback=lambda progress: "stop" if progress.step >= 111 else None,
        chunk_steps=37,
    )
    assert 111 <= stopped.num_steps < 240
    same(rx.resume(tmp_path / "run", make(), progress=False), whole)
    with pytest.raises(ValueError, match="redraws is 4; draws from the prior are accepted"):
        rx.resume(tmp_path / "run", make(draw_prior=()), num_steps=300, progress=False)


def test_replicas_start_at_draws_and_acceptance_is_told(whole) -> None:
    rates = whole.redraw_rate
    assert rates.shape == (2, 4) and 0 < rates.min() < rates.max() <= 1
    hot = sample(num_steps=60, method=rx.posterior(temperature=(1.0, np.inf)))
    assert np.all(hot.redraw_rate[:, -1] == 1), "the prior takes all of its draws"
    assert whole.summary()["redraw_rate"] == rates.tolist()
    assert "redrawn" in str(whole.summary())
    assert not whole.metadata.resolved.one_start


@pytest.mark.parametrize(
    ("target", "method"),
    [
        (make(), rx.posterior(redraws=0)),
        (make(batch_size=10), rx.deo(1e-3, temperature=(1.0, 4.0), rule="bias_corrected")),
        (make(draw_prior=()), "posterior"),
    ],
)
def test_they_are_off_where_one_says_so_or_nothing_draws(target, method) -> None:
    start = {"scale": 0.0, "at": jnp.zeros(2)}
    run = rx.sample(target, start, **(OPTIONS | {"num_steps": 30, "method": method}))
    assert run.redraw_rate is None and not run.metadata.method.redraws
    assert run.summary()["redraw_rate"] is None


def stuck(run):
    """A run without round trips."""
    found = object.__new__(type("Stuck", (rx.Posterior,), {"round_trips": np.zeros(2, int)}))
    found.__dict__ = run.__dict__
    return found


def test_a_run_whose_replicas_hardly_travel_begins_anew_with_more_draws(whole) -> None:
    assert done._redraws_wanted(whole) == 0 and done._redraws_wanted(stuck(whole)) == 64
    again = done._going_on(whole, 60, True, Session(progress=False), redraws=64)
    assert again.metadata.method.redraws == 64 and again.num_steps == 60
    assert again.redraw_rate.shape == (2, 4) and np.all(again.redraw_rate <= 1)
    assert done._redraws_wanted(stuck(again)) == 0
    assert done._hardly_travels(stuck(again)) and not done._hardly_travels(whole)


ON_DEVICES = """
import sys, warnings
sys.path += sys.argv[1:]
import test_redraws as here
warnings.simplefilter("ignore")
here.same(here.sample(devices=1, method=here.FIXED), here.sample(devices=4, method=here.FIXED))
"""


@pytest.mark.slow
def test_chains_and_replicas_on_four_devices_redraw_what_one_does() -> None:
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-c", ON_DEVICES, str(tests), str(tests / "run")]
    done = subprocess.run(command, env=optimised(4), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


LOWEST, HIGHEST, TRUE = 1.1, 1000.0, (12.37, 150.3)


def period(u):
    """Log-uniform between the ends, of a standard normal number."""
    return LOWEST * (HIGHEST / LOWEST) ** norm.cdf(u)


def two_periods():
    """Two sinusoids in 200 rows; as a function of its period the likelihood has many peaks."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, 1500, 200))
    waves = [a * np.cos(2 * np.pi * times / p + b) for a, p, b in zip((1.6, 1.3), TRUE, (1, 2))]
    rows = {"time": times, "y": sum(waves) + 2 * rng.standard_normal(200)}

    def log_likelihood(params, rows):
        mean = 0.0
        for at, cosine, sine in params["planets"]:
            angle = 2 * jnp.pi * rows["time"] / period(at)
            mean = mean + 5 * (cosine * jnp.cos(angle) + sine * jnp.sin(angle))
        return norm.logpdf(rows["y"], mean, 2 * jnp.exp(params["noise"] / 2))

    return rx.bayesian(
        log_likelihood,
        lambda params: jnp.sum(norm.logpdf(params["planets"])) + norm.logpdf(params["noise"]),
        {name: jnp.asarray(values, jnp.float32) for name, values in rows.items()},
        draw_prior={
            "planets": (lambda key: jax.random.normal(key, (3,)), 2),
            "noise": jax.random.normal,
        },
    )


@pytest.mark.slow
def test_redraws_find_the_periods_that_the_ladder_alone_misses() -> None:
    found = {}
    for redraws in (0, 16):
        run = rx.sample(
            two_periods(),
            num_steps=1500,
            num_replicas=16,
            num_chains=4,
            method=rx.posterior(redraws=redraws, temperature=(1.0, np.inf)),
            progress=False,
        )
        periods = np.sort(period(run.draws["planets"][..., 0]), axis=-1)
        away = np.abs(np.median(periods, axis=1) / TRUE - 1)
        found[redraws] = int(np.sum(np.all(away < 0.03, axis=1)))
        if redraws:
            assert np.all(run.redraw_rate > 0.005)
    assert found[16] == 4 and found[0] < 4
