"""A callback for `rx.sample` and `rx.train` that logs, and the numbers for other loggers.

Pass one, or several as a list: `callback=[rx.callbacks.csv("log.csv"), my_function]`. The log
survives kills: when a run resumes, rows of the steps that it repeats are dropped first.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from replicax.errors import check_path
from replicax.run import processes
from replicax.run.progress import Progress
from replicax.run.storage.files import check_place, read_bytes, write_whole

Numbers = dict[str, float | list[float]]
_HEAD = "step,time,steps_per_second"  # by which files of other programs are told
_STEP = re.compile(r"(\d+),")  # how a row begins
_MOST_BYTES = 2**30  # of a log


def numbers(progress: Progress) -> Numbers:
    """Return the numbers that logs write, and lists by chain, pair or rung.

    `cold_energy`, `round_trips` and `buffer` have a value per chain; `verdict_rate` per pair and
    `learning_rate` and `temperature` per rung are means over chains. After an epoch of networks,
    their `nll`, `accuracy` and those of the average are added.
    """
    state = progress.carry.state
    ladder, buffer = jax.device_get((state.ladder, state.buffer))
    by_name = {
        "cold_energy": progress.cold_energy,
        "round_trips": progress.round_trips,
        "verdict_rate": progress.verdict_rate.mean(axis=0),
        "learning_rate": ladder.learning_rate.mean(axis=0),
        "temperature": ladder.temperature.mean(axis=0),
        "buffer": buffer,
        **progress.evaluation,
    }
    return {
        "step": progress.step,
        "time": round(time.time(), 3),
        "steps_per_second": progress.steps_per_second,
        **{name: np.asarray(value).tolist() for name, value in by_name.items()},
    }


def flat(row: Numbers) -> dict[str, float]:
    """Return a row with lists flattened, one name per number.

    >>> flat({"step": 3, "cold_energy": [1.5, 2.0]})
    {'step': 3, 'cold_energy[0]': 1.5, 'cold_energy[1]': 2.0}
    """
    values: dict[str, float] = {}
    for key, value in row.items():
        if isinstance(value, list):
            values |= {f"{key}[{index}]": part for index, part in enumerate(value)}
        else:
            values[key] = value
    return values


class _Csv:
    """A log that writes a row after every chunk, for networks after every test, and drops later
    rows when a run begins or resumes; an incomplete last line goes with them."""

    def __init__(self, path: object) -> None:
        self.path = place = check_path("path", path, "a file")
        if place.exists() and not place.is_file():  # a folder, a pipe, a device
            raise ValueError(f"path is {str(path)!r}; give the path of a file.")
        above = next(folder for folder in place.absolute().parents if folder.exists())
        if not above.is_dir():
            raise ValueError(f"{path} lies below {above}, which is a file; give another path.")
        check_place(place)
        lines = self.lines()
        if lines and not lines[0].startswith(_HEAD):
            raise ValueError(
                f"path is {path}, a file that rx.callbacks.csv did not write; give another path."
            )
        self.step: int | None = None  # the last logged step

    def __call__(self, progress: Progress) -> None:
        if not processes.is_first():
            return
        if progress.start != self.step:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.go_back(progress.start)
        self.step = progress.step
        if progress.evaluation or progress.metadata.kind != "train":
            self.write(numbers(progress))

    def lines(self) -> list[str]:
        if not self.path.exists():
            return []
        return read_bytes(self.path, _MOST_BYTES).decode(errors="replace").splitlines(keepends=True)

    def go_back(self, step: int) -> None:
        """Drop all rows after `step`."""
        complete = [line for line in self.lines() if line.endswith("\n")]
        rows = [(line, _STEP.match(line)) for line in complete]
        kept = [line for line, at in rows if line.startswith(_HEAD) or (at and int(at[1]) <= step)]
        write_whole(self.path, "".join(kept if step else []).encode())

    def write(self, row: Numbers) -> None:
        values = flat(row)
        head, lines = ",".join(values), self.lines()
        if lines and lines[0].rstrip("\n") != head:
            raise ValueError(
                f"{self.path} has other columns than this run; give rx.callbacks.csv another path."
            )
        with self.path.open("a") as file:
            file.write(f"{head}\n" * (not lines))
            file.write(",".join(str(value) for value in values.values()) + "\n")


def csv(path: str | Path) -> Callable[[Progress], None]:
    """Return a callback that writes `numbers` as a table with one column for each, such as
    `cold_energy[0]`.

    It writes a row after every chunk, for networks after every test. A new run overwrites the file;
    a resumed run appends to it.
    """
    return _Csv(path)
