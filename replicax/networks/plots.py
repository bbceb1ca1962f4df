"""Figures of a training: epochs, ladder, exchange, calibration."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.networks.likelihoods import Likelihood
from replicax.results import figure_style, plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from replicax.networks.trained import Trained

_SETTLED = 0.2  # fraction of epochs before which values may lie off the scale
_RARE = 0.05  # fraction of values at either end that may lie off the scale
_FEW = 8  # verdicts for a rate that is not mostly noise


def plot_training(trained: "Trained", out: str | Path | None = None) -> dict[str, "Figure"]:
    """Return figures by name; write them as PNG into the folder `out`.

    They are `epochs`, `ladder`, `exchange`, and for the calibration `reliability` and
    `reliability-logits`, or `coverage` for a regression. Figures without data are left out, such as
    `ladder` for a run without exchange.
    """
    figures: dict[str, Figure] = {}
    likelihood = trained.likelihood
    if likelihood is not None and len(trained.epochs["epoch"]):
        figures["epochs"] = _plot_epochs(trained, likelihood)
    history = trained.history
    if _has_ladder(trained) and history["step"].size:
        figures["ladder"] = _plot_ladder(trained, history)
        figures["exchange"] = _plot_exchange(trained, history)
    if likelihood is not None and float(trained.average.weight):
        figures |= likelihood.figures(trained.average, trained._final("labels"))
    for name, figure in figures.items():
        if out is not None:
            figure_style.save(figure, Path(out) / f"{name}.png")
    return figures


def _has_ladder(trained: "Trained") -> bool:
    return trained.metadata.resolved.schedule != "none" and trained.num_replicas > 1


def _plot_epochs(trained: "Trained", likelihood: Likelihood) -> "Figure":
    """Plot each score on the test data in a panel: every network, and the average so far."""
    epochs = trained.epochs
    figure = figure_style.new_figure(10.5, 4.7)
    panels = figure.subplots(1, len(likelihood.scores))
    for axes, score in zip(panels, likelihood.scores, strict=True):
        networks = score.factor * epochs[score.name]
        always_shown = [networks[:, :1]]
        for line, style in _networks(trained, networks):
            axes.plot(epochs["epoch"], line, **style)
        for by, dashes in zip(likelihood.ways, ("-", (0, (3, 1.2)))):
            if not np.any(epochs["weight"] > 0):
                break
            average = score.factor * epochs[f"average_{score.name}_{by}"]
            values = np.where(epochs["weight"] > 0, average, np.nan)
            always_shown.append(values[:, None])
            way = f", by {by}" if len(likelihood.ways) > 1 else ""
            axes.plot(epochs["epoch"], values, color=figure_style.INK, lw=2, ls=dashes,
                      marker="." if len(values) == 1 else "", zorder=4,
                      label=f"average so far{way}")  # fmt: skip
        title = f"{score.title} on the test data"
        figure_style.label(axes, "epoch", score.title.lower() + score.unit, title)
        _count_epochs(axes, trained)
        _set_limits(axes, networks, np.concatenate(always_shown, axis=1))
    figure_style.legend_below(panels[-1])
    return figure


def _networks(
    trained: "Trained", values: np.ndarray
) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Yield lines (epoch,) with styles: one style per rung on a ladder, otherwise one for all
    networks and one for their mean."""
    count, blue = values.shape[1], figure_style.CHAINS[0]
    marker = {"marker": "."} if len(values) == 1 else {}
    if count == 1:
        yield values[:, 0], {"color": blue, "lw": 1.6, "label": "the network", **marker}
    elif _has_ladder(trained):
        ends = {0: " (coldest)", count - 1: " (hottest)"}
        for rung, colour in figure_style.cold_to_hot(count):
            thick = {"lw": 2.2, "zorder": 3} if rung == 0 else {"lw": 0.8, "alpha": 0.85}
            name = {"label": f"rung {rung}{ends.get(rung, '')}"}
            yield values[:, rung], {"color": colour, **name, **thick, **marker}
    else:
        for index in figure_style.spread(count):
            name = "networks" if index == 0 else None
            faint = {"color": blue, "lw": 0.7, "alpha": 0.5, "label": name}
            yield values[:, index], {**faint, **marker}
        mean = {"color": blue, "lw": 2.2, "zorder": 3, "label": "their mean"}
        yield np.mean(values, axis=1), {**mean, **marker}


def _set_limits(axes: "Axes", networks: np.ndarray, always_shown: np.ndarray) -> None:
    """Set the limits for lines (epoch, line); early and rare values may be outside.

    After the first epochs all of `always_shown` is visible. If the lowest or highest of `networks`
    is not, the title names it.
    """
    settled, kept = (x[int(_SETTLED * len(x)) :] for x in (networks, always_shown))
    settled, kept = settled[np.isfinite(settled)], kept[np.isfinite(kept)]
    if not settled.size:
        return
    bulk = np.concatenate([np.quantile(settled, (_RARE, 1 - _RARE)), kept])
    low, high = float(bulk.min()), float(bulk.max())
    room = max(high - low, 1e-3 * abs(high), 1e-6)
    finite = networks[np.isfinite(networks)]
    if finite.max() > high + room or finite.min() < low - room:
        bottom, top = low - 0.08 * room, high + 0.08 * room
        axes.set_ylim(bottom, top)
        dip, peak = settled.min(), settled.max()
        far = [f"dips to {dip:.3g}"] * bool(dip < bottom) + [f"peaks at {peak:.3g}"] * bool(
            peak > top
        )
        if far:
            before = axes.get_title(loc="left")
            axes.set_title(f"{before} ({', '.join(far)})", loc="left", fontsize=10.5)


def _count_epochs(axes: "Axes", trained: "Trained") -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlim(0, 1.02 * max(trained.num_epochs, 1))


def _plot_ladder(trained: "Trained", history: plots.History) -> "Figure":
    """Plot the history of the rungs, and of the buffer (per mean loss) if the rule has one."""
    epochs, scale = _epochs_of(trained, history["step"]), trained.energy_scale
    tempered = plots.name_of_ladder(trained) == "temperature"
    has_buffer = trained.metadata.resolved.rule == "deterministic"
    figure = figure_style.new_figure(10.5, 4)
    panels = figure.subplots(1, 2)
    marker = "." if len(epochs) == 1 else ""
    rates = scale * history["learning_rate"][0], "learning rate (per mean loss)", "Learning rates"
    heats = (
        history["temperature"][0] * trained.temperature_scale,
        "temperature of the posterior",
        "Temperatures",
    )
    by_rung = [heats] * (tempered or not has_buffer) + [rates] * (not tempered or not has_buffer)
    for axes, (values, name, title) in zip(panels, by_rung):
        axes.set_yscale("log")
        for rung, colour in figure_style.cold_to_hot(trained.num_replicas):
            axes.plot(epochs, values[:, rung], color=colour, lw=1.4, marker=marker)
        figure_style.label(axes, "epoch", name, f"{title} of rungs")
    figure_style.colour_key(panels[len(by_rung) - 1], trained.num_replicas, "rung (0 = coldest)")
    if has_buffer:
        right, line = panels[1], {"color": figure_style.CHAINS[0], "lw": 1.4, "marker": marker}
        right.axhline(0, color=figure_style.INK, lw=1)
        right.plot(epochs, history["buffer"][0] / scale, **line)
        figure_style.label(right, "epoch", "buffer (per mean loss)", "Buffer of the swap rule")
    for axes in panels:
        _count_epochs(axes, trained)
    return figure


def _plot_exchange(trained: "Trained", history: plots.History) -> "Figure":
    """Plot how often the rule accepts and pairs swap, and the index process."""
    figure = figure_style.new_figure(10.5, 6.8)
    grid = figure.add_gridspec(2, 3, width_ratios=(1.6, 1, 1), height_ratios=(1, 1.05))
    over_time = figure.add_subplot(grid[0, 0])
    at_end = figure.add_subplot(grid[0, 1], sharey=over_time)
    swaps, paths = figure.add_subplot(grid[0, 2]), figure.add_subplot(grid[1, :])
    counted, every = trained.metadata.resolved.counted_from, trained.metadata.resolved.swap_every
    steps, rates = plots.verdict_rates(_thinned(trained, history), counted, every)
    marker = "." if len(steps) == 1 else ""
    for pair, colour in figure_style.cold_to_hot(trained.num_replicas - 1) if steps.size else ():
        line = {"color": colour, "lw": 1.2, "marker": marker}
        over_time.plot(_epochs_of(trained, steps), rates[0, :, pair], **line)
    target = trained.metadata.resolved.target_swap_rate
    for axes in (over_time, at_end) if plots.has_target(trained) else ():
        axes.axhline(target, label=f"target {target:g}", **figure_style.DASHED)
    title = f"How often the rule accepts, {plots.attempt_of(trained)}"
    figure_style.label(over_time, "epoch", "rate", title)
    _count_epochs(over_time, trained)
    figure_style.legend(over_time)
    figure_style.scatter(at_end, trained.verdict_rate, "o")
    figure_style.label(at_end, "pair (0 = coldest)", "", "The same, whole run")
    over_time.set_ylim(bottom=0)
    figure_style.scatter(swaps, trained.window_swap_rate, "d", hollow=True)
    window = trained.window
    turn = f"Swaps, per window of {window}" if window > 1 else "Swaps, per turn"
    figure_style.label(swaps, "pair (0 = coldest)", "", turn)
    figure_style.colour_key(swaps, trained.num_replicas - 1, "pair (0 = coldest)")
    swaps.set_ylim(0, 1.03 * max(0.05, 1.1 * float(np.max(trained.window_swap_rate))))
    trips = int(trained.round_trips.sum())
    title = f"Index process: the rungs of replicas; {trips} round trip{'s' * (trips != 1)}"
    plots.draw_paths(paths, trained.rung_of[0], title)
    _mark_epochs(paths, trained)
    return figure


def _thinned(trained: "Trained", history: plots.History) -> plots.History:
    """Return points of the history, far enough apart that the rule accepts a few times in
    between."""
    metadata, resolved = trained.metadata, trained.metadata.resolved
    rate = metadata.resolved.target_swap_rate
    if not plots.has_target(trained):
        rate = max(float(np.mean(trained.verdict_rate)), 0.01) / resolved.swap_every
    expected = rate * resolved.history_every
    kept = slice(None, None, -max(1, round(_FEW / expected)))
    points = np.arange(history["step"].size)[kept][::-1]
    return {"step": history["step"][points], "verdicts": history["verdicts"][:, points]}


def _mark_epochs(axes: "Axes", trained: "Trained") -> None:
    """Label an axis of steps in epochs if it is long enough."""
    from matplotlib.ticker import MaxNLocator

    first, last = (_epochs_of(trained, end) for end in axes.get_xlim())
    if last - first >= 2:
        epochs = [n for n in MaxNLocator(6, integer=True).tick_values(first, last) if n <= last]
        axes.set_xticks([n * _steps_per_epoch(trained) for n in epochs if n >= first])
        axes.xaxis.set_major_formatter(lambda step, _: f"{_epochs_of(trained, step):,.0f}")
        axes.set_xlabel("epoch")


def _epochs_of(trained: "Trained", steps: Any) -> Any:
    return steps / _steps_per_epoch(trained)


def _steps_per_epoch(trained: "Trained") -> int:
    return trained.metadata.steps_per_epoch or 1
