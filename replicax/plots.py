"""Figures of a run and of the 25 modes, drawn from records alone.

All are `matplotlib.figure.Figure` objects of their own: no pyplot, no global state. Colours run
from cold to hot along the ladder; chains have a palette that colour-blind readers can tell apart.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from replicax.posterior import Posterior

_INK, _SOFT, _FAINT, _ACCENT = "#222222", "#777777", "#e6e6e6", "#D55E00"
_CHAINS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#222222")
_MAX_LINES = 32  # rungs, pairs or replicas drawn over time
_MAX_POINTS = 4000  # along one line
_MAX_INTERVALS = 50  # over each of which a rate is averaged
_MAX_COMPONENTS = 4
_SQUARE, _BINS = 2.9, 116  # the 25 modes are shown on [-2.9, 2.9]^2 in bins of width 0.05

History = dict[str, np.ndarray]


def plot_posterior(posterior: "Posterior", out: str | Path | None = None) -> dict[str, "Figure"]:
    """Figures by name, written as PNG into the folder `out` if given.

    `ladder`, `rates`, `buffer`, `paths` (the index process), `trips` and `draws`; those that the
    run has nothing for, such as `rates` where nothing is exchanged, are left out.
    """
    history, options = posterior.history, posterior.options
    figures = {"ladder": _plot_ladder(posterior, history)}
    if options["schedule"] != "none" and posterior.num_replicas > 1:
        figures["rates"] = _plot_rates(posterior, history)
        if options["rule"] == "deterministic" and history["step"].size:
            figures["buffer"] = _plot_buffer(posterior, history)
        rung_of = posterior.rung_of
        figures["paths"] = _figure(10, 3.6)
        title = f"Index process: the rung of every replica{_of_chain(posterior)}"
        draw_paths(figures["paths"].add_subplot(), rung_of[0], title=title)
        figures["trips"] = _plot_trips(posterior, rung_of)
    if posterior.num_draws:
        figures["draws"] = _plot_draws(posterior)
    for name, figure in figures.items():
        if out is not None:
            _save(figure, Path(out) / f"{name}.png")
    return figures


def plot_modes25(
    positions: np.ndarray, path: str | Path | None = None, title: str = "25 modes"
) -> "Figure":
    """The 25-mode posterior as it is and as sampled: densities, and the masses of the modes.

    Args:
        positions: draws of any leading axes  (..., 2).
        path: where to write the figure as PNG.
        title: what stands before the total variation between the mode masses.
    """
    from replicax import targets

    positions = _as_positions(positions)
    truth = targets.modes25_truth()
    masses, distance = targets.mode_masses(positions), targets.mode_distance(positions, truth)
    figure = _figure(13, 4.3)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.45))
    draw_density(left, None, "Truth")
    image = draw_density(middle, positions, f"Sampled ({len(positions):,} draws)")
    figure.colorbar(image, ax=(left, middle), label="density", extend="max", pad=0.02, aspect=30)
    order = np.lexsort((np.arange(25), -np.round(truth[:25], 6)))
    right.bar(np.arange(25), masses[order], color=_CHAINS[0], width=0.72, label="sampled")
    right.plot(np.arange(25), truth[order], "_", color=_INK, ms=11, mew=2, label="truth")
    names = [
        f"{targets.MODES[i][0]:.0f}, {targets.MODES[i][1]:.0f}".replace("-", "−") for i in order
    ]
    right.set_xticks(np.arange(25), names, rotation=90, fontsize=7.5)
    outside = f"Masses of the modes (outside: {masses[25]:.1%}, truth {truth[25]:.1%})"
    _label(right, "mode x, y (heaviest first)", "mass", outside)
    _legend(right)
    figure.suptitle(
        f"{title}: mode TV {distance:.3f}", x=0.012, ha="left", weight="bold", color=_INK
    )
    if path is not None:
        _save(figure, Path(path))
    return figure


def draw_density(axes: "Axes", positions: np.ndarray | None, title: str = "") -> Any:
    """Heat map of 25-mode positions, or of the truth if None; the colours mean the same in all."""
    true = _true_density()
    shown = true if positions is None else _seen_density(_as_positions(positions))
    image = axes.imshow(shown.T, origin="lower", extent=(-_SQUARE, _SQUARE) * 2, cmap="magma",
                        vmin=0, vmax=true.max(), interpolation="bilinear")  # fmt: skip
    _label(axes, "x", "y", title)
    axes.grid(False)
    axes.set_xticks(range(-2, 3))
    axes.set_yticks(range(-2, 3))
    return image


def draw_paths(
    axes: "Axes", rung_of: np.ndarray, title: str = "", num_steps: int | None = None
) -> None:
    """The last steps of an index process (step, replica): all in grey, one replica in colour.

    That one has the median number of round trips among all replicas; dots mark where they end.
    `num_steps` is by default long enough for about six round trips of each replica.
    """
    total, num_replicas = rung_of.shape
    ends = _trip_ends(rung_of)
    trips = sum(map(len, ends))
    if num_steps is None:
        num_steps = max(500, 6 * total * num_replicas // trips) if trips else total
    start = max(0, total - num_steps)
    ends = [done[done > start] for done in ends]
    chosen = int(np.argsort([len(done) for done in ends], kind="stable")[num_replicas // 2])
    seen = np.arange(start, total, -(-(total - start) // _MAX_POINTS))
    others = [replica for replica in _spread(num_replicas) if replica != chosen]
    axes.plot(seen + 1, rung_of[seen][:, others], color="#9a9a9a", lw=0.4, alpha=0.55)
    axes.plot(seen + 1, rung_of[seen, chosen], color=_ACCENT, lw=1.5)
    count = len(ends[chosen])
    axes.plot(ends[chosen], np.zeros(count), "o", ms=7, color=_ACCENT, mec="white", clip_on=False,
              zorder=5, label=f"replica {chosen}: {count} round trip{'s' * (count != 1)}")  # fmt: skip
    _label(axes, "step", "rung (0 = coldest)", title)
    axes.set_yticks(np.unique(np.linspace(0, num_replicas - 1, 6).round().astype(int)))
    axes.set_xlim(start, total)
    axes.set_ylim(0, num_replicas - 1)
    axes.grid(False)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize=9, borderpad=0)


def _plot_ladder(posterior: "Posterior", history: History) -> "Figure":
    """Learning rates, or temperatures where those make the ladder: history and end."""
    adapts = posterior.options["adapts"]
    rates, temperatures = posterior.learning_rates, posterior.temperatures
    same_rate = posterior.num_replicas > 1 and np.all(rates == rates[:, :1])
    by_temperature = same_rate and np.all(np.diff(temperatures, axis=1) > 0)
    name, end, label = "learning_rate", rates, "learning rate"
    if adapts == "temperature" or by_temperature:
        name, end, label = "temperature", temperatures, "temperature"
    figure, over_time, at_end = _two_panels()
    over_time.set_yscale("log")
    if history["step"].size:
        for rung, colour in _cold_to_hot(posterior.num_replicas):
            over_time.plot(history["step"], history[name][0, :, rung], color=colour, lw=1.4)
    kept = "self-tuned" if adapts == name else "fixed"
    title = f"{label.capitalize()} of every rung, {kept}{_of_chain(posterior)}"
    _label(over_time, "step", label, title)
    _scatter(at_end, end, "o")
    _label(at_end, "rung (0 = coldest)", "", f"At the end{_all_chains(posterior)}")
    _say_if_empty(over_time, posterior)
    return figure


def _plot_rates(posterior: "Posterior", history: History) -> "Figure":
    """How often each pair says yes, over time and overall, and how often it swaps."""
    options = posterior.options
    figure, over_time, at_end = _two_panels()
    ends, rates = _verdict_rates(history, options["burn_in"])
    if ends.size:
        for pair, colour in _cold_to_hot(posterior.num_replicas - 1):
            over_time.plot(ends, rates[:, :, pair].mean(axis=0), color=colour, lw=1.2)
    if options["rule"] == "deterministic" or options["adapts"] is not None:
        target = options["target_swap_rate"]
        for axes in (over_time, at_end):
            axes.axhline(target, color=_INK, lw=1.2, ls=(0, (5, 3)), label=f"target {target:g}")
    mean = f", mean of {posterior.num_chains} chains" if posterior.num_chains > 1 else ""
    _label(over_time, "step", "rate", f"How often a pair says yes, per step{mean}")
    over_time.set_ylim(0, 1.02)
    turn = f"window of {posterior.window} steps" if posterior.window > 1 else "turn"
    _scatter(at_end, posterior.verdict_rate, "o", "says yes, per step")
    _scatter(at_end, posterior.window_swap_rate, "d", f"swaps, per {turn}", hollow=True)
    _label(at_end, "pair (0 = coldest)", "", f"After burn-in{_all_chains(posterior)}")
    figure.legend(*at_end.get_legend_handles_labels(), loc="outside lower center", ncols=3,
                  frameon=False, fontsize=9)  # fmt: skip
    _say_if_empty(over_time, posterior)
    return figure


def _verdict_rates(history: History, burn_in: int) -> tuple[np.ndarray, np.ndarray]:
    """Differences of the counts so far: last step of each interval, (chain, interval, pair).

    Points are joined until the intervals are few, so that a rate is more than noise.
    """
    steps = history["step"]
    joined = -(-len(steps) // _MAX_INTERVALS) or 1
    at = np.arange(len(steps) - 1, -1, -joined)[::-1]
    at = at[steps[at] > burn_in]
    if at.size == 0:
        return np.zeros(0), np.zeros((0, 0, 0))
    counted = np.diff(steps[at] - burn_in, prepend=0)
    yes = np.diff(history["verdicts"][:, at], axis=1, prepend=0)
    return steps[at], yes / counted[:, None]


def _plot_buffer(posterior: "Posterior", history: History) -> "Figure":
    """Below zero, swaps send higher energies to the cold rung."""
    figure = _figure(7.5, 3.6)
    axes = figure.add_subplot()
    axes.axhline(0, color=_INK, lw=1)
    for chain, style in _chain_styles(posterior):
        axes.plot(history["step"], history["buffer"][chain], lw=1.4, **style)
    _label(axes, "step", "buffer (unit of the energy)", "Buffer of the swap rule")
    _legend(axes)
    return figure


def _plot_trips(posterior: "Posterior", rung_of: np.ndarray) -> "Figure":
    """Round trips of all replicas so far, beside what Lemma 1 expects at the swap rates seen."""
    from replicax.report import _expected_trips

    figure = _figure(7.5, 4)
    axes = figure.add_subplot()
    num_steps = rung_of.shape[1]
    shown = np.unique(np.linspace(0, num_steps, _MAX_POINTS + 1).astype(int))
    for chain, style in _chain_styles(posterior):
        ends = np.sort(np.concatenate(_trip_ends(rung_of[chain])))
        axes.plot(shown, np.searchsorted(ends, shown, side="right"), lw=1.4, **style)
    expected = _expected_trips(posterior)
    if expected is not None:
        rate = float(np.mean(expected))
        label = f"Lemma 1 at the swap rates seen: {rate:.3g} per 1,000 steps"
        axes.plot([0, num_steps], [0, rate * num_steps / 1000], color=_INK, lw=1.2,
                  ls=(0, (5, 3)), label=label)  # fmt: skip
    mean = posterior.round_trips.mean() / num_steps * 1000
    _label(axes, "step", "round trips so far", f"Round trips: {mean:.3g} per 1,000 steps")
    axes.set_ylim(bottom=0)
    _legend(axes)
    return figure


def _trip_ends(rung_of: np.ndarray) -> list[np.ndarray]:
    """For each replica, steps done when it ended a round trip  (step, replica).

    Replica i begins on rung i. A way down counts only after a visit to the coldest rung.
    """
    found = []
    for replica, after in enumerate(rung_of.T):
        path = np.append(replica, after)
        turns = np.flatnonzero((path == 0) | (path == rung_of.shape[1] - 1))
        hot = path[turns] != 0
        back = turns[1:][hot[:-1] & ~hot[1:]]
        found.append(back[1:] if hot[:1].any() else back)
    return found


def _plot_draws(posterior: "Posterior") -> "Figure":
    """Traces and marginals of the first components and the energy; a map if there are just two."""
    components = list(posterior.components().items())
    rows = [*components[:_MAX_COMPONENTS], ("energy", posterior.energies)]
    is_plane = len(components) == 2
    ratios = (3, 1, 2.4) if is_plane else (3, 1)
    figure = _figure(14 if is_plane else 9.5, 0.8 + 1.6 * len(rows))
    grid = figure.add_gridspec(len(rows), len(ratios), width_ratios=ratios)
    for row, (name, values) in enumerate(rows):
        trace = figure.add_subplot(grid[row, 0])
        marginal = figure.add_subplot(grid[row, 1], sharey=trace)
        _draw_marginal(posterior, values, trace, marginal)
        is_last = row == len(rows) - 1
        _label(trace, "draw" if is_last else "", name, "" if row else "Draws of the coldest rung")
        _label(marginal, "density" if is_last else "", "", "" if row else "Marginals")
        marginal.tick_params(labelleft=False)
        if row == 0 and posterior.num_chains > 1:
            _legend(trace)
    if is_plane:
        _draw_plane(figure.add_subplot(grid[:, 2]), components)
    return figure


def _draw_marginal(posterior: "Posterior", values: np.ndarray, trace: "Axes", marginal: "Axes"):
    kept = np.arange(0, values.shape[1], -(-values.shape[1] // _MAX_POINTS))
    finite = values[np.isfinite(values)]
    bins = np.histogram_bin_edges(finite, 60)
    for chain, style in _chain_styles(posterior):
        seen = values[chain]
        trace.plot(kept, seen[kept], ".", ms=2.5, mew=0, **style)
        marginal.hist(seen[np.isfinite(seen)], bins, density=True, histtype="step",
                      orientation="horizontal", lw=1.1, **style)  # fmt: skip


def _draw_plane(axes: "Axes", components: list[tuple[str, np.ndarray]]) -> None:
    (x_name, x), (y_name, y) = components
    finite = np.isfinite(x) & np.isfinite(y)
    image = axes.hexbin(x[finite], y[finite], gridsize=70, mincnt=1, cmap="magma", lw=0)
    _label(axes, x_name, y_name, "All chains together")
    axes.figure.colorbar(image, ax=axes, label="draws in a cell", pad=0.02, aspect=40)


def _as_positions(positions: Any) -> np.ndarray:
    positions = np.asarray(positions, float)
    if positions.ndim == 0 or positions.shape[-1] != 2 or positions.size == 0:
        raise ValueError(
            f"positions have shape {positions.shape}; give draws of the 25-mode target, whose "
            "last axis is (x, y): plot_modes25(posterior.draws)."
        )
    return positions.reshape(-1, 2)


def _true_density() -> np.ndarray:
    """exp(-U) in every bin, seen through the same blur as the draws."""
    from replicax.targets import modes25_energy

    middle = (np.arange(_BINS) + 0.5) * (2 * _SQUARE / _BINS) - _SQUARE
    grid = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1)
    return _blur(np.exp(-np.asarray(modes25_energy(grid))))


def _seen_density(positions: np.ndarray) -> np.ndarray:
    span = (-_SQUARE, _SQUARE)
    return _blur(np.histogram2d(*positions.T, bins=_BINS, range=(span, span))[0])


def _blur(weights: np.ndarray) -> np.ndarray:
    """Smooth by a bin, a third of a mode's width, and make a density on the square."""
    from scipy.ndimage import gaussian_filter

    blurred = gaussian_filter(weights, 1.2, mode="constant")
    return blurred / max(blurred.sum(), 1e-30) * (_BINS / (2 * _SQUARE)) ** 2


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _two_panels() -> tuple["Figure", "Axes", "Axes"]:
    figure = _figure(10.5, 4)
    over_time, at_end = figure.subplots(1, 2, width_ratios=(2.1, 1), sharey=True)
    return figure, over_time, at_end


def _label(axes: "Axes", x: str, y: str, title: str) -> None:
    """Names, and the look that all panels share."""
    from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter

    axes.set_xlabel(x, color=_INK)
    axes.set_ylabel(y, color=_INK)
    axes.set_title(title, loc="left", fontsize=10.5, color=_INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_SOFT)
    axes.tick_params(colors=_SOFT, labelcolor=_INK, labelsize=9)
    axes.grid(axis="y", color=_FAINT, lw=0.8)
    axes.set_axisbelow(True)
    if axes.get_yscale() == "log":
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_locator(LogLocator(subs=()))
    if x.split(" (")[0] in ("step", "draw", "rung", "pair"):
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.margins(x=0.02)


def _legend(axes: "Axes") -> None:
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=9, labelcolor=_INK)


def _say_if_empty(axes: "Axes", posterior: "Posterior") -> None:
    """Short runs have no history yet."""
    if len(axes.get_lines()) == 0 or not posterior.history["step"].size:
        every = posterior.options["history_every"]
        axes.text(0.5, 0.5, f"no history yet: a point is recorded every {every} steps",
                  transform=axes.transAxes, ha="center", va="center", color=_SOFT)  # fmt: skip


def _spread(count: int) -> list[int]:
    """At most `_MAX_LINES` of them, both ends included."""
    return np.unique(np.linspace(0, count - 1, min(count, _MAX_LINES)).round().astype(int)).tolist()


def _colours(count: int) -> np.ndarray:
    """From cold to hot: plasma without its palest end."""
    from matplotlib import colormaps

    return colormaps["plasma"](np.linspace(0.02, 0.85, count))


def _cold_to_hot(count: int) -> Iterator[tuple[int, Any]]:
    colours = _colours(count)
    return ((place, colours[place]) for place in _spread(count))


def _scatter(axes: "Axes", values: np.ndarray, marker: str, label: str = "", hollow: bool = False):
    """One marker per chain and place on the ladder  (chain, place)."""
    num_chains, count = values.shape
    colours = np.tile(_colours(count), (num_chains, 1))
    fill = "none" if hollow else colours
    places = np.tile(np.arange(count), num_chains)
    axes.scatter(
        places, values.ravel(), s=18, marker=marker, facecolors=fill, edgecolors=colours, lw=0.9
    )
    if label:
        axes.plot([], [], marker, color=_SOFT, ms=5, mfc="none" if hollow else _SOFT, label=label)


def _chain_styles(posterior: "Posterior") -> Iterator[tuple[int, dict[str, Any]]]:
    """A colour and a name for each of a few chains; one faint colour for many."""
    num_chains = posterior.num_chains
    few = num_chains <= len(_CHAINS)
    for chain in range(num_chains):
        name = {"label": f"chain {chain}"} if few and num_chains > 1 else {}
        yield chain, {"color": _CHAINS[chain if few else 0], "alpha": 0.9 if few else 0.35, **name}


def _of_chain(posterior: "Posterior") -> str:
    return f" (chain 0 of {posterior.num_chains})" if posterior.num_chains > 1 else ""


def _all_chains(posterior: "Posterior") -> str:
    return f", all {posterior.num_chains} chains" if posterior.num_chains > 1 else ""


def _save(figure: "Figure", path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
