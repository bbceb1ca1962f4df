"""Checks of log-probabilities and labels."""

from typing import Any

import numpy as np
from scipy.special import logsumexp

_TOLERANCE = 0.02  # for log sum_c p_c = 0; bfloat16 probabilities of 100 classes stay below


def check(log_probs: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    log_probs, labels = check_log_probs(log_probs), np.asarray(labels)
    num_images, num_classes = log_probs.shape
    if labels.shape != (num_images,):
        raise ValueError(
            f"The labels have shape {labels.shape} for {num_images} images: give one integer per "
            "image; for one-hot labels, labels.argmax(-1)."
        )
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"The labels are {labels.dtype}; give integers, the first class 0.")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"The labels lie between {labels.min()} and {labels.max()}; with {num_classes} classes "
            f"they must lie between 0 and {num_classes - 1}."
        )
    return log_probs, labels


def check_log_probs(log_probs: Any) -> np.ndarray:
    try:
        log_probs = np.asarray(log_probs, np.float64)
    except (TypeError, ValueError):
        raise ValueError("The log-probabilities are not numbers: give (image, class).") from None
    if log_probs.ndim != 2 or not log_probs.size:
        raise ValueError(
            f"The log-probabilities have shape {log_probs.shape}; give (image, class), with at "
            "least one image."
        )
    broken = np.isnan(log_probs).any(axis=-1)
    if broken.any():
        raise ValueError(
            f"The log-probabilities of {broken.sum()} of {len(broken)} images are NaN, image "
            f"{broken.argmax()} first: leave out the network that diverged."
        )
    off = np.abs(logsumexp(log_probs, axis=-1))
    if off.max() > _TOLERANCE:
        raise ValueError(
            f"The probabilities of image {off.argmax()} do not sum to 1, so these are not "
            "log-probabilities. For logits of one network use jax.nn.log_softmax, of several "
            "rx.predict.log_probabilities(rx.predict.average(logits)); for probabilities, their "
            "logarithm."
        )
    return log_probs
