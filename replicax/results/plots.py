"""Figures of a run, drawn from records alone: those of `plot`, and narrow ones for its report.

All are `matplotlib.figure.Figure` objects: no pyplot, no global state.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from replicax.errors import show, suggest
from replicax.results import figure_style, mixture
from replicax.results.diagnostics import exchanges
from replicax.results.mixture import Learned
from replicax.results.summary import expected_trips
from replicax.run.carry import num_attempts, trip_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

    from replicax.results.done import Number
    from replicax.results.posterior import Posterior

_MAX_POINTS = 4000  # points along one line or trace
_MAX_MOVES = 400  # moves of one replica that can be distinguished in a figure
_MAX_GREY_MOVES = 2000  # moves of all grey replicas
_RANK_BINS = 20
_MAX_COMPONENTS = 4  # components that are shown by default
_MAX_ROWS = 20  # if they are asked for
_MAX_INTERVALS = 50  # intervals over which rates are averaged
_FEW_ATTEMPTS = 10  # swap attempts in such an interval, at least

History = dict[str, np.ndarray]


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
        figures["mixture"] = plot_mixture(posterior, learned)
    if posterior.num_draws:
        figures["draws"] = _plot_draws(posterior, var_names)
    figure_style.save_all(figures, out)
    return figures


def plot_exchange(posterior: "Posterior", narrow: bool = False) -> dict[str, "Figure"]:
    """Return the figures of ladder and swaps by name, none for a run without exchange."""
    if not exchanges(posterior):
        return {}
    history, rung_of = posterior.history, posterior.rung_of
    figures = {
        "ladder": _plot_ladder(posterior, narrow),
        "rates": _plot_rates(posterior, narrow),
    }
    if posterior.metadata.resolved.rule == "deterministic" and history["step"].size:
        figures["buffer"] = _plot_buffer(posterior, history)
    figures["paths"] = figure_style.new_figure(figure_style.NARROW if narrow else 10, 3.6)
    axes = figures["paths"].add_subplot()
    title = f"The rungs of replicas{_of_chain(posterior)}"
    draw_paths(axes, rung_of[0], "" if narrow else title)  # the legend takes its place
    figures["trips"] = _plot_trips(posterior, rung_of)
    return figures


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
    return [others[i] for i in figure_style.some(len(others), count)]


def _plot_ladder(posterior: "Posterior", narrow: bool = False) -> "Figure":
    """Plot learning rates, or temperatures if those form the ladder: history and end."""
    count, name, history = posterior.num_replicas, name_of_ladder(posterior), posterior.history
    is_heat, word = name == "temperature", name.replace("_", " ")
    scale = posterior.temperature_scale if is_heat else posterior.energy_scale
    figure, over_time, at_end = figure_style.history_and_end(narrow)
    over_time.set_yscale("log")
    if len(history["step"]):
        for rung, colour in figure_style.cold_to_hot(count):
            over_time.plot(history["step"], scale * history[name][0, :, rung], color=colour, lw=1.4)
    else:
        _note_no_history(over_time, posterior)
    tuned = "self-tuned" if posterior.metadata.resolved.adapts == name else "fixed"
    title = f"{word.capitalize()} of every rung, {tuned}{_of_chain(posterior)}"
    figure_style.label(over_time, "step", word, title)
    over_time.set_xlim(0, posterior.num_steps)
    end = posterior.temperatures if is_heat else posterior.learning_rates
    figure_style.scatter(at_end, scale * end, "o")
    figure_style.label(at_end, "rung (0 = coldest)", word, f"At the end{_all_chains(posterior)}")
    figure_style.colour_key(at_end, count, "rung (0 = coldest)")
    return figure


def _plot_rates(posterior: "Posterior", narrow: bool = False) -> "Figure":
    """Plot how often the rule accepts for each pair, over time and overall, and how often it
    swaps."""
    resolved, window = posterior.metadata.resolved, posterior.window
    figure, over_time, at_end = figure_style.history_and_end(narrow)
    steps, rates = verdict_rates(posterior.history, resolved.counted_from, resolved.swap_every)
    if steps.size:
        for pair, colour in figure_style.cold_to_hot(posterior.num_replicas - 1):
            over_time.plot(steps, rates[:, :, pair].mean(axis=0), color=colour, lw=1.2)
    else:
        _note_no_history(over_time, posterior)
    # Temperatures adapt to equal rejection, whatever the rate.
    if resolved.rule == "deterministic" or resolved.adapts == "learning_rate":
        target = resolved.target_swap_rate
        for axes in (over_time, at_end):
            axes.axhline(target, label=f"target {target:g}", **figure_style.DASHED)
    mean = f", mean of {posterior.num_chains} chains" if posterior.num_chains > 1 else ""
    per = "per step" if resolved.swap_every == 1 else "per attempt"
    figure_style.label(over_time, "step", "rate", f"How often the rule accepts, {per}{mean}")
    over_time.set_xlim(0, posterior.num_steps)
    over_time.set_ylim(0, 1.03)
    figure_style.scatter(at_end, posterior.verdict_rate, "o", f"rule accepts, {per}")
    turn = f"swaps, per window of {window} steps" if window > 1 else "swaps, per turn"
    figure_style.scatter(at_end, posterior.window_swap_rate, "d", turn, hollow=True)
    title = f"After burn-in{_all_chains(posterior)}"
    figure_style.label(at_end, "pair (0 = coldest)", "rate", title)
    figure_style.legend_below(at_end)
    figure_style.colour_key(at_end, posterior.num_replicas - 1, "pair (0 = coldest)")
    return figure


def _plot_buffer(posterior: "Posterior", history: History) -> "Figure":
    """Plot the buffer of each chain; below zero, swaps send higher energies to the cold rung."""
    figure = figure_style.new_figure(figure_style.NARROW, 3.4)
    axes = figure.add_subplot()
    axes.axhline(0, color=figure_style.INK, lw=1)
    values = history["buffer"]
    for chain, style in figure_style.chain_styles(posterior.num_chains):
        axes.plot(history["step"], values[chain], lw=1.4, **style)
    figure_style.label(axes, "step", "buffer (unit of the energy)", "Buffer of the swap rule")
    axes.set_xlim(0, posterior.num_steps)
    axes.set_ylim(figure_style.settled_range(values.T, np.zeros((values.shape[1], 1))))
    figure_style.legend_below(axes)
    return figure


def _plot_trips(posterior: "Posterior", rung_of: np.ndarray) -> "Figure":
    """Plot the cumulative round trips and the prediction of Lemma 1 at the measured swap rates."""
    figure = figure_style.new_figure(figure_style.NARROW, 3.6)
    axes = figure.add_subplot()
    num_steps, start = posterior.num_steps, posterior.num_steps - posterior.counted_steps
    steps = np.unique(np.linspace(0, num_steps, _MAX_POINTS + 1).astype(int))
    for chain, style in figure_style.chain_styles(posterior.num_chains):
        ends = np.sort(np.concatenate(trip_ends(rung_of[chain])))
        so_far = np.searchsorted(ends[ends > start], steps, side="right")
        axes.plot(steps, so_far, lw=1.4, **style)
    expected = expected_trips(posterior)
    if expected is not None:
        rate = float(np.mean(expected))
        reach = [0, rate * posterior.counted_steps / 1000]
        name = f"Lemma 1: {rate:.3g} per 1,000 steps"
        axes.plot([start, num_steps], reach, **figure_style.DASHED, label=name)
    mean = posterior.round_trips.mean() / posterior.counted_steps * 1000
    title = f"Round trips: {mean:.3g} per 1,000 steps"
    figure_style.label(axes, "step", "round trips so far", title)
    axes.set_xlim(0, num_steps)
    top = max(1.0, axes.get_ylim()[1])
    axes.set_ylim(-0.02 * top, top)
    figure_style.legend_below(axes)
    return figure


def plot_mixture(posterior: "Posterior", learned: Learned) -> "Figure":
    """Plot the components of the mixture over the draws, in the two most telling parameters."""
    pair = mixture.telling(learned)
    figure = figure_style.new_figure(figure_style.NARROW, 4.6)
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
    words = f"no history yet: a point is recorded every {every} steps"
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", color=figure_style.SOFT)


def _of_chain(posterior: "Posterior") -> str:
    return f" (chain 0 of {posterior.num_chains})" if posterior.num_chains > 1 else ""


def _all_chains(posterior: "Posterior") -> str:
    return f", all {posterior.num_chains} chains" if posterior.num_chains > 1 else ""


def _plot_draws(posterior: "Posterior", var_names: str | Sequence[str] | None = None) -> "Figure":
    """Plot the first components, or those in `var_names`, and the energy; and a map of two
    components. The title says how many components are left out."""
    components, left_out = _components(posterior, var_names)
    rows = [*components, ("energy", posterior.energies)]
    has_map = len(components) == 2
    height = -(-(len(rows) + has_map) // 2)
    figure = figure_style.new_figure(2 * figure_style.NARROW, 3.6 * height)
    cells = figure.subfigures(height, 2, squeeze=False).ravel()
    for cell, (name, values) in zip(cells, rows, strict=False):
        _draw_component(cell, name, values)
    if has_map:
        _draw_map(cells[-1].add_subplot(), components)
    if left_out:
        figure.suptitle(left_out, x=0.012, ha="left", fontsize=9, color=figure_style.SOFT)
    return figure


def _components(
    posterior: "Posterior", var_names: str | Sequence[str] | None
) -> tuple[list[tuple[str, np.ndarray]], str]:
    """Return the components to show: the first, or those of arrays, such as "theta", and single
    ones, such as "theta[3]"; and a sentence if others are left out."""
    if var_names is None:
        chosen = list(posterior.components().items())[:_MAX_COMPONENTS]
    else:
        chosen = _asked_for(posterior, var_names)[:_MAX_ROWS]
    total = posterior.metadata.params.num_elements
    if not chosen or len(chosen) >= total:
        return chosen, ""
    return chosen, f"{len(chosen)} of {total:,} parameters (var_names chooses)"


def _asked_for(
    posterior: "Posterior", var_names: str | Sequence[str]
) -> list[tuple[str, np.ndarray]]:
    wanted = [var_names] if isinstance(var_names, str) else var_names
    if not isinstance(wanted, list | tuple) or not all(isinstance(x, str) for x in wanted):
        raise ValueError(f"var_names is {show(var_names)}; give names of parameters, as in a list.")
    chosen: dict[str, np.ndarray] = {}
    for name in wanted:
        array = name.partition("[")[0]
        known = posterior.components([array])
        found = {key: x for key, x in known.items() if name in (key, array)}
        if not found:
            names = list(known or posterior.components())
            raise ValueError(
                f"var_names has {name!r}; there are {', '.join(names[:20])}.{suggest(name, names)}"
            )
        chosen |= found
    return list(chosen.items())


def _draw_marginal(values: np.ndarray, trace: "Axes", marginal: "Axes") -> None:
    num_chains, num_draws = values.shape
    kept = thinned(num_draws, _MAX_POINTS)
    size = np.clip(120 / np.sqrt(num_chains * len(kept)), 2.5, 6)
    bins = bin_edges(values)
    for chain, style in figure_style.chain_styles(num_chains):
        trace.plot(kept, values[chain, kept], ".", ms=size, mew=0, **style)
        height = density(values[chain], bins)
        marginal.stairs(height, bins, orientation="horizontal", lw=1.1, **style)


def plot_component(name: str, values: np.ndarray) -> "Figure":
    """Plot trace, marginal and ranks of one component of the draws (chain, draw)."""
    figure = figure_style.new_figure(figure_style.NARROW, 3.6)
    _draw_component(figure, name, values)
    return figure


def _draw_component(figure: "Figure | SubFigure", name: str, values: np.ndarray) -> None:
    grid = figure.add_gridspec(2, 2, width_ratios=(2.4, 1), height_ratios=(1.7, 1))
    trace = figure.add_subplot(grid[0, 0])
    marginal = figure.add_subplot(grid[0, 1], sharey=trace)
    _draw_marginal(values, trace, marginal)
    figure_style.label(trace, "draw", "", name if len(name) <= 40 else f"…{name[-39:]}")
    figure_style.label(marginal, "density", "")
    marginal.tick_params(labelleft=False)
    ranks = figure.add_subplot(grid[1, :])
    shares = rank_shares(values)
    for row, style in figure_style.chain_styles(len(shares)):
        if len(values) == 1:
            style["label"] = ("first half", "second half")[row]
        ranks.stairs(shares[row], np.linspace(0, 1, _RANK_BINS + 1), lw=1.2,
                     baseline=None, **style)  # fmt: skip
    ranks.axhline(1, **figure_style.DASHED)
    ranks.set_ylim(0, max(2.0, 1.1 * shares.max()))
    figure_style.label(ranks, "rank among all draws", "frequency")
    figure_style.legend_below(ranks)


def rank_shares(values: np.ndarray) -> np.ndarray:
    """Return how often ranks among all draws occur in each chain, or in each half of a single one,
    relative to chance  (chain, bin)."""
    if len(values) == 1:
        half = values.shape[1] // 2
        values = values[0, : 2 * half].reshape(2, half)
    order = values.ravel().argsort(kind="stable").argsort().reshape(values.shape)
    bins = np.linspace(0, 1, _RANK_BINS + 1)
    counts = [np.histogram((row + 0.5) / values.size, bins)[0] for row in order]
    return np.array(counts) * _RANK_BINS / max(values.shape[1], 1)


def plot_pair(components: list[tuple[str, np.ndarray]]) -> "Figure":
    """Plot a map of the joint draws of two components."""
    figure = figure_style.new_figure(figure_style.NARROW, 4.2)
    _draw_map(figure.add_subplot(), components)
    return figure


def plot_course(steps: np.ndarray, course: list[list["Number"]]) -> "Figure":
    """Plot the numbers by which a run is done, at some steps, beside the values that are wanted."""
    rows = [row for row in zip(*course, strict=True) if not np.isnan([x.value for x in row]).all()]
    figure = figure_style.new_figure(figure_style.NARROW, 0.8 + 1.3 * len(rows))
    panels = figure.subplots(len(rows), 1, sharex=True, squeeze=False)[:, 0]
    for axes, row in zip(panels, rows, strict=True):
        values, wanted = np.array([number.value for number in row]), row[0].wanted
        axes.plot(steps, values, ".-", color=figure_style.CHAINS[0], lw=1.4)
        axes.axhline(wanted, **figure_style.DASHED)
        last = "step" if axes is panels[-1] else ""
        figure_style.label(axes, last, "", f"{row[0].name} (wanted: {wanted:g})")
        ends = np.tile([float(row[0].name.startswith("R-hat")), wanted], (len(row), 1))
        axes.set_ylim(figure_style.settled_range(values[:, None], ends))
    return figure


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


def thinned(length: int, most: int) -> np.ndarray:
    """Return every k-th of so many places, the first included, at most `most` of them."""
    return np.arange(0, length, max(1, -(-length // most)))


def name_of_ladder(posterior: "Posterior") -> str:
    """Return the quantity that makes the ladder, "learning_rate" or "temperature"."""
    temperatures, adapts = posterior.temperatures, posterior.metadata.resolved.adapts
    differ = posterior.num_replicas > 1 and np.any(temperatures != temperatures[0, 0])
    tempered = differ and np.all(temperatures > 0) and adapts != "learning_rate"
    return "temperature" if tempered or adapts == "temperature" else "learning_rate"


def verdict_rates(
    history: History, counted_from: int, swap_every: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the last step of each interval, and verdict rates (chain, interval, pair), per attempt
    to swap.

    Points of the history are merged into a few intervals to reduce the noise of the rates.
    """
    steps = history["step"]
    spacing = steps[:1].sum()
    few = -(-_FEW_ATTEMPTS * swap_every // max(spacing, 1))
    merged = max(1, -(-len(steps) // _MAX_INTERVALS), min(few, len(steps)))
    ends = np.arange(len(steps) - 1, -1, -merged)[::-1]
    ends = ends[steps[ends] - counted_from >= merged * spacing / 2]  # no very short interval
    attempts = num_attempts(counted_from, steps[ends], swap_every)
    if not np.any(attempts > 0):
        return np.zeros(0), np.zeros((0, 0, 0))
    verdicts = np.diff(history["verdicts"][:, ends], axis=1, prepend=0)
    return steps[ends], verdicts / np.diff(attempts, prepend=0)[:, None]


def bin_edges(values: np.ndarray) -> np.ndarray:
    """Return the edges of the histogram of draws (chain, draw) that are finite."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.linspace(0, 1, 11)
    num_bins = int(np.clip(2 * np.sqrt(values.shape[1]), 10, 60))
    return np.histogram_bin_edges(finite.astype(float), num_bins)


def density(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the density of the finite values in each bin."""
    finite = values[np.isfinite(values)]
    return np.histogram(finite, edges)[0] / max(finite.size, 1) / np.diff(edges)
