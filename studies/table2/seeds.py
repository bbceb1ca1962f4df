"""Table 2 over seeds: the methods of ten networks, with start networks of their own for each seed.

The runs of seed K are the folders `RUNS/seed-K/MODEL/METHOD`. They may be shorter than those of the
table, so that there can be several.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import replicax as rx
from studies.shared.page import markdown_table
from studies.table2 import numbers, starts, trainings
from studies.table2.paper import COMPARED, NAMES

METHODS = ("ensemble", "deo", "deo-star")
_HEAD = ["method", "seeds", "accuracy, %", "NLL, sum", "accuracy of each seed, %",
         "one network at the end: accuracy, %"]  # fmt: skip


def run_all(settings: trainings.Settings, runs: Path, num_seeds: int, **display: Any) -> None:
    """Start or resume all unfinished runs of seeds 0 to `num_seeds` - 1."""
    for seed in range(num_seeds):
        of_seed = replace(settings, seed=seed, methods=(trainings.STARTS, *METHODS))
        trainings.run_all(of_seed, runs / f"seed-{seed}", **display)


def describe(model: str, runs: Path) -> list[dict[str, Any]]:
    """Return the finished runs of all seeds as plain data, a dict for each seed."""
    seeds = sorted(int(path.name.removeprefix("seed-")) for path in runs.glob("seed-*"))
    described = []
    for seed in seeds:
        folders = {
            name: trainings.folder_of(runs / f"seed-{seed}", model, name)
            for name in (trainings.STARTS, *METHODS)
        }
        methods = {name: trainings.open_run(folder) for name, folder in folders.items()}
        finished = {
            name: _describe_run(name, run, folders[trainings.STARTS])
            for name, run in methods.items()
            if run is not None and run.result.code == "finished"
        }
        if len(finished) > 1:  # more than start networks
            described.append({"seed": seed, "runs": finished})
    return described


def _describe_run(name: str, run: rx.Trained, start: Path) -> dict[str, Any]:
    at_start = starts.read(start, run.num_replicas)
    accuracy = run.epochs["accuracy"][-1]
    return {
        "epochs": run.num_epochs,
        "machine": run.metadata.machine,
        "command": numbers.command_of(run),
        "averages": numbers.averages(run, at_start) if numbers.has_average(run) else [],
        "one_network": float(accuracy[0] if name.startswith("deo") else accuracy.mean()),
    }


def section(model: str, described: list[dict[str, Any]]) -> list[str]:
    """Return the part of the page: a table of means and spreads, and differences over seeds."""
    rows = []
    for name in METHODS:
        runs = [one["runs"][name] for one in described if name in one["runs"]]
        ways = [numbers.pick(run["averages"]) for run in runs]
        if ways:
            accuracy = [100 * way["accuracy"] for way in ways]
            cells = [spread(accuracy, 2), spread([way["nll_sum"] for way in ways], 0)]
            each = ", ".join(f"{one:.2f}" for one in accuracy)
            alone = spread([100 * run["one_network"] for run in runs], 2)
            rows.append([NAMES[name], str(len(ways)), *cells, each, alone])
    epochs = {name: _epochs(described, name) for name in (trainings.STARTS, *METHODS)}
    sampling = " or ".join(dict.fromkeys(epochs[name] for name in METHODS if epochs[name]))
    return [
        f"## {model}: several seeds",
        "",
        f"Each seed has its own ten start networks, of {epochs[trainings.STARTS]} epochs, and "
        f"{sampling} epochs of sampling: shorter than the table above, so that there can be "
        "several. Mean and standard deviation over seeds, at the last epoch, by logits, without "
        "the start networks; one network is the coldest of a ladder, and the mean of an ensemble.",
        "",
        *markdown_table(_HEAD, rows),
        *(part for pair in COMPARED for part in _difference(pair, described)),
    ]


def _epochs(described: list[dict[str, Any]], name: str) -> str:
    counts = {one["runs"][name]["epochs"] for one in described if name in one["runs"]}
    return " or ".join(map(str, sorted(counts)))


def _difference(pair: tuple[str, str], described: list[dict[str, Any]]) -> list[str]:
    """Return the difference of two methods over the seeds that both have, as a paragraph."""
    both = [one["runs"] for one in described if all(name in one["runs"] for name in pair)]
    if len(both) < 2:
        return []
    ways = [[numbers.pick(runs[name]["averages"]) for name in pair] for runs in both]
    points = [100 * (one["accuracy"] - other["accuracy"]) for one, other in ways]
    nats = [one["nll_sum"] - other["nll_sum"] for one, other in ways]
    return [
        "",
        f"{NAMES[pair[0]]} minus {NAMES[pair[1]]}, by seed: {_interval(points, 2)} points, "
        f"{_interval(nats, 0)} in the summed NLL (95 % intervals of Student's t, n = {len(both)}).",
    ]


def spread(values: list[float], digits: int) -> str:
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def _interval(values: list[float], digits: int) -> str:
    """Return the mean with the half width of its 95 % interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    return f"{np.mean(values):+.{digits}f} ± {half:.{digits}f}"
