"""The page and the JSON of Table 2, written from its runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np

import replicax as rx
from replicax import __version__
from replicax.results import figure_style
from studies.shared.page import findings_section, markdown_table, to_plain, write_json
from studies.shared.study import Finding
from studies.table2 import figures, numbers, paper, seeds, starts
from studies.table2.findings import claims, does_exchange_win, sentences, trip_findings
from studies.table2.paper import COMPARED, NAMES
from studies.table2.trainings import ABOUT, STARTS, TITLE, folder_of, wall_seconds

NOT_RUN = "not run"
Runs = dict[str, rx.Trained | None]


def write(runs_of: dict[str, Runs], folder: Path, out: Path, command: str) -> dict[str, Any]:
    """Write `table2.md`, `table2.json` and `table2-*.png`; return the JSON as a dict.

    A model or a method without run folders keeps what an earlier `table2.json` says about it.
    """
    out.mkdir(parents=True, exist_ok=True)
    earlier, models = _earlier_models(out), {}
    for model, runs in runs_of.items():
        missing = all(run is None for run in runs.values())
        if missing and model in earlier:
            models[model] = earlier[model]
            _redraw(model, models[model], out)
        else:
            models[model] = describe(model, runs, folder, out)
            if _keep_earlier_runs(models[model], earlier.get(model)):
                _redraw(model, models[model], out)
        over_seeds = seeds.describe(model, folder) or earlier.get(model, {}).get("seeds")
        if over_seeds:
            models[model]["seeds"] = over_seeds
    findings = [Finding(**one) for model in models.values() for one in model["findings"]]
    captions = {file: text for model in models.values() for file, text in model["captions"].items()}
    for old in set(out.glob("table2-*.png")) - {out / file for file in captions}:
        old.unlink()
    described = [run for model in models.values() for run in model["runs"].values()]
    described += [
        run for model in models.values() for one in model.get("seeds", ())
        for run in one["runs"].values()
    ]  # fmt: skip
    machines = dict.fromkeys(run["machine"] for run in described if "machine" in run)
    summary = to_plain(
        {
            "study": "table2",
            "title": TITLE,
            "command": command,
            "version": __version__,
            "machine": "; ".join(machines) or NOT_RUN,
            "quick": False,
            "seconds": round(sum(run.get("seconds") or 0.0 for run in described), 1),
            "findings": [finding._asdict() for finding in findings],
            "models": models,
            "figures": list(captions),
        }
    )
    write_json(out / "table2.json", summary)
    (out / "table2.md").write_text("\n".join(_page(summary, findings, captions)) + "\n")
    return summary


def _earlier_models(out: Path) -> dict[str, Any]:
    """Return the models of the `table2.json` that is there, if it has what a page needs."""
    path = out / "table2.json"
    models = json.loads(path.read_text())["models"] if path.exists() else {}
    return {name: model for name, model in models.items() if "captions" in model}


def _keep_earlier_runs(described: dict[str, Any], earlier: dict[str, Any] | None) -> bool:
    """Put earlier runs of methods that have no folder beside the others; return whether any did.

    Other networks may have been their starts, so that they are marked and not compared.
    """
    if earlier is None:
        return False
    kept = {
        name: {"starts_of": earlier["runs"][STARTS].get("epochs"), **run}
        for name, run in earlier["runs"].items()
        if _has(run) and described["runs"][name]["state"] == NOT_RUN
    }
    described["runs"] |= kept
    return bool(kept)


def _redraw(model: str, described: dict[str, Any], out: Path) -> None:
    """Draw the curves of a model again, where they are stored."""
    runs = described["runs"].items()
    if curves := {name: run["curve"] for name, run in runs if "curve" in run}:
        figure = figures.draw_epochs(model, curves)
        figure_style.save(figure, out / f"table2-{model}-epochs.png", named=True)
        described["captions"][f"table2-{model}-epochs.png"] = figure.get_label()


def describe(model: str, runs: Runs, folder: Path, out: Path) -> dict[str, Any]:
    """Return everything about the runs of one model as plain data, and draw its figures."""
    trips = {
        name: numbers.trips_of(run)
        for name, run in runs.items()
        if run is not None and run.options["schedule"] == "windowed_deo"
    }
    captions = {}
    for name, figure in figures.draw_all(model, runs, trips).items():
        figure_style.save(figure, out / f"table2-{name}.png", named=True)
        captions[f"table2-{name}.png"] = figure.get_label()
    described = {name: _describe_run(model, name, run, folder) for name, run in runs.items()}
    for name, count in trips.items():
        described[name]["round_trips"] = {
            "counted": count.counted,
            "long_run": count.long_run,
            "simulated_mean": count.mean,
            "simulated_std": count.std,
            "round_trip_epochs": count.round_trip_time / _options(runs, name)["history_every"],
        }
    compared = {}
    for pair in COMPARED:
        one, other = (runs.get(name) for name in pair)
        if one is not None and other is not None and all(map(numbers.has_average, (one, other))):
            compared[" - ".join(pair)] = numbers.compare(one, other)._asdict()
    all_findings = [*claims(model, compared, described), *trip_findings(model, trips)]
    return {
        "runs": described,
        "starts_alone": _describe_starts(runs[STARTS], folder_of(folder, model, STARTS)),
        "compared": compared,
        "findings": [finding._asdict() for finding in all_findings],
        "captions": captions,
    }


def _describe_starts(run: rx.Trained | None, folder: Path) -> list[dict[str, Any]]:
    at_start = None if run is None else starts.read(folder, run.num_replicas)
    return [] if run is None or at_start is None else numbers.starts_alone(at_start, run.labels)


def _options(runs: Runs, name: str) -> dict[str, Any]:
    run = runs[name]
    assert run is not None, "a run with trips exists"
    return run.options


def _describe_run(model: str, name: str, run: rx.Trained | None, folder: Path) -> dict[str, Any]:
    if run is None:
        return {"state": NOT_RUN}
    seconds = wall_seconds(folder_of(folder, model, name), run.num_steps)
    at_start = starts.read(folder_of(folder, model, STARTS), run.num_replicas)
    described: dict[str, Any] = {
        "state": run.result.code,
        "data": numbers.data_name(run),
        "epochs": run.num_epochs,
        "asked_epochs": numbers.asked_epochs(run),
        "networks": run.num_replicas,
        "cycles": numbers.whole_cycles(run),
        "averaged": float(run.average.weight),
        "command": numbers.command_of(run),
        "seeds": [run.metadata.run.seed],
        "machine": run.metadata.machine,
        "seconds": seconds,
        "wall": numbers.format_seconds(seconds),
        "averages": numbers.averages(run, at_start) if numbers.has_average(run) else [],
        "num_images": len(run.labels),
    }
    if numbers.has_average(run):
        described["curve"] = numbers.curve_of(run)
    if len(run.epochs["epoch"]):
        described["by_rung"] = {key: run.epochs[key][-1].tolist() for key in ("accuracy", "nll")}
    if name in ("deo", "deo-star"):
        described["window"] = run.window
        described["verdict_rate"] = run.verdict_rate[0].tolist()
        described["learning_rates"] = run.learning_rates[0].tolist()
    return described


def _page(summary: dict[str, Any], findings: list[Finding], captions: dict[str, str]) -> list[str]:
    lines = [
        f"# {summary['title']}",
        "",
        ABOUT.strip(),
        "",
        *([answer, ""] if (answer := does_exchange_win(summary["models"])) else []),
        f"`{summary['command']}`, replicax {summary['version']}; the networks ran on: "
        f"{summary['machine']}. "
        "This page is written by the command from the run folders. All numbers are those of the "
        "**last epoch**: nothing is selected on the test set, while the paper reports the best "
        "epoch on it. The headline averages logits, as the authors do, and leaves out the start "
        f"networks, which the authors count {starts.WEIGHT:g} times each.",
    ]
    for model, described in summary["models"].items():
        lines += ["", f"## {model}", "", *markdown_table(_HEAD, _headline(model, described))]
        lines += [part for sentence in sentences(model, described) for part in ("", sentence)]
        if "seeds" in described:
            lines += ["", *seeds.section(model, described["seeds"])]
    if findings:
        lines += ["", *findings_section(findings), "", _VERDICTS]
    for file, caption in captions.items():
        lines += ["", f"![{caption}]({file})", "", f"*{caption}*"]
    for model, described in summary["models"].items():
        if rows := _ways(described):
            lines += ["", f"## {model}: every way to average", ""]
            lines += [*markdown_table(_WAYS_HEAD, rows), "", f"## {model}: the runs", ""]
            lines += markdown_table(_RUNS_HEAD, _runs(described))
            all_runs = [described, *described.get("seeds", ())]
            commands = [run["command"] for part in all_runs for run in part["runs"].values()
                        if "command" in run]  # fmt: skip
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


def _headline(model: str, described: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, run in described["runs"].items():
        if name == STARTS:
            continue
        row = [NAMES[name], _epochs(run), f"{run['averaged']:g}" if _has(run) else "–"]
        row += _triple(numbers.pick(run.get("averages", []))) if _has(run) else [NOT_RUN, "–", "–"]
        row += _triple(numbers.pick(run.get("averages", []), start_weight=starts.WEIGHT))[:2]
        printed = paper.RESULTS.get(model, {}).get(name)
        if printed:
            row += [f"{printed[2]:.2f} ± {printed[3]:.2f}", f"{printed[0]:.0f} ± {printed[1]:.0f}"]
        else:
            row += ["–", "–"]
        rows.append([*row, paper.LOGS.get((model, name), "–")])
    alone = numbers.pick(described["starts_alone"], start_weight=1.0)
    if alone:
        epochs = _epochs(described["runs"][STARTS])
        rows.append(["start networks alone", epochs, "–", *_triple(alone), *["–"] * 5])
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


def _ways(described: dict[str, Any]) -> list[list[str]]:
    rows = []
    alone = ("alone", {"averages": described["starts_alone"]})
    for name, run in [*described["runs"].items(), alone]:
        for way in run.get("averages", []):
            counted = f"{way['start_weight']:g} times each" if way["start_weight"] else "without"
            label = "start networks alone" if name == "alone" else NAMES[name]
            rows.append([label, way["by"], "alone" if name == "alone" else counted, *_triple(way),
                         f"{way['brier']:.4f}", f"{way['calibration_error']:.4f}"])  # fmt: skip
    return rows


def _runs(described: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, run in described["runs"].items():
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
