"""Bayesian model averages, metrics of their predictions, calibration and uncertainty.

A posterior predicts with the mean of its networks,

    p(class | image) = sum_n w_n p(class | image, network n) / sum_n w_n,

computed from running sums, so that only one network's logits are in memory at a time:

>>> import jax.numpy as jnp
>>> confident, unsure = jnp.array([[4.0, 0.0]]), jnp.array([[0.0, 1.0]])
>>> total = add(add(Average.empty(num_images=1, num_classes=2), confident), unsure)
>>> round(nll(log_probabilities(total), labels=[0]), 4)
0.4692
>>> round(nll(log_probabilities(total, by="logits"), labels=[0]), 4)
0.2014

Sums are JAX arrays; metrics take log-probabilities (image, class) and are float64 NumPy.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import entr, logsumexp, ndtri
from scipy.stats import rankdata

from replicax.errors import at_least, check_number, choose, is_concrete, not_negative, show

__all__ = [
    "Average",
    "Metrics",
    "Reliability",
    "Uncertainty",
    "accuracy",
    "accuracy_interval",
    "add",
    "agreement",
    "auroc",
    "average",
    "brier",
    "calibration_error",
    "entropy",
    "evaluate",
    "log_probabilities",
    "merge",
    "nll",
    "reliability",
    "total_variation",
    "uncertainty",
]
_TOLERANCE = 0.02  # for log sum_c p_c = 0; bfloat16 probabilities of 100 classes stay below


class Average(NamedTuple):
    """Weighted running sums over networks."""

    logits: Any  # (image, class)
    probabilities: Any  # (image, class)
    weight: Any  # ()

    @classmethod
    def empty(cls, num_images: int, num_classes: int) -> "Average":
        zeros = jnp.zeros((num_images, num_classes))
        return cls(zeros, zeros, jnp.zeros(()))


def average(logits: Any, weights: Any = None) -> Average:
    """Return the average of logits (network, image, class) with weights (network,)."""
    logits = _as_logits(logits)
    if not (logits.ndim == 3 or _is_of_labels(logits, 4)) or not logits.size:
        raise ValueError(
            f"The logits have shape {logits.shape}; rx.predict.average takes (network, image, "
            "class). For a single network use jax.nn.log_softmax(logits)."
        )
    weights = jnp.ones(len(logits)) if weights is None else jnp.asarray(weights)
    if weights.shape != logits.shape[:1]:
        raise ValueError(
            f"The weights have shape {weights.shape} for {len(logits)} networks: give one weight "
            "per network."
        )
    if is_concrete(weights) and not bool(jnp.all((weights >= 0) & (weights < jnp.inf))):
        raise ValueError("Some weights are negative or not finite: give weights of 0 or more.")
    zeros = jnp.zeros(logits.shape[1:])
    empty = Average(zeros, zeros, jnp.zeros(()))
    return jax.lax.scan(lambda total, one: (add(total, *one), None), empty, (logits, weights))[0]


def add(average: Average, logits: Any, weight: Any = 1.0) -> Average:
    """Return the average with one more network, given its logits (image, class)."""
    _check_average(average)
    logits = _as_logits(logits)
    if is_concrete(weight):
        not_negative("weight", weight.item() if hasattr(weight, "item") else weight)
    if logits.shape != average.logits.shape:
        raise ValueError(
            f"The logits have shape {logits.shape}, those of the average {average.logits.shape}: "
            "give all networks the same images, as (image, class)."
        )
    logits = logits.astype(average.logits.dtype)
    weight = jnp.asarray(weight, average.weight.dtype)
    return Average(
        average.logits + weight * logits,
        average.probabilities + weight * jax.nn.softmax(logits, axis=-1),
        average.weight + weight,
    )


def merge(one: Average, other: Average) -> Average:
    """Return the average over the networks of both, for example of two chains."""
    _check_average(one)
    _check_average(other)
    if one.logits.shape != other.logits.shape:
        raise ValueError(
            f"The averages have shapes {one.logits.shape} and {other.logits.shape}: only averages "
            "over the same images and classes can be merged."
        )
    return jax.tree.map(jnp.add, one, other)


def log_probabilities(
    average: Average, by: Literal["probabilities", "logits"] = "probabilities"
) -> Array:
    """Return the log-probabilities that the average predicts  (image, class).

    By "probabilities": the log of the mean of the networks' softmaxes, which is the Bayesian model
    average. By "logits": the log-softmax of their mean logits, a (normalised) geometric mean. A
    probability that all networks round to 0 counts as the smallest normal float, so that one image
    cannot make the log-likelihood infinite.
    """
    choose("by", by, ("probabilities", "logits"))
    _check_average(average)
    if is_concrete(average.weight) and not bool(jnp.all(average.weight > 0)):
        raise ValueError(
            "The average has no weight: add at least one network of weight above 0 with "
            "rx.predict.add first."
        )
    lead, axes = average.weight.shape, average.logits.ndim
    weight = average.weight.reshape(*lead, *[1] * (axes - len(lead)))
    if by == "logits":
        return jax.nn.log_softmax(average.logits / weight, axis=-1)
    probabilities = average.probabilities / weight
    return jnp.log(jnp.maximum(probabilities, jnp.finfo(probabilities.dtype).tiny))


class Metrics(NamedTuple):
    """Metrics of log-probabilities."""

    nll: float  # mean over images, nats; of several labels, their sum
    nll_sum: float
    accuracy: float
    brier: float
    calibration_error: float
    entropy: float  # mean over images, nats


def evaluate(log_probs: Any, labels: Any, weights: Any = None) -> Metrics:
    """Return all metrics of log-probabilities (image, class) and labels (image,).

    Of several labels for each image, which are 0 or 1, they are (image, label, 2) and
    (image, label). Images may have weights (image,).
    """
    log_probs, labels = check(log_probs, labels)
    return Metrics(
        nll=nll(log_probs, labels, weights=weights),
        nll_sum=nll(log_probs, labels, reduce="sum", weights=weights),
        accuracy=accuracy(log_probs, labels, weights),
        brier=brier(log_probs, labels, weights),
        calibration_error=calibration_error(log_probs, labels, weights=weights),
        entropy=float(mean_over_rows(entropy(log_probs), weights)),
    )


def nll(
    log_probs: Any, labels: Any, reduce: Literal["mean", "sum"] = "mean", weights: Any = None
) -> float:
    """Return the negative log-likelihood of the labels, in nats: mean or sum over images."""
    choose("reduce", reduce, ("mean", "sum"))
    log_probs, labels = check(log_probs, labels)
    losses = -np.take_along_axis(log_probs, labels[..., None], axis=-1)
    losses = losses.reshape(len(labels), -1).sum(axis=1)
    mean = float(mean_over_rows(losses, weights))
    return mean if reduce == "mean" else len(losses) * mean


def accuracy(log_probs: Any, labels: Any, weights: Any = None) -> float:
    """Return the fraction of images whose most probable class (the first of ties) is right; of
    several labels, the fraction of labels."""
    log_probs, labels = check(log_probs, labels)
    return float(mean_over_rows(log_probs.argmax(axis=-1) == labels, weights))


def brier(log_probs: Any, labels: Any, weights: Any = None) -> float:
    """Return the mean over images of sum_c (p_c - [c is the label])^2, from 0 (perfect) to 2."""
    log_probs, labels = check(log_probs, labels)
    error = np.exp(log_probs) - (labels[..., None] == np.arange(log_probs.shape[-1]))
    return float(mean_over_rows(np.sum(error**2, axis=-1), weights))


def mean_over_rows(values: Any, weights: Any = None) -> Any:
    """Return the mean of values (row, ...), with weights (row,) of the rows if they are given."""
    if weights is None:
        return values.mean()
    return (weights * values.reshape(len(values), -1).mean(axis=1)).sum() / weights.sum()


def calibration_error(
    log_probs: Any, labels: Any, num_bins: int = 15, weights: Any = None
) -> float:
    """Return the expected calibration error, sum_b count_b / count |accuracy_b - confidence_b|."""
    return reliability(log_probs, labels, num_bins, weights).error


class Reliability(NamedTuple):
    """Accuracy as a function of confidence; NaN in empty bins."""

    edges: np.ndarray  # (bin + 1,)
    confidence: np.ndarray  # (bin,) mean probability of the top class
    accuracy: np.ndarray  # (bin,)
    count: np.ndarray  # (bin,) images, or their weights

    @property
    def middle(self) -> np.ndarray:
        """The middles of the bins  (bin,)."""
        return (self.edges[1:] + self.edges[:-1]) / 2

    @property
    def error(self) -> float:
        """The expected calibration error."""
        gap = np.abs(self.accuracy - self.confidence)
        return float(np.nansum(self.count * gap) / self.count.sum())


def reliability(
    log_probs: Any, labels: Any, num_bins: int = 15, weights: Any = None
) -> Reliability:
    """Bin images by the probability of their top class, in equal bins (edge_b, edge_b+1]."""
    at_least("num_bins", num_bins, 1)
    log_probs, labels = check(log_probs, labels)
    edges = np.linspace(0, 1, num_bins + 1)
    if weights is not None:
        weights = np.repeat(weights, labels.size // len(labels))
    log_probs, labels = log_probs.reshape(-1, log_probs.shape[-1]), labels.ravel()
    top = log_probs.argmax(axis=-1)
    confidence, right = np.exp(log_probs[np.arange(len(top)), top]), top == labels
    # Inner edges only: a confidence rounded above 1 belongs to the last bin.
    bins = np.digitize(confidence, edges[1:-1], right=True)
    each = 1 if weights is None else weights
    count = np.bincount(bins, weights, num_bins)
    with np.errstate(invalid="ignore"):
        mean_confidence = np.bincount(bins, each * confidence, num_bins) / count
        return Reliability(
            edges, mean_confidence, np.bincount(bins, each * right, num_bins) / count, count
        )


def accuracy_interval(reliability: Reliability, level: float = 0.95) -> np.ndarray:
    """Return Wilson's interval of the accuracy in each bin, at a confidence level; NaN in empty
    bins  (bin, 2)."""
    check_number("level", level, lambda x: 0 < x < 1, "it must be a number between 0 and 1")
    _, _, accuracies, count = reliability
    return proportion_interval(np.round(np.nan_to_num(accuracies) * count), count, level)


def proportion_interval(number: Any, total: Any, level: float = 0.95) -> np.ndarray:
    """Return Wilson's interval of the proportion number / total; NaN where the total is 0
    (..., 2)."""
    number, total = np.broadcast_arrays(np.asarray(number, float), np.asarray(total, float))
    total = np.where(total > 0, total, np.nan)
    square = ndtri((1 + level) / 2) ** 2
    centre, half = (
        number + square / 2,
        np.sqrt(square * number * (1 - number / total) + square**2 / 4),
    )
    return np.clip(np.stack([centre - half, centre + half], -1) / (total + square)[..., None], 0, 1)


class Uncertainty(NamedTuple):
    """Entropies in nats by image; for real numbers, standard deviations by row."""

    total: np.ndarray  # (image,) of the average
    aleatoric: np.ndarray  # (image,) the mean of the networks', or of their variances
    epistemic: np.ndarray  # (image,) the rest: mutual information, or the spread of their means


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
    each = weights.reshape(-1, *[1] * (members.ndim - 1))
    total = entropy(logsumexp(members, axis=0, b=each))
    aleatoric = np.tensordot(weights, np.stack([entropy(one) for one in members]), 1)
    # Rounding may leave a mutual information, which is never negative, slightly below 0.
    return Uncertainty(total, aleatoric, np.maximum(total - aleatoric, 0.0))


def entropy(log_probs: Any) -> np.ndarray:
    """Return the predictive entropy -sum_c p_c log p_c in nats  (image,); of several labels for
    each image, the sum of theirs."""
    log_probs = check_log_probs(log_probs)
    return entr(np.exp(log_probs)).reshape(len(log_probs), -1).sum(axis=1)


def agreement(log_probs: Any, other_log_probs: Any) -> float:
    """Return the fraction of images for which two predictions have the same most probable class."""
    one, other = _check_pair(log_probs, other_log_probs)
    return float(np.mean(one.argmax(axis=-1) == other.argmax(axis=-1)))


def total_variation(log_probs: Any, other_log_probs: Any) -> float:
    """Return the mean over images of sum_c |p_c - q_c| / 2, from 0 (the same) to 1."""
    one, other = _check_pair(log_probs, other_log_probs)
    return float(np.mean(np.abs(np.exp(one) - np.exp(other)).sum(axis=-1) / 2))


def auroc(inside_scores: Any, outside_scores: Any) -> float:
    """Return P(outside > inside) + P(outside = inside) / 2: 1/2 is chance, 1 is perfect.

    Of uncertainties it says how well they detect inputs from outside the data set:
    `auroc(uncertainty(inside).epistemic, uncertainty(outside).epistemic)`.
    """
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


def is_of_numbers(predicted: Any) -> bool:
    """Return whether this is a mean and standard deviation of real numbers."""
    return isinstance(predicted, tuple) and hasattr(predicted, "sd")


def _of_numbers(members: Any, weights: Any) -> Uncertainty:
    mean, sd = (np.asarray(part, float) for part in (members.mean, members.sd))
    if mean.ndim < 2:
        raise ValueError(
            f"The means have shape {mean.shape}; give those of every network, (network, row), as "
            "trained.predict(inputs, members=True) returns them."
        )
    shares = _check_weights(len(mean), weights)
    noise = np.tensordot(shares, sd**2, 1)
    spread = np.tensordot(shares, (mean - np.tensordot(shares, mean, 1)) ** 2, 1)
    return Uncertainty(np.sqrt(noise + spread), np.sqrt(noise), np.sqrt(spread))


def check(log_probs: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    log_probs, labels = check_log_probs(log_probs), np.asarray(labels)
    *shape, num_classes = log_probs.shape
    if log_probs.ndim == 3 and labels.shape != tuple(shape):
        raise ValueError(
            f"The labels have shape {labels.shape}; give one of 0 or 1 for each label of each "
            f"image, of shape {tuple(shape)}."
        )
    num_images = len(log_probs)
    if log_probs.ndim == 2 and labels.shape != (num_images,):
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
    if not (log_probs.ndim == 2 or _is_of_labels(log_probs, 3)) or not log_probs.size:
        raise ValueError(
            f"The log-probabilities have shape {log_probs.shape}; give (image, class), with at "
            "least one image."
        )
    broken = np.isnan(log_probs).reshape(len(log_probs), -1).any(axis=1)
    if broken.any():
        raise ValueError(
            f"The log-probabilities of {broken.sum()} of {len(broken)} images are NaN, image "
            f"{broken.argmax()} first: leave out the network that diverged."
        )
    off = np.abs(np.asarray(logsumexp(log_probs, axis=-1))).reshape(len(log_probs), -1).max(axis=1)
    if off.max() > _TOLERANCE:
        raise ValueError(
            f"The probabilities of image {off.argmax()} do not sum to 1, so these are not "
            "log-probabilities. For logits of one network use jax.nn.log_softmax, of several "
            "rx.predict.log_probabilities(rx.predict.average(logits)); for probabilities, their "
            "logarithm."
        )
    return log_probs


def _is_of_labels(log_probs: Any, num_axes: int) -> bool:
    """Return whether these are predictions of several labels for each image, which are 0 or 1."""
    return log_probs.ndim == num_axes and log_probs.shape[-1] == 2


def _check_average(value: Any) -> None:
    if not isinstance(value, Average):
        raise ValueError(
            f"The average is {show(value)}; give one that rx.predict.average or "
            "rx.predict.Average.empty returns."
        )


def _as_logits(logits: Any) -> Array:
    try:
        return jnp.asarray(logits)
    except (TypeError, ValueError):
        raise ValueError(f"The logits are {show(logits)}; give arrays of numbers.") from None


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
    try:
        shape = f"shape {np.shape(member_log_probs)}"
        is_each = len(np.shape(member_log_probs)) in (3, 4) and len(member_log_probs) > 0
    except ValueError:
        shape, is_each = "lists of unequal lengths", False
    if not is_each:
        raise ValueError(
            f"The log-probabilities have {shape}; give those of every network, (network, image, "
            "class), as trained.predict(inputs, members=True) returns them."
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
