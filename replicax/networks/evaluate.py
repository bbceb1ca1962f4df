"""How the networks of a run do on unseen data, and the running average of what they say."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.networks import predict
from replicax.networks.predict import Average
from replicax.networks.problem import Supervised, Test
from replicax.run.compiled_loop import Carry
from replicax.run.host_loop import Watch

_BATCH = 500  # images that all replicas look at together


class Averages(NamedTuple):
    """What is remembered from look to look."""

    sampled: Average  # over the networks that were picked
    starts: Average  # over the networks that the run started from
    looks: Array  # how many there were, shape ()


def build_logits(test: Test) -> Callable[[Any], Array]:
    """`logits(points) -> (replica, image, class)` for points (params, model_state) by replica."""
    num_images = len(test.labels)
    size = max(n for n in range(1, min(_BATCH, num_images) + 1) if num_images % n == 0)
    one_batch = jax.vmap(test.logits, (0, 0, None))

    def logits(points: Any, inputs: Any) -> Array:
        batches = jax.tree.map(lambda x: x.reshape(-1, size, *x.shape[1:]), inputs)
        params, model_state = points
        seen = jax.lax.map(lambda batch: one_batch(params, model_state, batch), batches)
        return jnp.moveaxis(seen, 1, 0).reshape(-1, num_images, seen.shape[-1])

    compiled = jax.jit(logits)
    return lambda points: compiled(points, test.inputs)


def build_watch(
    problem: Supervised,
    weights: Callable[[int, int], np.ndarray],
    every: int = 1,
    starts: Any = None,
) -> Watch:
    """Look at all networks after every `every` epochs, and average those that have a weight.

    `weights(epoch, num_replicas) -> (rung,)`, epochs counted from 1. `starts`: points (params,
    model_state) by replica, to be averaged apart.
    """
    test = problem.test
    if test is None:
        raise ValueError("The problem has no test; write supervised(..., test=rx.Test(...)).")
    compute_logits = build_logits(test)
    examine = jax.jit(functools.partial(_examine, test.labels))

    def look(memory: Averages, carry: Carry) -> tuple[Averages, dict[str, Any]]:
        state = carry.state
        points, replica_at = jax.tree.map(lambda leaf: leaf[0], (state.points, state.replica_at))
        epoch = every * (int(memory.looks) + 1)
        weight = jnp.asarray(weights(epoch, replica_at.shape[0]), jnp.float32)
        sampled, row = examine(memory.sampled, compute_logits(points)[replica_at], weight)
        return Averages(sampled, memory.starts, memory.looks + 1), row

    empty = Average.empty(len(test.labels), test.num_classes)
    at_start = empty if starts is None else predict.average(compute_logits(starts))
    memory = Averages(empty, at_start, jnp.array(0, jnp.int32))
    labels = {"labels": np.asarray(test.labels)}
    final = lambda memory: {**final_values(memory), **labels}  # noqa: E731
    return Watch(every * problem.steps_per_epoch, memory, look, final)


def _examine(labels: Array, sampled: Average, logits: Array, weight: Array):
    """Add what has a weight, logits (rung, image, class); and a row of numbers about it all."""
    weighed = jnp.where(weight[:, None, None] > 0, logits, 0.0)  # 0 times NaN is NaN
    sampled = predict.merge(sampled, predict.average(weighed, weight))
    nll, accuracy = jax.vmap(lambda one: score(jax.nn.log_softmax(one), labels))(logits)
    row = {"nll": nll, "accuracy": accuracy, "weight": sampled.weight}
    for by in ("probabilities", "logits"):
        average_nll, average_accuracy = score(predict.log_probabilities(sampled, by), labels)
        row |= {f"average_nll_{by}": average_nll, f"average_accuracy_{by}": average_accuracy}
    return sampled, row


def score(log_probabilities: Array, labels: Array) -> tuple[Array, Array]:
    """Mean negative log-likelihood and accuracy, on the device."""
    seen = jnp.take_along_axis(log_probabilities, labels[:, None], axis=1)
    return -jnp.mean(seen), jnp.mean(jnp.argmax(log_probabilities, axis=1) == labels)


def final_values(memory: Averages) -> dict[str, np.ndarray]:
    """For the records: "average.logits", "starts.weight", ..."""
    parts = {"average": memory.sampled, "starts": memory.starts}
    return {
        f"{name}.{field}": np.asarray(value)
        for name, average in parts.items()
        for field, value in average._asdict().items()
    }
