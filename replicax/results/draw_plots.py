"""The figure of the draws of a run: traces, marginals and a map."""

from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.results import figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from replicax.results.posterior import Posterior

_MAX_POINTS = 4000  # along one trace
_MAX_COMPONENTS = 4


def plot_draws(posterior: "Posterior") -> "Figure":
    """Plot traces and marginals of the first components and the energy; a map of two components."""
    components = list(posterior.components().items())
    rows = [*components[:_MAX_COMPONENTS], ("energy", posterior.energies)]
    is_2d = len(components) == 2
    ratios = (3, 1, 2.3) if is_2d else (3, 1)
    figure = figure_style.new_figure(14 if is_2d else 9.5, 1 + 1.6 * len(rows))
    grid = figure.add_gridspec(len(rows), len(ratios), width_ratios=ratios)
    trace: Any = None
    for row, (name, values) in enumerate(rows):
        trace = figure.add_subplot(grid[row, 0], sharex=trace)
        marginal = figure.add_subplot(grid[row, 1], sharey=trace)
        _draw_marginal(values, trace, marginal)
        name = name if len(name) <= 20 else f"…{name[-19:]}"
        figure_style.label(trace, "draw", name, "" if row else "Draws of the coldest rung")
        figure_style.label(marginal, "density", "", "" if row else "Marginals")
        marginal.tick_params(labelleft=False)
        if row == 0:
            figure_style.legend_below(marginal)
        if row < len(rows) - 1:
            trace.tick_params(labelbottom=False)
            trace.set_xlabel("")
            marginal.set_xlabel("")
    if is_2d:
        _draw_map(figure.add_subplot(grid[:, 2]), components)
    return figure


def _draw_marginal(values: np.ndarray, trace: "Axes", marginal: "Axes") -> None:
    num_chains, num_draws = values.shape
    kept = np.arange(0, num_draws, -(-num_draws // _MAX_POINTS))
    size = np.clip(120 / np.sqrt(num_chains * len(kept)), 2.5, 6)
    num_bins = int(np.clip(2 * np.sqrt(num_draws), 10, 60))
    bins = np.histogram_bin_edges(values[np.isfinite(values)], num_bins)
    for chain, style in figure_style.chain_styles(num_chains):
        trace.plot(kept, values[chain, kept], ".", ms=size, mew=0, **style)
        finite = values[chain][np.isfinite(values[chain])]
        height = np.histogram(finite, bins)[0] / max(finite.size, 1) / np.diff(bins)
        marginal.stairs(height, bins, orientation="horizontal", lw=1.1, **style)


def _draw_map(axes: "Axes", components: list[tuple[str, np.ndarray]]) -> None:
    (x_name, x), (y_name, y) = components
    finite = np.isfinite(x) & np.isfinite(y)
    x, y, total = x[finite], y[finite], int(finite.sum())
    if total < 200:
        axes.plot(x, y, "o", ms=4, mew=0, color=figure_style.CHAINS[0])
    else:
        cells = int(np.clip(0.8 * np.sqrt(total), 8, 70))
        hexagons = axes.hexbin(x, y, gridsize=cells, mincnt=1, vmin=0, cmap="magma_r", lw=0.1)
        axes.figure.colorbar(hexagons, ax=axes, label="draws in a cell", pad=0.02, aspect=40)
    figure_style.label(axes, x_name, y_name, f"All {total:,} draws")
