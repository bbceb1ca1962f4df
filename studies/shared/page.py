"""The output of a study: JSON for programs, a page with figures for people."""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from replicax import __version__
from replicax.results import figure_style
from studies.shared.study import Cell, Finding, Measured, Results, Scale, Study, number

_MAX_SIZE = 64  # of an array in the JSON; the records contain all arrays
_BESIDE = {  # pages that benchmarks write into the same folder
    "truth": "The right answer, or a warning: one call on posteriors with known answers",
    "planets": "Planets around a star, and phases that wrap: what is met, and what is not yet",
    "peers": "A race with other samplers: NumPyro, TensorFlow Probability, BlackJAX, PyTorch",
    "rows": "Many rows: exact draws in a handful of sweeps",
    "small-table2": "Table 2 in small: the paper's methods and a deep ensemble, on three depths",
    "last-layer": "A last layer drawn exactly, beside the last-layer Laplace of laplace-torch",
    "exchange": "Does exchange beat an ensemble of networks?",
    "networks-truth": "Networks at temperature 1 beside NUTS and HMC",
}
_VERDICTS = {True: "met", False: "**not met**", None: ""}


def write(
    study: Study,
    results: Results,
    cells: Sequence[Cell],
    folder: Path,
    scale: Scale,
    seconds: float,
    command: str = "",
    machine: str = "",
) -> dict[str, Any]:
    """Write `<name>.json`, `<name>-<figure>.png` and `<name>.md`; return the JSON as a dict.

    `machine` is where the cells ran, this one unless given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    captions = {}
    for name, figure in study.figures(results).items():
        file = f"{study.name}-{name}.png"
        figure_style.save(figure, folder / file, named=True)
        captions[file] = figure.get_label() or name
    summary = to_plain(
        {
            "study": study.name,
            "title": study.title,
            "command": command or f"python -m studies {study.name}",
            "version": __version__,
            "machine": machine or describe_machine(),
            "quick": scale.quick,
            "seconds": round(seconds, 1),
            "findings": [finding._asdict() for finding in study.findings(results)],
            "notes": study.notes(results),
            "cells": [
                {"name": cell.name, "settings": cell.settings, "numbers": _small(record)}
                for cell, (_, record) in zip(cells, results, strict=True)
            ],
            "figures": list(captions),
        }
    )
    write_json(folder / f"{study.name}.json", summary)
    (folder / f"{study.name}.md").write_text(_markdown(study, results, summary, captions))
    return summary


def write_json(path: Path, summary: dict[str, Any]) -> None:
    path.write_text(json.dumps(summary, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def write_index(folder: Path, names: Sequence[str]) -> None:
    """Write `index.md`, with a line for every study that has results in `folder`."""
    rows = []
    for name in names:
        path = folder / f"{name}.json"
        if path.exists():
            summary = json.loads(path.read_text())
            verdicts = [finding["met"] for finding in summary["findings"]]
            unmet = verdicts.count(False)
            judged = f"{verdicts.count(True)} met" + (f", **{unmet} not met**" if unmet else "")
            machine = f"{summary['seconds']:,.0f} s of work, {summary['machine']}"
            quick = " (quick)" if summary["quick"] else ""
            rows.append([f"[{name}]({name}.md)", summary["title"] + quick, judged, machine])
    lines = [
        "# Results",
        "",
        "The paper's studies and a few more. `python -m studies NAME` runs a study, draws its",
        "figures and writes its page, and this page. A quick version of every study is part of",
        "the tests.",
        "",
        *markdown_table(["study", "what it shows", "findings", "run"], rows),
        "",
    ]
    beside = [name for name in _BESIDE if (folder / f"{name}.md").exists()]
    if beside:
        lines += [
            "Written by `table2 --small`, and beside scripts in `benchmarks/` and `examples/`:",
            "",
        ]
        lines += [*(f"- [{name}]({name}.md): {_BESIDE[name]}" for name in beside), ""]
    (folder / "index.md").write_text("\n".join(lines))


def describe_machine() -> str:
    device = jax.devices()[0]
    kind = device.platform if device.platform == "cpu" else device.device_kind
    return (
        f"{os.cpu_count()} cores, {kind}, jax {jax.__version__}, Python {platform.python_version()}"
    )


def _markdown(study: Study, results: Results, summary: dict, captions: dict[str, str]) -> str:
    minutes, seconds = divmod(round(summary["seconds"]), 60)
    quick = ", **quick version**" if summary["quick"] else ""
    lines = [
        f"# {study.title}",
        "",
        study.about.strip(),
        "",
        f"`{summary['command']}`, replicax {summary['version']}, {summary['machine']}, "
        f"{minutes} min {seconds} s of work in all{quick}. This page is written by the command.",
        "",
        *findings_section(study.findings(results)),
    ]
    for sentence in summary["notes"]:
        lines += ["", f"- {sentence}"] if lines[-1][:1] != "-" else [f"- {sentence}"]
    for file, caption in captions.items():
        shown = caption.replace("*", r"\*")
        lines += ["", f"![{shown}]({file})", "", f"*{shown}*"]
    for table in study.tables(results):
        lines += ["", f"## {table.title}", "", *markdown_table(table.header, table.rows)]
    return "\n".join([*lines, ""])


def findings_section(findings: Sequence[Finding]) -> list[str]:
    rows = [[f.what, f.paper, f.ours, f.asked, _VERDICTS[f.met]] for f in findings]
    header = ["", "paper or exact", "ours", "asked", "verdict"]
    return ["## Findings", "", *markdown_table(header, rows)]


def markdown_table(header: list[str], rows: list[list[Any]]) -> list[str]:
    def line(parts: list[Any]) -> str:
        return "| " + " | ".join(_text(part) for part in parts) + " |"

    return [line(header), "|" + "---|" * len(header), *map(line, rows)]


def _text(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | float | np.number | np.ndarray):
        return number(float(value))
    return str(value).replace("|", r"\|")


def _small(record: Any) -> dict[str, Any]:
    return {name: value for name, value in record.items() if np.size(value) <= _MAX_SIZE}


def to_plain(value: Any) -> Any:
    """Return `value` as lists, dicts, numbers and strings for JSON; NaN becomes None."""
    if isinstance(value, Measured):
        return to_plain(value._asdict())
    if isinstance(value, dict):
        return {str(key): to_plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return to_plain(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value
