"""Table 2 of the paper: networks on CIFAR-100, from run folders that may be gone on with anywhere.

Every run is a folder of `rx.train`, `RUNS/MODEL/METHOD`. A finished one is used as it is, an
unfinished one is gone on with, a missing one is started; so the command can be interrupted at any
moment and, once the folders are copied, continued on another machine. The page is written from the
folders alone.
"""

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from replicax.networks.tasks import AUGMENTED, DEFAULTS, Task, absolute
from replicax.networks.trained import Trained

STARTS = "starts"
METHODS = {STARTS: "pretrain", **{name: name for name in
           ("ensemble", "deo", "deo-star", "cyc-sghmc", "cyc-swag")}}  # fmt: skip
PAPER_MODELS = ("resnet20", "resnet32", "resnet56")
_WALL = "wall.json"
_SMALL = ("digits",)  # data for which float32 on a CPU will do
TITLE = "Table 2: networks on CIFAR-100"
ABOUT = """
Section 5.2 of the paper: ten residual networks that were trained before are sampled by momentum
SGD, as an ensemble (mSGD×P10), with even-odd exchange (DEO) and with windowed exchange (DEO⋆), and
one network in cycles for ten times as long (cycSGHMC, cycSWAG). What they say about the 10,000 test
images is averaged.
"""


@dataclass(frozen=True)
class Settings:
    """What the command was told; the defaults are the paper's."""

    model: str = "resnet20"
    data: str = "cifar100"
    epochs: int = 500
    start_epochs: int = 300
    methods: tuple[str, ...] = tuple(METHODS)
    seed: int = 0
    more: tuple[tuple[str, Any], ...] = ()  # further options of `rx.train`

    @property
    def usual(self) -> dict[str, Any]:
        return DEFAULTS.get(self.data, DEFAULTS["cifar100"])

    def task(self) -> Task:
        return Task(
            model=absolute(self.model),
            data=absolute(self.data),
            batch_size=self.usual["batch_size"],
            augment=self.data in AUGMENTED or ":" in self.data,
            bf16=self.data not in _SMALL,
            directory=os.getcwd(),
        )

    def options(self, method: str) -> dict[str, Any]:
        """Of `rx.train`, the paper's where the data set has none of its own."""
        given: dict[str, Any] = {"method": METHODS[method], "seed": self.seed}
        given["num_replicas"] = self.usual["num_replicas"]
        if method == STARTS:
            return {**given, "epochs": self.start_epochs, **dict(self.more)}
        given |= {"epochs": self.epochs, "average_starts": True}
        if method in ("deo", "deo-star"):
            given["on_swap"] = "reset"  # as the authors do; cycles have a clock to keep
            given |= {n: self.usual[n] for n in _OF_LADDERS if n in self.usual}
        return given | dict(self.more)


_OF_LADDERS = ("learning_rate", "target_swap_rate")


def folder_of(runs: Path, model: str, method: str) -> Path:
    return runs / model.rpartition(":")[2] / method


def open_run(folder: Path) -> Trained | None:
    """What a run folder holds; None where there is none, or nothing was saved."""
    import replicax as rx

    try:
        found = rx.load(folder)
    except ValueError:
        return None
    return found if isinstance(found, Trained) else None


def is_finished(folder: Path) -> bool:
    run = open_run(folder)
    return run is not None and run.result.code == "finished"


def run_all(
    settings: Settings,
    runs: Path,
    progress: bool | None = None,
    callback: Callable[[Any], Any] | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> None:
    """Make every run finished; KeyboardInterrupt where one was stopped, whose steps are kept."""
    missing = [
        method
        for method in METHODS
        if method in settings.methods and not is_finished(folder_of(runs, settings.model, method))
    ]
    if not missing:
        return
    task = settings.task()
    problem, init = task.problem()  # says where the data are missing
    for method in missing:
        folder = folder_of(runs, settings.model, method)
        say(f"{method}: {folder}")
        starts = folder_of(runs, settings.model, STARTS)
        began, before = time.monotonic(), _steps(folder)
        trained = _go_on(settings, method, folder, task, problem,
                         init if method == STARTS else starts, progress, callback)  # fmt: skip
        _note_wall(folder, before, trained.num_steps, time.monotonic() - began)
        if trained.result.code in ("interrupted", "stopped"):
            raise KeyboardInterrupt
        if trained.result.code != "finished":
            raise ValueError(f"{method} did not finish: {trained.result.sentence}")


def _go_on(settings, method, folder, task, problem, start, progress, callback) -> Trained:
    from replicax.networks.train import resume_training, train

    shown = {"progress": progress, "callback": callback}
    if open_run(folder) is not None:
        own = _task_of(folder, task)
        if own.to_json() != task.to_json():
            problem, _ = own.problem()
        return resume_training(folder, problem, **shown)
    if (folder / "run.json").exists():  # killed before its first checkpoint: nothing to keep
        shutil.rmtree(folder)
    note = {"task": task.to_json()}
    return train(problem, start, run_dir=folder, note=note, **settings.options(method), **shown)


def _task_of(folder: Path, ours: Task) -> Task:
    """The task of a run, whose data are where this machine has them."""
    held = json.loads((folder / "run.json").read_text())["note"].get("task") or ours.to_json()
    places = {name: getattr(ours, name) for name in ("data", "data_dir", "download", "directory")}
    return replace(Task(**held), **places)


def _steps(folder: Path) -> int:
    run = open_run(folder)
    return 0 if run is None else run.num_steps


def _note_wall(folder: Path, before: int, after: int, seconds: float) -> None:
    """Add the time of steps `before` to `after`; compilation and tests are part of it."""
    held = _read_wall(folder) if before else {"seconds": 0.0, "steps": 0}
    held = {"seconds": held["seconds"] + seconds, "steps": held["steps"] + after - before}
    (folder / _WALL).write_text(json.dumps(held) + "\n")


def _read_wall(folder: Path) -> dict[str, Any]:
    path = folder / _WALL
    return json.loads(path.read_text()) if path.exists() else {"seconds": 0.0, "steps": 0}


def wall_seconds(folder: Path, num_steps: int) -> float | None:
    """All in; None where a part of the run was not timed (it was killed, or made elsewhere)."""
    held = _read_wall(folder)
    return held["seconds"] if held["steps"] == num_steps else None


def found_runs(runs: Path, settings: Settings) -> dict[str, dict[str, Trained | None]]:
    """Runs by model and method: the paper's models and whatever else lies there."""
    there = sorted(path.name for path in runs.glob("*") if path.is_dir())
    names = [*PAPER_MODELS, settings.model.rpartition(":")[2], *there]
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
    command: str = "replicax reproduce table2",
    progress: bool | None = None,
    callback: Callable[[Any], Any] | None = None,
    say: Callable[[str], None] = lambda sentence: None,
) -> dict[str, Any]:
    """Run what is missing (unless only to `assemble`), then write table2.md, .json and figures."""
    from replicax.experiments.table2 import page as table2_page

    runs = out / "records" / "table2" if runs is None else runs
    if not assemble:
        run_all(settings, runs, progress, callback, say)
    return table2_page.write(found_runs(runs, settings), runs, out, command)
