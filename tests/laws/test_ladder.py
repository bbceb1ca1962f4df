"""The laws of ladders, against exact answers.

Equal rejection rates from a bad start, and a barrier that does not depend on the ladder.

Seeds are fixed; beside every bound stands the Monte Carlo standard error it must cover.
"""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import replicax as rx
from replicax.algorithm.kernels import Kernel, Replica

DIMENSION, HOTTEST = 4, 20.0
EXACT_DRAWS = Kernel(
    init=lambda params: Replica(params, ()),
    step=lambda noise, replica, evaluate, rung: (
        Replica(jnp.sqrt(rung.temperature) * noise, ()),
        jnp.zeros(()),
        None,
    ),
)


def rejection_of_a_gaussian(num_replicas: int) -> float:
    """Of every pair of a geometric ladder: 1 - 2 P(U_cold > U_hot), both energies Gamma."""
    ratio = HOTTEST ** (1 / (num_replicas - 1))
    return 1 - 2 * stats.beta.cdf(1 / (1 + ratio), DIMENSION / 2, DIMENSION / 2)


TARGET = rx.targets.gaussian()


@functools.cache
def measure_rejections(temperatures: tuple[float, ...], seed: int) -> np.ndarray:
    """From 18,000 independent verdicts per pair: standard error 0.0035."""
    posterior = rx.sample(
        TARGET,
        jnp.zeros(DIMENSION),
        num_steps=1_000,
        num_chains=20,
        num_replicas=len(temperatures),
        method=rx.deo(
            learning_rate=1.0, temperature=temperatures, rule="metropolis", kernel=EXACT_DRAWS
        ),
        burn_in=100,
        thin=300,
        seed=seed,
    )
    return 1 - posterior.verdict_rate.mean(axis=0)


@functools.cache
def adapted(num_replicas: int) -> tuple[float, ...]:
    """Temperatures after the burn-in of a run from an evenly spaced start, mean of the chains."""
    posterior = rx.sample(
        TARGET,
        jnp.zeros(DIMENSION),
        num_steps=6_000,
        num_chains=10,
        num_replicas=num_replicas,
        method=rx.deo(
            learning_rate=1.0,
            temperature=tuple(np.linspace(1.0, HOTTEST, num_replicas)),
            rule="metropolis",
            kernel=EXACT_DRAWS,
            adapt=True,
        ),
        burn_in=5_900,
    )
    return tuple(np.exp(np.log(posterior.temperatures).mean(axis=0)).tolist())


@pytest.mark.filterwarnings("ignore:R-hat|Pair")
def test_temperatures_adapt_to_equal_rejection_rates() -> None:
    bad = measure_rejections(tuple(np.linspace(1.0, HOTTEST, 8)), seed=0)
    assert np.ptp(bad) > 0.5
    rejections = measure_rejections(adapted(8), seed=3)
    assert np.ptp(rejections) < 0.04
    assert rejections == pytest.approx(rejection_of_a_gaussian(8), abs=0.02)
    assert np.log(adapted(8)) == pytest.approx(np.linspace(0.0, np.log(HOTTEST), 8), abs=0.03)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:R-hat|Pair")
def test_the_barrier_hardly_depends_on_the_number_of_replicas() -> None:
    eight, sixteen = (measure_rejections(adapted(count), seed=3) for count in (8, 16))
    assert np.ptp(sixteen) < 0.04
    # Exact: 2.18 and 2.23. Standard errors 0.009 and 0.012.
    assert eight.sum() == pytest.approx(7 * rejection_of_a_gaussian(8), rel=0.02)
    assert sixteen.sum() == pytest.approx(15 * rejection_of_a_gaussian(16), rel=0.02)
    assert eight.sum() == pytest.approx(sixteen.sum(), rel=0.05)
