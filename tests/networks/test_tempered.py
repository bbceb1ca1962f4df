"""`sghmc-pt`: the law of its rungs where the posterior is known, and what it refuses."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import slow
from tiny_networks import NETWORK, tiny_problem

import replicax as rx
from replicax.algorithm.target import check_energy
from replicax.networks.task import Supervised
from replicax.networks.tempered import check_posterior, tempered
from replicax.run.options import Training
from replicax.run.resolve import resolve

NUM_ROWS, SIZE, DECAY, BURN_IN = 64, 256, 1.0, 10
ROWS = 0.5 * np.random.default_rng(0).normal(size=(NUM_ROWS, SIZE)).astype(np.float32)


def mean_problem(**options: Any) -> Supervised:
    """The mean of Gaussian rows, and a Gaussian prior of the precision of DECAY x NUM_ROWS."""

    def loss_fn(params: Any, state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        return jnp.mean(jnp.sum((params - batch) ** 2, axis=1)) / 2, state

    logits = lambda params, state, inputs: inputs * params[0]  # noqa: E731
    test = rx.Test(logits, jnp.ones((2, 2)), jnp.array([0, 1]), 2)
    chosen: dict[str, Any] = {"batch_size": 16, "weight_decay": DECAY, "test": test} | options
    return rx.supervised(loss_fn, ROWS, **chosen)


def dropping() -> Supervised:
    def loss_fn(params: Any, state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        kept = jax.vmap(lambda key: jax.random.bernoulli(key, 0.9, (2,)))(jax.random.split(key, 4))
        return jnp.mean((kept * params - batch) ** 2), state

    return rx.supervised(loss_fn, np.ones((8, 2), np.float32), batch_size=4, weight_decay=1.0)


ALL_ROWS = {"rule": "metropolis", "energy_at": "all_rows"}
FRESH = {"rule": "bias_corrected"}  # the default: on a further mini-batch


@pytest.mark.parametrize("judging", [ALL_ROWS, slow(FRESH)], ids=["all_rows", "fresh"])
def test_every_rung_samples_prior_times_tempered_likelihood(judging: dict[str, Any]) -> None:
    """With rows x_i of unit variance, rung T is Gaussian of precision N (1 / T + decay)."""
    choices = {"learning_rate": 0.03, "temperature": (1.0, 1.5), "swap_every": 1, "adapt": False}
    trained = rx.train(
        mean_problem(),
        (jnp.zeros(SIZE), {}),
        num_replicas=3,
        epochs=110,
        burn_in=BURN_IN,
        method=rx.sghmc_pt(**choices, **judging),
        keep_networks=True,
        progress=False,
    )
    temperature = trained.temperatures[0][:, None]
    np.testing.assert_allclose(temperature[:, 0], [1.0, 1.5**0.5, 1.5], rtol=1e-5)
    variance = 1 / (NUM_ROWS * (1 / temperature + DECAY))
    mean = ROWS.sum(axis=0) / temperature * variance
    draws = np.asarray(jax.tree.leaves(trained.draws)[0])[0, BURN_IN:]
    assert 0.93 < np.mean((draws - mean[0]) ** 2) / variance[0, 0] < 1.09
    rate = trained.verdict_rate[0]
    assert np.all((rate > 0.05) & (rate < 0.9)), "the rungs must exchange"
    assert trained.round_trips[0] > 0
    if judging is ALL_ROWS:  # whose energies are exact
        energies = trained._records.read("draws", "rung_energy")[BURN_IN:, 0]
        least = NUM_ROWS / 2 * np.mean(np.sum((mean[:, None] - ROWS) ** 2, axis=2), axis=1)
        excess = (energies.mean(axis=0) - least) / (NUM_ROWS * SIZE * variance[:, 0] / 2)
        np.testing.assert_allclose(excess, 1.0, atol=0.12)


def test_energies_are_in_the_unit_of_the_posterior() -> None:
    posed = tempered(mean_problem(batch_size=24))
    assert (posed.unit.loss, posed.unit.num_rows, posed.target.num_rows) == (NUM_ROWS,) * 3
    params = jnp.linspace(-1.0, 1.0, SIZE)
    total = np.sum((np.asarray(params) - ROWS) ** 2) / 2
    energy, _ = posed.target.energy(params, {}, ROWS, None)
    np.testing.assert_allclose(energy, total, rtol=1e-5)
    whole = posed.target.whole_energy((params, {}), jnp.asarray(ROWS))  # two batches and a rest
    np.testing.assert_allclose(whole, total, rtol=1e-5)
    square = NUM_ROWS * DECAY * np.sum(np.asarray(params) ** 2) / 2
    np.testing.assert_allclose(posed.target.prior(params), square, rtol=1e-5)
    assert tempered(posed) is posed


def test_what_is_no_posterior_is_refused() -> None:
    method, options = rx.sghmc_pt(temperature=(1.0, 1.5)), {"epochs": 2, "num_replicas": 2}
    like = (jnp.zeros(SIZE), {})
    for problem in (mean_problem(weight_decay=0.0), mean_problem(prior_in_energy=True)):
        with pytest.raises(ValueError, match="has no separate prior"):
            rx.train(problem, like, method=method, **options)
    clipped = rx.sghmc_pt(temperature=(1.0, 1.5), clip_norm=1.0)
    with pytest.raises(ValueError, match="clipped"):
        resolve(tempered(mean_problem()), Training(**options), clipped)
    check_posterior(mean_problem(prepare=lambda key, rows: 2 * rows), like, "sghmc-pt")
    shaken = mean_problem(prepare=lambda key, rows: rows + jax.random.normal(key))
    with pytest.raises(ValueError, match="loss draws random numbers, as dropout"):
        check_posterior(dropping(), (jnp.zeros(2), {}), "sghmc-pt")
    with pytest.raises(ValueError, match="random augmentation"):
        check_posterior(shaken, like, "sghmc-pt")
    with pytest.raises(ValueError, match="batch statistics"):  # by the call itself
        rx.train(tiny_problem(), NETWORK.init, method=method, **options)


def test_weight_decay_by_name_is_checked_on_the_parameters_alone() -> None:
    network = rx.nn.mlp(36, 3, hidden=(2,))
    problem = tempered(tiny_problem(network, weight_decay={"*bias": 0.001, "*": 0.01}))
    key = jax.random.key(0)
    check_energy(problem.target, network.init(key), problem.batches.first(key), key)
