"""The start networks on the test images: their logits, stored beside their run, and averages."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

import replicax as rx
from replicax.networks.train import last_networks

WEIGHT = 10.0  # of a start network relative to an averaged network, as in the authors' code
_FILE = "logits.npy"  # (network, image, class)
_PIECE = 1000  # images that a network sees together


def write(folder: Path, problem: Any) -> None:
    """Write the logits of the start networks into the folder of their run, if they are missing."""
    if (folder / _FILE).exists():
        return
    params, model_state = last_networks(folder, problem, rx.load(folder).num_replicas)
    test, one_piece = problem.test, jax.jit(problem.test.outputs)

    def logits(*network: Any) -> np.ndarray:
        firsts = range(0, len(test.targets), _PIECE)
        pieces = [one_piece(*network, test.inputs[first : first + _PIECE]) for first in firsts]
        return np.concatenate(pieces)

    networks = range(len(jax.tree.leaves(params)[0]))
    each = [jax.tree.map(lambda leaf, at=at: leaf[at], (params, model_state)) for at in networks]
    unfinished = folder / f"unfinished-{_FILE}"
    np.save(unfinished, np.stack([logits(*network) for network in each]))
    unfinished.replace(folder / _FILE)


def read(folder: Path, num_networks: int) -> rx.predict.Average | None:
    """Return the average over the first start networks, from which a run of so many began; None
    without their logits."""
    path = folder / _FILE
    return rx.predict.average(np.load(path)[:num_networks]) if path.exists() else None


def metrics(average: rx.predict.Average, labels: np.ndarray, by: Any) -> dict[str, Any]:
    """Return the metrics of an average."""
    return rx.predict.evaluate(rx.predict.log_probabilities(average, by), labels)._asdict()


def with_starts(average: rx.predict.Average, starts: rx.predict.Average) -> rx.predict.Average:
    """Return the average in which start networks count `WEIGHT` each."""
    return rx.predict.merge(average, jax.tree.map(lambda sums: WEIGHT * sums, starts))
