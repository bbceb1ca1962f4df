"""Langevin steps on mini-batches: their noise is measured, reported and subtracted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import slow

import replicax as rx
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.langevin import curvature
from replicax.algorithm.target import StepEnergy
from replicax.run.bayesian import Bayesian

ROWS, BATCH, PARTICLES, STEPS = 400, 20, 3_000, 300
DATA = np.random.default_rng(0).normal(size=ROWS).astype(np.float32)
CURVATURE = ROWS + 1.0  # of rows of variance 1 and a prior of variance 1
NOISE = ROWS**2 / BATCH * DATA.var()  # variance of the gradient over mini-batches


def posterior() -> Bayesian:
    return rx.bayesian(
        lambda mean, rows: -((rows - mean) ** 2) / 2,
        lambda mean: -(mean**2) / 2,
        DATA,
        batch_size=BATCH,
    )


def stationary(rate: float, temperature: float, **options) -> tuple[float, float]:
    """Return variance and reported heating of many particles after many steps."""
    target, kernel = posterior().target, rx.kernels.langevin(**options)
    rung = Ladder(jnp.array(rate), jnp.array(temperature))

    @jax.jit
    @jax.vmap
    def chain(key):
        def step(replica, key):
            batch_key, noise_key = jax.random.split(key)
            rows = jnp.asarray(DATA)[jax.random.randint(batch_key, (BATCH,), 0, ROWS)]
            evaluate = StepEnergy(target, rows)
            drawn = kernel.draw(noise_key, replica)
            replica, _, observed = kernel.step(drawn, replica, evaluate, rung)
            return replica, observed.heating

        replica, heating = jax.lax.scan(
            step, kernel.init(jnp.array(0.0)), jax.random.split(key, STEPS)
        )
        return replica.params, heating[STEPS // 2 :].mean()

    mean, heating = chain(jax.random.split(jax.random.key(1), PARTICLES))
    return float(np.var(mean)), float(np.mean(heating))


def expected(rate: float, temperature: float, injected: float) -> float:
    """Variance of x <- x - rate (g / tau of U + g of V) + noise, in closed form."""
    curvature, noise = ROWS / temperature + 1, NOISE / temperature**2
    return (injected * 2 * rate + rate**2 * noise) / (1 - (1 - rate * curvature) ** 2)


@pytest.mark.parametrize("temperature", [slow(1.0), 4.0])
def test_the_noise_of_gradients_heats_as_theory_says_and_is_reported(temperature) -> None:
    rate = 0.5 * temperature**2 / NOISE
    variance, heating = stationary(rate, temperature, subtract_noise=False)
    assert variance == pytest.approx(expected(rate, temperature, 1.0), rel=0.08)
    assert heating == pytest.approx(0.25, rel=0.05)


@pytest.mark.parametrize("temperature", [slow(1.0), 4.0])
def test_subtracting_the_noise_leaves_the_variance_of_the_step_alone(temperature) -> None:
    rate = 0.5 * temperature**2 / NOISE
    variance, heating = stationary(rate, temperature)
    exact = 2 * rate / (1 - (1 - rate * (ROWS / temperature + 1)) ** 2)
    assert variance == pytest.approx(exact, rel=0.08)
    assert abs(heating) < 0.03
    assert expected(rate, temperature, 1.0) > 1.2 * exact, "there was something to subtract"


def test_the_noise_that_is_subtracted_is_that_of_the_place() -> None:
    """A regression whose gradients are noisier far away, where replicas come from: with a running
    mean of the noise, which a replica brings along, standard deviations are 0.8 of the exact ones.
    """
    x = np.linspace(-2, 2, 20)
    y = 0.5 * x + 0.3 * np.random.default_rng(0).standard_normal(20)
    rows = {"x": jnp.asarray(x, jnp.float32), "y": jnp.asarray(y, jnp.float32)}
    target = rx.bayesian(
        lambda coef, rows: -((rows["y"] - coef[0] - coef[1] * rows["x"]) ** 2) / 2,
        lambda coef: -jnp.sum(coef**2) / 2e6,
        rows,
        batch_size=5,
    )
    start = lambda key: jax.random.normal(key, (2,))  # noqa: E731
    run = rx.sample(target, start, num_steps=9_000, num_replicas=6, num_chains=8)
    exact = np.array([20.0, np.sum(x**2)]) ** -0.5
    ratio = run.draws.std(axis=(0, 1)) / exact
    assert np.all((ratio > 0.95) & (ratio < 1.1)), ratio
    assert np.abs(run.excess_temperature[:, 0]).max() < 0.03


def test_the_curvature_is_found_while_step_sizes_are_tuned() -> None:
    target = rx.Target(lambda x, batch, key: x @ jnp.diag(jnp.array([1.0, 9.0])) @ x / 2)
    direction, scale = jnp.array([0.6, 0.8]), jnp.array([1.0, 4.0])
    tuned, frozen = (StepEnergy(target, jnp.zeros(2), tunes=tunes) for tunes in (True, False))
    for _ in range(20):
        found, direction = curvature(tuned, jnp.ones(2), direction, scale, jnp.array(0.5))
    assert float(found) == pytest.approx(18.0, rel=1e-3)
    frozen, same = curvature(frozen, jnp.ones(2), direction, scale, jnp.array(0.5))
    assert float(frozen) == 0
    np.testing.assert_array_equal(same, direction)
