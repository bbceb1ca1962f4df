"""Cells of the mixture study in which the run tunes lambda_W itself, without the truth."""

from typing import Any

from replicax.experiments.shared.measured import Measured, number
from replicax.experiments.shared.study import Cell, Finding, Results, Scale, Table

# Steps of each chain, in millions. With strong noise or long windows, swaps between the modes are
# rare, and a chain needs more steps to estimate its mean energy.
_MILLIONS = {
    (3.0, 10): 2, (3.0, 100): 12, (3.0, 1000): 6,
    (4.0, 10): 4, (4.0, 100): 4, (4.0, 1000): 8,
    (5.0, 10): 8, (5.0, 100): 8, (5.0, 1000): 12,
}  # fmt: skip
_CLOSE, _CLOSE_QUICK = 0.015, 0.04


def cells(scale: Scale, seeds: int) -> list[Cell]:
    def settings(sigma: float, window: int, millions: float) -> dict[str, Any]:
        return {
            "auto": True,
            "sigma": sigma,
            "window": window,
            "num_steps": round(1_000_000 * millions),
            "seeds": seeds,
            "close": scale.choose(_CLOSE, _CLOSE_QUICK),
        }

    chosen = scale.choose(_MILLIONS, {(3.0, 100): 0.6})
    return [Cell(f"auto-sigma={s:g}-W={w}", settings(s, w, m)) for (s, w), m in chosen.items()]


def stage_steps(settings: dict[str, Any]) -> int:
    """Return a third of the run: one each for the reference, the tuning and the draws."""
    return settings["num_steps"] // 3


def findings(auto: Results, pairs: Results, unbiased: float) -> list[Finding]:
    lines = []
    for settings, record in auto:
        sigma, window, close = (settings[name] for name in ("sigma", "window", "close"))
        solved = pairs.only(sigma=sigma, window=window)
        left, distance = record["left"].mean(), float(record["distance"])
        met = abs(left - unbiased) < close and distance < solved["exact_distance"][1] + close
        lines.append(
            Finding(
                f'σ = {sigma:g}, W = {window}, λ = "auto": left mass / TV',
                f"{unbiased} / {solved['exact_distance'][1]:.2g}; "
                f"λ = 0: {solved['exact_left'][0]:.3f} / {solved['exact_distance'][0]:.2g}",
                f"{number(left)} ± {number(Measured.of(record['left']).error, 2)} (s.e.) / "
                f"{number(distance, 2)}",
                f"within {close:g}; TV at most {close:g} above",
                bool(met),
            )
        )
    return lines


def notes(auto: Results) -> list[str]:
    steps = [stage_steps(settings) for settings, _ in auto]
    chains = len(next(iter(auto))[1]["left"])
    return [
        f'With λ = "auto" each of {chains} chains finds its own λ, from {min(steps):,} to '
        f"{max(steps):,} steps with W = 1 as a reference, as many to tune and as many to draw: "
        "the reference costs a third of the run. It is itself an unbiased run, so a window has to "
        "earn that third; with two replicas it cannot."
    ]


def table(auto: Results, pairs: Results) -> Table:
    header = ["σ", "W", "steps of a chain", "λ (over chains)", "best λ", "left mass",
              "without correction", "TV", "TV at the best λ", "without correction"]  # fmt: skip
    rows = []
    for settings, record in auto:
        solved = pairs.only(sigma=settings["sigma"], window=settings["window"])
        rows.append(
            [
                settings["sigma"],
                settings["window"],
                settings["num_steps"],
                Measured.of(record["window_correction"]),
                float(solved["window_correction"][1]),
                Measured.of(record["left"]),
                float(solved["exact_left"][0]),
                float(record["distance"]),
                float(solved["exact_distance"][1]),
                float(solved["exact_distance"][0]),
            ]
        )
    return Table('λ = "auto"', header, rows)
