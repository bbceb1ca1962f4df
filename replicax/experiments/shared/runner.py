"""Run studies: every finished cell is saved at once, and numbers and figures come from what is
saved."""

import contextlib
import json
import os
import signal
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from replicax.experiments.shared import page
from replicax.experiments.shared.study import Cell, Record, Results, Scale, Stopped, Study, Work
from replicax.run.program import Programs
from replicax.version import __version__

_SETTINGS = "__settings__"
_SECONDS = "__seconds__"


def reproduce(
    study: Study,
    folder: Path,
    scale: Scale = Scale(),  # noqa: B008
    *,
    fresh: bool = False,
    progress: bool | None = None,
    command: str = "",
    programs: Programs | None = None,
) -> dict[str, Any]:
    """Run the cells that have no record yet, then write `<name>.json`, figures and page.

    Returns what the JSON holds. Ctrl-C ends with KeyboardInterrupt; finished cells are kept.
    Studies of the same target may share `programs`.
    """
    cells = study.cells(scale)
    if fresh:
        for cell in cells:
            _path(folder, study, cell).unlink(missing_ok=True)
    missing = [cell for cell in cells if read_record(folder, study, cell) is None]
    run_cells(study, missing, folder, progress, Programs() if programs is None else programs)
    records = [read_record(folder, study, cell) or {} for cell in cells]
    seconds = sum(float(record[_SECONDS]) for record in records)
    results = Results(list(zip(cells, map(_public, records), strict=True)))
    return page.write(study, results, cells, folder, scale, seconds, command)


def run_cells(
    study: Study, cells: list[Cell], folder: Path, progress: bool | None, programs: Programs
) -> None:
    """As many cells side by side as there are cores: a toy's program keeps one core busy."""
    stop = threading.Event()
    with display(study, len(cells), progress) as show, ThreadPoolExecutor(os.cpu_count()) as pool:

        def run_one(cell: Cell) -> None:
            tick, done = show(cell.name)
            began = time.monotonic()
            with contextlib.suppress(Stopped):
                record = study.run(cell.settings, Work(tick, stop.is_set, programs))
                write_record(folder, study, cell, record, time.monotonic() - began)
                done()

        jobs = {pool.submit(run_one, cell) for cell in cells}
        try:
            while jobs:
                ended, jobs = wait(jobs, timeout=0.2, return_when=FIRST_COMPLETED)
                for job in ended:
                    job.result()
        except BaseException:  # a fault in one cell, or Ctrl-C: the others end at their next tick
            stop.set()
            for job in jobs:
                job.cancel()
            with uninterrupted():
                wait(jobs)
            raise


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """A second Ctrl-C must not end Python under threads that are still at work."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def write_record(folder: Path, study: Study, cell: Cell, record: Record, seconds: float) -> None:
    path = _path(folder, study, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    held: Any = {**record, _SETTINGS: _fingerprint(cell), _SECONDS: seconds}
    with unfinished.open("wb") as file:
        np.savez_compressed(file, **held)
    unfinished.replace(path)


def read_record(folder: Path, study: Study, cell: Cell) -> dict[str, np.ndarray] | None:
    """The record of a cell; None where there is none of the same settings and version."""
    path = _path(folder, study, cell)
    try:
        with np.load(path, allow_pickle=False) as file:
            record = dict(file)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    return record if str(record.get(_SETTINGS)) == _fingerprint(cell) else None


def _public(record: Record) -> Record:
    return {name: value for name, value in record.items() if not name.startswith("__")}


def _fingerprint(cell: Cell) -> str:
    return json.dumps([__version__, cell.settings], sort_keys=True)


def _path(folder: Path, study: Study, cell: Cell) -> Path:
    return folder / "records" / study.name / f"{cell.name}.npz"


@contextlib.contextmanager
def display(
    study: Study, num_cells: int, wanted: bool | None
) -> Iterator[Callable[[str], tuple[Callable[[float], None], Callable[[], None]]]]:
    """A bar for the study and one for each running cell; yields `show(name) -> tick, done`."""
    import sys

    if num_cells == 0 or wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield lambda name: (lambda fraction: None, lambda: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<28}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        whole = bars.add_task(study.name, total=num_cells)

        def show(name: str) -> tuple[Callable[[float], None], Callable[[], None]]:
            task = bars.add_task(f"  {name}", total=1.0)

            def done() -> None:
                bars.remove_task(task)
                bars.advance(whole)

            return lambda fraction: bars.update(task, completed=fraction), done

        yield show
