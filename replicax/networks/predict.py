"""Bayesian model averages and metrics of their predictions.

A posterior predicts with the mean of its networks,

    p(class | image) = sum_n w_n p(class | image, network n) / sum_n w_n,

computed from running sums, so that only one network's logits are in memory at a time:

>>> confident, unsure = jnp.array([[4.0, 0.0]]), jnp.array([[0.0, 1.0]])
>>> total = add(add(Average.empty(num_images=1, num_classes=2), confident), unsure)
>>> round(nll(log_probabilities(total), labels=[0]), 4)
0.4692
>>> round(nll(log_probabilities(total, by="logits"), labels=[0]), 4)
0.2014

Sums are JAX arrays; metrics take log-probabilities (image, class) and are float64 NumPy.
"""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import entr, logsumexp
from scipy.stats import rankdata

from replicax.errors import at_least, choose, is_concrete, not_negative, show
from replicax.results import figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TOLERANCE = 0.02  # of log sum_c p_c = 0: bfloat16 probabilities of 100 classes stay below


class Average(NamedTuple):
    """Weighted running sums over networks."""

    logits: Any  # (image, class)
    probabilities: Any  # (image, class)
    weight: Any  # ()

    @classmethod
    def empty(cls, num_images: int, num_classes: int) -> "Average":
        zeros = jnp.zeros((num_images, num_classes))
        return cls(zeros, zeros, jnp.zeros(()))


def add(average: Average, logits: Any, weight: Any = 1.0) -> Average:
    """Return the average with one more network, given its logits (image, class)."""
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


def _as_logits(logits: Any) -> Array:
    try:
        return jnp.asarray(logits)
    except (TypeError, ValueError):
        raise ValueError(f"The logits are {show(logits)}; give arrays of numbers.") from None


def merge(one: Average, other: Average) -> Average:
    """Return the average over the networks of both, for example of two chains."""
    if one.logits.shape != other.logits.shape:
        raise ValueError(
            f"The averages have shapes {one.logits.shape} and {other.logits.shape}: only averages "
            "over the same images and classes can be merged."
        )
    return jax.tree.map(jnp.add, one, other)


def average(logits: Any, weights: Any = None) -> Average:
    """Return the average of logits (network, image, class) with weights (network,)."""
    logits = _as_logits(logits)
    if logits.ndim != 3 or not logits.size:
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
    empty = Average.empty(*logits.shape[1:])
    return jax.lax.scan(lambda total, one: (add(total, *one), None), empty, (logits, weights))[0]


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
    if is_concrete(average.weight) and not bool(jnp.all(average.weight > 0)):
        raise ValueError(
            "The average has no weight: add at least one network of weight above 0 with "
            "rx.predict.add first."
        )
    weight = average.weight[..., None, None]
    if by == "logits":
        return jax.nn.log_softmax(average.logits / weight, axis=-1)
    probabilities = average.probabilities / weight
    return jnp.log(jnp.maximum(probabilities, jnp.finfo(probabilities.dtype).tiny))


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
    log_probs, labels = _check(log_probs, labels)
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
    log_probs, labels = _check(log_probs, labels)
    losses = -log_probs[np.arange(len(labels)), labels]
    return float(losses.mean() if reduce == "mean" else losses.sum())


def accuracy(log_probs: Any, labels: Any) -> float:
    """Return the fraction of images whose most probable class (of equals, the first) is right."""
    log_probs, labels = _check(log_probs, labels)
    return float(np.mean(log_probs.argmax(axis=-1) == labels))


def brier(log_probs: Any, labels: Any) -> float:
    """Return the mean over images of sum_c (p_c - [c is the label])^2, from 0 (perfect) to 2."""
    log_probs, labels = _check(log_probs, labels)
    error = np.exp(log_probs)
    error[np.arange(len(labels)), labels] -= 1
    return float(np.mean(np.sum(error**2, axis=-1)))


class Reliability(NamedTuple):
    """Accuracy as a function of confidence; NaN in empty bins."""

    edges: np.ndarray  # (bin + 1,)
    confidence: np.ndarray  # (bin,) mean probability of the top class
    accuracy: np.ndarray  # (bin,)
    count: np.ndarray  # (bin,) images


def reliability(log_probs: Any, labels: Any, num_bins: int = 15) -> Reliability:
    """Bin images by the probability of their top class, in equal bins (edge_b, edge_b+1]."""
    at_least("num_bins", num_bins, 1)
    log_probs, labels = _check(log_probs, labels)
    edges = np.linspace(0, 1, num_bins + 1)
    top = log_probs.argmax(axis=-1)
    confidence = np.exp(log_probs[np.arange(len(top)), top])
    # Inner edges only: a confidence rounded above 1 belongs to the last bin.
    bins = np.digitize(confidence, edges[1:-1], right=True)
    count = np.bincount(bins, minlength=num_bins)
    with np.errstate(invalid="ignore"):
        mean_confidence = np.bincount(bins, confidence, num_bins) / count
        return Reliability(
            edges, mean_confidence, np.bincount(bins, top == labels, num_bins) / count, count
        )


def calibration_error(log_probs: Any, labels: Any, num_bins: int = 15) -> float:
    """Return the expected calibration error, sum_b count_b / count |accuracy_b - confidence_b|."""
    bins = reliability(log_probs, labels, num_bins)
    return float(np.nansum(bins.count * np.abs(bins.accuracy - bins.confidence)) / bins.count.sum())


def entropy(log_probs: Any) -> np.ndarray:
    """Return the predictive entropy -sum_c p_c log p_c in nats  (image,)."""
    return entr(np.exp(_check_log_probs(log_probs))).sum(axis=-1)


def auroc(inside_scores: Any, outside_scores: Any) -> float:
    """Return P(outside > inside) + P(outside = inside) / 2: 1/2 is chance, 1 is perfect."""
    try:
        inside, outside = (np.asarray(x, float).ravel() for x in (inside_scores, outside_scores))
    except (TypeError, ValueError):
        raise ValueError("The scores are no numbers: give one for each image.") from None
    if not inside.size or not outside.size:
        raise ValueError("One of the two sets of scores is empty: give at least one score each.")
    both = np.concatenate([inside, outside])
    if np.isnan(both).any():
        raise ValueError("Some scores are NaN and cannot be ranked: leave them out.")
    wins = rankdata(both)[inside.size :].sum() - outside.size * (outside.size + 1) / 2
    return float(wins / (inside.size * outside.size))


def out_of_distribution(log_probs_inside: Any, log_probs_outside: Any) -> float:
    """Return the AUROC of predictive entropy for images outside against inside the data set."""
    inside, outside = (_check_log_probs(x) for x in (log_probs_inside, log_probs_outside))
    if inside.shape[1] != outside.shape[1]:
        raise ValueError(
            f"There are {inside.shape[1]} classes inside and {outside.shape[1]} outside: predict "
            "both with the same networks."
        )
    return auroc(entropy(inside), entropy(outside))


def plot_reliability(reliability: Reliability, title: str = "") -> "Figure":
    """Plot accuracy by confidence beside perfect calibration, over the fraction of images."""
    edges, confidence, accuracies, count = (np.asarray(part, float) for part in reliability)
    middle, width, share = (edges[1:] + edges[:-1]) / 2, np.diff(edges), count / count.sum()
    error = np.nansum(share * np.abs(accuracies - confidence))
    figure = figure_style.new_figure(5.2, 5.6)
    above, below = figure.subplots(2, 1, height_ratios=(3.2, 1), sharex=True)
    bars: Any = {"width": width, "color": figure_style.CHAINS[0], "edgecolor": "white", "lw": 0.8}
    above.bar(middle, np.nan_to_num(accuracies), **bars, label="accuracy")
    gaps: Any = {"color": figure_style.ACCENT, "lw": 2, "label": "gap", "zorder": 3}
    above.vlines(confidence, accuracies, confidence, **gaps)
    above.plot([0, 1], [0, 1], **figure_style.DASHED, label="calibrated")
    figure_style.label(above, "", "accuracy", f"Expected calibration error {error:.3f}")
    figure_style.legend(above, loc="upper left")
    above.set(xlim=(0, 1), ylim=(0, 1.02))
    below.bar(middle, share, **{**bars, "color": figure_style.SOFT})
    figure_style.label(below, "confidence (probability of the top class)", "images")
    below.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    figure.align_ylabels()
    if title:
        figure.suptitle(title, x=0.012, ha="left", weight="bold")
    return figure


def _check(log_probs: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    log_probs, labels = _check_log_probs(log_probs), np.asarray(labels)
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


def _check_log_probs(log_probs: Any) -> np.ndarray:
    try:
        log_probs = np.asarray(log_probs, np.float64)
    except (TypeError, ValueError):
        raise ValueError("The log-probabilities are no numbers: give (image, class).") from None
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
