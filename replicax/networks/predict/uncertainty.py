"""Uncertainty of predictions, agreement of two predictions, out-of-distribution detection.

An average over networks is uncertain for two reasons. Each network is uncertain, for example about
an image that could be either of two classes (aleatoric); and networks disagree, for example about
an image unlike all training images (epistemic):

    total entropy = mean entropy of the networks + mutual information of class and network.

>>> sure, unsure = [[1.0, 1e-9], [0.5, 0.5]]
>>> disagreeing = np.log([[sure, unsure], [sure[::-1], unsure]])  # (network, image, class)
>>> [part.round(3).tolist() for part in uncertainty(disagreeing)]
[[0.693, 0.693], [0.0, 0.693], [0.693, 0.0]]
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import entr, logsumexp
from scipy.stats import rankdata

from replicax.errors import choose, show
from replicax.networks.predict.checks import check_log_probs


class Uncertainty(NamedTuple):
    """Entropies in nats by image; for real numbers, standard deviations by row."""

    total: np.ndarray  # (image,) of the average
    aleatoric: np.ndarray  # (image,) the mean of the networks', or of their variances
    epistemic: np.ndarray  # (image,) the rest: mutual information, or the spread of their means


def entropy(log_probs: Any) -> np.ndarray:
    """Return the predictive entropy -sum_c p_c log p_c in nats  (image,)."""
    return entr(np.exp(check_log_probs(log_probs))).sum(axis=-1)


def uncertainty(member_log_probs: Any, weights: Any = None) -> Uncertainty:
    """Return total, aleatoric and epistemic entropy of an average over networks.

    For real numbers these are standard deviations, of the noise and of the means, whose squares add
    up to the square of the total.

    Args:
        member_log_probs: predictions of every network, as `trained.predict(inputs, members=True)`
            returns them: (network, image, class), or mean and sd (network, row).
        weights: weights of the networks in the average; equal by default.
    """
    if is_of_numbers(member_log_probs):
        return _of_numbers(member_log_probs, weights)
    members, weights = _check_members(member_log_probs, weights)
    total = entropy(_average(members, weights))
    aleatoric = np.tensordot(weights, entr(np.exp(members)).sum(axis=-1), 1)
    # Rounding may leave a mutual information, which is never negative, slightly below 0.
    return Uncertainty(total, aleatoric, np.maximum(total - aleatoric, 0.0))


def is_of_numbers(predicted: Any) -> bool:
    """Return whether this is a mean and standard deviation of real numbers."""
    return isinstance(predicted, tuple) and hasattr(predicted, "sd")


def _of_numbers(members: Any, weights: Any) -> Uncertainty:
    mean, sd = (np.asarray(part, float) for part in members)
    if mean.ndim < 2:
        raise ValueError(
            f"The means have shape {mean.shape}; give those of every network, (network, row), as "
            "trained.predict(inputs, members=True) returns them."
        )
    shares = _check_weights(len(mean), weights)
    noise = np.tensordot(shares, sd**2, 1)
    spread = np.tensordot(shares, (mean - np.tensordot(shares, mean, 1)) ** 2, 1)
    return Uncertainty(np.sqrt(noise + spread), np.sqrt(noise), np.sqrt(spread))


def mutual_information(member_log_probs: Any, weights: Any = None) -> np.ndarray:
    """Return the mutual information of class and network, the epistemic part of `uncertainty`
    (image,)."""
    return uncertainty(member_log_probs, weights).epistemic


def agreement(log_probs: Any, other_log_probs: Any) -> float:
    """Return the fraction of images for which two predictions have the same most probable class."""
    one, other = _check_pair(log_probs, other_log_probs)
    return float(np.mean(one.argmax(axis=-1) == other.argmax(axis=-1)))


def total_variation(log_probs: Any, other_log_probs: Any) -> float:
    """Return the mean over images of sum_c |p_c - q_c| / 2, from 0 (the same) to 1."""
    one, other = _check_pair(log_probs, other_log_probs)
    return float(np.mean(np.abs(np.exp(one) - np.exp(other)).sum(axis=-1) / 2))


def auroc(inside_scores: Any, outside_scores: Any) -> float:
    """Return P(outside > inside) + P(outside = inside) / 2: 1/2 is chance, 1 is perfect."""
    try:
        inside, outside = (np.asarray(x, float).ravel() for x in (inside_scores, outside_scores))
    except (TypeError, ValueError):
        raise ValueError("The scores are not numbers: give one for each image.") from None
    if not inside.size or not outside.size:
        raise ValueError("One of the two sets of scores is empty: give at least one score each.")
    both = np.concatenate([inside, outside])
    if np.isnan(both).any():
        raise ValueError("Some scores are NaN and cannot be ranked: leave them out.")
    wins = rankdata(both)[inside.size :].sum() - outside.size * (outside.size + 1) / 2
    return float(wins / (inside.size * outside.size))


def out_of_distribution(
    log_probs_inside: Any,
    log_probs_outside: Any,
    by: Literal["entropy", "mutual_information"] = "entropy",
    weights: Any = None,
) -> float:
    """Return the AUROC of uncertainty as a detector of images outside the data set.

    Args:
        log_probs_inside, log_probs_outside: log-probabilities of the average (image, class), or of
            every network (network, image, class).
        by: total "entropy", or "mutual_information", which needs those of every network.
        weights: of the networks.
    """
    choose("by", by, ("entropy", "mutual_information"))
    if is_of_numbers(log_probs_inside) or is_of_numbers(log_probs_outside):
        raise ValueError(
            "The predictions are real numbers, which have no classes: write "
            "rx.predict.auroc(inside.sd, outside.sd), or use a part of rx.predict.uncertainty(...)."
        )
    scores = [_score(x, by, weights) for x in (log_probs_inside, log_probs_outside)]
    inside, outside = (_shape(x)[-1] for x in (log_probs_inside, log_probs_outside))
    if inside != outside:
        raise ValueError(
            f"There are {inside} classes inside and {outside} outside: predict both with the same "
            "networks."
        )
    return auroc(*scores)


def _score(log_probs: Any, by: str, weights: Any) -> np.ndarray:
    if by == "mutual_information":
        return mutual_information(log_probs, weights)
    if len(_shape(log_probs)) != 3:
        return entropy(log_probs)
    return uncertainty(log_probs, weights).total


def _shape(log_probs: Any) -> tuple[int, ...]:
    try:
        return np.shape(log_probs)
    except ValueError:  # lists of unequal lengths
        raise ValueError(
            "The log-probabilities are lists of unequal lengths: give those of the same images and "
            "classes for every network."
        ) from None


def _check_pair(log_probs: Any, other_log_probs: Any) -> tuple[np.ndarray, np.ndarray]:
    if is_of_numbers(log_probs) or is_of_numbers(other_log_probs):
        raise ValueError("The predictions are real numbers: only those of classes are compared.")
    one, other = check_log_probs(log_probs), check_log_probs(other_log_probs)
    if one.shape != other.shape:
        raise ValueError(
            f"The log-probabilities have shapes {one.shape} and {other.shape}: give two "
            "predictions of the same images and classes."
        )
    return one, other


def _check_members(member_log_probs: Any, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return log-probabilities (network, image, class), and weights that sum to 1."""
    shape = _shape(member_log_probs)
    if len(shape) != 3 or not shape[0]:
        raise ValueError(
            f"The log-probabilities have shape {shape}; give those of every network, (network, "
            "image, class), as trained.predict(inputs, members=True) returns them."
        )
    members = np.stack([check_log_probs(one) for one in member_log_probs])
    return members, _check_weights(len(members), weights)


def _check_weights(count: int, weights: Any) -> np.ndarray:
    """Return normalised weights of `count` networks."""
    weights = np.ones(count) if weights is None else weights
    try:
        values = np.asarray(weights, float)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.shape != (count,) or not np.all(values >= 0) or not 0 < values.sum() < np.inf:
        raise ValueError(
            f"The weights are {show(weights)} for {count} networks: give one of at least 0 "
            "per network, and not all 0."
        )
    return values / values.sum()


def _average(members: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the log of the mean probabilities  (image, class)."""
    return logsumexp(members, axis=0, b=weights[:, None, None])
