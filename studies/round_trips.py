"""Growth of the round trip time with the number of replicas: Table 1 and Lemma 1, simulated."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import replicax as rx
from replicax import theory
from replicax.results import figure_style
from studies.shared import index_process
from studies.shared import window_equation as in_window
from studies.shared.study import Cell, Finding, Results, Scale, Study, Table, Work, number

_SCHEDULES = {
    "ADJ": rx.schedule.adj(),
    "SEO": rx.schedule.seo(),
    "DEO": rx.schedule.deo(),
    "DEO*": rx.schedule.deo(),
}
_PROGRAMS = (["ADJ"], ["SEO"], ["DEO", "DEO*"])  # schemes that share a compiled program
_FIXED, _FALLING = "r = 0.6", "r = 2 / P"  # non-asymptotic and asymptotic column of Table 1
_COLUMNS = (_FIXED, _FALLING)
_FITTED = (16, 64)  # range of P in which orders of growth are fitted
_NUM_REPLICAS, _RATE = 16, 0.6  # of the slope in W: the 25 modes at a swap rate of 0.4
_PLOTTED = 5  # replicas in the paper's figure of g
# Order of growth: in Table 1, expected exponent, tolerance.
_ORDERS = {
    ("ADJ", _FIXED): ("P²", 2.0, 0.1),
    ("SEO", _FIXED): ("P²", 2.0, 0.1),
    ("DEO", _FIXED): ("P²", 2.0, 0.1),
    ("DEO*", _FIXED): ("P log P", 1.22, 0.08),
    ("ADJ", _FALLING): ("P²", 1.0, 0.1),
    ("SEO", _FALLING): ("P²", 2.0, 0.1),
    ("DEO", _FALLING): ("P", 1.0, 0.1),
    ("DEO*", _FALLING): ("P", 1.0, 0.2),
}
_TITLE = "Round trip times of the swap schemes"
_ABOUT = """
How many steps does a replica need from the coldest rung to the hottest and back, as the ladder
grows from 4 to 128 replicas? Table 1 of the paper answers with orders of growth for four schemes,
at a fixed rejection rate (non-asymptotic, here r = 0.6) and at one that falls as replicas are added
(asymptotic, here r = 2 / P); Lemma 1 and its siblings for SEO and ADJ give the times. Here every
pair swaps with a constant probability, and the library's own step is run for tens of thousands of
round trips. DEO* takes its window from Theorem 1; a step of ADJ is a sweep of P - 1 attempts, one
after another. The figures of appendix B.2, the slope of E[T] in the window and its zero, follow.
"""


class Row(NamedTuple):
    """The result of a scheme in a column of Table 1 with a number of replicas."""

    scheme: str
    column: str
    num_replicas: int
    time: float  # simulated, steps
    closed: float
    num_trips: int

    @property
    def relative_error(self) -> float:
        return abs(self.time / self.closed - 1)


def rejection(column: str, num_replicas: int) -> float:
    return 0.6 if column == _FIXED else 2 / num_replicas


def window_of(scheme: str, rate: float, num_replicas: int) -> int:
    return theory.optimal_window(num_replicas, 1 - rate) if scheme == "DEO*" else 1


def closed_form(scheme: str, rate: float, num_replicas: int) -> float:
    """Return E[T]: of Lemma 1, of SEO, or in sweeps of ADJ."""
    if scheme == "SEO":
        return theory.round_trip_time_seo(rate, num_replicas)
    if scheme == "ADJ":
        return theory.round_trip_time_adj(rate, num_replicas)
    window = window_of(scheme, rate, num_replicas)
    return float(theory.round_trip_time(rate, window, num_replicas))


def cells(scale: Scale) -> list[Cell]:
    sizes = scale.choose((4, 8, 16, 32, 64, 128), (16, 32))
    num_trips = scale.choose(60_000, 4_000)
    return [
        Cell(
            f"{schemes[0]}-P={size}",
            {"schemes": schemes, "num_replicas": size, "num_trips": num_trips},
        )
        for size in reversed(sizes)  # the expensive ones first, so that no core is idle at the end
        for schemes in _PROGRAMS
    ]


def run(settings: dict[str, Any], work: Work) -> dict[str, Any]:
    size, num_trips = settings["num_replicas"], settings["num_trips"]
    schedule = _SCHEDULES[settings["schemes"][0]]
    program = index_process.build(schedule)
    kinds = [(scheme, column) for scheme in settings["schemes"] for column in _COLUMNS]
    counts = []
    for done, (scheme, column) in enumerate(kinds):
        rate = rejection(column, size)
        window = window_of(scheme, rate, size)
        ladder = index_process.equal_rates(replace(schedule, window=window), size, rate)
        counts.append(
            index_process.count_trips(
                program,
                ladder,
                closed_form(scheme, rate, size),
                num_trips,
                tick=lambda part, done=done: work.tick((done + part) / len(kinds)),
            )
        )
    return {
        "scheme": np.array([scheme for scheme, _ in kinds]),
        "column": np.array([column for _, column in kinds]),
        "round_trip_time": np.array([counted.round_trip_time for counted in counts]),
        "num_trips": np.array([counted.trips.sum() for counted in counts]),
    }


def rows(results: Results) -> list[Row]:
    """Return the results of all cells, in the order of Table 1."""
    unsorted = [
        Row(str(scheme), str(column), size, float(time), closed, int(trips))
        for settings, record in results
        for size in [settings["num_replicas"]]
        for scheme, column, time, trips in zip(
            *(record[name] for name in ("scheme", "column", "round_trip_time", "num_trips")),
            strict=True,
        )
        for closed in [closed_form(str(scheme), rejection(str(column), size), size)]
    ]
    order = list(_SCHEDULES)
    return sorted(unsorted, key=lambda row: (order.index(row.scheme), row.num_replicas))


def chosen(results: Results, scheme: str, column: str) -> list[Row]:
    return [row for row in rows(results) if (row.scheme, row.column) == (scheme, column)]


def order_of_growth(sizes: list[int], times: list[float]) -> float:
    """Return k of the power law P^k, fitted to the times of P = 16 to 64."""
    pairs = [(p, t) for p, t in zip(sizes, times, strict=True) if _FITTED[0] <= p <= _FITTED[1]]
    log_sizes, log_times = np.log(pairs).T
    return float(np.polyfit(log_sizes, log_times, 1)[0])


def fitted_range(results: Results) -> str:
    largest = max(settings["num_replicas"] for settings, _ in results)
    return f"P = {_FITTED[0]} to {min(_FITTED[1], largest)}"


def orders(results: Results, scheme: str, column: str) -> tuple[float, float]:
    """Return the order of growth of the simulated times and of the closed form."""
    selected = chosen(results, scheme, column)
    sizes = [row.num_replicas for row in selected]
    times, closed = [row.time for row in selected], [row.closed for row in selected]
    return order_of_growth(sizes, times), order_of_growth(sizes, closed)


def findings(results: Results) -> list[Finding]:
    lines = distances(results)
    for (scheme, column), (paper, middle, width) in _ORDERS.items():
        simulated, closed = orders(results, scheme, column)
        what = f"{scheme}, {column}: k of P^k, {fitted_range(results)}"
        met = max(abs(simulated - middle), abs(closed - middle)) <= width
        expected = f"{paper}; closed form {closed:.3f}"
        lines.append(Finding(what, expected, round(simulated, 3), f"{middle} ± {width}", met))
    return lines + slope_findings()


def distances(results: Results) -> list[Finding]:
    """Compare the simulated times with the closed forms."""
    fewest = min(settings["num_trips"] for settings, _ in results)
    bound = index_process.error_bound(fewest)
    lines = []
    for scheme, column in _ORDERS:
        selected = chosen(results, scheme, column)
        if selected:
            worst = max(row.relative_error for row in selected)
            what = f"{scheme}, {column}: largest distance to the closed form"
            asked = f"at most {100 * bound:.1f} %"
            lines.append(Finding(what, "0", f"{100 * worst:.2f} %", asked, worst <= bound))
    return lines


def tables(results: Results) -> list[Table]:
    header = ["", "Table 1, r fixed", "ours", "Table 1, r → 0", "ours", "Table 1, swap time",
              "ours, r fixed, times swap time"]  # fmt: skip
    lines = []
    for scheme in _SCHEDULES:
        fixed, falling = (orders(results, scheme, column)[0] for column in _COLUMNS)
        selected = chosen(results, scheme, _FIXED)
        waited = order_of_growth(
            [row.num_replicas for row in selected], [row.time * attempts(row) for row in selected]
        )
        lines.append(
            [
                scheme,
                _ORDERS[scheme, _FIXED][0],
                f"P^{fixed:.2f}",
                _ORDERS[scheme, _FALLING][0],
                f"P^{falling:.2f}",
                "P" if scheme == "ADJ" else "1",
                f"P^{waited:.2f}",
            ]
        )
    return [Table("Table 1", header, lines), *(times_table(results, name) for name in _COLUMNS)]


def times_table(results: Results, column: str) -> Table:
    header = ["", "P", "W", "closed form", "simulated", "distance", "round trips seen",
              "simulated × attempts in a row"]  # fmt: skip
    lines = [
        [
            row.scheme,
            row.num_replicas,
            window_of(row.scheme, rejection(column, row.num_replicas), row.num_replicas),
            row.closed,
            row.time,
            f"{100 * row.relative_error:.2f} %",
            row.num_trips,
            row.time * attempts(row),
        ]
        for row in rows(results)
        if row.column == column
    ]
    return Table(f"Round trip time, {column}", header, lines)


def attempts(row: Row) -> int:
    """Return the number of attempts of a step that must run one after another."""
    return row.num_replicas - 1 if row.scheme == "ADJ" else 1


def notes(results: Results) -> list[str]:
    largest = max(row.num_replicas for row in rows(results))
    adj, deo = (closed_form(s, rejection(_FALLING, largest), largest) for s in ("ADJ", "DEO"))
    order = orders(results, "ADJ", _FALLING)[0]
    closed = window_of("DEO*", 0.6, 4)
    four = [number(float(theory.round_trip_time(0.6, window, 4))) for window in (closed, 1)]
    many = [number(closed_form(s, 2 / 1024, 1024)) for s in ("DEO*", "DEO")]
    x, zero = 1 / (5 * math.log(5)), zero_of_g(5)
    divided = [(r.num_replicas, r.time / math.log(r.num_replicas))
               for r in chosen(results, "DEO*", _FIXED)]  # fmt: skip
    rest = order_of_growth(*map(list, zip(*divided, strict=True)))
    return [
        "Table 1 gives ADJ O(P²) also where rejections vanish. In sweeps it does not: at r = 2/P "
        f"its time grows as P^{order:.2f}, and at P = {largest} it needs {number(adj)} sweeps, "
        f"half of DEO's {number(deo)} steps. Its sweeps wait for P - 1 attempts in a row, and only "
        "with that swap time is it quadratic.",
        "DEO* grows as P log P and not as a power: its time divided by log P grows as "
        f"P^{rest:.2f} for {fitted_range(results)}.",
        f"Theorem 1's window is asymptotic. At P = 4, r = 0.6 it is {closed}, with E[T] = "
        f"{four[0]}; a window of 1 has {four[1]}.",
        f"DEO* does not become DEO as rejections vanish: Theorem 1's window, rounded up, is still "
        f"{window_of('DEO*', 2 / 1024, 1024)} at P = 1,024, r = 2/P, with E[T] = {many[0]} "
        f"({many[1]} with a window of 1).",
        f"The proof's approximate zero 1 / (P log P) is {x:.3f} at P = 5, where g is "
        f"{in_window.window_equation(x, 5):.3f}; the zero is {zero:.3f}.",
    ]


def figures(results: Results) -> dict[str, Any]:
    return {"growth": draw_growth(results), "slope": draw_slope(), "equation": draw_equation()}


def draw_growth(results: Results) -> Any:
    figure = figure_style.new_figure(10.5, 4.4)
    both = figure.subplots(1, 2, sharey=True)
    for axes, column in zip(both, _COLUMNS, strict=True):
        axes.set(xscale="log", yscale="log")
        for colour, scheme in zip(figure_style.CHAINS, _SCHEDULES, strict=False):
            selected = chosen(results, scheme, column)
            sizes = [row.num_replicas for row in selected]
            axes.plot(sizes, [row.closed for row in selected], "-", color=colour, lw=1.2)
            name = "ADJ (sweeps)" if scheme == "ADJ" else scheme
            axes.plot(sizes, [row.time for row in selected], "o", color=colour, ms=5, label=name)
        figure_style.label(axes, "replicas", "steps" if column == _FIXED else "", column)
        axes.set_xticks(sizes, [str(size) for size in sizes], minor=False)
        axes.minorticks_off()
    figure_style.legend(both[0])
    figure.set_label(
        "Steps of a round trip (sweeps for ADJ) against the number of replicas: simulated (dots) "
        "and closed forms (lines), at a fixed rejection rate and at one that falls."
    )
    return figure


def slope_findings() -> list[Finding]:
    windows, width = np.linspace(1.5, 20, 75), 1e-4
    ends = (
        theory.round_trip_time(_RATE, windows + side, _NUM_REPLICAS) for side in (width, -width)
    )
    differences = (next(ends) - next(ends)) / (2 * width)
    slopes = np.asarray(in_window.round_trip_time_derivative(_RATE, windows, _NUM_REPLICAS))
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
    lowest = brentq(lambda x: in_window.window_equation_derivative(x, num_replicas), 1e-9, steepest)
    return float(brentq(lambda x: in_window.window_equation(x, num_replicas), 1e-9, lowest))  # pyright: ignore


def draw_slope() -> Any:
    figure = figure_style.new_figure(10.5, 3.8)
    left, right = figure.subplots(1, 2)
    windows = np.linspace(1, 20, 200)
    best = best_continuous_window()
    for x, style in ((windows, "-"), (np.arange(1, 21), "o")):
        time = theory.round_trip_time(_RATE, x, _NUM_REPLICAS)
        left.plot(x, time, style, color=figure_style.CHAINS[0], ms=4)
    derivative = in_window.round_trip_time_derivative(_RATE, windows, _NUM_REPLICAS)
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


def draw_equation() -> Any:
    figure = figure_style.new_figure(10.5, 3.8)
    left, right = figure.subplots(1, 2)
    x, zero = np.linspace(0.01, 1, 300), zero_of_g(_PLOTTED)
    left.plot(x, in_window.window_equation_derivative(x, _PLOTTED), color=figure_style.CHAINS[1])
    right.plot(x, in_window.window_equation(x, _PLOTTED), color=figure_style.CHAINS[0])
    right.axvline(zero, **figure_style.DASHED, label=f"x = {zero:.3f}")
    for axes, name in ((left, "g'(x)"), (right, "g(x)")):
        axes.axhline(0, color=figure_style.SOFT, lw=0.8)
        figure_style.label(axes, "x = r^W", "", name)
    figure_style.legend(right)
    figure.set_label("g' and g of appendix B.2 at P = 5: g has one zero in (0, 1).")
    return figure


STUDY = Study("round-trips", _TITLE, _ABOUT, cells, run, findings, figures, tables, notes)
