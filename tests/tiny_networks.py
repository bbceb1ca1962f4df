"""A tiny network, its data and the settings of a short run that exchanges."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import replicax as rx
from replicax.algorithm.randomness import seed_keys
from replicax.data import Dataset
from replicax.networks.classification import classification
from replicax.networks.task import Supervised
from replicax.nn.network import Network, apply_dense, batch_norm, init_dense

NUM_ROWS = 32  # a power of two: energies of all rows are scaled without rounding
WIDTH = 4
NUM_REPLICAS = 3
STEPS_PER_EPOCH = 4  # of batches of 8 rows
DECAY = 0.9  # of momentum


def tiny_network() -> Network:
    """Pixels, a dense layer, batch norm, a dense layer: quick to compile."""
    norm = batch_norm()

    def init(key: Any) -> tuple[Any, Any]:
        first, last = jax.random.split(key)
        params, state = norm.init(WIDTH)
        dense = {"first": init_dense(first, 36, WIDTH), "last": init_dense(last, WIDTH, 3)}
        return {**dense, "norm": params}, state

    def apply(params: Any, state: Any, images: Any, train: bool) -> tuple[Any, Any]:
        x = apply_dense(params["first"], images.reshape(len(images), -1))
        x, state = norm.apply(params["norm"], state, x[:, None, None], train)
        return apply_dense(params["last"], x[:, 0, 0]), state

    return Network(init, apply)


def tiny_data(num_rows: int = NUM_ROWS, num_test: int = 12) -> Dataset:
    """Three classes that differ in brightness, noisily."""
    rng = np.random.default_rng(0)

    def part(count: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, 3, count).astype(np.int32)
        images = rng.normal(90 + 40 * labels[:, None, None, None], 60, (count, 6, 6, 1))
        return images.clip(0, 255).astype(np.uint8), labels

    return Dataset("tiny", *part(num_rows), *part(num_test), 3, (0.5,), (0.25,)).check()


NETWORK = tiny_network()


def tiny_problem(
    network: Network = NETWORK, num_rows: int = NUM_ROWS, **options: Any
) -> Supervised:
    chosen = {"batch_size": 8, "augment": False, "weight_decay": 0.01} | options
    return classification(network, tiny_data(num_rows), **chosen)


class Last:
    """A callback that keeps the state it saw last."""

    state: Any = None

    def __call__(self, progress: rx.callbacks.Progress) -> None:
        self.state = jax.device_get(progress.carry.state)


def networks_that_start_from(
    folder: Path, problem: Supervised, num_replicas: int = NUM_REPLICAS
) -> Any:
    """The networks (params, model_state) of a run that begins where another ended, and that hardly
    moves them."""
    last = Last()
    still: dict[str, Any] = {"method": rx.ensemble(learning_rate=1e-9), "progress": False}
    rx.train(problem, folder, epochs=1, num_replicas=num_replicas, callback=last, **still)
    points = last.state.replicas.params, last.state.model_state
    return jax.tree.map(lambda leaf: leaf[0], points)


LADDER: dict[str, Any] = {
    "pretrain": 0.0,
    "learning_rate": (0.02, 0.1),
    "target_swap_rate": 0.3,
    "window": 2,
    "buffer": 0.0,
    "gain": rx.Gain(10.0, 20.0),
    "buffer_gain": rx.Gain(1.0, 40.0, cap=0.02),
}
EXCHANGING: dict[str, Any] = {
    "epochs": 4,
    "num_replicas": 3,
    "method": rx.deo_star(**LADDER),
    "progress": False,
}


def by_replica(tree: Any, replica: int) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[replica], tree)


def plain_training(problem: Supervised, start: Any, transform: Any, epochs: int) -> Any:
    """One network trained by optax, on the mini-batches that a run of seed 0 sees."""
    ((key,), _) = seed_keys(0, 1)
    params, state = start
    memory = transform.init(params)
    gradient = jax.jit(jax.grad(problem.target.energy, has_aux=True))
    for epoch in range(epochs):
        order = np.asarray(problem.batches.order(key, epoch))
        for rows in np.array_split(order, problem.steps_per_epoch):
            images, labels = (np.asarray(part)[rows] for part in problem.batches.data)
            batch = problem.batches.prepare(key, (images, labels))
            slope, state = gradient(params, state, batch, None)
            update, memory = transform.update(slope, memory, params)
            params = optax.apply_updates(params, update)
    return params, state


def assert_trees_close(one: Any, other: Any, tolerance: float = 2e-3) -> None:
    def close(a: Any, b: Any) -> None:
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)

    jax.tree.map(close, one, other)
