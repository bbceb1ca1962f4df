"""Metrics of log-probabilities (image, class), in float64 NumPy."""

from typing import Any, Literal, NamedTuple

import numpy as np

from replicax.errors import choose
from replicax.networks.predict.calibration import calibration_error
from replicax.networks.predict.checks import check
from replicax.networks.predict.uncertainty import entropy


class Metrics(NamedTuple):
    """Metrics of log-probabilities."""

    nll: float  # mean over images, nats
    nll_sum: float
    accuracy: float
    brier: float
    calibration_error: float
    entropy: float  # mean over images, nats


def evaluate(log_probs: Any, labels: Any) -> Metrics:
    """Return all metrics of log-probabilities (image, class) and labels (image,)."""
    log_probs, labels = check(log_probs, labels)
    return Metrics(
        nll=nll(log_probs, labels),
        nll_sum=nll(log_probs, labels, reduce="sum"),
        accuracy=accuracy(log_probs, labels),
        brier=brier(log_probs, labels),
        calibration_error=calibration_error(log_probs, labels),
        entropy=float(entropy(log_probs).mean()),
    )


def nll(log_probs: Any, labels: Any, reduce: Literal["mean", "sum"] = "mean") -> float:
    """Return the negative log-likelihood of the labels, in nats: mean or sum over images."""
    choose("reduce", reduce, ("mean", "sum"))
    log_probs, labels = check(log_probs, labels)
    losses = -log_probs[np.arange(len(labels)), labels]
    return float(losses.mean() if reduce == "mean" else losses.sum())


def accuracy(log_probs: Any, labels: Any) -> float:
    """Return the fraction of images whose most probable class (the first of ties) is right."""
    log_probs, labels = check(log_probs, labels)
    return float(np.mean(log_probs.argmax(axis=-1) == labels))


def brier(log_probs: Any, labels: Any) -> float:
    """Return the mean over images of sum_c (p_c - [c is the label])^2, from 0 (perfect) to 2."""
    log_probs, labels = check(log_probs, labels)
    error = np.exp(log_probs)
    error[np.arange(len(labels)), labels] -= 1
    return float(np.mean(np.sum(error**2, axis=-1)))
