"""The figure of the draws of a run: traces, marginals and a map."""

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.errors import show, suggest
from replicax.results import figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from replicax.results.posterior import Posterior

_MAX_POINTS = 4000  # points along one trace
_MAX_COMPONENTS = 4  # components that are shown by default
_MAX_ROWS = 20
_NAMED = 6  # arrays that are named among those left out


def plot_draws(posterior: "Posterior", var_names: Any = None) -> "Figure":
    """Plot traces and marginals of the first components, or of those in `var_names`, and of the
    energy; and a map of two components. The title names components that are left out."""
    components, left_out = _chosen(posterior, var_names)
    rows = [*components, ("energy", posterior.energies)]
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
    if left_out:
        figure.suptitle(left_out, x=0.012, ha="left", fontsize=9, color=figure_style.SOFT)
    return figure


def _chosen(posterior: "Posterior", var_names: Any) -> tuple[list[tuple[str, np.ndarray]], str]:
    """Return the components to show, and a sentence about those left out."""
    spec = posterior.metadata.params
    sizes = {name: math.prod(shape) for name, shape in zip(spec.names, spec.shapes)}
    asked = posterior.components() if var_names is None else _asked_for(posterior, var_names)
    most = _MAX_COMPONENTS if var_names is None else _MAX_ROWS
    components = list(asked.items())[:most]
    shown = Counter(name if name in sizes else name.partition("[")[0] for name, _ in components)
    rest = {name: size - shown[name] for name, size in sizes.items() if size > shown[name]}
    if not components or not rest:
        return components, ""
    listed = [f"{count:,} of {name}" if shown[name] else name for name, count in rest.items()]
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return components, (
        f"{len(components)} of {sum(sizes.values()):,} parameters; left out: "
        f"{', '.join(listed[:_NAMED])}{more} (var_names chooses)"
    )


def _asked_for(posterior: "Posterior", var_names: Any) -> dict[str, np.ndarray]:
    """Return the components of arrays, such as "theta", or single ones, such as "theta[3]"."""
    names = list(posterior.metadata.params.names)
    wanted = [var_names] if isinstance(var_names, str) else var_names
    if not isinstance(wanted, list | tuple) or not all(isinstance(x, str) for x in wanted):
        raise ValueError(f"var_names is {show(var_names)}; give names of parameters: {names[:5]}.")
    components: dict[str, np.ndarray] = {}
    for name in wanted:
        array = name if name in names else name.partition("[")[0]
        if array not in names:
            raise ValueError(
                f"var_names has {name!r}; the parameters are {', '.join(names[:20])}."
                f"{suggest(name, names)}"
            )
        own = posterior.components([array])
        if name != array and name not in own:
            raise ValueError(f"var_names has {name!r}; {array} has {', '.join(list(own)[:5])}, …")
        components |= own if name == array else {name: own[name]}
    return components


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
