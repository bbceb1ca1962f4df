"""The deep ensemble: as many plain trainings, with a rate that a range test finds."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from row_sources import NUM_ROWS, SIZE, Plain
from tiny_networks import (
    NETWORK,
    NUM_REPLICAS,
    STEPS_PER_EPOCH,
    by_replica,
    plain_training,
    tiny_problem,
)

import replicax as rx
from replicax.networks.starting import mini_batches

EPOCHS = 5
TRANSFORMS = {
    "momentum": lambda rate: optax.sgd(rate, momentum=0.9),
    "adam": lambda rate: optax.adam(rate),
}
QUIET = {"epochs": EPOCHS, "num_replicas": NUM_REPLICAS, "progress": False}


@pytest.mark.parametrize("kernel", TRANSFORMS)
def test_a_deep_ensemble_is_as_many_plain_trainings(kernel):
    problem = tiny_problem(weight_decay=0.01)
    starts = jax.vmap(NETWORK.init)(jax.random.split(jax.random.key(7), NUM_REPLICAS))
    method = rx.deep_ensemble(0.03, kernel=kernel, warmup_epochs=1)
    trained = rx.train(problem, rx.per_replica(starts), method=method, **QUIET)
    steps = EPOCHS * STEPS_PER_EPOCH
    first = 0.03 / (STEPS_PER_EPOCH + 1)
    rate = optax.warmup_cosine_decay_schedule(first, 0.03, STEPS_PER_EPOCH, steps)

    def furthest(transform):
        transform = optax.chain(optax.add_decayed_weights(0.01), transform)
        apart = 0.0
        for replica in range(NUM_REPLICAS):
            start = by_replica(starts, replica)
            plain = plain_training(problem, start, transform, EPOCHS)
            found = by_replica((trained.networks.params, trained.networks.model_state), replica)
            gaps = jax.tree.map(lambda a, b: np.abs(a - b).max(), plain, found)
            apart = max(apart, *jax.tree.leaves(gaps))
        return apart

    assert furthest(TRANSFORMS[kernel](rate)) < 1e-4
    assert furthest(TRANSFORMS[kernel](0.03)) > 1e-2, "the rate did not fall"


def test_a_constant_rate_is_that_of_every_step_also_of_new_networks():
    problem, rate = tiny_problem(), 0.03
    method = rx.deep_ensemble(rate, kernel="adam", rate_schedule="constant", warmup_epochs=0.0)
    trained = rx.train(problem, NETWORK.init, method=method, **QUIET)
    assert trained.metadata.method.pretrain is None
    whole = rx.train(problem, NETWORK.init, method=replace(method, pretrain=0.0), **QUIET)
    np.testing.assert_array_equal(trained.log_probabilities(), whole.log_probabilities())
    assert trained.metadata.resolved.range_test is None


def test_the_last_networks_are_averaged():
    problem = tiny_problem()
    trained = rx.train(problem, NETWORK.init, method=rx.deep_ensemble(0.05), **QUIET)
    assert trained.networks.epoch.tolist() == [EPOCHS] * NUM_REPLICAS
    assert trained.networks.rung.tolist() == list(range(NUM_REPLICAS))
    assert np.isnan(trained.epochs["average_nll_probabilities"][:-1]).all()
    outputs = [
        jax.nn.softmax(problem.test.outputs(*by_replica(point, r), problem.test.inputs))
        for point in [(trained.networks.params, trained.networks.model_state)]
        for r in range(NUM_REPLICAS)
    ]
    expected = jnp.log(jnp.mean(jnp.stack(outputs), axis=0))
    np.testing.assert_allclose(trained.log_probabilities(), expected, atol=1e-5)


def test_the_range_test_finds_the_same_rate_again_and_stores_it(tmp_path):
    problem, folder = tiny_problem(), tmp_path / "run"
    whole = rx.train(problem, NETWORK.init, **QUIET)
    found = whole.metadata.method
    assert found.kernel in TRANSFORMS and 1e-4 < found.learning_rate < 0.5
    assert set(whole.metadata.resolved.range_test["candidates"]) == set(TRANSFORMS)
    stop = lambda progress: "stop" if progress.step >= STEPS_PER_EPOCH else None  # noqa: E731
    rx.train(problem, NETWORK.init, run_dir=folder, callback=stop, **QUIET)
    assert rx.load(folder).metadata.method == found
    resumed = rx.resume(folder, problem, method=rx.deep_ensemble(), progress=False)
    assert resumed.metadata.method == found
    np.testing.assert_array_equal(resumed.log_probabilities(), whole.log_probabilities())


def test_a_given_rate_is_not_tested():
    trained = rx.train(tiny_problem(), NETWORK.init, method=rx.deep_ensemble(0.02), **QUIET)
    method = trained.metadata.method
    assert (method.kernel, method.learning_rate) == ("momentum", 0.02)
    assert trained.metadata.resolved.range_test is None


def bowl(curvatures):
    """A loss that is quadratic in as many parameters, seen through noisy rows."""
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(64, len(curvatures))), jnp.float32)

    def loss(curvatures, params, model_state, batch, key):
        return jnp.mean(jnp.sum(curvatures * (params["x"] - 0.1 * batch) ** 2, axis=1)), model_state

    return rx.supervised(partial(loss, jnp.asarray(curvatures)), rows, batch_size=16)


@pytest.mark.parametrize(
    ("curvatures", "kernel"), [([1.0, 1.0], "momentum"), ([1000.0, 1.0], "adam")]
)
def test_adam_is_for_losses_that_are_narrow_in_some_directions(curvatures, kernel):
    start = {"x": jnp.array([0.0, 1.0])}, {}
    options = {"epochs": 1, "num_replicas": 1, "progress": False}
    trained = rx.train(bowl(curvatures), start, **options)
    assert trained.metadata.method.kernel == kernel
    tested = trained.metadata.resolved.range_test["candidates"][kernel]
    best = tested["rates"][int(np.nanargmin(np.array(tested["losses"], float)))]
    assert trained.metadata.method.learning_rate == pytest.approx(best / 10 ** (1 / 3), rel=0.02)


def test_the_range_test_of_a_source_judges_on_mini_batches_that_it_does_not_train_on():
    def loss(params, model_state, batch, key):
        return jnp.mean((batch["x"] @ params - batch["y"]) ** 2), model_state

    problem = rx.supervised(loss, Plain(), batch_size=SIZE, num_rows=NUM_ROWS)
    data, rows = mini_batches(problem, 50, seed=0)
    judging, training = rows[:8], rows[8:]
    assert rows.shape == (58, SIZE) and len(data["x"]) == NUM_ROWS
    assert len(np.unique(rows)) == NUM_ROWS and not np.intersect1d(judging, training).size
    trained = rx.train(problem, (jnp.zeros(3), {}), epochs=1, num_replicas=1, progress=False)
    assert trained.metadata.method.kernel in TRANSFORMS
