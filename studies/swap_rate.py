"""The target swap rate S on the 25 modes: is 0.4 the best?"""

from typing import Any

import numpy as np

from replicax import theory
from replicax.results import figure_style
from studies.shared import toy
from studies.shared.study import Cell, Finding, Measured, Results, Scale, Study, Table, Work, number

_RATES = (0.2, 0.3, 0.4, 0.5, 0.6)
_MEASURES = {"tv": "mode TV", "kl": "KL(draws || truth)"}
_TITLE = "The target swap rate on the 25 modes"
_ABOUT = """
The paper aims at a swap rate of 0.4 and reports it as the best. Here the 25 modes are sampled at
five rates, once with a fixed window of 8 and once with the window that Theorem 1 gives for the
rate. Distances to the truth are given by seed and for the pooled draws of all seeds. The pooled
ones show the bias, which longer runs do not remove.
"""


def cells(scale: Scale) -> list[Cell]:
    rates = scale.choose(_RATES, (0.2, 0.4, 0.6))
    common = {"seeds": scale.num_seeds(16, 8), "num_steps": scale.choose(20_000, 6_000)}
    chosen = []
    for rate in rates:
        best = theory.optimal_window(toy.NUM_REPLICAS, rate)
        for window in dict.fromkeys((8,) if scale.quick else (8, best)):
            settings = {"swap_rate": rate, "window": window, **common}
            chosen.append(Cell(f"S={rate}-W={window}", settings))
    return chosen


def run(settings: dict[str, Any], work: Work) -> dict[str, Any]:
    posterior = toy.sample(
        work,
        settings["seeds"],
        num_steps=settings["num_steps"],
        window=settings["window"],
        target_swap_rate=settings["swap_rate"],
    )
    rates = posterior.verdict_rate
    return {
        **toy.distances(posterior.draws),
        "trips": toy.trips_per_1000(posterior),
        "buffer": posterior.buffer,
        "verdict_rate": rates.mean(axis=1),
        "rate_spread": rates.max(axis=1) - rates.min(axis=1),
    }


def _best(results: Results, measure: str) -> tuple[float, float]:
    """Return the swap rate with the smallest `measure` at W = 8, and that measure."""
    fixed = results.where(window=8)
    means = {s["swap_rate"]: float(np.mean(r[measure])) for s, r in fixed}
    rate = min(means, key=means.__getitem__)
    return rate, means[rate]


def findings(results: Results) -> list[Finding]:
    records = {s["swap_rate"]: r for s, r in results.where(window=8)}
    grow = bool(np.all(np.diff([record["trips"].mean() for record in records.values()]) > 0))
    worst = max(abs(float(r["verdict_rate"].mean()) - rate) for rate, r in records.items())
    rows = [
        Finding("mean verdict rate: largest distance from S", "0", worst, "at most 0.02",
                worst <= 0.02),
        Finding("trips grow with S", "", "yes" if grow else "no", "yes", grow),
    ]  # fmt: skip
    for rate, known in ((0.2, "12 (reference run)"), (0.4, "45"), (0.6, "59.5 (reference run)")):
        what = f"trips per 1,000 steps, S = {rate}, W = 8"
        rows.append(Finding(what, known, Measured.of(records[rate]["trips"])))
    buffer = Measured.of(records[0.6]["buffer"])
    rows.append(Finding("buffer at the end, S = 0.6", "-3.7 (reference run)", buffer))
    for measure, name in _MEASURES.items():
        for prefix, what in (("", "by seed"), ("pooled_", "all seeds together")):
            rate, _ = _best(results, prefix + measure)
            rows.append(Finding(f"S with the least {name}, {what}, W = 8", "0.4", rate))
    return rows


def notes(results: Results) -> list[str]:
    sentences = []
    for measure, name in {**_MEASURES, "pooled_tv": "pooled mode TV"}.items():
        rate, value = _best(results, measure)
        paper = float(np.mean(results.only(swap_rate=0.4, window=8)[measure]))
        if rate == 0.4:
            sentences.append(f"S = 0.4 has the least {name} at W = 8: {number(paper)}.")
        else:
            sentences.append(
                f'"0.4 is best" does not hold for the {name} at W = 8: S = {rate} has '
                f"{number(value)}, S = 0.4 has {number(paper)}."
            )
    low, high = (results.only(swap_rate=rate, window=8) for rate in (0.4, 0.6))
    sentences.append(
        "The bias changes sign with S: the corner modes hold "
        f"{number(float(low['pooled_corner']))} of their true mass at S = 0.4 and "
        f"{number(float(high['pooled_corner']))} at S = 0.6, where the buffer ends at "
        f"{number(float(high['buffer'].mean()))} and pair rates differ by "
        f"{number(float(high['rate_spread'].mean()))}."
    )
    return sentences


def tables(results: Results) -> list[Table]:
    rows = []
    for settings, record in results:
        measured = [Measured.of(record[name]) for name in ("trips", "tv", "kl")]
        pooled = [record[f"pooled_{name}"] for name in ("tv", "kl", "corner", "outside")]
        buffer = Measured.of(record["buffer"])
        rows.append([settings["swap_rate"], settings["window"], *measured, *pooled, buffer])
    header = ["S", "W", "trips per 1,000", "mode TV by seed", "KL by seed", "pooled TV",
              "pooled KL", "corner mass / truth", "outside / truth", "final buffer"]  # fmt: skip
    return [Table("By swap rate", header, rows)]


def figures(results: Results) -> dict[str, Any]:
    figure = figure_style.new_figure(11, 3.6)
    fixed = results.where(window=8)
    rates = [settings["swap_rate"] for settings, _ in fixed]
    panels = [("tv", "mode TV"), ("kl", "KL(draws || truth)"), ("trips", "round trips / 1,000"),
              ("corner", "corner mass / truth")]  # fmt: skip
    for axes, (name, title) in zip(figure.subplots(1, 4), panels, strict=True):
        values = [Measured.of(record[name]) for _, record in fixed]
        axes.errorbar(rates, [m.mean for m in values], [m.std for m in values], fmt="o-", capsize=3,
                      color=figure_style.CHAINS[0], label="by seed")  # fmt: skip
        if f"pooled_{name}" in fixed.only(swap_rate=rates[0]):
            pooled = [record[f"pooled_{name}"] for _, record in fixed]
            axes.plot(rates, pooled, "s--", color=figure_style.ACCENT, label="all seeds")
        if name == "corner":
            axes.axhline(1, **figure_style.DASHED)
        axes.set_ylim(0)
        figure_style.label(axes, "target swap rate S", "", title)
        figure_style.legend(axes)
    figure.set_label("Distances and round trips against the target swap rate, W = 8 (± sd).")
    return {"rates": figure}


STUDY = Study("swap-rate", _TITLE, _ABOUT, cells, run, findings, figures, tables, notes)
