"""Run the cells of a study, save their records, and write the page from the saved records."""

import contextlib
import json
import os
import signal
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from replicax import __version__
from studies.shared import page
from studies.shared.study import Cell, Record, Results, Scale, Stopped, Study, Work

_SETTINGS = "__settings__"
_SECONDS = "__seconds__"
_MACHINE = "__machine__"


def reproduce(
    study: Study,
    folder: Path,
    scale: Scale = Scale(),  # noqa: B008
    *,
    fresh: bool = False,
    progress: bool | None = None,
    command: str = "",
    share: tuple[int, int] | None = None,
) -> dict[str, Any] | None:
    """Run the cells without a record, write `<name>.json`, figures and page; return the JSON.

    With a `share` (k, n), run every n-th cell from the k-th on, one after the other, and write no
    page: n processes do the work of one. Ctrl-C raises KeyboardInterrupt; finished cells are kept.
    """
    cells = study.cells(scale)
    if fresh:
        for cell in cells:
            _path(folder, study, cell).unlink(missing_ok=True)
    missing = [cell for cell in cells if read_record(folder, study, cell) is None]
    if share is not None:
        ours = cells[share[0] - 1 :: share[1]]
        run_cells(study, [cell for cell in missing if cell in ours], folder, progress, workers=1)
        return None
    run_cells(study, missing, folder, progress)
    records = [read_record(folder, study, cell) or {} for cell in cells]
    seconds = sum(float(record[_SECONDS]) for record in records)
    machines = dict.fromkeys(
        str(record.get(_MACHINE, page.describe_machine())) for record in records
    )
    results = Results(list(zip(cells, map(_public, records), strict=True)))
    return page.write(study, results, cells, folder, scale, seconds, command, "; ".join(machines))


def run_cells(
    study: Study,
    cells: list[Cell],
    folder: Path,
    progress: bool | None,
    workers: int | None = None,
) -> None:
    """Run the cells in parallel, one per core: the program of a toy uses one core."""
    stop, workers = threading.Event(), workers or os.cpu_count()
    with display(study, len(cells), progress) as show, ThreadPoolExecutor(workers) as pool:

        def run_one(cell: Cell) -> None:
            tick, done = show(cell.name)
            began = time.monotonic()
            with contextlib.suppress(Stopped):
                record = study.run(cell.settings, Work(tick, stop.is_set))
                write_record(folder, study, cell, record, time.monotonic() - began)
                done()

        jobs = {pool.submit(run_one, cell) for cell in cells}
        try:
            while jobs:
                ended, jobs = wait(jobs, timeout=0.2, return_when=FIRST_COMPLETED)
                for job in ended:
                    job.result()
        except BaseException:  # an error in one cell, or Ctrl-C: the others end at their next tick
            stop.set()
            for job in jobs:
                job.cancel()
            with uninterrupted():
                wait(jobs)
            raise


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore a further Ctrl-C, which would end Python while threads are still running."""
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
    about = {_SETTINGS: _fingerprint(cell), _SECONDS: seconds, _MACHINE: page.describe_machine()}
    arrays: Any = {**record, **about}
    with unfinished.open("wb") as file:
        np.savez_compressed(file, **arrays)
    unfinished.replace(path)


def read_record(folder: Path, study: Study, cell: Cell) -> dict[str, np.ndarray] | None:
    """Return the record of a cell, or None without one of the same settings and version."""
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
    study: Study, num_cells: int, progress: bool | None
) -> Iterator[Callable[[str], tuple[Callable[[float], None], Callable[[], None]]]]:
    """Show progress of the study and of each running cell; yield `show(name) -> tick, done`."""
    if num_cells == 0 or progress is False or (progress is None and not sys.stderr.isatty()):
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
