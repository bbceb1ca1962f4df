"""SWAG along cycles: which networks are collected, and what is drawn from them."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_networks import NETWORK, tiny_problem

import replicax as rx
from replicax.networks import evaluate, swag
from replicax.networks.predict import Average
from replicax.networks.task import Supervised, Test, supervised
from replicax.networks.train import train, weights_of
from replicax.run.carry import Carry
from replicax.run.options import Training
from replicax.run.parts import Clock
from replicax.run.resolve import resolve

CYCLE = 20  # epochs of 4 steps: the last 12 of 80 steps hold the ends of the last three epochs
CLOCK = Clock(epochs=2 * CYCLE, steps_per_epoch=4, cycle_epochs=CYCLE)
NUM_IMAGES, NUM_CLASSES = 200, 2
LEVEL = 3.0  # of the data, which the batch statistics of a network remember


def predicting_itself() -> Supervised:
    """A network whose logits are its parameters, plus its running average of the data."""

    def loss_fn(params: Any, state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        level = 0.99 * state["level"] + 0.01 * jnp.mean(batch)
        return jnp.sum(params**2), {"level": level}

    def logits(params: Any, state: Any, inputs: Any) -> Any:
        return params[inputs] + state["level"]

    labels = jnp.zeros(NUM_IMAGES, jnp.int32)
    test = Test(logits, jnp.arange(NUM_IMAGES), labels, NUM_CLASSES)
    return supervised(loss_fn, np.full(16, LEVEL, np.float32), batch_size=4, test=test)


def make_path(seed: int = 0) -> np.ndarray:
    """Networks of 40 epochs: far away but where a cycle is slow, around 0 and 5 (epoch, ...)."""
    rng = np.random.default_rng(seed)
    path = np.full((2 * CYCLE, NUM_IMAGES, NUM_CLASSES), 1000.0)
    middle = np.repeat([0.0, 5.0], 3)[:, None, None]
    slow = [17, 18, 19, 37, 38, 39]
    path[slow] = middle + rng.normal(0, 0.1, (6, NUM_IMAGES, NUM_CLASSES))
    return path.astype(np.float32)


def follow(path: np.ndarray, seed: int = 0, burn_in: int = 0) -> list[Average]:
    """The average after every epoch."""
    problem, run = predicting_itself(), Training(epochs=CLOCK.epochs, num_replicas=1)
    program = resolve(problem, run, rx.cyc_swag(cycle_epochs=CYCLE))
    inner = evaluate.build_average(problem, weights_of(program, CLOCK))
    evaluation = swag.build_cycles(inner, problem, CLOCK, program.kernel, path[0], seed, burn_in)
    averages = []
    for network in path:
        points = (jnp.asarray(network)[None, None], {"level": jnp.full((1, 1), -77.0)})
        state: Any = SimpleNamespace(points=points, replica_at=jnp.array([[0]]))
        carry: Any = Carry(state, None)  # type: ignore
        evaluation.state, _, _ = evaluation.evaluate(evaluation.state, carry)
        averages.append(evaluation.state.averages.sampled)
    return averages


def draws_of_cycles(averages: list[Average]) -> list[np.ndarray]:
    """Sums of the parameters that were drawn in the first cycle and in the second."""
    first, both = (np.asarray(averages[end].logits, np.float64) for end in (CYCLE - 1, -1))
    weight = float(averages[CYCLE - 1].weight), float(averages[-1].weight)
    return [first - LEVEL * weight[0], both - first - LEVEL * (weight[1] - weight[0])]


def variance_by_hand(networks: np.ndarray) -> np.ndarray:
    """Half the variance of the networks, and half the mean square of their deviations."""
    wide = networks.astype(np.float64)
    means = np.cumsum(wide, axis=0) / np.arange(1, len(wide) + 1)[:, None, None]
    low_rank = np.sum((wide - means) ** 2, axis=0) / (len(wide) - 1)
    return (wide.var(axis=0) + low_rank) / 2


def test_a_cycle_draws_ten_networks_around_those_of_its_slow_end() -> None:
    path = make_path()
    averages = follow(path)
    weights = [float(average.weight) for average in averages]
    assert weights == [0.0] * (CYCLE - 1) + [10.0] * CYCLE + [20.0]
    for drawn, networks in zip(draws_of_cycles(averages), (path[17:20], path[37:40]), strict=True):
        variance = variance_by_hand(networks)
        noise = (drawn - 10 * networks.mean(axis=0, dtype=np.float64)) / np.sqrt(10 * variance)
        # Ten independent draws: 1 on average, of which the low-rank half has 3 degrees of freedom.
        # Ten times the same draw would be 10, and draws without one of the halves about 1/2.
        assert 0.2 < np.mean(noise**2) < 4
        assert np.abs(noise).max() < 8


def test_draws_have_the_variance_of_the_gaussian() -> None:
    """Over many seeds, as the low-rank part of one has few degrees of freedom."""
    path = make_path()
    variance, squares, problem = variance_by_hand(path[17:20]), [], predicting_itself()
    draw = jax.jit(swag._build_draws(problem))
    moments = swag.start(jnp.asarray(path[0]))
    for network in path[17:20]:
        moments = swag.collect(moments, jnp.asarray(network))
    for seed in range(12):
        key = jax.random.key(seed)
        params, state = draw(key, moments, {"level": jnp.array(-77.0)}, problem.batches.data)
        assert params.shape == (10, NUM_IMAGES, NUM_CLASSES)
        np.testing.assert_allclose(state["level"], LEVEL, rtol=1e-4)
        squares.append((params - path[17:20].mean(axis=0)) ** 2 / variance)
    # 360 degrees of freedom of the low-rank half: a standard error of 4 %.
    assert 0.84 < np.mean(squares) < 1.16


def test_draws_follow_from_seed_and_cycle() -> None:
    path = make_path()
    path[20:] = path[:20]  # the same cycle twice
    first, second = draws_of_cycles(follow(path))
    again, _ = draws_of_cycles(follow(path))
    other, _ = draws_of_cycles(follow(path, seed=1))
    np.testing.assert_array_equal(first, again)
    for different in (second, other):
        assert np.corrcoef(first.ravel(), different.ravel())[0, 1] < 0.98
        assert np.mean(np.abs(first - different) > 1e-3) > 0.9


def test_networks_of_the_burn_in_are_not_collected() -> None:
    path = make_path()
    partly, _ = draws_of_cycles(follow(path, burn_in=18))
    error = np.abs(partly / 10 - path[18:20].mean(axis=0)).mean()
    assert error < np.abs(partly / 10 - path[17:20].mean(axis=0)).mean()
    spoilt = path.copy()
    spoilt[17] = 1000.0  # epoch 18
    np.testing.assert_array_equal(draws_of_cycles(follow(spoilt, burn_in=18))[0], partly)

    weights = [float(average.weight) for average in follow(path, burn_in=CYCLE)]
    assert weights == [0.0] * (2 * CYCLE - 1) + [10.0], "a cycle before burn_in draws nothing"


PROBLEM = tiny_problem()
SWAG: dict[str, Any] = {"num_replicas": 2, "progress": False}


@pytest.mark.slow
def test_a_training_draws_around_the_networks_of_its_cycles() -> None:
    """The batch statistics of draws are those of their parameters, on the training data."""
    trained = train(
        PROBLEM,
        NETWORK.init,
        epochs=CYCLE,
        method=rx.cyc_swag(cycle_epochs=CYCLE),
        keep_networks=True,
        **SWAG,
    )
    assert trained.epochs["weight"].tolist() == [0.0] * 19 + [10.0] * 20 + [20.0]
    params, states = jax.tree.map(lambda leaf: np.asarray(leaf[0]), trained.draws)
    assert len(params["first"]["bias"]) == 6, "three networks of each cycle"
    spread = params["first"]["weight"][:3].std(axis=0)
    assert np.median(spread) > 1e-4, "the Gaussian is not a point"
    images = PROBLEM.batches.prepare(jax.random.key(0), PROBLEM.batches.data)[0]  # type: ignore
    flat, logits, stale = np.asarray(images).reshape(len(images), -1), [], []
    for cycle in (slice(0, 3), slice(3, 6)):
        middle = jax.tree.map(lambda leaf, cycle=cycle: leaf[cycle].mean(axis=0), params)
        hidden = flat @ middle["first"]["weight"] + middle["first"]["bias"]
        fresh = {"mean": hidden.mean(axis=0), "var": hidden.var(axis=0)}
        old = jax.tree.map(lambda leaf: jnp.zeros_like(leaf[0]), states)
        for state, results in ((fresh, logits), (old, stale)):
            results.append(PROBLEM.test.outputs(middle, state, PROBLEM.test.inputs))  # type: ignore
    found = np.asarray(trained.average.logits) / 20
    error = np.abs(found - np.mean(logits, axis=0))
    assert error.max() < 0.15 * np.std(logits) + 0.05
    assert np.abs(found - np.mean(stale, axis=0)).max() > 10 * error.max()


@pytest.mark.slow
def test_a_training_averages_nothing_of_its_burn_in() -> None:
    options = SWAG | {"epochs": 7, "method": rx.cyc_swag(cycle_epochs=7), "burn_in": 7}
    weights = train(PROBLEM, NETWORK.init, **options).epochs["weight"].tolist()
    assert weights == [0.0] * 13 + [10.0]
