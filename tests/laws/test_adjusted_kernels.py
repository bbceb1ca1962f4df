"""Adjusted kernels preserve the density of their rung exactly, whatever their step size.

Thousands of particles start in the density, on an asymmetric target of known moments, and take a
few long steps: a kernel that is wrong moves them away.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import slow
from scipy.special import digamma, polygamma

import replicax as rx
from replicax.algorithm import adjusted_kernels
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.target import StepEnergy, Target

PARTICLES, STEPS = 20_000, 6
SHAPE, TEMPERATURE = 2.0, 1.6


# exp(x) has a Gamma law: U / tau + V = (exp(x) - SHAPE x), of which V is a third.
def energy(params, batch, key):
    x = params["x"]
    return TEMPERATURE * 2 / 3 * jnp.sum(jnp.exp(x) - SHAPE * x)


def prior(params):
    return jnp.sum(jnp.exp(params["x"]) - SHAPE * params["x"]) / 3


TARGET = Target(energy, prior=prior, tempers_likelihood=True)


@functools.cache
def moved(kernel_name: str, rate: float) -> tuple[np.ndarray, float]:
    return run(getattr(rx.kernels, kernel_name)(), rate)


def run(kernel, rate: float) -> tuple[np.ndarray, float]:
    start = np.log(np.random.default_rng(3).gamma(SHAPE, size=(PARTICLES, 2)))
    scale = {"x": jnp.array([1.0, 0.25])}  # one of the parameters takes shorter steps
    rung = Ladder(jnp.array(rate), jnp.array(TEMPERATURE), scale)
    evaluate = StepEnergy(TARGET)

    @jax.jit
    def chain(key, x):
        replica = kernel.traits.prepare(kernel.init({"x": x}), evaluate)

        def step(replica, key):
            drawn = kernel.draw(key, replica)
            replica, energy_after, observed = kernel.step(drawn, replica, evaluate, rung)
            exact, _ = evaluate(replica.params)
            return replica, (observed.acceptance, (energy_after - exact) / (1 + jnp.abs(exact)))

        replica, (accepted, error) = jax.lax.scan(step, replica, jax.random.split(key, STEPS))
        return replica.params["x"], jnp.mean(accepted), jnp.max(jnp.abs(error))

    keys = jax.random.split(jax.random.key(5), PARTICLES)
    x, accepted, error = jax.vmap(chain)(keys, jnp.asarray(start, jnp.float32))
    assert float(error.max()) < 1e-4, "the energy that a step returns is that of its point"
    return np.asarray(x), float(accepted.mean())


def errors(x: np.ndarray) -> np.ndarray:
    """Errors of mean, variance and third moment, in their own standard errors."""
    mean, variance = digamma(SHAPE), polygamma(1, SHAPE)
    centred = x - mean
    found = []
    for power, expected in ((1, 0.0), (2, variance), (3, polygamma(2, SHAPE))):
        values = centred**power
        found.append((values.mean(axis=0) - expected) / (values.std(axis=0) / PARTICLES**0.5))
    return np.abs(found)


@pytest.mark.parametrize(("kernel", "rate"), [("mala", 0.8), ("hmc", 0.15)])
def test_the_density_of_the_rung_is_preserved(kernel, rate) -> None:
    x, accepted = moved(kernel, rate)
    assert 0.3 < accepted < 0.95, "steps are long enough to show an error"
    assert errors(x).max() < 4


def no_length_back(true=adjusted_kernels._log_length):
    """Lengths that suit the place a step starts from, and not the one that it leads to."""
    lengths = itertools.count()
    return lambda whitened: true(whitened) if next(lengths) % 2 == 0 else jnp.zeros(())


@pytest.mark.parametrize(
    ("name", "mutant"),
    [("_log_length", no_length_back()), slow("_energy_of", lambda velocity: 0.0)],
    ids=["no length back", "no kinetic energy"],
)
def test_a_part_missing_in_the_accept_step_is_detected(name, mutant, monkeypatch) -> None:
    monkeypatch.setattr(adjusted_kernels, name, mutant)
    x, _ = run(rx.kernels.hmc(2), 0.4)
    assert errors(x).max() > 6


@pytest.mark.parametrize("inverted", [True, slow(False)], ids=["inverted", "always yes"])
def test_a_broken_accept_step_is_detected(inverted) -> None:
    kernel = rx.kernels.hmc(2)

    def step(drawn, replica, evaluate, rung):
        accepts = drawn._replace(log_uniform=jnp.array(-1e9))
        after, _, observed = kernel.step(accepts, replica, evaluate, rung)
        refuses = inverted & (drawn.log_uniform < jnp.log(observed.acceptance))
        after = jax.tree.map(lambda new, old: jnp.where(refuses, old, new), after, replica)
        return after, after.memory.energy, observed

    x, _ = run(kernel._replace(step=step), 0.4)
    assert errors(x).max() > 6


@pytest.mark.parametrize("beyond", [np.nan, np.inf, -np.inf])
def test_a_proposal_that_is_not_finite_is_rejected(beyond) -> None:
    kernel = rx.kernels.mala()
    wall = Target(lambda x, batch, key: jnp.where(x > 0, beyond, x**2))
    evaluate = StepEnergy(wall)
    replica = kernel.traits.prepare(kernel.init(jnp.array(-0.1)), evaluate)
    rung = Ladder(jnp.array(5.0), jnp.array(1.0))
    for seed in range(8):
        drawn = kernel.draw(jax.random.key(seed), replica)
        after, energy_after, *_ = kernel.step(drawn, replica, evaluate, rung)
        assert np.isfinite(after.params) and np.isfinite(energy_after)


@pytest.mark.parametrize("bad", [0, 1.5, True])
def test_bad_numbers_of_leapfrog_steps_are_refused(bad) -> None:
    with pytest.raises(ValueError, match="num_leapfrog"):
        rx.kernels.hmc(bad)
    with pytest.raises(ValueError, match="target_acceptance"):
        rx.kernels.mala(target_acceptance=1.0)
