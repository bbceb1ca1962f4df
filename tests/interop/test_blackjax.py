"""Replica exchange as an algorithm of BlackJAX, and its algorithms as kernels here."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import quietly

blackjax = pytest.importorskip("blackjax")

import replicax as rx  # noqa: E402


def two_modes(x):
    """0.4 of the mass at -4, wider, and 0.6 at 3."""
    left = jnp.log(0.4 / 0.7) - (x[0] + 4.0) ** 2 / (2 * 0.7**2)
    right = jnp.log(0.6 / 0.5) - (x[0] - 3.0) ** 2 / (2 * 0.5**2)
    return -jnp.logaddexp(left, right)


def test_blackjax_runs_the_exchange_and_finds_both_modes() -> None:
    algorithm = rx.interop.as_sampling_algorithm(two_modes, num_steps=6000, num_replicas=6)
    final, (draws, energies, swapped) = blackjax.util.run_inference_algorithm(
        jax.random.key(0),
        algorithm,
        num_steps=6000,
        initial_position=jnp.zeros(1),
        transform=lambda state, info: (state.position, state.energy, info.swapped),
    )
    draws, energies = np.asarray(draws)[2000:], np.asarray(energies)[2000:]
    assert (draws < 0).mean() == pytest.approx(0.4, abs=0.1)
    assert draws[draws < 0].std() == pytest.approx(0.7, rel=0.15)
    np.testing.assert_allclose(energies, jax.vmap(two_modes)(jnp.asarray(draws)), atol=1e-4)
    assert int(final.replicas.step) == 6000 and np.asarray(swapped).any()


@pytest.mark.slow
def test_a_posterior_is_sampled_on_mini_batches() -> None:
    rows = jnp.arange(8.0)
    posterior = rx.bayesian(
        lambda mean, rows: -((rows - mean) ** 2) / 2,
        lambda mean: -(mean**2) / 8,
        rows,
        batch_size=4,
    )
    algorithm = rx.interop.as_sampling_algorithm(posterior, num_steps=90, num_replicas=2)
    state, step = algorithm.init(jnp.zeros(())), jax.jit(algorithm.step)
    for key in jax.random.split(jax.random.key(0), 20):
        state, info = step(key, state)
    assert np.isfinite(state.position) and info.energy.shape == (2,)


def test_options_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="Did you mean 'num_replicas'"):
        rx.interop.as_sampling_algorithm(two_modes, num_steps=10, num_replica=3)
    problem = rx.supervised(lambda p, s, b, k: (0.0, s), jnp.zeros((4, 1)), batch_size=2)
    with pytest.raises(ValueError, match=r"rx\.train"):
        rx.interop.as_sampling_algorithm(
            problem, num_steps=10, method=rx.deo_star(0.1), num_replicas=2
        )
    with pytest.raises(ValueError, match=r"method=rx\.deo_star\(learning_rate=\.\.\.\)"):
        rx.interop.as_sampling_algorithm(two_modes, num_steps=10, learning_rate=(0.1, 0.2))


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
