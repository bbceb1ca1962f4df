"""Figures of the mixture study: corrections, swap rates, left masses and one density."""

from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.experiments.mixture.exact import OF_THE_PAPER
from replicax.experiments.shared.measured import Measured
from replicax.experiments.shared.study import Results
from replicax.results import figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MODES = OF_THE_PAPER
_SHOWN = (3.0, 1000), (3.0, 100)  # sigma and window of the density; the first one available


def draw_all(pairs: Results, auto: Results, unbiased: float) -> dict[str, Any]:
    return {
        "correction": _corrections(pairs),
        "mass": _masses(pairs, unbiased),
        "density": _densities(pairs),
        "auto": _auto(pairs, auto, unbiased),
    }


def _by_sigma(pairs: Results) -> dict[float, list[tuple[int, Any]]]:
    """Return windows and records by noise level, in the order of windows."""
    sigmas = sorted({settings["sigma"] for settings, _ in pairs})
    return {
        sigma: sorted(((s["window"], r) for s, r in pairs.where(sigma=sigma)), key=lambda x: x[0])
        for sigma in sigmas
    }


def _log_windows(axes: "Axes", y: str, title: str) -> None:
    from matplotlib.ticker import NullLocator, StrMethodFormatter

    axes.set_xscale("log")
    figure_style.label(axes, "window", y, title)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _corrections(pairs: Results) -> Any:
    figure = figure_style.new_figure(10.5, 4)
    left, right = figure.subplots(1, 2)
    for (sigma, rows), colour in zip(_by_sigma(pairs).items(), figure_style.CHAINS, strict=False):
        windows = [window for window, _ in rows]
        corrections = [record["window_correction"][-1] for _, record in rows]
        left.plot(windows, corrections, "o-", ms=4, color=colour, label=f"σ = {sigma:g}")
        right.plot(windows, [r["exact_swaps"][-1] for _, r in rows], "o-", ms=4, color=colour)
        right.plot(windows, [r["exact_swaps"][0] for _, r in rows], ":", lw=1.2, color=colour)
        sampled = [record["swaps"][-1].mean() for _, record in rows]
        right.plot(windows, sampled, "x", ms=6, color=figure_style.INK)
    _log_windows(left, "best λ", "Correction that restores the left mass")
    right.set_yscale("log")
    _log_windows(right, "swaps per window", "Swaps: corrected, and without correction (dotted)")
    right.yaxis.set_major_locator(_decades())
    right.plot([], [], "x", color=figure_style.INK, label="sampled")
    figure_style.legend(left)
    figure_style.legend(right, loc="lower right")
    figure.set_label(
        "The best λ and the swap rate per window, exact, against window and noise: the paper's "
        "last figure."
    )
    return figure


def _decades() -> Any:
    from matplotlib.ticker import LogLocator

    return LogLocator()


def _masses(pairs: Results, unbiased: float) -> Any:
    figure = figure_style.new_figure(10.5, 4)
    both = figure.subplots(1, 2, sharex=True, sharey=True)
    titles = "Without correction", "With the best λ"
    for row, (axes, title) in enumerate(zip(both, titles, strict=True)):
        axes.axhline(unbiased, **figure_style.DASHED)
        for (sigma, rows), colour in zip(
            _by_sigma(pairs).items(), figure_style.CHAINS, strict=False
        ):
            chosen = [(w, r) for w, r in rows if len(r["left"]) > row]
            windows = [window for window, _ in chosen]
            axes.plot(windows, [r["exact_left"][row] for _, r in chosen], color=colour, lw=1.2)
            sampled = [Measured.of(record["left"][row]) for _, record in chosen]
            means, errors = [m.mean for m in sampled], [2 * m.error for m in sampled]
            shifted = np.array(windows) * 1.1 ** (sigma - 4)
            axes.errorbar(shifted, means, errors, fmt="o", ms=4, lw=1, capsize=2, color=colour,
                          label=f"σ = {sigma:g}")  # fmt: skip
        _log_windows(axes, "" if row else "mass of the left mode", title)
    figure_style.legend(both[0])
    figure.set_label(
        "Left mass: exact (lines) and sampled (± 2 standard errors); dashed: W = 1, unbiased."
    )
    return figure


def _densities(pairs: Results) -> Any:
    figure = figure_style.new_figure(8, 4)
    axes = figure.add_subplot()
    x = _MODES.points()
    width = x[1] - x[0]
    axes.fill_between(x, _MODES.truth() / width, color=figure_style.FAINT, label="target")
    records = {(s["sigma"], s["window"]): record for s, record in pairs}
    sigma, window = next(pair for pair in _SHOWN if pair in records)
    record = records[sigma, window]
    names = "λ = 0", f"λ = {record['window_correction'][1]:.2f}"
    for row, (name, colour) in enumerate(zip(names, figure_style.CHAINS[1::-1], strict=True)):
        axes.plot(x, record["exact_cold"][row] / width, color=colour, lw=1.4, label=name)
        axes.plot(x, record["cold"][row] / width, ".", ms=5, color=colour)
    axes.set_xlim(-7, 6)
    axes.set_ylim(0)
    figure_style.label(axes, "x", "density", f"The cold rung, σ = {sigma:g}, W = {window:,}")
    figure_style.legend(axes, loc="upper left")
    figure.set_label("Density of the cold rung: exact (lines) and sampled (points).")
    return figure


def _auto(pairs: Results, auto: Results, unbiased: float) -> Any:
    figure = figure_style.new_figure(10.5, 4)
    left, right = figure.subplots(1, 2)
    right.axhline(unbiased, **figure_style.DASHED, label="W = 1")
    names = []
    for place, (settings, record) in enumerate(auto):
        solved = pairs.only(sigma=settings["sigma"], window=settings["window"])
        names.append(f"{settings['sigma']:g}\n{settings['window']}")
        spread = place + np.linspace(-0.2, 0.2, record["left"].size)
        best, biased = solved["window_correction"][1], solved["exact_left"][0]
        marks = "chains", "mean ± 2 s.e.", "exact: best λ; left mass without correction"
        for axes, values, mark in (
            (left, record["window_correction"], best),
            (right, record["left"], biased),
        ):
            labels = marks if place == 0 else (None,) * 3
            mean = Measured.of(values)
            axes.plot(spread, values, ".", ms=4, color=figure_style.SOFT, label=labels[0])
            axes.errorbar(place, mean.mean, 2 * mean.error, fmt="o", ms=5, capsize=3,
                          color=figure_style.CHAINS[0], label=labels[1])  # fmt: skip
            axes.plot(place, mark, "_", ms=16, mew=2, color=figure_style.ACCENT, label=labels[2])
    for axes, y, title in (
        (left, "λ", "λ that the run found"),
        (right, "mass of the left mode", "Left mass with that λ"),
    ):
        figure_style.label(axes, "σ, W", y, title)
        axes.set_xticks(range(len(names)), names)
    figure_style.legend_below(right)
    figure.set_label('λ = "auto": what each chain found, and the left mass of its draws with it.')
    return figure
