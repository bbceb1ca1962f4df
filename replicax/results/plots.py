"""Figures of a run and of the 25 modes, drawn from records alone.

All are `matplotlib.figure.Figure` objects: no pyplot, no global state.
"""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.errors import show, suggest
from replicax.results import figure_style, mixture, plotted
from replicax.results.diagnostics import exchanges
from replicax.results.mixture import Learned
from replicax.results.plotted import History
from replicax.run.carry import trip_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from replicax.results.posterior import Posterior

_MAX_POINTS = 4000  # points along one line or trace
_MAX_MOVES = 400  # moves of one replica that can be distinguished in a figure
_MAX_GREY_MOVES = 2000  # moves of all grey replicas
_MAX_COMPONENTS = 4  # components that are shown by default
_MAX_ROWS = 20  # if they are asked for
_NAMED = 6  # arrays that are named among those left out


def plot_posterior(
    posterior: "Posterior",
    out: str | Path | None = None,
    var_names: str | Sequence[str] | None = None,
) -> dict[str, "Figure"]:
    """Return figures by name; write them as PNG into the folder `out`.

    They are `ladder`, `rates`, `buffer`, `paths` (the index process), `trips`, `mixture` (that
    proposes jumps) and `draws`. Figures without data are left out, such as `rates` for a run
    without exchange. `var_names`: the parameters in `draws`.
    """
    figures = plot_exchange(posterior) or {"ladder": _plot_ladder(posterior)}
    learned = mixture.of_run(posterior)
    if learned is not None:
        figures["mixture"] = _plot_mixture(posterior, learned)
    if posterior.num_draws:
        figures["draws"] = _plot_draws(posterior, var_names)
    figure_style.save_all(figures, out)
    return figures


def plot_exchange(posterior: "Posterior") -> dict[str, "Figure"]:
    """Return the figures of ladder and swaps by name, none for a run without exchange."""
    if not exchanges(posterior):
        return {}
    history, rung_of = posterior.history, posterior.rung_of
    figures = {"ladder": _plot_ladder(posterior), "rates": _plot_rates(posterior)}
    if posterior.metadata.resolved.rule == "deterministic" and history["step"].size:
        figures["buffer"] = _plot_buffer(posterior, history)
    figures["paths"] = figure_style.new_figure(10, 3.6)
    title = f"Index process: the rungs of replicas{_of_chain(posterior)}"
    draw_paths(figures["paths"].add_subplot(), rung_of[0], title)
    figures["trips"] = _plot_trips(posterior, rung_of)
    return figures


def plot_modes25(runs: "dict[str, Posterior]", path: str | Path | None = None) -> "Figure":
    """Plot runs on the 25 modes, by their names, beside the truth: densities, masses of the modes,
    and the path of one replica of each.

    `path` is the file to write the figure to, as PNG.
    """
    modes = {name: plotted.modes25_masses(run.draws) for name, run in runs.items()}
    figure = figure_style.new_figure(1 + 4 * (1 + len(runs)), 9.6)
    grid = figure.add_gridspec(3, 1, height_ratios=(2.1, 1, 1))
    maps: Any = grid[0].subgridspec(1, 1 + len(runs)).subplots(sharey=True)
    figure_style.draw_density(maps[0], None, "Truth")
    image: Any = None
    for axes, (name, run) in zip(maps[1:], runs.items(), strict=True):
        title = f"{name}: mode TV {modes[name].distance:.3f}"
        image = figure_style.draw_density(axes, figure_style.as_positions(run.draws), title)
        axes.set_ylabel("")
    figure.colorbar(image, ax=list(maps), label="density", extend="max", pad=0.01, aspect=30)
    _draw_masses(figure.add_subplot(grid[1]), modes)
    below = grid[2].subgridspec(1, len(runs)).subplots(squeeze=False)[0]
    for axes, (name, run) in zip(below, runs.items(), strict=True):
        rate = run.round_trips.mean() / run.counted_steps * 1000
        draw_paths(axes, run.rung_of[0], f"{name}: {rate:.0f} round trips per 1,000 steps")
        axes.legend_ = None  # the title is as wide as the panel
    if path is not None:
        figure_style.save(figure, Path(path), named=True)
    return figure


def _draw_masses(axes: "Axes", runs: dict[str, plotted.ModeMasses]) -> None:
    """Draw bars of the masses among the 25 modes, those of each run beside each other."""
    first, width = next(iter(runs.values())), 0.8 / len(runs)
    at = np.arange(25)
    for number, (name, modes) in enumerate(runs.items()):
        heights = modes.sampled / max(modes.sampled.sum(), 1e-30)
        left = at + (number - (len(runs) - 1) / 2) * width
        axes.bar(left, heights, width, color=figure_style.CHAINS[number], label=name)
    true = first.true / first.true.sum()
    axes.plot(at, true, "_", ms=18, mew=1.8, color=figure_style.INK, label="truth")
    axes.set_xticks(at, first.names)
    axes.set_xlim(-0.6, 24.6)
    outside = ", ".join(f"{name} {modes.outside[0]:.1%}" for name, modes in runs.items())
    title = f"Masses of the modes (outside of all: {outside}, truth {first.outside[1]:.1%})"
    figure_style.label(axes, "mode x, y (heaviest first)", "mass", title)
    axes.tick_params(axis="x", labelsize=8)
    figure_style.legend(axes, ncols=len(runs) + 1)


def draw_paths(
    axes: "Axes", rung_of: np.ndarray, title: str = "", num_steps: int | None = None
) -> None:
    """Draw the last steps of an index process (step, replica): one replica in colour, others grey.

    The coloured replica has the median number of round trips; dots mark their ends. By default
    `num_steps` covers about six round trips of each replica, or fewer if its line would be solid;
    as many other replicas are drawn as can be distinguished.
    """
    total, num_replicas = rung_of.shape
    ends = trip_ends(rung_of)
    trips = sum(map(len, ends))
    if num_steps is None:
        num_steps = max(100, 6 * total * num_replicas // trips) if trips else total
        moves = np.count_nonzero(np.diff(rung_of, axis=0)) / max(total * num_replicas, 1)
        num_steps = int(min(num_steps, max(100, _MAX_MOVES / max(moves, 1e-9))))
    start = max(0, total - num_steps)
    ends = [steps[steps > start] for steps in ends]
    chosen = int(np.argsort([len(steps) for steps in ends], kind="stable")[num_replicas // 2])
    count = len(ends[chosen])
    steps = np.arange(start, total + 1, -(-(total - start) // _MAX_POINTS))
    paths = np.where(steps[:, None] == 0, np.arange(num_replicas), rung_of[steps - 1])
    others = _distinguishable(paths, chosen)
    axes.plot(steps, paths[:, others], color="#a5a5a5", lw=0.6, alpha=0.7)
    axes.plot(steps, paths[:, chosen], color=figure_style.ACCENT, lw=1.5)
    name = f"replica {chosen}: {count} round trip{'s' * (count != 1)}"
    if len(others) < num_replicas - 1:
        name += f"; {len(others)} of {num_replicas - 1} others in grey"
    axes.plot(ends[chosen], np.zeros(count), "o", ms=7, color=figure_style.ACCENT, mec="white",
              clip_on=False, in_layout=False, zorder=5, label=name)  # fmt: skip
    figure_style.label(axes, "step", "rung (0 = coldest)", title)
    axes.grid(False)
    axes.set_xlim(start, total)
    axes.set_ylim(-0.02 * (num_replicas - 1), 1.02 * (num_replicas - 1))
    few = num_replicas if num_replicas <= 10 else 6
    axes.set_yticks(np.unique(np.linspace(0, num_replicas - 1, few).round().astype(int)))
    figure_style.legend(axes, loc="lower right", bbox_to_anchor=(1, 1), borderpad=0)


def _distinguishable(paths: np.ndarray, chosen: int) -> list[int]:
    """Return evenly spaced replicas other than the chosen one, as many as paths (point, replica)
    fit into the figure."""
    moves = np.count_nonzero(np.diff(paths, axis=0), axis=0)
    others = [replica for replica in figure_style.some(paths.shape[1]) if replica != chosen]
    if not others:
        return others
    usual = max(float(np.mean(moves[others])), 1e-9)
    count = int(np.clip(_MAX_GREY_MOVES / usual, 2, len(others)))
    return [
        others[i] for i in np.unique(np.linspace(0, len(others) - 1, count).round().astype(int))
    ]


def _plot_ladder(posterior: "Posterior") -> "Figure":
    """Plot learning rates, or temperatures if those form the ladder: history and end."""
    count, name = posterior.num_replicas, plotted.name_of_ladder(posterior)
    ladder, word = plotted.ladder_over_time(posterior, name), name.replace("_", " ")
    figure, over_time, at_end = figure_style.two_panels()
    over_time.set_yscale("log")
    if ladder.steps.size:
        for rung, colour in figure_style.cold_to_hot(count):
            over_time.plot(ladder.steps, ladder.values[0, :, rung], color=colour, lw=1.4)
    else:
        _note_no_history(over_time, posterior)
    tuned = "self-tuned" if posterior.metadata.resolved.adapts == name else "fixed"
    title = f"{word.capitalize()} of every rung, {tuned}{_of_chain(posterior)}"
    figure_style.label(over_time, "step", word, title)
    over_time.set_xlim(0, posterior.num_steps)
    figure_style.scatter(at_end, ladder.end, "o")
    figure_style.label(at_end, "rung (0 = coldest)", "", f"At the end{_all_chains(posterior)}")
    figure_style.colour_key(at_end, count, "rung (0 = coldest)")
    return figure


def _plot_rates(posterior: "Posterior") -> "Figure":
    """Plot how often the rule accepts for each pair, over time and overall, and how often it
    swaps."""
    figure, over_time, at_end = figure_style.two_panels()
    steps, rates = plotted.rates_over_time(posterior)
    if steps.size:
        for pair, colour in figure_style.cold_to_hot(posterior.num_replicas - 1):
            over_time.plot(steps, rates[:, :, pair].mean(axis=0), color=colour, lw=1.2)
    else:
        _note_no_history(over_time, posterior)
    target = plotted.target_of_rates(posterior)
    if target is not None:
        for axes in (over_time, at_end):
            axes.axhline(target, label=f"target {target:g}", **figure_style.DASHED)
    mean = f", mean of {posterior.num_chains} chains" if posterior.num_chains > 1 else ""
    per = plotted.attempt_of(posterior)
    figure_style.label(over_time, "step", "rate", f"How often the rule accepts, {per}{mean}")
    over_time.set_xlim(0, posterior.num_steps)
    over_time.set_ylim(0, 1.03)
    figure_style.scatter(at_end, posterior.verdict_rate, "o", f"rule accepts, {per}")
    turn = f"swaps, {plotted.turn_of(posterior)}"
    figure_style.scatter(at_end, posterior.window_swap_rate, "d", turn, hollow=True)
    figure_style.label(at_end, "pair (0 = coldest)", "", f"After burn-in{_all_chains(posterior)}")
    figure_style.legend_below(at_end)
    figure_style.colour_key(at_end, posterior.num_replicas - 1, "pair (0 = coldest)")
    return figure


def _plot_buffer(posterior: "Posterior", history: History) -> "Figure":
    """Plot the buffer of each chain; below zero, swaps send higher energies to the cold rung."""
    figure = figure_style.new_figure(7.5, 3.6)
    axes = figure.add_subplot()
    axes.axhline(0, color=figure_style.INK, lw=1)
    values = history["buffer"]
    for chain, style in figure_style.chain_styles(posterior.num_chains):
        axes.plot(history["step"], values[chain], lw=1.4, **style)
    title = "Buffer of the swap rule"
    settled = np.append(values[:, values.shape[1] // 10 :], 0.0)
    low, high = np.nanmin(settled), np.nanmax(settled)
    room = (high - low) / 3
    if np.isfinite(room) and room > 0 and np.nanmax(values) > high + 3 * room:
        axes.set_ylim(low - room / 2, high + room)
        title += f" (from {np.nanmax(values):.3g}, off the scale, at the start)"
    figure_style.label(axes, "step", "buffer (unit of the energy)", title)
    axes.set_xlim(0, posterior.num_steps)
    figure_style.legend_below(axes)
    return figure


def _plot_trips(posterior: "Posterior", rung_of: np.ndarray) -> "Figure":
    """Plot the cumulative round trips and the prediction of Lemma 1 at the measured swap rates."""
    figure = figure_style.new_figure(7.5, 4)
    axes = figure.add_subplot()
    num_steps, counted = posterior.num_steps, posterior.counted_steps
    ends = [trip_ends(chain) for chain in rung_of]
    trips = plotted.trips_so_far(posterior, ends, _MAX_POINTS + 1)
    for chain, style in figure_style.chain_styles(posterior.num_chains):
        axes.plot(trips.steps, trips.so_far[chain], lw=1.4, **style)
    if trips.expected is not None:
        end = float(np.mean(trips.expected))
        rate = round(end / counted * 1000, 3)
        name = f"Lemma 1 at the measured swap rates: {rate:.3g} per 1,000 steps"
        axes.plot([trips.start, num_steps], [0, end], **figure_style.DASHED, label=name)
    mean = posterior.round_trips.mean() / counted * 1000
    title = f"Round trips: {mean:.3g} per 1,000 steps"
    figure_style.label(axes, "step", "round trips so far", title)
    axes.set_xlim(0, num_steps)
    top = max(1.0, axes.get_ylim()[1])
    axes.set_ylim(-0.02 * top, top)
    figure_style.legend(axes, loc="upper left")
    return figure


def _plot_mixture(posterior: "Posterior", learned: Learned) -> "Figure":
    """Plot the components of the mixture over the draws, in the two most telling parameters."""
    pair = mixture.telling(learned)
    figure = figure_style.new_figure(6.5, 5)
    axes = figure.add_subplot()
    rest = learned.draws[:, pair[-1]] if len(pair) > 1 else np.zeros(len(learned.draws))
    axes.plot(learned.draws[:, pair[0]], rest, ".", ms=2.5, mew=0, alpha=0.5,
              color=figure_style.CHAINS[0], label="draws")  # fmt: skip
    words = "components, two standard deviations"
    for number, at in enumerate(mixture.outlines(learned, pair)):
        alpha = 0.3 + 0.7 * learned.weight[number] / learned.weight[0]
        name = "_" * (number > 0) + words  # one in the legend
        axes.plot(*at.T, lw=1.2, alpha=alpha, color=figure_style.ACCENT, label=name)
    accepted = posterior.jumps["accepted"].mean()  # pyright: ignore[reportOptionalSubscript]
    names = [learned.names[i] for i in pair]
    title = f"The mixture: {len(learned.weight)} components, {accepted:.0%} of proposals accepted"
    figure_style.label(axes, names[0], names[1] if len(names) > 1 else "", title)
    figure_style.legend_below(axes)
    return figure


def _note_no_history(axes: "Axes", posterior: "Posterior") -> None:
    every = posterior.metadata.resolved.history_every
    figure_style.note(axes, f"no history yet: a point is recorded every {every} steps")


def _of_chain(posterior: "Posterior") -> str:
    return f" (chain 0 of {posterior.num_chains})" if posterior.num_chains > 1 else ""


def _all_chains(posterior: "Posterior") -> str:
    return f", all {posterior.num_chains} chains" if posterior.num_chains > 1 else ""


def _plot_draws(posterior: "Posterior", var_names: str | Sequence[str] | None = None) -> "Figure":
    """Plot traces and marginals of the first components, or of those in `var_names`, and of the
    energy; and a map of two components. The title names components that are left out."""
    components, left_out = _components(posterior, var_names)
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


def _components(
    posterior: "Posterior", var_names: str | Sequence[str] | None
) -> tuple[list[tuple[str, np.ndarray]], str]:
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


def _asked_for(
    posterior: "Posterior", var_names: str | Sequence[str] | None
) -> dict[str, np.ndarray]:
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
    kept = plotted.thinned(num_draws, _MAX_POINTS)
    size = np.clip(120 / np.sqrt(num_chains * len(kept)), 2.5, 6)
    bins = plotted.bin_edges(values)
    for chain, style in figure_style.chain_styles(num_chains):
        trace.plot(kept, values[chain, kept], ".", ms=size, mew=0, **style)
        height = plotted.density(values[chain], bins)
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
