"""The shared style of figures: axes, legends, colours of rungs and chains."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.errors import check_path
from replicax.run.storage.files import SOFTWARE, check_shown, write_shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, FAINT, ACCENT = "#222222", "#777777", "#e6e6e6", "#D55E00"
DASHED: Any = {"color": INK, "lw": 1.2, "ls": (0, (5, 3))}
# Okabe and Ito's colours, which colour-blind readers can tell apart, without the pale ones.
CHAINS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222")
NARROW = 5.2  # inches: a figure that can be read on a phone
_MAX_LINES = 32  # rungs, pairs or replicas drawn over time
_MAX_COLUMNS = 6  # columns of a legend
_LETTERS = 14  # of a legend, in an inch
_SETTLED = 0.2  # fraction of a history before which values may lie off the scale
_RARE = 0.05  # fraction of values at either end that may lie off the scale
_SPIKE = 6  # times as far from the median as most values: may lie off the scale
_ROOM = 0.08  # of the height of an axis, below and above its values
_COUNTS = ("step", "draw", "rung", "pair")  # axes of whole numbers


def new_figure(width: float, height: float) -> "Figure":
    """Return a figure of `width` x `height` inches, without pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout: Any = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def figure_folder(out: str | Path) -> Path:
    """Return the folder `out`, which need not exist; raise if it cannot be a folder."""
    folder = check_path("out", out)
    if any(place.is_file() for place in (folder, *folder.parents)):
        raise ValueError(f"{out} is a file, or inside a file; out must be a folder.")
    return folder


def save_all(figures: "dict[str, Figure]", out: str | Path | None) -> None:
    """Write figures by their names as PNG into the folder `out`, if given; none if one would
    replace a file of the user's."""
    if out is not None:
        paths = {name: Path(out) / f"{name}.png" for name in figures}
        for path in paths.values():
            check_shown(path)
        for name, figure in figures.items():
            save(figure, paths[name])


def save(figure: "Figure", path: Path, named: bool = False) -> None:
    """Write a figure into a file, which may be any if the user has `named` it."""
    content, form = io.BytesIO(), path.suffix[1:] or "png"
    signed = {"Software": SOFTWARE} if form == "png" else {}
    figure.savefig(content, dpi=150, format=form, metadata=signed)
    write_shown(path, content.getvalue(), named)


def panels(count: int, narrow: bool = False, **grid: Any) -> list[Any]:
    """Return a figure and its panels, beside each other; below each other if it is `narrow`."""
    if narrow:
        figure = new_figure(NARROW, 3.1 * count)
        return [figure, *figure.subplots(count, 1, squeeze=False, **grid)[:, 0]]
    figure = new_figure(10.5, 4.4)
    return [figure, *figure.subplots(1, count, squeeze=False, **grid)[0]]


def history_and_end(narrow: bool = False) -> "tuple[Figure, Axes, Axes]":
    """Return a figure with a panel for the history and one, on the same scale, for the end."""
    ratios = "height_ratios" if narrow else "width_ratios"
    figure, over_time, at_end = panels(2, narrow, sharey=True, **{ratios: (1.6, 1)})
    return figure, over_time, at_end


def label(axes: "Axes", x: str, y: str, title: str = "") -> None:
    """Label the axes and apply the shared style."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    axes.set_title(title, loc="left", fontsize=10.5, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(SOFT)
    axes.tick_params(colors=SOFT, labelcolor=INK, labelsize=9)
    axes.grid(axis="y", color=FAINT, lw=0.8)
    axes.set_axisbelow(True)
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    if x.split(" (")[0] in _COUNTS:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.margins(x=0.03)


def legend(axes: "Axes", **place: Any) -> None:
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=9, labelcolor=INK, **place)


def legend_below(axes: "Axes") -> None:
    """Put the legend of `axes` below the figure, in rows of a few entries."""
    handles, labels = axes.get_legend_handles_labels()
    figure: Any = axes.figure
    if labels:
        inches = figure.bbox.width / figure.dpi
        fit = int(_LETTERS * inches / (max(map(len, labels)) + 5))
        columns = int(np.clip(fit, 1, min(len(labels), _MAX_COLUMNS)))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False,
                      fontsize=9, labelcolor=INK)  # fmt: skip


def some(count: int, most: int = _MAX_LINES) -> list[int]:
    """Return at most so many of `count` indices, as can be distinguished, evenly spaced, both ends
    included.

    >>> some(10, 4)
    [0, 3, 6, 9]
    """
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def colours(count: int) -> np.ndarray:
    """Return colours from cold to hot: plasma without its palest end  (index, rgba)."""
    from matplotlib import colormaps

    return colormaps["plasma"](np.linspace(0.02, 0.85, count))


def cold_to_hot(count: int) -> Iterator[tuple[int, Any]]:
    """Yield the indices to draw, each with its colour."""
    shades = colours(count)
    return ((index, shades[index]) for index in some(count))


def colour_key(axes: "Axes", count: int, name: str) -> None:
    """Add a colour bar beside `axes` that maps colours to rungs or pairs."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.ticker import MaxNLocator

    norm = BoundaryNorm(np.arange(count + 1) - 0.5, count)
    shades: Any = colours(count)
    key = ScalarMappable(norm, ListedColormap(shades))
    ticks = [n for n in MaxNLocator(8, integer=True).tick_values(0, count - 1) if 0 <= n < count]
    figure: Any = axes.get_figure(root=True)
    bar = figure.colorbar(key, ax=axes, pad=0.03, aspect=30, ticks=ticks, drawedges=count <= 32)
    bar.set_label(name, color=INK)
    bar.ax.tick_params(colors=SOFT, labelcolor=INK, labelsize=9)
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)


def scatter(
    axes: "Axes", values: np.ndarray, marker: str, name: str = "", hollow: bool = False
) -> None:
    """Draw one marker per chain and rung or pair  (chain, index)."""
    num_chains, count = values.shape
    shades = colours(count).tolist() * num_chains
    axes.scatter(np.tile(np.arange(count), num_chains), values.ravel(), s=20, marker=marker,
                 facecolors="none" if hollow else shades, edgecolors=shades, lw=0.9)  # fmt: skip
    axes.set_xlim(-0.03 * count - 0.2, 1.03 * count - 0.8)
    if name:
        axes.plot([], [], marker, color=SOFT, mfc="none" if hollow else SOFT, ms=5, label=name)


def chain_styles(num_chains: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield chains with their styles: few chains have a colour and a name each, many share one."""
    few = num_chains <= len(CHAINS)
    for chain in range(num_chains):
        name = {"label": f"chain {chain}"} if few and num_chains > 1 else {}
        yield chain, {"color": CHAINS[chain if few else 0], "alpha": 0.9 if few else 0.3, **name}


def settled_range(networks: np.ndarray, always_shown: np.ndarray) -> tuple[float, float] | None:
    """Return the range of an axis for lines (epoch, line): after the first epochs all of
    `always_shown` but spikes is inside, and all of `networks` but rare values; None if nothing is
    finite."""
    settled = _settled(networks)
    if not settled.size:
        return None
    others = np.concatenate([_without_spikes(_settled(line)) for line in always_shown.T])
    bulk = np.concatenate([np.quantile(settled, (_RARE, 1 - _RARE)), others])
    low, high = float(bulk.min()), float(bulk.max())
    room = _ROOM * max(high - low, 1e-3 * abs(high), 1e-6)
    return low - room, high + room


def _without_spikes(values: np.ndarray) -> np.ndarray:
    """Return the values that are not far from their median, and the last one."""
    if not values.size:
        return values
    away = np.abs(values - np.median(values))
    return np.append(values[away <= _SPIKE * np.median(away)], values[-1])


def _settled(values: np.ndarray) -> np.ndarray:
    values = values[int(_SETTLED * len(values)) :]
    return values[np.isfinite(values)]
