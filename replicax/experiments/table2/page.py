"""The page of Table 2, its numbers for programs, and the sentences that say what they are worth."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from replicax.experiments.shared.page import _finding_row, _plain, _rows
from replicax.experiments.shared.study import Finding
from replicax.experiments.table2 import figures as drawn
from replicax.experiments.table2 import numbers
from replicax.experiments.table2.numbers import COMPARED, LOGS, NAMES, PAPER, Trips
from replicax.experiments.table2.study import (
    ABOUT,
    STARTS,
    TITLE,
    folder_of,
    wall_seconds,
)
from replicax.networks.trained import START_WEIGHT, Trained
from replicax.results.figure_style import save
from replicax.version import __version__

NOT_RUN = "not run"
Runs = dict[str, Trained | None]
_FULL = {STARTS: 300, "cyc-sghmc": 5000, "cyc-swag": 5000}  # the paper's epochs; else 500
_TRIPS = {"deo": "6.0; Lemma 1 5.5", "deo-star": "11.2; Lemma 1 11.1"}  # per 100 epochs, ResNet20


def write(found: dict[str, Runs], folder: Path, out: Path, command: str) -> dict[str, Any]:
    """Write `table2.md`, `table2.json` and `table2-*.png`; returns what the JSON holds."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("table2-*.png"):
        old.unlink()
    models, captions, machines, seconds = {}, {}, [], 0.0
    for model, runs in found.items():
        trips = {
            name: numbers.trips_of(run)
            for name, run in runs.items()
            if run is not None and run.options["schedule"] == "windowed_deo"
        }
        models[model] = describe(model, runs, trips, folder)
        for name, figure in drawn.draw_all(model, runs, trips).items():
            save(figure, out / f"table2-{name}.png")
            captions[f"table2-{name}.png"] = figure.get_label()
        machines += [run._records.meta["machine"] for run in runs.values() if run is not None]
        seconds += sum(run.get("seconds") or 0.0 for run in models[model]["runs"].values())
    findings = [finding for model in models.values() for finding in model.pop("findings")]
    held = {
        "study": "table2",
        "title": TITLE,
        "command": command,
        "version": __version__,
        "machine": "; ".join(dict.fromkeys(machines)) or NOT_RUN,
        "quick": False,
        "seconds": round(seconds, 1),
        "findings": [finding._asdict() for finding in findings],
        "models": models,
        "figures": list(captions),
    }
    held = _plain(held)
    text = json.dumps(held, indent=1, allow_nan=False, ensure_ascii=False)
    (out / "table2.json").write_text(text + "\n")
    (out / "table2.md").write_text("\n".join(_page(held, findings, captions)) + "\n")
    return held


def describe(model: str, runs: Runs, trips: dict[str, Trips], folder: Path) -> dict[str, Any]:
    """Everything about the runs of one model as plain data."""
    held = {name: _describe_run(model, name, run, folder) for name, run in runs.items()}
    for name, seen in trips.items():
        held[name]["round_trips"] = {
            "counted": seen.counted,
            "long_run": seen.long_run,
            "simulated_mean": seen.mean,
            "simulated_std": seen.std,
            "round_trip_epochs": seen.round_trip_time / _options(runs, name)["history_every"],
        }
    compared = {}
    for pair in COMPARED:
        one, other = (runs.get(name) for name in pair)
        if one is not None and other is not None and all(map(numbers.has_average, (one, other))):
            compared[" - ".join(pair)] = numbers.compare(one, other)._asdict()
    return {
        "runs": held,
        "starts_alone": numbers.starts_alone(runs),
        "compared": compared,
        "findings": [*_claims(model, compared, held), *_trip_findings(model, trips)],
    }


def _options(runs: Runs, name: str) -> dict[str, Any]:
    run = runs[name]
    assert run is not None, "only runs that are there have trips"
    return run.options


def _describe_run(model: str, name: str, run: Trained | None, folder: Path) -> dict[str, Any]:
    if run is None:
        return {"state": NOT_RUN}
    place, seen = folder_of(folder, model, name), run.epochs
    held: dict[str, Any] = {
        "state": run.result.code,
        "data": numbers.data_name(run),
        "epochs": run.num_epochs,
        "asked_epochs": numbers.asked_epochs(run),
        "networks": run.num_replicas,
        "cycles": numbers.whole_cycles(run),
        "averaged": float(run.average.weight),
        "command": numbers.command_of(run),
        "seeds": [run._records.meta["training"]["seed"]],
        "machine": run._records.meta["machine"],
        "seconds": wall_seconds(place, run.num_steps),
        "wall": numbers.wall_of(place, run),
        "averages": numbers.averages(run) if numbers.has_average(run) else [],
        "num_images": len(run.labels),
    }
    if len(seen["epoch"]):
        held["by_rung"] = {part: seen[part][-1].tolist() for part in ("accuracy", "nll")}
    if name in ("deo", "deo-star"):
        held["window"] = run.window
        held["verdict_rate"] = run.verdict_rate[0].tolist()
        held["learning_rates"] = run.learning_rates[0].tolist()
    return held


def _claims(
    model: str, compared: dict[str, dict[str, float]], runs: dict[str, dict[str, Any]]
) -> list[Finding]:
    """The paper's order of methods, judged where the paper itself has it: by two standard errors
    over images."""

    def label(name: str) -> str:
        is_finished = runs[name]["state"] == "finished"
        return NAMES[name] if is_finished else f"{NAMES[name]} (unfinished)"

    found = []
    for pair in COMPARED:
        seen, printed = compared.get(" - ".join(pair)), PAPER.get(model)
        if seen is None or printed is None:
            continue
        one, other = (printed[name] for name in pair)
        for what, theirs, ours, error, digits, better in (
            ("accuracy, points", one[2] - other[2], 100 * seen["accuracy"],
             100 * seen["accuracy_error"], 2, 1),
            ("NLL, sum", one[0] - other[0], seen["nll_sum"], seen["nll_sum_error"], 0, -1),
        ):  # fmt: skip
            claimed = better * theirs > 0
            asked = "more than 2 standard errors better" if claimed else ""
            met = better * ours > 2 * error if claimed else None
            name = f"{model}, {label(pair[0])} minus {label(pair[1])}: {what}"
            shown = f"{ours:+.{digits}f} ± {error:.{digits}f}"
            found.append(Finding(name, f"{theirs:+.{digits}f}", shown, asked, met))
    return found


def _trip_findings(model: str, trips: dict[str, Trips]) -> list[Finding]:
    """Shown, and judged by what coins of the same rates do."""
    found = []
    for name, seen in trips.items():
        low, high = np.quantile(seen.simulated, (0.005, 0.995))
        what = f"{model}, {NAMES[name]}: round trips in the whole run"
        expected = f"coins {seen.mean:.1f} ± {seen.std:.1f}; long run {seen.long_run:.1f}"
        asked = f"{low:.0f} to {high:.0f} (99 % of the coins)"
        met = bool(low <= seen.counted <= high)
        found.append(Finding(what, expected, str(seen.counted), asked, met))
    return found


def _page(held: dict[str, Any], findings: list[Finding], captions: dict[str, str]) -> list[str]:
    lines = [
        f"# {held['title']}",
        "",
        ABOUT.strip(),
        "",
        f"`{held['command']}`, replicax {held['version']}; the networks ran on: {held['machine']}. "
        "This page is written by the command from the run folders. All numbers are those of the "
        "**last epoch**: nothing is selected on the test set, while the paper reports the best "
        "epoch on it. The headline averages logits, as the authors do, and leaves out the start "
        f"networks, which the authors count {START_WEIGHT:g} times each.",
    ]
    for model, seen in held["models"].items():
        lines += ["", f"## {model}", "", *_rows(_HEAD, _headline(model, seen))]
        lines += [part for sentence in _sentences(model, seen) for part in ("", sentence)]
    if findings:
        header = ["", "paper or exact", "ours", "asked", "verdict"]
        lines += ["", "## Findings", "", *_rows(header, [_finding_row(f) for f in findings])]
        lines += ["", _VERDICTS]
    for file, caption in captions.items():
        lines += ["", f"![{caption}]({file})", "", f"*{caption}*"]
    for model, seen in held["models"].items():
        if rows := _ways(seen):
            lines += ["", f"## {model}: every way to average", "", *_rows(_WAYS_HEAD, rows)]
            lines += ["", f"## {model}: the runs", "", *_rows(_RUNS_HEAD, _runs(seen))]
            commands = [run["command"] for run in seen["runs"].values() if "command" in run]
            lines += ["", "The same runs by hand:", "", *(f"    {line}" for line in commands)]
    return lines


_VERDICTS = (
    "The standard errors are those of the test images, paired (of every image the difference of "
    "both methods; for accuracy that is McNemar's). They do not contain what another seed would "
    "change: a verdict holds for these runs."
)
_HEAD = ["method", "epochs", "networks averaged", "accuracy, %", "NLL, sum", "NLL, mean",
         "with starts: accuracy, %", "NLL, sum", "paper: accuracy, %", "NLL, sum",
         "authors' logs, last epoch"]  # fmt: skip
_WAYS_HEAD = ["method", "average by", "start networks", "accuracy, %", "NLL, sum", "NLL, mean",
              "Brier", "calibration error"]  # fmt: skip
_RUNS_HEAD = ["run", "data", "networks", "epochs", "seeds", "hardware", "wall time, all in",
              "one network at the end: accuracy, %"]  # fmt: skip


def _headline(model: str, seen: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, run in seen["runs"].items():
        if name == STARTS:
            continue
        row = [NAMES[name], _epochs(run), f"{run['averaged']:g}" if _has(run) else "–"]
        row += _triple(numbers.pick(run.get("averages", []))) if _has(run) else [NOT_RUN, "–", "–"]
        row += _triple(numbers.pick(run.get("averages", []), start_weight=START_WEIGHT))[:2]
        printed = PAPER.get(model, {}).get(name)
        if printed:
            row += [f"{printed[2]:.2f} ± {printed[3]:.2f}", f"{printed[0]:.0f} ± {printed[1]:.0f}"]
        else:
            row += ["–", "–"]
        rows.append([*row, LOGS.get((model, name), "–")])
    alone = numbers.pick(seen["starts_alone"], start_weight=1.0)
    if alone:
        rows.append(["start networks alone", _epochs(seen["runs"][STARTS]), "–", *_triple(alone),
                     *["–"] * 5])  # fmt: skip
    return rows


def _has(run: dict[str, Any]) -> bool:
    return bool(run.get("averages"))


def _epochs(run: dict[str, Any]) -> str:
    if run["state"] == NOT_RUN:
        return NOT_RUN
    done, asked = run["epochs"], run["asked_epochs"]
    return f"{done}" if run["state"] == "finished" else f"{done} of {asked}, unfinished"


def _triple(way: dict[str, Any] | None) -> list[str]:
    if way is None:
        return ["–", "–", "–"]
    return [f"{100 * way['accuracy']:.2f}", f"{way['nll_sum']:.0f}", f"{way['nll']:.4f}"]


def _ways(seen: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, run in [*seen["runs"].items(), ("alone", {"averages": seen["starts_alone"]})]:
        for way in run.get("averages", []):
            starts = f"{way['start_weight']:g} times each" if way["start_weight"] else "without"
            label = "start networks alone" if name == "alone" else NAMES[name]
            rows.append([label, way["by"], "alone" if name == "alone" else starts, *_triple(way),
                         f"{way['brier']:.4f}", f"{way['calibration_error']:.4f}"])  # fmt: skip
    return rows


def _runs(seen: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, run in seen["runs"].items():
        if run["state"] == NOT_RUN:
            rows.append([NAMES[name], NOT_RUN, *["–"] * (len(_RUNS_HEAD) - 2)])
            continue
        right = 100 * np.array(run["by_rung"]["accuracy"]) if "by_rung" in run else []
        first = "coldest" if name.startswith("deo") else "the first"
        alone = f"{right[0]:.2f}" if len(right) else "–"
        if len(right) > 1:
            alone += f" {first}, {np.mean(right):.2f} mean"
        seeds = f"{', '.join(map(str, run['seeds']))} (n = {len(run['seeds'])})"
        rows.append([NAMES[name], run["data"], str(run["networks"]), _epochs(run), seeds,
                     run["machine"], run["wall"], alone])  # fmt: skip
    return rows


def _sentences(model: str, seen: dict[str, Any]) -> list[str]:
    from replicax.experiments.table2.findings import sentences

    return sentences(model, seen, _FULL, _TRIPS)
