"""`rx.classification` of a source: data that need not fit into memory."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import assert_same_run, rng_of

import replicax as rx

SIZE, NUM_ROWS = 6, 24
LABELS = rng_of(0).integers(0, 3, NUM_ROWS).astype(np.int64)
INPUTS = (rng_of(1).normal(size=(NUM_ROWS, 2)) + LABELS[:, None]).astype(np.float32)
NETWORK = rx.nn.Network(
    lambda key: (0.1 * jax.random.normal(key, (2, 3)), {}),
    lambda params, state, inputs, train: (inputs @ params, state),
)


class Shuffled:
    """Each epoch in an order of its own, with grain's interface: iterators that have a state."""

    def __init__(self, inputs: Any = INPUTS, labels: Any = LABELS) -> None:
        self.rows, self.rng = (inputs, labels), rng_of(7)

    def __iter__(self) -> "ShuffledIterator":
        return ShuffledIterator(self)


class ShuffledIterator:
    def __init__(self, source: Shuffled) -> None:
        self.source, self.next = source, 0
        self.order = source.rng.permutation(NUM_ROWS).tolist()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.next == NUM_ROWS:
            raise StopIteration
        self.next += SIZE
        rows = self.order[self.next - SIZE : self.next]
        return tuple(array[rows] for array in self.source.rows)

    def get_state(self) -> Any:
        rng = self.source.rng.bit_generator.state
        return {"rng": rng, "order": self.order, "next": self.next}

    def set_state(self, state: Any) -> None:
        self.source.rng.bit_generator.state = state["rng"]
        self.order, self.next = state["order"], state["next"]


def problem(source: Any = None, **options: Any) -> Any:
    given = {"batch_size": SIZE, "num_rows": NUM_ROWS, "num_classes": 3} | options
    source = Shuffled() if source is None else source
    return rx.classification(NETWORK, source, test=(INPUTS, LABELS), **given)


def train(problem: Any, **options: Any) -> Any:
    method = rx.deo_star(learning_rate=(0.02, 0.1))
    chosen = {"epochs": 4, "num_replicas": 2, "method": method, "keep_networks": True}
    return rx.train(problem, NETWORK.init, progress=False, **chosen | options)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_training_on_a_source_learns_and_resumes_bit_for_bit(tmp_path: Any) -> None:
    whole = train(problem())
    nll = whole.epochs["nll"][:, 0]
    assert nll[-1] < nll[0] < np.log(3)
    assert whole.predict(INPUTS[:4]).shape == (4, 3)
    train(problem(), run_dir=tmp_path, callback=lambda now: "stop" if now.step == 8 else None)
    source = Shuffled()
    source.rng = rng_of(8)  # only the state that was saved can give the same batches
    resumed = rx.resume(tmp_path, problem(source), progress=False, force=True)
    assert_same_run(resumed, whole)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (Shuffled(), {"num_classes": None}, "num_classes is missing: the labels of a source"),
        (Shuffled(labels=LABELS + 1), {}, r"Batch 0 of epoch 0 of the source\[1\] go from 1 to 3"),
        (Shuffled((255 * INPUTS).astype(np.uint8)), {}, "has uint8 inputs; give a prepare"),
        ([{"x": INPUTS[:6], "y": LABELS[:6]}], {}, "is of type dict; let the source give pairs"),
        (Shuffled(labels=LABELS / 2), {}, r"source\[1\] is .*; give an array of whole numbers"),
    ],
)
def test_sources_that_cannot_be_classified_are_refused(source, options, message):
    with pytest.raises(ValueError, match=message):
        train(problem(source, **options))


def test_one_hot_labels_and_bytes_are_taken():
    """The labels of a batch become class numbers; `prepare` turns bytes into numbers."""
    hot = Shuffled((10 * INPUTS + 100).clip(0, 255).astype(np.uint8), np.eye(3)[LABELS])
    given = problem(hot, prepare=lambda key, rows: (rows[0] / 10.0 - 10, rows[1]))
    inputs, labels = given.batches.first(jax.random.key(0))
    assert inputs.dtype == jnp.float32 and labels.dtype == jnp.int32 and labels.shape == (SIZE,)
