"""Sources of mini-batches for tests, and runs on them."""

import functools
import json
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from common import chunks_of, in_method, rng_of

import replicax as rx
from replicax.networks.task import Supervised

NUM_ROWS, SIZE = 60, 6
PER_EPOCH = NUM_ROWS // SIZE
X = np.c_[np.ones(NUM_ROWS), rng_of(0).normal(size=(NUM_ROWS, 2))].astype(np.float32)
Y = (X @ np.array([0.5, -1.0, 2.0]) + rng_of(1).normal(size=NUM_ROWS)).astype(np.float32)


def batch(rows: Any) -> dict[str, np.ndarray]:
    return {"x": X[rows], "y": Y[rows]}


class Plain:
    """Each epoch in the same order; its iterators are generators."""

    def order(self) -> np.ndarray:
        return np.arange(NUM_ROWS)

    def __iter__(self) -> Iterator[Any]:
        order = self.order()
        return (batch(order[i * SIZE : (i + 1) * SIZE]) for i in range(PER_EPOCH))


class ByEpoch(Plain):
    """Each epoch in an order of its own, which follows from its number."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def order(self) -> np.ndarray:
        return rng_of(self.epoch + 7).permutation(NUM_ROWS)


class Stateful:
    """Each epoch in an order drawn when it begins; iterators have grain's interface."""

    encode, decode = staticmethod(lambda state: state), staticmethod(lambda state: state)

    def __init__(self) -> None:
        self.rng = rng_of(3)

    def __iter__(self) -> "StatefulIterator":
        return StatefulIterator(self)


class InBytes(Stateful):
    encode = staticmethod(lambda state: json.dumps(state).encode())
    decode = staticmethod(json.loads)


class StatefulIterator:
    def __init__(self, source: Stateful) -> None:
        self.source, self.next = source, 0
        self.order = source.rng.permutation(NUM_ROWS).tolist()

    def __iter__(self) -> "StatefulIterator":
        return self

    def __next__(self) -> Any:
        if self.next == PER_EPOCH:
            raise StopIteration
        self.next += 1
        return batch(self.order[(self.next - 1) * SIZE : self.next * SIZE])

    def get_state(self) -> Any:
        rng = self.source.rng.bit_generator.state
        return self.source.encode({"rng": rng, "order": self.order, "next": self.next})

    def set_state(self, state: Any) -> None:
        state = self.source.decode(state)
        self.source.rng.bit_generator.state = state["rng"]
        self.order, self.next = state["order"], state["next"]


def stream(source: Any, count: int) -> list[Any]:
    """The batches of a source, epoch after epoch, read plainly."""
    batches, epoch = [], 0
    while len(batches) < count:
        if isinstance(source, ByEpoch):
            source.set_epoch(epoch)
        batches, epoch = batches + list(source), epoch + 1
    return batches[:count]


# Runs


def log_likelihood(params: Any, rows: Any) -> Any:
    return -((rows["y"] - rows["x"] @ params) ** 2) / 2


def log_prior(params: Any) -> Any:
    return -jnp.sum(params**2) / 200


def posterior(source: Any, **options: Any) -> Any:
    given = {"batch_size": SIZE, "num_rows": NUM_ROWS} | options
    return rx.bayesian(log_likelihood, log_prior, source, **given)


def loss_fn(params: Any, model_state: Any, rows: Any, key: Any) -> tuple[Any, Any]:
    return -jnp.mean(log_likelihood(params, rows)), model_state


def problem(source: Any, **options: Any) -> Any:
    return rx.supervised(loss_fn, source, **{"batch_size": SIZE, "num_rows": NUM_ROWS} | options)


SHORT: dict[str, Any] = {
    "num_steps": 47,
    "num_replicas": 3,
    "progress": False,
    "swap_every": 3,
    "learning_rate": 1e-3,
    "temperature": (1.0, 4.0),
    "kernel": "sgld",
    "rule": "bias_corrected",
    "adapt": False,
    "burn_in": 2,
    "thin": 1,
}
PAPER: dict[str, Any] = {
    "num_steps": 47, "num_replicas": 3, "progress": False,
    "method": rx.deo_star(learning_rate=(1e-3, 1e-2), buffer=0.1),
}  # fmt: skip
quiet = pytest.mark.filterwarnings("ignore::UserWarning")


def sample(source: Any, chunk_steps: int | None = None, **options: Any) -> rx.Posterior:
    """A short run on the rows of a source; options of its method stand beside the others."""
    chosen = in_method(SHORT | options, rx.deo)
    with chunks_of(chunk_steps):
        return rx.sample(posterior(source), jnp.zeros(3), **chosen)


def stop_at(step: int) -> Any:
    return lambda progress: "stop" if progress.step >= step else None


@functools.cache
def whole_run(make: Any) -> rx.Posterior:
    return sample(make())


def accuracy_test() -> rx.Test:
    def logits(params: Any, model_state: Any, inputs: Any) -> Any:
        return jnp.stack([inputs @ params, -(inputs @ params)], 1)

    return rx.Test(logits, jnp.asarray(X), jnp.asarray(Y < 0, jnp.int32), 2)


def train(source: Any, **options: Any) -> rx.Trained:
    method = rx.deo(learning_rate=(0.01, 0.1), target_swap_rate=0.3)
    chosen = {"epochs": 3, "num_replicas": 3, "method": method}
    chosen |= {"progress": False, "keep_networks": True}
    given = source if isinstance(source, Supervised) else problem(source, test=accuracy_test())
    return rx.train(given, (jnp.zeros(3), {}), **chosen | options)
