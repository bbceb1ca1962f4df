"""Algorithms of BlackJAX as kernels here."""

import jax.numpy as jnp
import numpy as np
import pytest
from common import quietly

blackjax = pytest.importorskip("blackjax")

import replicax as rx  # noqa: E402


def make_hmc(logdensity, step_size):
    return blackjax.hmc(logdensity, step_size, jnp.ones(2), num_integration_steps=6)


def test_a_blackjax_kernel_has_the_law_of_every_rung() -> None:
    """N(1, 1) x N(-2, 2): on a rung of temperature tau the variances are tau times as large."""
    std = jnp.array([1.0, 2.0])
    run = quietly(
        lambda x: jnp.sum(((x - jnp.array([1.0, -2.0])) / std) ** 2) / 2,
        jnp.zeros(2),
        num_steps=4500,
        num_replicas=3,
        num_chains=2,
        made=rx.posterior,
        learning_rate="auto",
        kernel=rx.interop.from_blackjax(make_hmc),
        temperature=[1.0, 2.0, 4.0],
        adapt=False,
        draw_rungs="all",
    )
    for rung, temperature in enumerate([1.0, 2.0, 4.0]):
        draws = np.asarray(run.draws_at(rung)).reshape(-1, 2)
        np.testing.assert_allclose(draws.mean(axis=0), [1.0, -2.0], atol=0.3)
        np.testing.assert_allclose(draws.var(axis=0), temperature * std**2, rtol=0.2)
    np.testing.assert_allclose(run.acceptance[:, 0], 0.8, atol=0.1)
    assert (run.verdict_rate > 0.1).all()


def test_a_bad_maker_is_refused() -> None:
    with pytest.raises(ValueError, match="make must take 2 arguments"):
        rx.interop.from_blackjax(lambda logdensity: None)
    with pytest.raises(ValueError, match="target_acceptance is 2"):
        rx.interop.from_blackjax(make_hmc, target_acceptance=2)
