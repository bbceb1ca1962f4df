"""Round trips against the window: the paper's figure on the 25 modes (section 5.1)."""

from typing import Any

import numpy as np

from replicax import theory
from replicax.results import figure_style
from studies.shared import toy
from studies.shared.study import Cell, Finding, Measured, Results, Scale, Study, Table, Work, number

_WINDOWS = (1, 2, 4, 6, 7, 8, 10, 12, 16, 20)
_TITLE = "Round trips against the window"
_ABOUT = """
How many round trips do 16 replicas make on the 25 modes, for windows of 1 to 20 steps? The paper
shows the most at W = 8 (its figure "round trips"), where Theorem 1 puts the optimum for a swap
rate of 0.4. Round trips are counted from the coldest rung to the hottest and back, over all
replicas; verdicts are taken together, before any swap of their step.
"""


def cells(scale: Scale) -> list[Cell]:
    settings = {"seeds": scale.num_seeds(16, 8), "num_steps": scale.choose(20_000, 6_000)}
    windows = scale.choose(_WINDOWS, (1, 4, 8, 16))
    return [Cell(f"W={window}", {"window": window, **settings}) for window in windows]


def run(settings: dict[str, Any], work: Work) -> dict[str, Any]:
    chosen = {name: settings[name] for name in ("window", "num_steps")}
    posterior = toy.sample(work, settings["seeds"], **chosen)
    return {
        "trips": toy.trips_per_1000(posterior),
        "tv": toy.distances(posterior.draws)["tv"],
        "window_swap_rate": posterior.window_swap_rate,  # (seed, pair)
        "verdict_rate": posterior.verdict_rate,
    }


def predicted(record: Any, window: int) -> float:
    """Return trips per 1,000 steps by Lemma 1, with the measured swap rate of each pair."""
    rejection = 1 - record["window_swap_rate"].mean(axis=0)
    num_replicas = len(rejection) + 1
    return float(1000 * num_replicas / (window * theory.round_trip_time(rejection)))


def findings(results: Results) -> list[Finding]:
    trips = {s["window"]: Measured.of(r["trips"]) for s, r in results}
    means = np.array([trips[w].mean for w in trips])
    best = list(trips)[int(np.argmax(means))]
    ratio = results.only(window=8)["trips"].mean() / results.only(window=1)["trips"].mean()
    rises = np.sign(np.diff(means))
    peaks = int(np.sum(np.diff(np.concatenate([[1], rises, [-1]])) < 0))
    return [
        Finding("trips per 1,000 steps, W = 1", "18", trips[1]),
        Finding("trips per 1,000 steps, W = 8", "45", trips[8]),
        Finding("W = 8 over W = 1", "2.5", ratio, "at least 2.3", bool(ratio >= 2.3)),
        Finding("window with the most trips", "8", best, "7 or 8", best in (7, 8)),
        Finding("peaks of the curve", "1", peaks, "one", peaks == 1),
    ]


def notes(results: Results) -> list[str]:
    ratios = [r["trips"].mean() / predicted(r, s["window"]) for s, r in results]
    most = max(results, key=lambda pair: pair[1]["trips"].mean())[0]["window"]
    least = min(results, key=lambda pair: pair[1]["tv"].mean())[0]["window"]
    return [
        "The paper's runs let a pair see the swaps of the pairs before it in the same step; here "
        "verdicts are taken together, which costs one or two trips per 1,000.",
        f"Between {number(min(ratios), 2)} and {number(max(ratios), 2)} of the trips that Lemma 1 "
        "gives for the measured rates are made: verdicts of neighbouring steps are correlated, "
        "which hurts short windows most.",
        f"Most trips (W = {most}) is not least error: the mode TV is least at W = {least}.",
    ]


def tables(results: Results) -> list[Table]:
    rows = [
        [
            settings["window"],
            Measured.of(record["trips"]),
            predicted(record, settings["window"]),
            1000 * theory.round_trip_rate(0.6, window=settings["window"], num_replicas=16),
            record["window_swap_rate"].mean(),
            record["verdict_rate"].mean(),
            Measured.of(record["tv"]),
        ]
        for settings, record in results
    ]
    header = ["W", "trips per 1,000 steps", "Lemma 1, measured rates", "Lemma 1, r = .6",
              "swaps per window", "verdicts per step", "mode TV"]  # fmt: skip
    return [Table("By window", header, rows)]


def figures(results: Results) -> dict[str, Any]:
    figure = figure_style.new_figure(7, 4)
    axes = figure.add_subplot()
    windows = [settings["window"] for settings, _ in results]
    trips = [Measured.of(record["trips"]) for _, record in results]
    dense = np.arange(1, max(windows) + 1)
    ideal = 1000 * np.asarray(theory.round_trip_rate(0.6, window=dense, num_replicas=16))
    axes.plot(dense, ideal, **figure_style.DASHED, label="Lemma 1, r = 0.6")
    lemma = [predicted(record, settings["window"]) for settings, record in results]
    axes.plot(windows, lemma, "x", color=figure_style.SOFT, label="Lemma 1, measured rates")
    means, stds = [t.mean for t in trips], [t.std for t in trips]
    axes.errorbar(windows, means, stds, fmt="o-", color=figure_style.CHAINS[0], capsize=3,
                  label=f"25 modes (± sd of {trips[0].n} seeds)")  # fmt: skip
    axes.plot([1, 8], [18, 45], "*", color=figure_style.ACCENT, ms=11, label="paper")
    axes.set_ylim(0)
    figure_style.label(axes, "window", "round trips / 1,000 steps", "Round trips of 16 replicas")
    axes.legend(frameon=False)
    figure.set_label("Round trips per 1,000 steps against the window, beside Lemma 1.")
    return {"trips": figure}


STUDY = Study("window", _TITLE, _ABOUT, cells, run, findings, figures, tables, notes)
