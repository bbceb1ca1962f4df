"""The calibration figure of a regression: the coverage of its intervals."""

from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.results import figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from replicax.networks.likelihoods.real import Coverage


def plot_coverage(found: "Coverage", error: float, title: str = "") -> "Figure":
    """Plot the coverage of central intervals by level, with 95 % intervals; below, the number of
    targets in each tenth of the predictive distribution.

    `error` is the calibration error.
    """
    from scipy.stats import binom

    levels, inside, interval, counts = found
    edges, total = np.linspace(0, 1, len(counts) + 1), int(counts.sum())
    figure = figure_style.new_figure(5.6, 6.2)
    above, under = figure.subplots(2, 1, height_ratios=(3.2, 1.4))
    blue = figure_style.CHAINS[0]
    above.fill_between(levels, *interval.T, color=blue, alpha=0.2, lw=0, label="95 % interval")
    above.plot(levels, inside, color=blue, lw=2, label="coverage")
    above.plot([0, 1], [0, 1], **figure_style.DASHED, label="calibrated")
    heading = f"Calibration error {error:.3f}"
    figure_style.label(above, "level of the central interval", "targets in it", heading)
    for axis in (above.xaxis, above.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:.0%}")
    above.set(xlim=(0, 1), ylim=(0, 1.02))
    figure_style.legend(above, loc="upper left")
    usual = binom.ppf((0.025, 0.975), total, 1 / len(counts))
    under.axhspan(*usual, color=blue, alpha=0.2, lw=0, zorder=1)
    under.axhline(total / len(counts), **figure_style.DASHED, zorder=1)
    bars: Any = {"color": figure_style.SOFT, "edgecolor": "white", "lw": 0.8, "zorder": 2}
    under.bar(edges[:-1] + 0.15 * edges[1], counts, 0.7 * edges[1], align="edge", **bars)
    top = 1.25 * max(counts.max(), usual[1])
    for place, number in zip(edges, counts):
        fits = number > 0.2 * top  # into its bar, where no line crosses it
        under.text(place + 0.5 * edges[1], number - 0.02 * top * fits, f"{number:,}", ha="center",
                   va="top" if fits else "bottom", fontsize=7.5, zorder=3,
                   color="white" if fits else figure_style.INK)  # fmt: skip
    figure_style.label(under, "predicted probability below the target", "targets")
    under.set(xlim=(0, 1), ylim=(0, top))
    figure.align_ylabels()
    if title:
        figure.suptitle(title, x=0.012, ha="left", weight="bold")
    return figure
