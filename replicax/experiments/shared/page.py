"""What a study leaves for programs (JSON) and for people (a page with figures)."""

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from replicax.experiments.shared.study import Cell, Finding, Measured, Results, Scale, Study, number
from replicax.results.figure_style import save
from replicax.version import __version__

_MAX_SIZE = 64  # of an array in the JSON; the records hold all
_VERDICTS = {True: "met", False: "**not met**", None: ""}


def write(
    study: Study,
    results: Results,
    cells: Sequence[Cell],
    folder: Path,
    scale: Scale,
    seconds: float,
    command: str = "",
) -> dict[str, Any]:
    """Write `<name>.json`, `<name>-<figure>.png` and `<name>.md`; returns what the JSON holds."""
    folder.mkdir(parents=True, exist_ok=True)
    captions = {}
    for name, figure in study.figures(results).items():
        file = f"{study.name}-{name}.png"
        save(figure, folder / file)
        captions[file] = figure.get_label() or name
    held = {
        "study": study.name,
        "title": study.title,
        "command": command or f"replicax reproduce {study.name}",
        "version": __version__,
        "machine": describe_machine(),
        "quick": scale.quick,
        "seconds": round(seconds, 1),
        "findings": [_plain(finding._asdict()) for finding in study.findings(results)],
        "notes": study.notes(results),
        "cells": [
            {"name": cell.name, "settings": cell.settings, "numbers": _small(record)}
            for cell, (_, record) in zip(cells, results, strict=True)
        ],
        "figures": list(captions),
    }
    held = _plain(held)
    text = json.dumps(held, indent=1, allow_nan=False, ensure_ascii=False)
    (folder / f"{study.name}.json").write_text(text + "\n")
    (folder / f"{study.name}.md").write_text(_markdown(study, results, held, captions))
    return held


def write_index(folder: Path, names: Sequence[str]) -> None:
    """`index.md`: a line for every study that has left its numbers in `folder`."""
    rows = []
    for name in names:
        path = folder / f"{name}.json"
        if path.exists():
            held = json.loads(path.read_text())
            verdicts = [finding["met"] for finding in held["findings"]]
            unmet = verdicts.count(False)
            judged = f"{verdicts.count(True)} met" + (f", **{unmet} not met**" if unmet else "")
            machine = f"{held['seconds']:,.0f} s of work, {held['machine']}"
            quick = " (quick)" if held["quick"] else ""
            rows.append([f"[{name}]({name}.md)", held["title"] + quick, judged, machine])
    lines = [
        "# Results",
        "",
        "The paper's studies and a few beyond it, each run, drawn and written by",
        "`replicax reproduce NAME`; this page, too. A quick version of every study is part of the",
        "tests.",
        "",
        *_rows(["study", "what it shows", "findings", "run"], rows),
        "",
    ]
    (folder / "index.md").write_text("\n".join(lines))


def describe_machine() -> str:
    return (
        f"{os.cpu_count()} cores, {jax.default_backend()}, jax {jax.__version__}, "
        f"Python {platform.python_version()}"
    )


def _markdown(study: Study, results: Results, held: dict, captions: dict[str, str]) -> str:
    minutes, seconds = divmod(round(held["seconds"]), 60)
    lines = [
        f"# {study.title}",
        "",
        study.about.strip(),
        "",
        f"`{held['command']}`, replicax {held['version']}, {held['machine']}, "
        f"{minutes} min {seconds} s of work in all"
        f"{', **quick version**' if held['quick'] else ''}. This page is written by the command.",
        "",
        "## Findings",
        "",
    ]
    findings = study.findings(results)
    header = ["", "paper or exact", "ours", "asked", "verdict"]
    lines += _rows(header, [_finding_row(finding) for finding in findings])
    for sentence in held["notes"]:
        lines += ["", f"- {sentence}"] if lines[-1][:1] != "-" else [f"- {sentence}"]
    for file, caption in captions.items():
        shown = caption.replace("*", r"\*")
        lines += ["", f"![{shown}]({file})", "", f"*{shown}*"]
    for table in study.tables(results):
        lines += ["", f"## {table.title}", "", *_rows(table.header, table.rows)]
    return "\n".join([*lines, ""])


def _finding_row(finding: Finding) -> list[Any]:
    return [finding.what, finding.paper, finding.ours, finding.asked, _VERDICTS[finding.met]]


def _rows(header: list[str], rows: list[list[Any]]) -> list[str]:
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


def _plain(value: Any) -> Any:
    """For JSON, which knows no NaN."""
    if isinstance(value, Measured):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value
