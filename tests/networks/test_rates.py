"""Networks that are sampled at measured rates: the law where the posterior is known, the rates, and
what is told of networks that are too hot or have not mixed."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import slow
from numpy.testing import assert_allclose

import replicax as rx
from replicax.algorithm.ladder import Ladder
from replicax.networks.checks import find_rhat, mixing_problem
from replicax.networks.rates import KINETIC, kinetic_problem
from replicax.networks.starting import with_moves
from replicax.networks.tempered import posed
from replicax.run.options import Training

ROWS, SIZE, KNOWN, NOISE, DECAY, MEMBERS = 48, 16, 8, 0.5, 0.5, 40
RANDOM = np.random.default_rng(0)
# Half of the weights are determined by the data, the others by the prior.
INPUTS = RANDOM.normal(size=(ROWS, SIZE)) * np.repeat([1.5, 0.05], [KNOWN, SIZE - KNOWN])
TARGETS = INPUTS @ RANDOM.normal(size=SIZE) + NOISE * RANDOM.normal(size=ROWS)
PRIOR = ROWS * DECAY * np.eye(SIZE)
TRAINED = np.linalg.solve(INPUTS.T @ INPUTS + NOISE**2 * PRIOR, INPUTS.T @ TARGETS)


def linear(params: Any, inputs: Any) -> Any:
    return inputs @ params["w"]


def problem() -> Any:
    rows = INPUTS.astype(np.float32), TARGETS
    return rx.regression(
        linear, rows, batch_size=12, noise=NOISE, standardise=False, weight_decay=DECAY
    )


def posterior(noise: float = 1.0, prior: float = 1.0, temperature: float = 1.0) -> tuple:
    """Mean and precision of the weights; the arguments are factors."""
    rows = INPUTS.T @ INPUTS / (NOISE * noise) ** 2
    precision = (rows + ROWS * DECAY * prior * np.eye(SIZE)) / temperature
    mean = np.linalg.solve(precision * temperature, INPUTS.T @ TARGETS / (NOISE * noise) ** 2)
    return mean, precision


def spread(weights: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """The variance in the unit of the posterior, of the weights that are known by the data and of
    the others: 1 and 1."""
    value, vector = np.linalg.eigh(precision)
    variance = np.var(weights @ vector, axis=0) * value
    return np.array([variance[-KNOWN:].mean(), variance[:-KNOWN].mean()])


def sampled(method: Any, epochs: int, **options: Any) -> Any:
    chosen: dict[str, Any] = {"num_replicas": MEMBERS, "progress": False, "seed": 3}
    chosen |= {"keep_averaged": 20_000} | options
    starts = jnp.tile(jnp.asarray(TRAINED, jnp.float32), (MEMBERS, 1))
    start = rx.per_replica(({"w": starts}, {}))
    return rx.train(problem(), start, epochs=epochs, method=method, **chosen)


METHODS = {
    "sghmc-pt": rx.sghmc_pt(),
    "gathered": rx.sghmc_pt(steps_per_move=2),
    "sgld": rx.sgld(),
    "ensemble-then-sample": rx.ensemble_then_sample(0.01, sample_from=0.05),
}


@pytest.mark.parametrize("name", ["gathered", *map(slow, sorted(METHODS.keys() - {"gathered"}))])
def test_linear_networks_have_the_law_of_their_posterior_and_no_other(name: str) -> None:
    trained = sampled(METHODS[name], 500)
    weights, (mean, precision) = np.asarray(trained.networks.params["w"], float), posterior()
    assert len(weights) > 1000 and abs(trained.heating) < 0.1
    assert_allclose(spread(weights, precision), 1.0, atol=0.12)
    assert np.max(np.abs(weights.mean(axis=0) - mean) * np.sqrt(np.diag(precision))) < 0.25
    # Off by 20 %, each is seen in the directions that depend on it.
    off = {
        name: np.abs(spread(weights, posterior(**{name: 1.2})[1]) - 1)
        for name in ("noise", "prior", "temperature")
    }
    assert off["noise"][0] > 0.12 and off["prior"][1] > 0.12 and off["temperature"].min() > 0.12


def test_rates_are_measured_in_the_burn_in_and_frozen_before_the_first_network_is_kept() -> None:
    trained = sampled(rx.sgld(), 24)
    rates = trained._records.read("history", "learning_rate")[:, 0]
    kept = trained.networks.epoch.min()
    assert np.all(rates[kept - 1 :] == rates[-1]) and trained.metadata.run.burn_in == kept - 1 == 6
    steepest = np.linalg.eigvalsh(posterior()[1]).max() / ROWS  # of the mean loss
    assert_allclose(rates[-1] * steepest, 0.5, rtol=0.1)
    order = 10 * jnp.asarray(trained.networks.rung)[:, None]
    apart = SimpleNamespace(**{
        name: getattr(trained, name) for name in ("_target", "_records", "metadata", "networks")
    }, points=({"w": trained.points[0]["w"] + order}, {}))  # fmt: skip
    assert find_rhat(apart) > 2 > find_rhat(trained)  # type: ignore[operator]


@pytest.mark.parametrize("wanted", [1, 2, 6, 7, 20, 48])
def test_the_steps_of_a_move_see_every_row(wanted: int) -> None:
    """In a row, from whatever step a move begins with: as many as are promised, and no row not."""
    method, run = rx.sgld(steps_per_move=wanted), Training(epochs=2, num_replicas=2)
    method = with_moves(problem(), method, run, None)
    batches = replace(posed(problem(), method).batches, data=np.arange(ROWS))
    count = method.steps_per_move
    assert count == batches.steps_per_pass <= wanted
    plan = batches.plan(jax.random.key(0), jnp.array(0), 3 * count)
    taken = [batches.take(batches.data, plan, None, jnp.array(k), None) for k in range(3 * count)]
    for first in range(0, 3 * count, count):
        assert len(np.unique(np.concatenate(taken[first : first + count]))) == ROWS


def test_a_move_on_gathered_batches_is_that_on_all_rows() -> None:
    """Also in training, where every mini-batch moves the network."""
    halves, rung = (
        (jnp.array([1.0, 3.0]), jnp.array([2.0, 6.0])),
        Ladder(*map(jnp.array, (0.1, 2.0))),
    )
    noise, start = jnp.array([0.3, -0.4]), jnp.array([0.5, -1.0])
    given = lambda rows: lambda x: (jnp.sum(rows), x * rows)  # noqa: E731
    one, two = rx.kernels.underdamped(0.9), rx.kernels.underdamped(0.9, num_batches=2)
    whole = one.step(noise, one.init(start), given((halves[0] + halves[1]) / 2), rung)[0]
    half = two.step(noise, two.init(start), given(halves[0]), rung)[0]
    np.testing.assert_array_equal(half.params, start)
    both = two.step(noise, half, given(halves[1]), rung)[0]
    assert_allclose(both.params, whole.params, rtol=1e-6)
    assert_allclose(both.memory.momentum, whole.memory.momentum, rtol=1e-6)
    cold = rung._replace(temperature=jnp.array(0.0))
    moved = two.step(noise, two.init(start), given(halves[0]), cold)[0]
    assert_allclose(moved.params, start - 0.95 * 0.1 * start * halves[0], rtol=1e-6)


@pytest.mark.parametrize("length", [0.5, 1.4])
def test_an_oscillator_has_its_exact_law_whatever_the_step(length: float) -> None:
    """Of a Gaussian of the variance 1 at the temperature 2; its position alone."""
    kernel, rung = rx.kernels.underdamped(0.8), Ladder(jnp.array(length**2), jnp.array(2.0))

    def step(replica: Any, key: Any) -> tuple[Any, Any]:
        noise = jax.random.normal(key, (500,))
        replica = kernel.step(noise, replica, lambda x: (jnp.sum(x**2) / 2, x), rung)[0]
        return replica, replica.params

    keys = jax.random.split(jax.random.key(0), 600)
    draws = jax.jit(lambda: jax.lax.scan(step, kernel.init(jnp.zeros(500)), keys)[1])()
    assert_allclose(np.var(draws[100:]), 2.0, rtol=0.03)


def test_what_is_too_hot_or_has_not_mixed_is_told() -> None:
    def run(kinetic: Any) -> Any:
        values = np.asarray(kinetic, float)
        return SimpleNamespace(
            epochs={"epoch": np.arange(1, 1 + len(values)), KINETIC: values},
            _records=SimpleNamespace(length=lambda group: 4),
            networks=SimpleNamespace(epoch=np.array([2, 2, 3, 3])),
            metadata=SimpleNamespace(method=rx.sgld()),
            learning_rates=np.array([[0.4, 0.4]]),
            energy_scale=1.0,
            method="sgld",
        )

    right, hot = [[np.nan] * 2, [1.02, 0.99], [1.0, 1.01]], [[1.0] * 2, [1.3, 1.31], [1.29, 1.3]]
    assert kinetic_problem(run(right)) is None
    sentence = kinetic_problem(run(hot))
    assert sentence is not None and "30% hotter" in sentence
    assert 'rx.sgld(learning_rate=0.1, kernel="underdamped")' in sentence
    unsure = [[1.0] * 2, [1.8, 0.8], [1.8, 0.9]]
    assert kinetic_problem(run(unsure)) is None, "two networks that differ"
    assert mixing_problem(None, rx.sgld()) is None and mixing_problem(1.1, rx.sgld()) is None
    told = mixing_problem(2.0, rx.sgld(steps_per_move=3))
    assert told is not None and "is 2.00" in told and "steps_per_move=3" in told
