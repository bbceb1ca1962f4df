"""Table 2 of the paper: networks on CIFAR-100, as run folders.

Every run is a folder of `rx.train`, `RUNS/MODEL/METHOD`. A finished run is used, an unfinished one
is resumed, a missing one is started. So the command can be interrupted at any time and continued
on another machine, to which the folders are copied. The page is written from the folders alone.
"""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import replicax as rx
from replicax.networks.by_name import AUGMENTED, DEFAULTS, NamedProblem, absolute
from studies.table2 import starts

STARTS = "starts"
METHODS = {
    STARTS: rx.pretrain,
    "ensemble": rx.ensemble,
    "deo": rx.deo,
    "deo-star": rx.deo_star,
    "cyc-sghmc": rx.cyc_sghmc,
    "cyc-swag": rx.cyc_swag,
}
DEEP = "deep-ensemble"  # with the epochs of start networks and sampling together
FEWER = {f"{DEEP}-{count}": count for count in (1, 2, 3)}  # networks, with the epochs of all
MADE = METHODS | dict.fromkeys((DEEP, *FEWER), rx.deep_ensemble)
PAPER_MODELS = ("resnet20", "resnet32", "resnet56")
_TIMES = "wall.json"
_PEAK = 0.1  # of the paper's start networks, and of the deep ensemble
_SMALL = ("digits",)  # data for which float32 on a CPU is fast enough
TITLE = "Table 2: networks on CIFAR-100"
ABOUT = """
Section 5.2 of the paper: ten residual networks that were trained before are sampled by momentum
SGD, as an ensemble (mSGD×P10), with even-odd exchange (DEO) and with windowed exchange (DEO⋆), and
one network in cycles for ten times as long (cycSGHMC, cycSWAG). Their predictions for the 10,000
test images are averaged.
"""


@dataclass(frozen=True)
class Settings:
    """The settings of the command; the defaults are the paper's."""

    model: str = "resnet20"
    data: str = "cifar100"
    epochs: int = 500
    start_epochs: int = 300
    methods: tuple[str, ...] = tuple(METHODS)
    seed: int = 0
    num_replicas: int | None = None  # of the data set, as are the next two
    batch_size: int | None = None
    target_swap_rate: float | None = None
    cycle_epochs: int = 100

    @property
    def defaults(self) -> dict[str, Any]:
        return DEFAULTS.get(self.data, DEFAULTS["cifar100"])

    def task(self) -> NamedProblem:
        return NamedProblem(
            model=absolute(self.model),
            data=absolute(self.data),
            batch_size=self.batch_size or self.defaults["batch_size"],
            augment=self.data in AUGMENTED or ":" in self.data,
            bf16=self.data not in _SMALL,
        )

    def options(self, method: str) -> dict[str, Any]:
        """Return the options of `rx.train`: the defaults of the data set, or the paper's."""
        choices: dict[str, Any] = {}
        if method in ("deo", "deo-star"):
            names = ("learning_rate", "target_swap_rate")
            choices = {name: self.defaults[name] for name in names if name in self.defaults}
            choices["on_swap"] = "reset"  # as the authors do; cycles would lose their clock
            if self.target_swap_rate is not None:
                choices["target_swap_rate"] = self.target_swap_rate
        if method in ("cyc-sghmc", "cyc-swag"):
            choices["cycle_epochs"] = self.cycle_epochs
        count, whole = self.num_replicas or self.defaults["num_replicas"], 0
        if method == DEEP or method in FEWER:
            choices["learning_rate"] = _PEAK
            whole = count * (self.start_epochs + self.epochs)
            count = FEWER.get(method, count)
        return {
            "method": MADE[method](**choices),
            "seed": self.seed,
            "num_replicas": count,
            "epochs": whole // count or (self.start_epochs if method == STARTS else self.epochs),
        }


def is_from_new(method: str) -> bool:
    """Whether the runs of a method begin with new networks."""
    return method in (STARTS, DEEP, *FEWER)


def folder_of(runs: Path, model: str, method: str) -> Path:
    return runs / model.rpartition(":")[2] / method


def open_run(folder: Path) -> rx.Trained | None:
    """Return the run of a folder; None without a folder, or if nothing was saved."""
    try:
        run = rx.load(folder)
    except ValueError:
        return None
    return run if isinstance(run, rx.Trained) else None


def is_finished(folder: Path) -> bool:
    run = open_run(folder)
    return run is not None and run.result.code == "finished"


def run_all(
    settings: Settings,
    runs: Path,
    progress: bool | None = None,
    callback: Callable[[Any], Any] | None = None,
    report: Callable[[str], None] = lambda sentence: None,
) -> None:
    """Start or resume all unfinished runs; raise KeyboardInterrupt when one is stopped."""
    missing = [
        method
        for method in MADE
        if method in settings.methods and not is_finished(folder_of(runs, settings.model, method))
    ]
    if not missing:
        return
    task = settings.task()
    problem, init = task.problem()  # raises an error if the data are missing
    for method in missing:
        folder, start = folder_of(runs, settings.model, method), init
        report(f"{method}: {folder}")
        if not is_from_new(method):
            start = folder_of(runs, settings.model, STARTS)
            starts.write(start, problem)
        with _timed(folder):
            trained = _start_or_resume(
                folder, task, problem, start, settings.options(method),
                progress=progress, callback=callback,
            )  # fmt: skip
        if trained.result.code in ("interrupted", "stopped"):
            raise KeyboardInterrupt
        if trained.result.code != "finished":
            raise ValueError(f"{method} did not finish: {trained.result.sentence}")


@contextlib.contextmanager
def _timed(folder: Path) -> Iterator[None]:
    """Add the time inside to that of the run in the folder."""
    began, before = time.monotonic(), _steps(folder)
    try:
        yield
    finally:  # a signal ends the process here
        _add_time(folder, before, _steps(folder), time.monotonic() - began)


def _start_or_resume(
    folder: Path,
    task: NamedProblem,
    problem: Any,
    start: Any,
    options: dict[str, Any],
    **display: Any,
) -> rx.Trained:
    run = open_run(folder)
    if run is not None:
        stored = _task_of(run, task)
        if stored != task:
            problem, _ = stored.problem()
        return rx.resume(folder, problem, **display)  # pyright: ignore[reportReturnType]
    if (folder / "run.json").exists():  # killed before its first checkpoint: nothing to keep
        shutil.rmtree(folder)
    note = task.to_note()
    return rx.train(problem, start, run_dir=folder, note=note, **options, **display)


def _task_of(run: rx.Trained, ours: NamedProblem) -> NamedProblem:
    """Return the task of a run, with the data folder of this machine."""
    stored = NamedProblem.from_note(run.metadata.note) or ours
    places = {name: getattr(ours, name) for name in ("data", "data_dir", "download", "directory")}
    return replace(stored, **places)


def _steps(folder: Path) -> int:
    run = open_run(folder)
    return 0 if run is None else run.num_steps


def _add_time(folder: Path, before: int, after: int, seconds: float) -> None:
    """Add the time of steps `before` to `after`, with compilation and evaluation."""
    if after <= before:
        return
    times = _read_times(folder) if before else {"seconds": 0.0, "steps": 0}
    times = {"seconds": times["seconds"] + seconds, "steps": times["steps"] + after - before}
    (folder / _TIMES).write_text(json.dumps(times) + "\n")


def _read_times(folder: Path) -> dict[str, Any]:
    path = folder / _TIMES
    return json.loads(path.read_text()) if path.exists() else {"seconds": 0.0, "steps": 0}


def wall_seconds(folder: Path, num_steps: int) -> float | None:
    """Return the time of a run; None if a part was not timed (killed, or started elsewhere)."""
    times = _read_times(folder)
    return times["seconds"] if times["steps"] == num_steps else None


def open_runs(runs: Path, settings: Settings) -> dict[str, dict[str, rx.Trained | None]]:
    """Return the runs by model and method: of the paper's models and of all others in `runs`."""
    folders = (path for path in runs.glob("*") if path.is_dir())
    others = sorted(path.name for path in folders if not path.name.startswith("seed-"))
    names = [*PAPER_MODELS, settings.model.rpartition(":")[2], *others]
    return {
        model: {method: open_run(folder_of(runs, model, method)) for method in METHODS}
        for model in dict.fromkeys(names)
    }


def reproduce(
    settings: Settings,
    out: Path,
    runs: Path | None = None,
    *,
    assemble: bool = False,
    num_seeds: int | None = None,
    command: str = "python -m studies table2",
    progress: bool | None = None,
    callback: Callable[[Any], Any] | None = None,
    report: Callable[[str], None] = lambda sentence: None,
) -> dict[str, Any]:
    """Finish all runs, unless `assemble`; then write table2.md, table2.json and figures.

    With `num_seeds`, the runs are those of the section over seeds, and of these alone.
    """
    from studies.table2 import page, seeds

    runs = out / "records" / "table2" if runs is None else runs
    display: dict[str, Any] = {"progress": progress, "callback": callback, "report": report}
    if num_seeds is not None and not assemble:
        seeds.run_all(settings, runs, num_seeds, **display)
    elif not assemble:
        run_all(settings, runs, **display)
    return page.write(open_runs(runs, settings), runs, out, command)
