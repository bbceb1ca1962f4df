"""Calibration: accuracy as a function of confidence, and its figure."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from replicax.errors import at_least, check_number
from replicax.networks.predict.checks import check
from replicax.results import figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Reliability(NamedTuple):
    """Accuracy as a function of confidence; NaN in empty bins."""

    edges: np.ndarray  # (bin + 1,)
    confidence: np.ndarray  # (bin,) mean probability of the top class
    accuracy: np.ndarray  # (bin,)
    count: np.ndarray  # (bin,) images

    @property
    def middle(self) -> np.ndarray:
        """The middles of the bins  (bin,)."""
        return (self.edges[1:] + self.edges[:-1]) / 2

    @property
    def error(self) -> float:
        """The expected calibration error."""
        gap = np.abs(self.accuracy - self.confidence)
        return float(np.nansum(self.count * gap) / self.count.sum())


def reliability(log_probs: Any, labels: Any, num_bins: int = 15) -> Reliability:
    """Bin images by the probability of their top class, in equal bins (edge_b, edge_b+1]."""
    at_least("num_bins", num_bins, 1)
    log_probs, labels = check(log_probs, labels)
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
    return reliability(log_probs, labels, num_bins).error


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


def plot_reliability(reliability: Reliability, title: str = "") -> "Figure":
    """Plot accuracy by confidence with 95 % intervals and the line of perfect calibration; below,
    the number of images in each bin."""
    edges, confidence, accuracies, count = (np.asarray(part, float) for part in reliability)
    middle, width, share = reliability.middle, np.diff(edges), count / count.sum()
    figure = figure_style.new_figure(5.6, 6.2)
    above, below = figure.subplots(2, 1, height_ratios=(3.2, 1.2), sharex=True)
    bars: Any = {"width": width, "edgecolor": "white", "lw": 0.8}
    blue = figure_style.CHAINS[0]
    above.bar(middle, np.nan_to_num(accuracies), color=blue, alpha=0.75, **bars, label="accuracy")
    low, high = accuracy_interval(reliability).T
    whiskers: Any = {"color": figure_style.INK, "lw": 1.1, "zorder": 4}
    above.vlines(middle, low, high, **whiskers, label="95 % interval")
    gaps: Any = {"color": figure_style.ACCENT, "ls": "", "marker": "_", "ms": 11, "mew": 2}
    above.plot(middle, confidence, **gaps, zorder=5, label="mean confidence")
    above.plot([0, 1], [0, 1], **figure_style.DASHED, label="calibrated")
    figure_style.label(above, "", "accuracy", f"Expected calibration error {reliability.error:.3f}")
    figure_style.legend(above, loc="upper left")
    above.set(xlim=(0, 1), ylim=(0, 1.02))
    below.bar(middle, share, color=figure_style.SOFT, **bars)
    for place, height, number in zip(middle, share, count, strict=True):
        if number:
            below.text(place, height, f" {number:,.0f}", ha="center", va="bottom", fontsize=7.5,
                       rotation=90, color=figure_style.INK)  # fmt: skip
    figure_style.label(below, "confidence (probability of the top class)", "images")
    below.set_ylim(0, 1.45 * share.max())
    below.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    figure.align_ylabels()
    if title:
        figure.suptitle(title, x=0.012, ha="left", weight="bold")
    return figure
