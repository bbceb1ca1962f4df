"""The bias of "at most one swap in a window" and its correction lambda_W (appendix C.3)."""

import functools
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

import replicax as rx
from replicax import theory
from replicax.results import figure_style
from studies import two_modes
from studies.shared.study import Cell, Finding, Measured, Results, Scale, Study, Table, Work, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MODES = two_modes.OF_THE_PAPER
# The exact grid solution, from independent code: left mass, TV and swaps per window
# without correction, the lambda_W that restores the left mass, and swaps per window with it.
REFERENCE = {
    (2.0, 10): (0.452, 0.066, 0.566, 1.54, 0.315),
    (2.0, 100): (0.515, 0.117, 0.988, 3.52, 0.601),
    (3.0, 10): (0.425, 0.029, 0.249, 1.13, 0.147),
    (3.0, 100): (0.482, 0.083, 0.902, 3.07, 0.387),
    (3.0, 1000): (0.542, 0.142, 1.00, 5.23, 0.678),
    (4.0, 100): (0.439, 0.039, 0.436, 1.98, 0.186),
    (4.0, 1000): (0.508, 0.108, 0.995, 4.06, 0.459),
    (5.0, 1000): (0.440, 0.040, 0.556, 2.30, 0.221),
    (5.0, 3000): (0.467, 0.067, 0.910, 3.26, 0.353),
    (6.0, 3000): (0.4135, 0.014, 0.204, 1.24, 0.116),
}
UNBIASED = 0.4034  # left mass with W = 1: 0.4 of the target, and the error of finite SGLD steps
_MORE_PAIRS = [(sigma, w) for sigma in (2.0, 3.0, 4.0, 5.0, 6.0) for w in (1, 10, 100, 1000)]
_MORE_PAIRS += [(3.0, 3), (3.0, 30), (3.0, 300), (3.0, 3000)]
_NUM_CHAINS = 16
_CLOSE = 0.01  # or four standard errors
# Of chains that estimated lambda_W themselves, 16 each: noise, window, steps of a chain, mean and
# standard deviation of lambda_W, left mass and TV. Version 0.2 could do so; later ones cannot.
_ESTIMATED = [
    (3, 10, 2_000_000, "1.09 ± 0.544", 0.404, 0.0071),
    (3, 100, 12_000_000, "2.87 ± 0.408", 0.409, 0.0095),
    (3, 1000, 6_000_000, "5.03 ± 0.481", 0.412, 0.0130),
    (4, 10, 4_000_000, "0.704 ± 0.939", 0.404, 0.0068),
    (4, 100, 4_000_000, "1.68 ± 0.868", 0.408, 0.0097),
    (4, 1000, 8_000_000, "3.89 ± 0.922", 0.406, 0.0082),
    (5, 10, 8_000_000, "-0.0466 ± 1.16", 0.409, 0.0111),
    (5, 100, 8_000_000, "0.646 ± 1.32", 0.411, 0.0129),
    (5, 1000, 12_000_000, "2.12 ± 1.34", 0.416, 0.0171),
]
_SHOWN = (3.0, 1000), (3.0, 100)  # sigma and window of the density; the first one available
_TITLE = "The bias of a window, and its correction"
_ABOUT = """
Two replicas at temperatures 1 and 10 on 0.4 N(-4, 0.7²) + 0.6 N(3, 0.5²), learning rate 0.01,
exact gradients, energies with Gaussian noise of standard deviation σ. The pair may swap
once in every window of W steps, by the rule that corrects for the noise. Stopping at the first
swap takes too many states from the hot rung; the paper tunes a correction λ_W in the exponent until
the density looks right (appendix C.3, its last figures).

Here the chain is also solved: its stationary law on a grid of 145 x 145 points gives the exact
left mass, distance, swap rate, and the λ_W that restores the left mass of W = 1. Sampled values
are beside it. TV is the total variation between the cold rung and the target. The last table was
measured with 0.2, which could estimate λ_W during the run, by the stochastic approximation that the
paper hopes for: windows of one step in a first third gave the mean energy of the cold rung, and in
a second third λ_W moved until windows had that energy, too. The estimates vary too much over chains
to be worth two thirds of a run; later versions take a number.
"""


def cells(scale: Scale) -> list[Cell]:
    pairs = scale.choose(sorted({*REFERENCE, *_MORE_PAIRS}), [(3.0, 1), (3.0, 100)])
    total, seeds = scale.choose(6_000_000, 600_000), scale.num_seeds(_NUM_CHAINS, _NUM_CHAINS)

    def settings(sigma: float, window: int) -> dict[str, Any]:
        steps = total // _NUM_CHAINS * (2 if sigma == 6 else 1)  # as the paper: swaps are rare
        return {"sigma": sigma, "window": window, "num_steps": steps, "seeds": seeds}

    return [Cell(f"sigma={s:g}-W={w}", settings(s, w)) for s, w in pairs]


@functools.cache
def _target(sigma: float) -> rx.Target:
    """Return the target of a noise level, one object so that cells share a compiled program."""
    return _MODES.target(sigma)


def sample(work: Work, settings: dict[str, Any], window_correction: float) -> rx.Posterior:
    """Sample the paper's chain with the settings of a cell."""
    sigma, num_steps = settings["sigma"], settings["num_steps"]
    method = rx.deo_star(
        _MODES.learning_rate,
        temperature=_MODES.temperatures,
        schedule=rx.schedule.windowed_deo(settings["window"], alternate=False),
        rule=rx.swap.window_corrected(window_correction, energy_noise_std=sigma),
        adapt=False,
    )
    return work.sample(
        _target(sigma),
        jnp.zeros(()),
        num_steps=num_steps,
        num_replicas=2,
        num_chains=settings["seeds"],
        method=method,
        thin=10,
        history_every=10_000,
        seed=1,
        burn_in=num_steps // 10,
    )


def run(settings: dict[str, Any], work: Work) -> dict[str, Any]:
    """Run a cell without correction and, for W > 1, with the best one (leading axis of arrays)."""
    sigma, window = settings["sigma"], settings["window"]
    work.tick(0.0)
    corrections, solutions = [0.0], [two_modes.solve(_MODES, sigma, window)]
    if window > 1:
        best, solution = two_modes.solve_correction(_MODES, sigma, window, UNBIASED, solutions[0])
        corrections, solutions = [0.0, best], [*solutions, solution]
    sampled = [sample(work, settings, correction) for correction in corrections]
    return {
        "window_correction": np.array(corrections),
        "exact_left": np.array([one.left for one in solutions]),
        "exact_distance": np.array([one.distance for one in solutions]),
        "exact_swaps": np.array([one.swaps_per_window for one in solutions]),
        "exact_cold": np.stack([one.cold for one in solutions]),
        "left": np.stack([left_masses(one.draws) for one in sampled]),
        "cold": np.stack([histogram(one.draws) for one in sampled]),
        "swaps": np.stack([one.window_swap_rate[:, 0] for one in sampled]),
    }


def left_masses(draws: np.ndarray) -> np.ndarray:
    """Return the left mass of every chain."""
    return (draws < 0).mean(axis=1)


def histogram(draws: np.ndarray) -> np.ndarray:
    """Return the masses of all chains at the points of the grid."""
    points = _MODES.points()
    middles = (points[1:] + points[:-1]) / 2
    return np.bincount(np.searchsorted(middles, draws.ravel()), minlength=points.size) / draws.size


def distance(cold: np.ndarray) -> float:
    """Return the total variation between masses on the grid and the target."""
    return float(np.abs(cold - _MODES.truth()).sum() / 2)


def bound(left: np.ndarray) -> float:
    """Return the allowed distance between a sampled mass and the exact one."""
    return max(_CLOSE, 4 * Measured.of(left).error)


def errors(record: Any) -> list[tuple[float, float, float]]:
    """Return the errors of sampled left mass and TV, and their bound, for each correction."""
    rows = zip(*(record[n] for n in ("left", "exact_left", "cold", "exact_distance")), strict=True)
    return [
        (left.mean() - exact_left, distance(cold) - exact_distance, bound(left))
        for left, exact_left, cold, exact_distance in rows
    ]


def findings(results: Results) -> list[Finding]:
    return [*_cells_of_the_table(results), *_other_cells(results), *_swap_rates(results)]


def _cells_of_the_table(results: Results) -> list[Finding]:
    lines = []
    for settings, record in results:
        reference = REFERENCE.get((settings["sigma"], settings["window"]))
        if reference is None:
            continue
        close = all(abs(dl) < b and abs(dd) < b for dl, dd, b in errors(record))
        lefts = [number(left.mean()) for left in record["left"]]
        distances = [number(distance(cold), 2) for cold in record["cold"]]
        ours = f"{lefts[0]} / {distances[0]}; {lefts[1]} / {distances[1]}"
        expected = (
            f"{reference[0]:g} / {reference[1]:g}; {UNBIASED} / {record['exact_distance'][1]:.2g}"
        )
        agrees = (
            abs(record["exact_left"][0] - reference[0]) < 0.001
            and abs(record["exact_distance"][0] - reference[1]) < 0.001
        )
        what = (
            f"σ = {settings['sigma']:g}, W = {settings['window']}: left mass / TV; with "
            f"λ = {record['window_correction'][1]:.2f}"
        )
        lines.append(Finding(what, expected, ours, "within 4 s.e. or .01", bool(close and agrees)))
    return lines


def _other_cells(results: Results) -> list[Finding]:
    shares = [
        max(abs(dl), abs(dd)) / b
        for settings, record in results
        if (settings["sigma"], settings["window"]) not in REFERENCE
        for dl, dd, b in errors(record)
    ]
    off = [
        np.abs([record["window_correction"][1] - row[3], record["exact_swaps"][1] - row[4]])
        for settings, record in results
        if (row := REFERENCE.get((settings["sigma"], settings["window"])))
    ]
    return [
        Finding(
            f"{len(shares)} other chains: furthest from their solution, in parts of the bound",
            "0", max(shares), "below 1", bool(max(shares) < 1),
        ),
        Finding(
            "λ and swaps per window there: furthest from the reference",
            "0", np.max(off), "at most .03", bool(np.max(off) <= 0.03),
        ),
    ]  # fmt: skip


def _swap_rates(results: Results) -> list[Finding]:
    lines = []
    for window, row, paper, value in ((1, 0, "0.00008", 7.6e-5), (3000, 1, "0.111", 0.116)):
        for _, record in results.where(sigma=6.0, window=window):
            rate = float(record["exact_swaps"][row])
            what = f"σ = 6, W = {window}: swaps per window{', corrected' * row} (paper {paper})"
            close = abs(rate / value - 1) < 0.02
            lines.append(Finding(what, f"{value:g}", rate, "within 2 %", close))
            lines.append(Finding("… sampled", f"{value:g}", Measured.of(record["swaps"][row])))
    return lines


def notes(results: Results) -> list[str]:
    sentences = [
        "The distance that is left at the best λ is hardly more than that of W = 1: it comes from "
        "SGLD's steps of finite size."
    ]
    one, many = results.where(sigma=6.0, window=1), results.where(sigma=6.0, window=3000)
    for (_, short), (_, long) in zip(one, many, strict=True):
        times = [
            window * theory.round_trip_time(1 - float(record["exact_swaps"][-1]), 1, 2)
            for window, record in ((1, short), (3000, long))
        ]
        sentences.append(
            "The paper expects a window of 3,000 steps at σ = 6 to shorten round trips a thousand "
            f"times. For two replicas W = 1 is best by Lemma 1: a round trip takes {times[0]:,.0f} "
            f"steps, against {times[1]:,.0f} with W = 3,000 and its λ of "
            f"{long['window_correction'][1]:.2f}, {times[1] / times[0]:.1f} times as "
            "many. What grows is the swap rate per window, not per step."
        )
    return sentences


def tables(results: Results) -> list[Table]:
    header = ["σ", "W", "λ", "left mass", "exact", "TV", "exact", "swaps per window", "exact"]
    rows = [
        [
            settings["sigma"],
            settings["window"],
            float(correction),
            Measured.of(record["left"][row]),
            float(record["exact_left"][row]),
            distance(record["cold"][row]),
            float(record["exact_distance"][row]),
            float(record["swaps"][row].mean()),
            float(record["exact_swaps"][row]),
        ]
        for settings, record in results
        for row, correction in enumerate(record["window_correction"])
    ]
    estimated = ["σ", "W", "steps of a chain", "λ (16 chains)", "left mass", "TV"]
    return [
        Table("By noise and window", header, rows),
        Table("λ estimated by each chain, measured with 0.2", estimated, [*map(list, _ESTIMATED)]),
    ]


def figures(results: Results) -> dict[str, Any]:
    return {
        "correction": draw_corrections(results),
        "mass": draw_masses(results),
        "density": draw_densities(results),
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


def draw_corrections(pairs: Results) -> Any:
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


def draw_masses(pairs: Results) -> Any:
    figure = figure_style.new_figure(10.5, 4)
    both = figure.subplots(1, 2, sharex=True, sharey=True)
    titles = "Without correction", "With the best λ"
    for row, (axes, title) in enumerate(zip(both, titles, strict=True)):
        axes.axhline(UNBIASED, **figure_style.DASHED)
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


def draw_densities(pairs: Results) -> Any:
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


STUDY = Study("mixture", _TITLE, _ABOUT, cells, run, findings, figures, tables, notes)
