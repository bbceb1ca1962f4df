"""The evaluation of networks, two of them on seven images, against NumPy."""

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from replicax.networks import evaluate
from replicax.networks.evaluate import Thinning
from replicax.networks.task import Test, supervised
from replicax.run.carry import Carry

INPUTS = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
LABELS = np.array([0, 1, 1, 0, 0, 1, 1])
PARAMS = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)  # by replica


def problem() -> Any:
    logits = lambda params, state, inputs: inputs * params  # noqa: E731
    test = Test(logits, jnp.asarray(INPUTS), jnp.asarray(LABELS), 2)
    loss_fn = lambda params, state, batch, key: (jnp.sum(params) + 0 * batch.sum(), state)  # noqa: E731
    return supervised(loss_fn, np.zeros((4, 1), np.float32), batch_size=2, test=test)


def softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def carry() -> Any:
    """Replica 1 is on rung 0."""
    points = jnp.asarray(PARAMS)[None], jnp.zeros((1, 2))
    return Carry(SimpleNamespace(points=points, replica_at=jnp.array([[1, 0]])), None)  # type: ignore


def test_epochs_without_a_pick_take_no_room() -> None:
    """Nothing is averaged in the first five epochs: the two picks that follow are both kept."""
    weights = lambda epoch, num_replicas: np.eye(num_replicas)[0] * (epoch > 5)  # noqa: E731
    made = evaluate.build_average(problem(), weights, 1, Thinning(2))
    averages, kept = made.state, []
    for epoch in range(1, 8):
        averages, _, rows = made.evaluate(averages, carry())
        kept += [(epoch, *rows["pick"], *rows["stride"])] if rows else []
    assert kept == [(6, 1, 1), (7, 2, 1)] and float(averages.sampled.weight) == 2


def test_an_average_of_nothing_has_no_scores() -> None:
    """In a burn-in; the first class is not right by being the first."""
    made = evaluate.build_average(problem(), lambda epoch, count: np.eye(count)[0] * (epoch > 1))
    averages, first, _ = made.evaluate(made.state, carry())
    _, second, _ = made.evaluate(averages, carry())
    names = [name for name in first if name.startswith("average_")]
    assert len(names) == 4 and all(np.isnan(first[name]) for name in names)
    assert all(np.isfinite(second[name]) for name in names) and np.isfinite(first["nll"]).all()


@pytest.mark.parametrize("batch", [500, 4])
def test_an_evaluation_by_hand(batch: int, monkeypatch) -> None:
    """Replica 1 is on rung 0. All images at once, or two batches of four with one filled up."""
    monkeypatch.setattr(evaluate, "_BATCH", batch)
    asked = []

    def weights(epoch: int, num_replicas: int) -> np.ndarray:
        asked.append((epoch, num_replicas))
        return np.array([1.0, 0.0] if epoch == 5 else [2.0, 1.0])

    made = evaluate.build_average(problem(), weights, every=5)
    averages, first, _ = made.evaluate(made.state, carry())
    averages, second, _ = made.evaluate(averages, carry())
    assert asked == [(5, 2), (10, 2)] and int(averages.count) == 2

    by_rung = (INPUTS * PARAMS[[1, 0], None]).astype(float)
    probabilities = softmax(by_rung)
    nll = -np.log(probabilities[:, np.arange(7), LABELS]).mean(axis=1)
    np.testing.assert_allclose(second["nll"], nll, rtol=1e-5)
    accuracy = (by_rung.argmax(axis=-1) == LABELS).mean(axis=1)
    assert accuracy[0] != accuracy[1]
    np.testing.assert_allclose(second["accuracy"], accuracy, rtol=1e-6)

    final = made.final(averages)
    np.testing.assert_allclose(final["average.logits"], 3 * by_rung[0] + by_rung[1], rtol=1e-5)
    total = 3 * probabilities[0] + probabilities[1]
    np.testing.assert_allclose(final["average.probabilities"], total, rtol=1e-5)
    assert (float(first["weight"]), float(second["weight"])) == (1.0, 4.0)
    np.testing.assert_array_equal(final["labels"], LABELS)
    for by, mean in (
        ("probabilities", total / 4),
        ("logits", softmax(final["average.logits"] / 4)),
    ):
        wanted = -np.log(mean[np.arange(7), LABELS]).mean()
        np.testing.assert_allclose(second[f"average_nll_{by}"], wanted, rtol=1e-4)
        wanted = (mean.argmax(axis=1) == LABELS).mean()
        np.testing.assert_allclose(second[f"average_accuracy_{by}"], wanted, rtol=1e-6)
