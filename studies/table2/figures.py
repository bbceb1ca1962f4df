"""Figures of Table 2: metrics by epoch, the exchange, round trips and calibration."""

from typing import Any

import numpy as np

import replicax as rx
from replicax.results import figure_style
from studies.table2.numbers import (
    REPEATS,
    Trips,
    curve_of,
    epoch_rates,
    has_average,
)
from studies.table2.paper import NAMES

_SMOOTHED = 5  # epochs
_MARGIN = 0.15  # of the height of the averages' curves
_SPAN = 20  # epochs over which verdicts are counted: about 20 of them at the paper's target
_COLOURS = dict(zip(NAMES, (figure_style.INK, *figure_style.CHAINS), strict=False))


def draw_all(
    model: str, runs: dict[str, rx.Trained | None], trips: dict[str, Trips]
) -> dict[str, Any]:
    """Return the figures of one model by name; methods without runs are left out."""
    averaged = {name: run for name, run in runs.items() if run is not None and has_average(run)}
    many = {name: run for name, run in averaged.items() if run.num_replicas > 1}
    exchanged = {name: run for name, run in many.items() if name in trips}
    figures = {}
    if averaged:
        curves = {name: curve_of(run) for name, run in averaged.items()}
        figures["epochs"] = draw_epochs(model, curves)
        figures["reliability"] = draw_reliability(model, averaged)
    if many:
        figures["rungs"] = draw_rungs(model, many)
    if exchanged:
        figures["exchange"] = draw_exchange(model, exchanged)
        figures["trips"] = draw_trips(model, {name: trips[name] for name in exchanged})
    return {f"{model}-{name}": figure for name, figure in figures.items()}


def _single_network(method: str) -> str:
    return "coldest network" if method.startswith("deo") else "one network"


def running_mean(values: np.ndarray, span: int) -> np.ndarray:
    """Return the mean over the last `span` points, fewer at the beginning  (point, ...)."""
    sums = np.cumsum(values, axis=0, dtype=float)
    before = np.concatenate([np.zeros_like(sums[:span]), sums[:-span]])[: len(sums)]
    count = np.minimum(np.arange(1, len(sums) + 1), span)
    return (sums - before) / count.reshape(-1, *[1] * (values.ndim - 1))


def draw_epochs(model: str, curves: dict[str, dict[str, Any]]) -> Any:
    """Draw the curves of `numbers.curve_of` by method, on one axis of equal budgets."""
    figure = figure_style.new_figure(11, 4.4)
    row = figure.subplots(1, 2)
    for axes, name, scale, y in zip(
        row, ("accuracy", "nll"), (100, 1), ("accuracy, %", "NLL per image, nats"), strict=True
    ):
        for method, curve in curves.items():
            colour = _COLOURS[method]
            lines = {key: scale * np.array(curve[key], float) for key in (name, f"average_{name}")}
            axes.plot(curve["epochs"], lines[f"average_{name}"], "o-", markevery=[-1], ms=6,
                      color=colour, lw=2, label=f"{NAMES[method]}, average")  # fmt: skip
            axes.plot(curve["epochs"], lines[name], color=colour, lw=0.8, alpha=0.5, zorder=1,
                      label=f"{NAMES[method]}, {_single_network(method)}")  # fmt: skip
        averages = [scale * np.array(one[f"average_{name}"], float) for one in curves.values()]
        low, high = np.nanmin(np.concatenate(averages)), np.nanmax(np.concatenate(averages))
        margin = _MARGIN * (high - low) or _MARGIN
        axes.set_ylim(low - margin, high + margin)  # cycles begin far outside
        title = f"{model}: {'accuracy' if name == 'accuracy' else 'NLL'}"
        figure_style.label(axes, "epochs of all networks together", y, title)
    handles, labels = row[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(curves)),
                  frameon=False, fontsize=9, labelcolor=figure_style.INK)  # fmt: skip
    by = " and ".join(dict.fromkeys(curve["by"] for curve in curves.values()))
    figure.set_label(
        f"{model}: test accuracy and NLL, of the coldest network (thin) and of the average of "
        f"networks so far (bold, to its last point), by {by}, without the start networks. Points "
        "of all methods above each other have cost the same: ten networks take ten epochs for one "
        "of a single network."
    )
    return figure


def draw_rungs(model: str, runs: dict[str, rx.Trained]) -> Any:
    figure = figure_style.new_figure(3.7 * len(runs), 3.8)
    row = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    for axes, (method, run) in zip(row, runs.items(), strict=True):
        epoch, hottest = run.epochs["epoch"], run.num_replicas - 1
        smooth = running_mean(100 * run.epochs["accuracy"], _SMOOTHED)
        ends = {0: "rung 0, coldest", hottest: f"rung {hottest}, hottest"}
        for rung, colour in figure_style.cold_to_hot(run.num_replicas):
            axes.plot(epoch, smooth[:, rung], color=colour, lw=1.3, label=ends.get(rung))
        figure_style.label(axes, "epoch", "accuracy, %" if axes is row[0] else "", NAMES[method])
    figure_style.legend_below(row[0])
    figure.set_label(
        f"{model}: test accuracy of the single network on every rung, cold (dark) to hot (light), "
        f"mean over the {_SMOOTHED} epochs before. Networks of an ensemble have one learning rate, "
        "and rungs are their numbers."
    )
    return figure


def draw_exchange(model: str, runs: dict[str, rx.Trained]) -> Any:
    figure = figure_style.new_figure(5.2 * len(runs), 6.4)
    grid = figure.subplots(2, len(runs), sharey="row", sharex="col", squeeze=False)
    for place, (method, run) in enumerate(runs.items()):
        above, below = grid[:, place]
        epochs, rates = epoch_rates(run, _SPAN)
        ladder = run.history["learning_rate"][0]
        at = run.history["step"] / run.options["history_every"]
        above.set_yscale("log")
        for rung, colour in figure_style.cold_to_hot(run.num_replicas):
            above.plot(at, ladder[:, rung], color=colour, lw=1.2)
        for pair, colour in figure_style.cold_to_hot(run.num_replicas - 1):
            below.plot(epochs, 100 * rates[:, pair], color=colour, lw=1)
        target = 100 * run.options["target_swap_rate"]
        below.axhline(target, **figure_style.DASHED, label=f"target, {target:g} %")
        first = place == 0
        figure_style.label(above, "", "learning rate" if first else "", f"{NAMES[method]}: ladder")
        figure_style.label(below, "epoch", "rule accepts, % of steps" if first else "",
                     f"verdict rate by pair, {_SPAN} epochs before")  # fmt: skip
    figure_style.legend_below(grid[1, 0])
    figure.set_label(
        f"{model}: learning rates of the rungs and how often neighbours' energies asked for a swap "
        f"(mean over the {_SPAN} epochs before), cold (dark) to hot (light), with the target."
    )
    return figure


def draw_reliability(model: str, runs: dict[str, rx.Trained]) -> Any:
    figure = figure_style.new_figure(3.6 * len(runs), 3.9)
    row = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    for axes, (method, run) in zip(row, runs.items(), strict=True):
        axes.plot([0, 1], [0, 1], **figure_style.DASHED, label="calibrated")
        for by, colour in zip(("logits", "probabilities"), figure_style.CHAINS, strict=False):
            bins = rx.predict.reliability(run.log_probabilities(by), run.labels)
            axes.plot(bins.confidence, bins.accuracy, "o-", color=colour, ms=4, lw=1.2,
                      label=f"average by {by}")  # fmt: skip
        figure_style.label(axes, "confidence", "accuracy" if axes is row[0] else "", NAMES[method])
        axes.set(xlim=(0, 1), ylim=(0, 1))
        axes.set_aspect("equal")
    figure_style.legend_below(row[0])
    figure.set_label(
        f"{model}: how often predictions of a confidence are right, without the start networks. "
        "Above the dashed line an average is less sure than it could be."
    )
    return figure


def draw_trips(model: str, trips: dict[str, Trips]) -> Any:
    figure = figure_style.new_figure(4.6 * len(trips), 3.6)
    row = figure.subplots(1, len(trips), sharey=True, squeeze=False)[0]
    most = max(max(one.simulated.max(), one.counted, one.long_run) for one in trips.values())
    for axes, (method, one) in zip(row, trips.items(), strict=True):
        values, counts = np.unique(one.simulated, return_counts=True)
        axes.bar(values, counts / len(one.simulated), color=figure_style.FAINT, width=0.9,
                 edgecolor=figure_style.SOFT,
                 label=f"coins of the same rates, {REPEATS:,} times")  # fmt: skip
        axes.axvline(one.counted, color=figure_style.ACCENT, lw=2, label="counted")
        axes.axvline(one.long_run, **figure_style.DASHED, label="Lemma 1's long-run rate")
        axes.set_xlim(-0.6, most + 0.6)
        axes.locator_params(axis="x", integer=True)
        figure_style.label(axes, "round trips in the run", "share" if axes is row[0] else "",
                     NAMES[method])  # fmt: skip
    figure_style.legend_below(row[0])
    figure.set_label(
        f"{model}: round trips of all replicas in the whole run, beside runs of the index process "
        "alone with the same rates, steps and start, and beside Lemma 1's long-run rate."
    )
    return figure
