"""Figures of a run and of the 25 modes, drawn from records alone.

All are `matplotlib.figure.Figure` objects: no pyplot, no global state.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.results import draw_plots, figure_style
from replicax.results.mixing import exchanges
from replicax.run.counters import num_attempts
from replicax.run.round_trips import trip_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from replicax.results.posterior import Posterior

_MAX_POINTS = 4000  # points along one line
_MAX_INTERVALS = 50  # intervals over which rates are averaged
_FEW_ATTEMPTS = 10  # swap attempts in such an interval, at least
_MAX_MOVES = 400  # moves of one replica that can be distinguished in a figure
_MAX_GREY_MOVES = 2000  # moves of all grey replicas

History = dict[str, np.ndarray]


def plot_posterior(
    posterior: "Posterior", out: str | Path | None = None, var_names: Any = None
) -> dict[str, "Figure"]:
    """Return figures by name; write them as PNG into the folder `out`.

    They are `ladder`, `rates`, `buffer`, `paths` (the index process), `trips` and `draws`. Figures
    without data are left out, such as `rates` for a run without exchange. `var_names`: the
    parameters in `draws`.
    """
    history, resolved = posterior.history, posterior.metadata.resolved
    figures = {"ladder": _plot_ladder(posterior, history)}
    if exchanges(posterior):
        figures["rates"] = _plot_rates(posterior, history)
        if resolved.rule == "deterministic" and history["step"].size:
            figures["buffer"] = _plot_buffer(posterior, history)
        rung_of = posterior.rung_of
        figures["paths"] = figure_style.new_figure(10, 3.6)
        title = f"Index process: the rungs of replicas{_of_chain(posterior)}"
        draw_paths(figures["paths"].add_subplot(), rung_of[0], title)
        figures["trips"] = _plot_trips(posterior, rung_of)
    if posterior.num_draws:
        figures["draws"] = draw_plots.plot_draws(posterior, var_names)
    for name, figure in figures.items():
        if out is not None:
            figure_style.save(figure, Path(out) / f"{name}.png")
    return figures


def plot_modes25(
    positions: np.ndarray, path: str | Path | None = None, title: str = "25 modes"
) -> "Figure":
    """Plot the 25-mode posterior beside its samples: densities, and masses of the modes.

    Args:
        positions: draws, with any leading axes  (..., 2).
        path: file to write the figure to, as PNG.
        title: is followed by the total variation between the mode masses.
    """
    from replicax import targets

    positions = figure_style.as_positions(positions)
    truth = targets.modes25_truth(points_per_unit=50)
    masses, distance = targets.mode_masses(positions), targets.mode_distance(positions, truth)
    figure = figure_style.new_figure(13, 4.3)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.45))
    figure_style.draw_density(left, None, "Truth")
    image = figure_style.draw_density(middle, positions, f"Sampled ({len(positions):,} draws)")
    figure.colorbar(image, ax=(left, middle), label="density", extend="max", pad=0.02, aspect=30)
    order = np.lexsort((np.arange(25), -truth[:25].round(6)))
    sampled, true = (mass[order] / max(mass[:25].sum(), 1e-30) for mass in (masses, truth))
    right.bar(range(25), sampled, width=0.72, color=figure_style.CHAINS[0], label="sampled")
    right.plot(range(25), true, "_", ms=11, mew=2, color=figure_style.INK, label="truth")
    names = ["{:.0f}, {:.0f}".format(*targets.MODES[mode]).replace("-", "−") for mode in order]
    right.set_xticks(range(25), names, rotation=90)
    right_title = f"25 modes (mass outside: {masses[25]:.1%}, truth {truth[25]:.1%})"
    figure_style.label(right, "mode x, y (heaviest first)", "mass among the 25", right_title)
    right.tick_params(axis="x", labelsize=7.5)
    figure_style.legend(right)
    figure.suptitle(f"{title}: mode TV {distance:.3f}", x=0.012, ha="left", weight="bold")
    if path is not None:
        figure_style.save(figure, Path(path))
    return figure


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
    others = [replica for replica in figure_style.spread(paths.shape[1]) if replica != chosen]
    if not others:
        return others
    usual = max(float(np.mean(moves[others])), 1e-9)
    count = int(np.clip(_MAX_GREY_MOVES / usual, 2, len(others)))
    return [
        others[i] for i in np.unique(np.linspace(0, len(others) - 1, count).round().astype(int))
    ]


def _plot_ladder(posterior: "Posterior", history: History) -> "Figure":
    """Plot learning rates, or temperatures if those form the ladder: history and end."""
    adapts, count = posterior.metadata.resolved.adapts, posterior.num_replicas
    name = name_of_ladder(posterior)
    end = posterior.temperatures if name == "temperature" else posterior.learning_rates
    word = name.replace("_", " ")
    figure, over_time, at_end = figure_style.two_panels()
    over_time.set_yscale("log")
    if history["step"].size:
        for rung, colour in figure_style.cold_to_hot(count):
            over_time.plot(history["step"], history[name][0, :, rung], color=colour, lw=1.4)
    else:
        _note_no_history(over_time, posterior)
    tuned = "self-tuned" if adapts == name else "fixed"
    title = f"{word.capitalize()} of every rung, {tuned}{_of_chain(posterior)}"
    figure_style.label(over_time, "step", word, title)
    over_time.set_xlim(0, posterior.num_steps)
    figure_style.scatter(at_end, end, "o")
    figure_style.label(at_end, "rung (0 = coldest)", "", f"At the end{_all_chains(posterior)}")
    figure_style.colour_key(at_end, count, "rung (0 = coldest)")
    return figure


def name_of_ladder(posterior: "Posterior") -> str:
    """Return the quantity that differs by rung, "learning_rate" or "temperature"."""
    rates, temperatures = posterior.learning_rates, posterior.temperatures
    same_rate = posterior.num_replicas > 1 and np.all(rates == rates[:, :1])
    tempered = same_rate and np.all(temperatures > 0) and np.any(temperatures != temperatures[0, 0])
    adapts = posterior.metadata.resolved.adapts
    return "temperature" if tempered or adapts == "temperature" else "learning_rate"


def _plot_rates(posterior: "Posterior", history: History) -> "Figure":
    """Plot how often the rule accepts for each pair, over time and overall, and how often it
    swaps."""
    resolved, window = posterior.metadata.resolved, posterior.window
    figure, over_time, at_end = figure_style.two_panels()
    steps, rates = verdict_rates(history, resolved.counted_from, resolved.swap_every)
    if steps.size:
        for pair, colour in figure_style.cold_to_hot(posterior.num_replicas - 1):
            over_time.plot(steps, rates[:, :, pair].mean(axis=0), color=colour, lw=1.2)
    else:
        _note_no_history(over_time, posterior)
    if has_target(posterior):
        target = posterior.metadata.resolved.target_swap_rate
        for axes in (over_time, at_end):
            axes.axhline(target, label=f"target {target:g}", **figure_style.DASHED)
    mean = f", mean of {posterior.num_chains} chains" if posterior.num_chains > 1 else ""
    per = attempt_of(posterior)
    figure_style.label(over_time, "step", "rate", f"How often the rule accepts, {per}{mean}")
    over_time.set_xlim(0, posterior.num_steps)
    over_time.set_ylim(0, 1.03)
    figure_style.scatter(at_end, posterior.verdict_rate, "o", f"rule accepts, {per}")
    turn = f"swaps, per window of {window} steps" if window > 1 else "swaps, per turn"
    figure_style.scatter(at_end, posterior.window_swap_rate, "d", turn, hollow=True)
    figure_style.label(at_end, "pair (0 = coldest)", "", f"After burn-in{_all_chains(posterior)}")
    figure_style.legend_below(at_end)
    figure_style.colour_key(at_end, posterior.num_replicas - 1, "pair (0 = coldest)")
    return figure


def has_target(posterior: "Posterior") -> bool:
    """Return whether the rates of pairs are adapted to `target_swap_rate`; temperatures adapt to
    equal rejection instead."""
    resolved = posterior.metadata.resolved
    return resolved.rule == "deterministic" or resolved.adapts == "learning_rate"


def attempt_of(posterior: "Posterior") -> str:
    """Return the unit of verdict rates in words: per step, or per attempt to swap."""
    return "per step" if posterior.metadata.resolved.swap_every == 1 else "per attempt"


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
    from replicax.results.summary import expected_trips

    figure = figure_style.new_figure(7.5, 4)
    axes = figure.add_subplot()
    num_steps = rung_of.shape[1]
    start = num_steps - posterior.counted_steps
    steps = np.unique(np.linspace(0, num_steps, _MAX_POINTS + 1).astype(int))
    for chain, style in figure_style.chain_styles(posterior.num_chains):
        ends = np.sort(np.concatenate(trip_ends(rung_of[chain])))
        ends = ends[ends > start]
        axes.plot(steps, np.searchsorted(ends, steps, side="right"), lw=1.4, **style)
    expected = expected_trips(posterior)
    if expected is not None:
        rate = np.mean(expected).round(3)
        name = f"Lemma 1 at the measured swap rates: {rate:.3g} per 1,000 steps"
        end = float(rate) * posterior.counted_steps / 1000
        axes.plot([start, num_steps], [0, end], **figure_style.DASHED, label=name)
    mean = posterior.round_trips.mean() / posterior.counted_steps * 1000
    title = f"Round trips: {mean:.3g} per 1,000 steps"
    figure_style.label(axes, "step", "round trips so far", title)
    axes.set_xlim(0, num_steps)
    top = max(1.0, axes.get_ylim()[1])
    axes.set_ylim(-0.02 * top, top)
    figure_style.legend(axes, loc="upper left")
    return figure


def _note_no_history(axes: "Axes", posterior: "Posterior") -> None:
    every = posterior.metadata.resolved.history_every
    figure_style.note(axes, f"no history yet: a point is recorded every {every} steps")


def _of_chain(posterior: "Posterior") -> str:
    return f" (chain 0 of {posterior.num_chains})" if posterior.num_chains > 1 else ""


def _all_chains(posterior: "Posterior") -> str:
    return f", all {posterior.num_chains} chains" if posterior.num_chains > 1 else ""
