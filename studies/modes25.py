"""The 25 modes (section 5.1): densities, index paths and histories of DEO, DEO* and baselines."""

from typing import Any

import numpy as np

import replicax as rx
from replicax.demo import draw_density
from replicax.results import figure_style, plots
from studies.shared import toy
from studies.shared.study import Cell, Finding, Measured, Results, Scale, Study, Table, Work, number

_METHODS = {
    "SGLD x P16": "sgld",
    "cycSGLD x T16": "cyclical",
    "DEO-SGD x P16": "deo",
    "DEO*-SGD x P16": "deo_star",
    "independent exact draws": "exact",
}
_CYCLES = 100  # the paper's
_PATH_STEPS = 3000
_TITLE = "The 25 modes at equal budget"
_ABOUT = """
The 25 modes are sampled at an equal budget of 16 x 20,000 noisy gradients by sixteen independent
SGLD chains at the cold rung's rate, by one cyclical SGLD chain of 16 times the steps in 100 cycles,
by DEO-SGD and by DEO*-SGD. Of every method the same number of draws is kept, evenly spaced; as many
independent exact draws show the smallest possible error. TV is the total variation of the 25 mode
masses, both sides renormalised; KL(draws || truth) is taken on a grid of width 1/4.
"""


def cells(scale: Scale) -> list[Cell]:
    seeds, num_steps = scale.num_seeds(16, 8), scale.choose(20_000, 6_000)
    return [
        Cell(method, {"method": method, "seeds": seeds, "num_steps": num_steps})
        for method in _METHODS.values()
    ]


def run(settings: dict[str, Any], work: Work) -> dict[str, Any]:
    method, seeds, num_steps = (settings[name] for name in ("method", "seeds", "num_steps"))
    count = toy.num_draws(num_steps)
    if method == "exact":
        draws = toy.exact_draws(seeds, num_steps)
        return {"draws": draws, **toy.distances(draws)}
    if method in ("sgld", "cyclical"):
        draws = toy.thinned(_baseline(work, method, seeds, num_steps), count)
        return {"draws": draws.astype(np.float32), **toy.distances(draws)}
    posterior = toy.sample(work, seeds, num_steps=num_steps, window=1 if method == "deo" else 8)
    draws = toy.thinned(posterior.draws, count)
    history = posterior.history
    return {
        "draws": draws.astype(np.float32),
        **toy.distances(draws),
        "trips": toy.trips_per_1000(posterior),
        "final_buffer": posterior.buffer,
        "path": posterior.rung_of[0, :_PATH_STEPS],
        "step": history["step"],
        "ladder": history["learning_rate"][0],  # (point, rung)
        "buffer": history["buffer"],  # (seed, point)
        "verdicts": history["verdicts"][0],  # (point, pair)
    }


def _baseline(work: Work, method: str, seeds: int, num_steps: int) -> np.ndarray:
    """Return the draws of a method without exchange  (seed, draw, 2)."""
    cold, hot = toy.PAPER["learning_rate"]
    num_replicas = toy.NUM_REPLICAS
    options: dict[str, Any] = {"schedule": "none", "thin": 10}
    if method == "sgld":
        chosen = {"num_replicas": 1, "learning_rate": cold, "num_steps": num_steps}
        posterior = toy.sample(work, seeds * num_replicas, **chosen, **options)
        return posterior.draws.reshape(seeds, -1, 2)
    num_steps *= num_replicas
    kernel = rx.kernels.cyclical(rx.kernels.sgld(), cycle_length=num_steps // _CYCLES)
    chosen = {"num_replicas": 1, "learning_rate": hot, "num_steps": num_steps, "kernel": kernel}
    return toy.sample(work, seeds, **chosen, **options, burn_in=0).draws


def findings(results: Results) -> list[Finding]:
    tv = {method: Measured.of(results.only(method=method)["tv"]) for method in _METHODS.values()}
    ratio = tv["deo_star"].mean / tv["deo"].mean
    is_long = next(iter(results))[0]["num_steps"] >= 20_000
    bound = 0.25 if is_long else 0.45  # a short run still depends on its start
    trips = {m: Measured.of(results.only(method=m)["trips"]) for m in ("deo", "deo_star")}
    names = {method: name for name, method in _METHODS.items()}
    return [
        *[Finding(f"mode TV, {names[method]}", "", tv[method]) for method in tv],
        Finding("mode TV, DEO* over DEO", "", ratio, f"at most {bound}", bool(ratio <= bound)),
        Finding("round trips per 1,000 steps, DEO", "18", trips["deo"]),
        Finding("round trips per 1,000 steps, DEO*", "45", trips["deo_star"]),
    ]


def tables(results: Results) -> list[Table]:
    rows = []
    for name, method in _METHODS.items():
        record = results.only(method=method)
        by_seed = [Measured.of(record[part]) for part in ("tv", "kl")]
        pooled = [record[f"pooled_{part}"] for part in ("tv", "kl", "corner", "outside")]
        rows.append([name, *by_seed, *pooled])
    header = ["", "mode TV by seed", "KL by seed", "mode TV, all seeds", "KL, all seeds",
              "corner mass / truth", "mass outside / truth"]  # fmt: skip
    draws = results.only(method="exact")["draws"].shape[1]
    return [Table(f"Distances to the truth ({draws:,} draws a seed)", header, rows)]


def notes(results: Results) -> list[str]:
    star = results.only(method="deo_star")
    sgld, cyc = (results.only(method=m) for m in ("sgld", "cyclical"))
    return [
        "DEO* is biased towards the middle: its corner modes hold "
        f"{number(float(star['pooled_corner']))} of their true mass, and the region outside the 25 "
        f"cells {number(float(star['pooled_outside']))} of its true mass. The study `tempered` "
        "looks for better settings.",
        f"Of the baselines, SGLD x P16 has a mode TV of "
        f"{number(sgld['tv'].mean())} by seed ({number(float(sgld['pooled_tv']))} pooled, which "
        f"depends on its starts), cycSGLD x T16 {number(cyc['tv'].mean())} "
        f"({number(float(cyc['pooled_tv']))} pooled).",
    ]


def figures(results: Results) -> dict[str, Any]:
    return {
        "densities": _densities(results),
        "paths": _paths(results),
        "histories": _histories(results),
    }


def _densities(results: Results) -> Any:
    figure = figure_style.new_figure(12.5, 3.1)
    axes = figure.subplots(1, 5, sharex=True, sharey=True)
    draw_density(axes[0], None, "truth")
    for panel, (name, method) in zip(axes[1:], list(_METHODS.items())[:4], strict=True):
        record = results.only(method=method)
        title = f"{name}: TV {number(float(record['tv'][0]), 2)}"
        draw_density(panel, record["draws"][0], title)
        panel.set_ylabel("")
    figure.set_label("Densities from one seed of each method, at equal budget and number of draws.")
    return figure


def _paths(results: Results) -> Any:
    figure = figure_style.new_figure(10, 5)
    axes = figure.subplots(2, 1, sharex=True)
    for panel, (name, method) in zip(axes, (("DEO", "deo"), ("DEO*", "deo_star")), strict=True):
        plots.draw_paths(panel, results.only(method=method)["path"], f"Index process under {name}")
    figure.set_label("Which rung each replica is on; one of them drawn out.")
    return figure


def _histories(results: Results) -> Any:
    record = results.only(method="deo_star")
    figure = figure_style.new_figure(12, 3.6)
    ladder, rates, buffer = figure.subplots(1, 3)
    for rung, colour in figure_style.cold_to_hot(toy.NUM_REPLICAS):
        ladder.plot(record["step"], record["ladder"][:, rung], color=colour, lw=1.1)
    ladder.set_yscale("log")
    figure_style.label(ladder, "step", "learning rate", "Ladder of one seed")
    counts = np.diff(record["verdicts"], axis=0, prepend=0)
    between = np.diff(record["step"], prepend=0)[:, None]
    few = max(1, len(counts) // 20)
    usable = len(counts) // few * few
    binned = (counts / between)[:usable].reshape(-1, few, counts.shape[1]).mean(axis=1)
    steps = record["step"][:usable].reshape(-1, few)[:, -1]
    for pair, colour in figure_style.cold_to_hot(toy.NUM_REPLICAS - 1):
        rates.plot(steps, binned[:, pair], color=colour, lw=1.1)
    rates.axhline(0.4, **figure_style.DASHED)
    figure_style.label(rates, "step", "verdicts / step", "Acceptance of each pair")
    for seed in record["buffer"]:
        buffer.plot(record["step"], seed, color=figure_style.CHAINS[0], alpha=0.4, lw=0.9)
    figure_style.label(buffer, "step", "buffer", "Buffer, all seeds")
    figure.set_label("DEO*: learning rates and acceptance from cold (dark) to hot, and the buffer.")
    return figure


STUDY = Study("modes25", _TITLE, _ABOUT, cells, run, findings, figures, tables, notes)
