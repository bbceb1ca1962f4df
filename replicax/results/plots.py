"""Figures of a run and of the 25 modes, drawn from records alone.

All are `matplotlib.figure.Figure` objects of their own: no pyplot, no global state.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.results import figure_style as panels
from replicax.run.round_trips import trip_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from replicax.results.posterior import Posterior

_MAX_POINTS = 4000  # along one line
_MAX_INTERVALS = 50  # over each of which a rate is averaged
_MAX_COMPONENTS = 4

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
        figures["paths"] = panels.new_figure(10, 3.6)
        title = f"Index process: the rung of every replica{_of_chain(posterior)}"
        draw_paths(figures["paths"].add_subplot(), rung_of[0], title)
        figures["trips"] = _plot_trips(posterior, rung_of)
    if posterior.num_draws:
        figures["draws"] = _plot_draws(posterior)
    for name, figure in figures.items():
        if out is not None:
            panels.save(figure, Path(out) / f"{name}.png")
    return figures


def plot_modes25(
    positions: np.ndarray, path: str | Path | None = None, title: str = "25 modes"
) -> "Figure":
    """The 25-mode posterior as it is and as sampled: densities, and the masses of the modes.

    Args:
        positions: draws, with any leading axes  (..., 2).
        path: where to write the figure as PNG.
        title: stands before the total variation between the mode masses.
    """
    from replicax import targets

    positions = panels.as_positions(positions)
    truth = targets.modes25_truth(points_per_unit=50)
    masses, distance = targets.mode_masses(positions), targets.mode_distance(positions, truth)
    figure = panels.new_figure(13, 4.3)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.45))
    panels.draw_density(left, None, "Truth")
    image = panels.draw_density(middle, positions, f"Sampled ({len(positions):,} draws)")
    figure.colorbar(image, ax=(left, middle), label="density", extend="max", pad=0.02, aspect=30)
    order = np.lexsort((np.arange(25), -truth[:25].round(6)))
    seen, true = (mass[order] / max(mass[:25].sum(), 1e-30) for mass in (masses, truth))
    right.bar(range(25), seen, width=0.72, color=panels.CHAINS[0], label="sampled")
    right.plot(range(25), true, "_", ms=11, mew=2, color=panels.INK, label="truth")
    names = ["{:.0f}, {:.0f}".format(*targets.MODES[mode]).replace("-", "−") for mode in order]
    right.set_xticks(range(25), names, rotation=90)
    outside = f"mass outside: {masses[25]:.1%}, truth {truth[25]:.1%}"
    panels.label(right, "mode x, y (heaviest first)", "mass among the 25", f"25 modes ({outside})")
    right.tick_params(axis="x", labelsize=7.5)
    panels.legend(right)
    figure.suptitle(f"{title}: mode TV {distance:.3f}", x=0.012, ha="left", weight="bold")
    if path is not None:
        panels.save(figure, Path(path))
    return figure


def draw_paths(
    axes: "Axes", rung_of: np.ndarray, title: str = "", num_steps: int | None = None
) -> None:
    """The last steps of an index process (step, replica): all in grey, one replica in colour.

    That one has the median number of round trips among all replicas; dots mark where they end.
    `num_steps` is by default long enough for about six round trips of each replica.
    """
    total, num_replicas = rung_of.shape
    ends = trip_ends(rung_of)
    trips = sum(map(len, ends))
    if num_steps is None:
        num_steps = max(100, 6 * total * num_replicas // trips) if trips else total
    start = max(0, total - num_steps)
    ends = [done[done > start] for done in ends]
    chosen = int(np.argsort([len(done) for done in ends], kind="stable")[num_replicas // 2])
    count = len(ends[chosen])
    steps = np.arange(start, total + 1, -(-(total - start) // _MAX_POINTS))
    paths = np.where(steps[:, None] == 0, np.arange(num_replicas), rung_of[steps - 1])
    others = [replica for replica in panels.spread(num_replicas) if replica != chosen]
    axes.plot(steps, paths[:, others], color="#b5b5b5", lw=0.4, alpha=0.6)
    axes.plot(steps, paths[:, chosen], color=panels.ACCENT, lw=1.5)
    name = f"replica {chosen}: {count} round trip{'s' * (count != 1)}"
    axes.plot(ends[chosen], np.zeros(count), "o", ms=7, color=panels.ACCENT, mec="white",
              clip_on=False, in_layout=False, zorder=5, label=name)  # fmt: skip
    panels.label(axes, "step", "rung (0 = coldest)", title)
    axes.grid(False)
    axes.set_xlim(start, total)
    axes.set_ylim(-0.02 * (num_replicas - 1), 1.02 * (num_replicas - 1))
    axes.set_yticks(np.unique(np.linspace(0, num_replicas - 1, 6).round().astype(int)))
    panels.legend(axes, loc="lower right", bbox_to_anchor=(1, 1), borderpad=0)


def _plot_ladder(posterior: "Posterior", history: History) -> "Figure":
    """Learning rates, or temperatures where those make the ladder: history and end."""
    adapts, count = posterior.options["adapts"], posterior.num_replicas
    rates, temperatures = posterior.learning_rates, posterior.temperatures
    same_rate = count > 1 and np.all(rates == rates[:, :1])
    tempered = same_rate and np.all(temperatures > 0) and np.any(temperatures != temperatures[0, 0])
    name, end = "learning_rate", rates
    if adapts == "temperature" or tempered:
        name, end = "temperature", temperatures
    word = name.replace("_", " ")
    figure, over_time, at_end = panels.two_panels()
    over_time.set_yscale("log")
    if history["step"].size:
        for rung, colour in panels.cold_to_hot(count):
            over_time.plot(history["step"], history[name][0, :, rung], color=colour, lw=1.4)
    else:
        _say_no_history(over_time, posterior)
    tuned = "self-tuned" if adapts == name else "fixed"
    title = f"{word.capitalize()} of every rung, {tuned}{_of_chain(posterior)}"
    panels.label(over_time, "step", word, title)
    over_time.set_xlim(0, posterior.num_steps)
    panels.scatter(at_end, end, "o")
    panels.label(at_end, "rung (0 = coldest)", "", f"At the end{_all_chains(posterior)}")
    return figure


def _plot_rates(posterior: "Posterior", history: History) -> "Figure":
    """How often each pair says yes, over time and overall, and how often it swaps."""
    options, window = posterior.options, posterior.window
    figure, over_time, at_end = panels.two_panels()
    steps, rates = _verdict_rates(history, options["burn_in"])
    if steps.size:
        for pair, colour in panels.cold_to_hot(posterior.num_replicas - 1):
            over_time.plot(steps, rates[:, :, pair].mean(axis=0), color=colour, lw=1.2)
    else:
        _say_no_history(over_time, posterior)
    if options["rule"] == "deterministic" or options["adapts"] is not None:
        target = options["target_swap_rate"]
        for axes in (over_time, at_end):
            axes.axhline(target, label=f"target {target:g}", **panels.DASHED)
    mean = f", mean of {posterior.num_chains} chains" if posterior.num_chains > 1 else ""
    panels.label(over_time, "step", "rate", f"How often a pair says yes, per step{mean}")
    over_time.set_xlim(0, posterior.num_steps)
    over_time.set_ylim(0, 1.03)
    panels.scatter(at_end, posterior.verdict_rate, "o", "says yes, per step")
    turn = f"swaps, per window of {window} steps" if window > 1 else "swaps, per turn"
    panels.scatter(at_end, posterior.window_swap_rate, "d", turn, hollow=True)
    panels.label(at_end, "pair (0 = coldest)", "", f"After burn-in{_all_chains(posterior)}")
    panels.legend_below(at_end)
    return figure


def _verdict_rates(history: History, burn_in: int) -> tuple[np.ndarray, np.ndarray]:
    """Differences of the counts so far: last step of each interval, (chain, interval, pair).

    Points are joined until the intervals are few, so that a rate is more than noise.
    """
    steps = history["step"]
    joined = max(1, -(-len(steps) // _MAX_INTERVALS))
    at = np.arange(len(steps) - 1, -1, -joined)[::-1]
    at = at[steps[at] - burn_in >= joined * steps[:1].sum() / 2]  # a sliver would be noise
    if at.size == 0:
        return np.zeros(0), np.zeros((0, 0, 0))
    counted = np.diff(steps[at] - burn_in, prepend=0)
    yes = np.diff(history["verdicts"][:, at], axis=1, prepend=0)
    return steps[at], yes / counted[:, None]


def _plot_buffer(posterior: "Posterior", history: History) -> "Figure":
    """The buffer of each chain. Below zero, swaps send higher energies to the cold rung."""
    figure = panels.new_figure(7.5, 3.6)
    axes = figure.add_subplot()
    axes.axhline(0, color=panels.INK, lw=1)
    values = history["buffer"]
    for chain, style in panels.chain_styles(posterior.num_chains):
        axes.plot(history["step"], values[chain], lw=1.4, **style)
    title = "Buffer of the swap rule"
    settled = np.append(values[:, values.shape[1] // 10 :], 0.0)
    low, high = np.nanmin(settled), np.nanmax(settled)
    room = (high - low) / 3
    if np.isfinite(room) and room > 0 and np.nanmax(values) > high + 3 * room:
        axes.set_ylim(low - room / 2, high + room)
        title += f" (from {np.nanmax(values):.3g}, off the scale, at the start)"
    panels.label(axes, "step", "buffer (unit of the energy)", title)
    axes.set_xlim(0, posterior.num_steps)
    panels.legend_below(axes)
    return figure


def _plot_trips(posterior: "Posterior", rung_of: np.ndarray) -> "Figure":
    """Round trips of all replicas so far, beside what Lemma 1 expects at the swap rates seen."""
    from replicax.results.summary import expected_trips

    figure = panels.new_figure(7.5, 4)
    axes = figure.add_subplot()
    num_steps = rung_of.shape[1]
    shown = np.unique(np.linspace(0, num_steps, _MAX_POINTS + 1).astype(int))
    for chain, style in panels.chain_styles(posterior.num_chains):
        ends = np.sort(np.concatenate(trip_ends(rung_of[chain])))
        axes.plot(shown, np.searchsorted(ends, shown, side="right"), lw=1.4, **style)
    expected = expected_trips(posterior)
    if expected is not None:
        rate = np.mean(expected).round(3)
        axes.plot([0, num_steps], [0, rate * num_steps / 1000], **panels.DASHED,
                  label=f"Lemma 1 at the swap rates seen: {rate:.3g} per 1,000 steps")  # fmt: skip
    mean = posterior.round_trips.mean() / num_steps * 1000
    panels.label(axes, "step", "round trips so far", f"Round trips: {mean:.3g} per 1,000 steps")
    axes.set_xlim(0, num_steps)
    top = max(1.0, axes.get_ylim()[1])
    axes.set_ylim(-0.02 * top, top)
    panels.legend(axes, loc="upper left")
    return figure


def _plot_draws(posterior: "Posterior") -> "Figure":
    """Traces and marginals of the first components and the energy; a map if there are just two."""
    components = list(posterior.components().items())
    rows = [*components[:_MAX_COMPONENTS], ("energy", posterior.energies)]
    is_plane = len(components) == 2
    ratios = (3, 1, 2.3) if is_plane else (3, 1)
    figure = panels.new_figure(14 if is_plane else 9.5, 1 + 1.6 * len(rows))
    grid = figure.add_gridspec(len(rows), len(ratios), width_ratios=ratios)
    trace: Any = None
    for row, (name, values) in enumerate(rows):
        trace = figure.add_subplot(grid[row, 0], sharex=trace)
        marginal = figure.add_subplot(grid[row, 1], sharey=trace)
        _draw_marginal(values, trace, marginal)
        name = name if len(name) <= 20 else f"…{name[-19:]}"
        panels.label(trace, "draw", name, "" if row else "Draws of the coldest rung")
        panels.label(marginal, "density", "", "" if row else "Marginals")
        marginal.tick_params(labelleft=False)
        if row == 0:
            panels.legend_below(marginal)
        if row < len(rows) - 1:
            trace.tick_params(labelbottom=False)
            trace.set_xlabel("")
            marginal.set_xlabel("")
    if is_plane:
        _draw_plane(figure.add_subplot(grid[:, 2]), components)
    return figure


def _draw_marginal(values: np.ndarray, trace: "Axes", marginal: "Axes") -> None:
    num_chains, num_draws = values.shape
    kept = np.arange(0, num_draws, -(-num_draws // _MAX_POINTS))
    size = np.clip(120 / np.sqrt(num_chains * len(kept)), 2.5, 6)
    num_bins = int(np.clip(2 * np.sqrt(num_draws), 10, 60))
    bins = np.histogram_bin_edges(values[np.isfinite(values)], num_bins)
    for chain, style in panels.chain_styles(num_chains):
        trace.plot(kept, values[chain, kept], ".", ms=size, mew=0, **style)
        finite = values[chain][np.isfinite(values[chain])]
        height = np.histogram(finite, bins)[0] / max(finite.size, 1) / np.diff(bins)
        marginal.stairs(height, bins, orientation="horizontal", lw=1.1, **style)


def _draw_plane(axes: "Axes", components: list[tuple[str, np.ndarray]]) -> None:
    (x_name, x), (y_name, y) = components
    finite = np.isfinite(x) & np.isfinite(y)
    x, y, total = x[finite], y[finite], int(finite.sum())
    if total < 200:
        axes.plot(x, y, "o", ms=4, mew=0, color=panels.CHAINS[0])
    else:
        cells = int(np.clip(0.8 * np.sqrt(total), 8, 70))
        shown = axes.hexbin(x, y, gridsize=cells, mincnt=1, vmin=0, cmap="magma_r", lw=0.1)
        axes.figure.colorbar(shown, ax=axes, label="draws in a cell", pad=0.02, aspect=40)
    panels.label(axes, x_name, y_name, f"All {total:,} draws")


def _say_no_history(axes: "Axes", posterior: "Posterior") -> None:
    every = posterior.options["history_every"]
    panels.say(axes, f"no history yet: a point is recorded every {every} steps")


def _of_chain(posterior: "Posterior") -> str:
    return f" (chain 0 of {posterior.num_chains})" if posterior.num_chains > 1 else ""


def _all_chains(posterior: "Posterior") -> str:
    return f", all {posterior.num_chains} chains" if posterior.num_chains > 1 else ""
