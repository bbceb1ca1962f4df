"""The derivative of the round trip time by the window: Eq. 4 and the figure of appendix B.2."""

from typing import TYPE_CHECKING

import numpy as np

from replicax import theory
from replicax.experiments.shared.study import Finding
from replicax.results import figure_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NUM_REPLICAS, _RATE = 16, 0.6  # the 25 modes at a swap rate of 0.4
_PLOTTED = 5  # replicas in the paper's figure of g


def findings() -> list[Finding]:
    windows, width = np.linspace(1.5, 20, 75), 1e-4
    ends = (
        theory.round_trip_time(_RATE, windows + side, _NUM_REPLICAS) for side in (width, -width)
    )
    differences = (next(ends) - next(ends)) / (2 * width)
    slopes = np.asarray(theory.round_trip_time_derivative(_RATE, windows, _NUM_REPLICAS))
    off = float(np.max(np.abs(slopes - differences)) / np.max(np.abs(slopes)))
    best, zero = best_continuous_window(), zero_of_g(_PLOTTED)
    return [
        Finding("dE[T]/dW at P = 16, r = 0.6, against differences", "0", off, "1e-6", off < 1e-6),
        Finding("its zero: the best window", "8 by Theorem 1", best, "7 to 8", 7 < best < 8),
        Finding("zero of g at P = 5", "one", zero, "one in (0, 1)", 0 < zero < 1),
    ]


def best_continuous_window() -> float:
    return float(np.log(zero_of_g(_NUM_REPLICAS)) / np.log(_RATE))


def zero_of_g(num_replicas: int) -> float:
    """Return the only zero of g in (0, 1): g is positive below and negative above it."""
    from scipy.optimize import brentq

    steepest = (num_replicas - 1) / (2 * (num_replicas - 2))  # where g' is largest
    lowest = brentq(lambda x: theory.window_equation_derivative(x, num_replicas), 1e-9, steepest)
    return float(brentq(lambda x: theory.window_equation(x, num_replicas), 1e-9, lowest))  # pyright: ignore


def figures() -> dict[str, "Figure"]:
    return {"slope": slope(), "equation": equation()}


def slope() -> "Figure":
    figure = figure_style.new_figure(10.5, 3.8)
    left, right = figure.subplots(1, 2)
    windows = np.linspace(1, 20, 200)
    best = best_continuous_window()
    for x, style in ((windows, "-"), (np.arange(1, 21), "o")):
        time = theory.round_trip_time(_RATE, x, _NUM_REPLICAS)
        left.plot(x, time, style, color=figure_style.CHAINS[0], ms=4)
    derivative = theory.round_trip_time_derivative(_RATE, windows, _NUM_REPLICAS)
    right.plot(windows, derivative, color=figure_style.CHAINS[1])
    right.axhline(0, color=figure_style.SOFT, lw=0.8)
    for axes in (left, right):
        axes.axvline(best, **figure_style.DASHED, label=f"W = {best:.2f}")
        axes.set_xticks(range(0, 21, 4))
    figure_style.label(left, "window", "steps", "E[T]")
    figure_style.label(right, "window", "steps per unit of W", "dE[T] / dW")
    figure_style.legend(left)
    figure.set_label("E[T] and its derivative (Eq. 4) at P = 16, r = 0.6; dashed: the zero.")
    return figure


def equation() -> "Figure":
    figure = figure_style.new_figure(10.5, 3.8)
    left, right = figure.subplots(1, 2)
    x, zero = np.linspace(0.01, 1, 300), zero_of_g(_PLOTTED)
    left.plot(x, theory.window_equation_derivative(x, _PLOTTED), color=figure_style.CHAINS[1])
    right.plot(x, theory.window_equation(x, _PLOTTED), color=figure_style.CHAINS[0])
    right.axvline(zero, **figure_style.DASHED, label=f"x = {zero:.3f}")
    for axes, name in ((left, "g'(x)"), (right, "g(x)")):
        axes.axhline(0, color=figure_style.SOFT, lw=0.8)
        figure_style.label(axes, "x = r^W", "", name)
    figure_style.legend(right)
    figure.set_label("g' and g of appendix B.2 at P = 5: g has one zero in (0, 1).")
    return figure
