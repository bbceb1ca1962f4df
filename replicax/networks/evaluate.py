"""Evaluation of the networks of a run on unseen data, and the running average of their
predictions."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from replicax.algorithm.tracing import explained
from replicax.networks import predict
from replicax.networks.cold_part import ColdPart
from replicax.networks.predict import Average
from replicax.networks.problem import Supervised, Test
from replicax.run.devices import map_replicas
from replicax.run.rows import Carry
from replicax.run.saver import Evaluation

_BATCH = 500  # images that all replicas see together


class Averages(NamedTuple):
    """The state of the evaluation."""

    sampled: Average  # over the networks that were picked
    starts: Average  # over the networks that the run started from
    count: Array  # evaluations so far, shape ()
    stay: Any = ()  # steps of each replica on the cold part of the ladder, where that is averaged


def build_logits(test: Test) -> Callable[[Any], Array]:
    """Build `logits(points) -> (replica, image, class)`; points are (params, model_state)."""
    compiled = _build_logits(test)
    return lambda points: compiled(points, test.inputs)


def _build_logits(test: Test) -> Callable[[Any, Any], Array]:
    num_images = len(test.labels)
    size = max(n for n in range(1, min(_BATCH, num_images) + 1) if num_images % n == 0)
    one_batch = jax.vmap(test.logits, (0, 0, None))

    def logits(points: Any, inputs: Any) -> Array:
        batches = jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), inputs)
        params, model_state = points
        values = jax.lax.map(lambda batch: one_batch(params, model_state, batch), batches)
        return jnp.moveaxis(values, 1, 0).reshape(-1, num_images, values.shape[-1])

    return jax.jit(logits)


def check_logits(test: Test, like: Any) -> None:
    """Raise unless one network, of which `like` has the shapes, gives logits for every class."""
    inputs = jax.tree.map(lambda x: jax.ShapeDtypeStruct((2, *x.shape[1:]), x.dtype), test.inputs)
    with explained("The logits of the test"):
        logits = jax.eval_shape(test.logits, *like, inputs)
    shape = getattr(logits, "shape", None)
    if shape != (2, test.num_classes):
        raise ValueError(
            f"The logits of the test have shape {shape} for 2 inputs; num_classes is "
            f"{test.num_classes}, so that they need shape (2, {test.num_classes})."
        )


def build(
    problem: Supervised,
    weights: Callable[[int, int], np.ndarray],
    every: int = 1,
    starts: Any = None,
    cold_part: ColdPart | None = None,
    num_replicas: int = 1,
) -> Evaluation:
    """Build the evaluation of all networks after every `every` epochs; those with a weight are
    averaged.

    `weights(epoch, num_replicas) -> (rung,)`, epochs counted from 1. `starts`: points (params,
    model_state) by replica, to be averaged apart. With a `cold_part`, the weight of the coldest
    network goes to one of that part.
    """
    test = problem.test
    if test is None:
        raise ValueError("The problem has no test; write supervised(..., test=rx.Test(...)).")
    compute_logits = _build_logits(test)
    score_all = jax.jit(functools.partial(_score_all, test.labels))

    def evaluate(averages: Averages, carry: Carry) -> tuple[Averages, dict[str, Any]]:
        state = carry.state
        logits = map_replicas(compute_logits, state.points, test.inputs)
        replica_at = np.asarray(state.replica_at)[0]
        epoch = every * (int(averages.count) + 1)
        weight = weights(epoch, len(replica_at))
        if cold_part is not None:
            stay = np.asarray(averages.stay)[replica_at]
            weight = weight[0] * cold_part.weights(epoch - 1, stay)
        weight = jnp.asarray(weight, jnp.float32)
        sampled, row = score_all(averages.sampled, logits[replica_at], weight)
        return averages._replace(sampled=sampled, count=averages.count + 1), row

    empty = Average.empty(len(test.labels), test.num_classes)
    at_start = empty if starts is None else predict.average(compute_logits(starts, test.inputs))
    labels = {"labels": np.asarray(test.labels)}
    final = lambda averages: {**final_values(averages), **labels}  # noqa: E731
    running = lambda averages: averages.sampled  # noqa: E731
    averages = Averages(empty, at_start, jnp.array(0, jnp.int32))
    if cold_part is None:
        return Evaluation(averages, evaluate, final, running=running)
    follow = lambda averages, rung_of: averages._replace(  # noqa: E731
        stay=cold_part.follow(averages.stay, rung_of[:, 0])
    )
    averages = averages._replace(stay=cold_part.start(num_replicas))
    return Evaluation(averages, evaluate, final, follow, running)


def _score_all(labels: Array, sampled: Average, logits: Array, weight: Array):
    """Add networks that have a weight to the average, and score all; logits (rung, image, class).

    Returns the average and a row of numbers about it and the networks.
    """
    weighed = jnp.where(weight[:, None, None] > 0, logits, 0.0)  # 0 times NaN is NaN
    sampled = predict.merge(sampled, predict.average(weighed, weight))
    nll, accuracy = jax.vmap(lambda one: score(one, labels))(logits)
    row = {"nll": nll, "accuracy": accuracy, "weight": sampled.weight}
    for by in ("probabilities", "logits"):
        average_nll, average_accuracy = score(predict.log_probabilities(sampled, by), labels)
        row |= {f"average_nll_{by}": average_nll, f"average_accuracy_{by}": average_accuracy}
    return sampled, row


def score(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Return mean negative log-likelihood and accuracy, on the device."""
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return jnp.mean(nll), jnp.mean(jnp.argmax(logits, axis=1) == labels)


def final_values(averages: Averages) -> dict[str, np.ndarray]:
    """Return the averages for the records: "average.logits", "starts.weight", ..."""
    parts = {"average": averages.sampled, "starts": averages.starts}
    return {
        f"{name}.{field}": np.asarray(value)
        for name, average in parts.items()
        for field, value in average._asdict().items()
    }
