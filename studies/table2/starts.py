"""Predictions of the start networks for the test images, as running sums beside their run."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import replicax as rx

WEIGHT = 10.0  # of a start network relative to an averaged network, as in the authors' code
_FILE = "predictions.npz"
_PIECE = 1000  # images that a network sees together


def write(folder: Path, problem: Any) -> None:
    """Write the averages over the first start network and over all of them, unless they are there.

    Methods with one network start from the first, the others from all.
    """
    if (folder / _FILE).exists():
        return
    params, model_state = _last_networks(folder, problem)
    num_networks = len(jax.tree.leaves(params)[0])
    test = problem.test
    arrays: dict[str, Any] = {}
    total = rx.predict.Average.empty(len(test.labels), test.num_classes)
    for number in range(num_networks):
        network = jax.tree.map(lambda leaf, at=number: leaf[at], (params, model_state))
        total = rx.predict.add(total, _logits(test, network))
        if number + 1 in (1, num_networks):
            arrays |= {
                f"{number + 1}.{name}": np.asarray(value) for name, value in total._asdict().items()
            }
    unfinished = folder / f"unfinished-{_FILE}"
    np.savez(unfinished, **arrays)
    unfinished.replace(folder / _FILE)


def read(folder: Path, num_networks: int) -> rx.predict.Average | None:
    """Return the average over the first `num_networks` start networks; None if it is not there."""
    if not (folder / _FILE).exists():
        return None
    with np.load(folder / _FILE) as arrays:
        names = [f"{num_networks}.{name}" for name in rx.predict.Average._fields]
        if not set(names) <= set(arrays):
            return None
        return rx.predict.Average(*(jnp.asarray(arrays[name]) for name in names))


def metrics(average: rx.predict.Average, labels: np.ndarray, by: Any) -> dict[str, Any]:
    """Return the metrics of an average."""
    return rx.predict.evaluate(rx.predict.log_probabilities(average, by), labels)._asdict()


def with_starts(average: rx.predict.Average, starts: rx.predict.Average) -> rx.predict.Average:
    """Return the average in which start networks count `WEIGHT` each."""
    return rx.predict.merge(average, jax.tree.map(lambda sums: WEIGHT * sums, starts))


def _last_networks(folder: Path, problem: Any) -> Any:
    """Return the networks that runs from this folder start with, (params, model_state)."""
    from replicax.networks.continued import networks_of

    return networks_of(folder, problem)


def _logits(test: Any, network: Any) -> jax.Array:
    logits, size = jax.jit(test.logits), len(test.labels)
    pieces = [test.inputs[first : first + _PIECE] for first in range(0, size, _PIECE)]
    return jnp.concatenate([logits(*network, piece) for piece in pieces])
