"""`Progress`, which callbacks get; its display as a bar or as lines of a log."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from replicax.run.carry import PAIR_COUNTS, Carry, completed_trips, num_attempts
from replicax.run.devices import memory_in_use
from replicax.run.records import Arrays
from replicax.run.saver import Saver
from replicax.run.storage.metadata import Metadata

_SCORES: dict[str, Callable[[float], str]] = {
    "accuracy": lambda share: f"{100 * share:.2f} %",
    "rmse": lambda error: f"RMSE {error:.4g}",
    "nll": lambda nll: f"{nll:.4f}",
}
_LINE_SECONDS = 5.0  # between two lines of a log; more in a run of hours


class Progress(NamedTuple):
    """The state of a run between two chunks; a callback that returns "stop", or "stop: " and a
    reason, ends the run."""

    step: int
    num_steps: int
    steps_per_second: float
    seconds_left: float
    cold_energy: np.ndarray  # shape (chain,)
    round_trips: np.ndarray  # shape (chain,)
    verdict_rate: np.ndarray  # shape (chain, pair)
    carry: Carry  # on the device
    evaluation: dict[str, np.ndarray]  # of networks, in the step that it was made
    rows: dict[str, Arrays]  # what the chunk added to the records: "steps", "draws", "history"
    metadata: Metadata  # of the run
    run_dir: Path | None
    average: Any = None  # of networks: running sums of the predictions of those picked so far

    @property
    def start(self) -> int:
        """The step at which the chunk began."""
        return self.step - len(self.rows["steps"]["rung_of"])


Callback = Callable[[Progress], Any]


def progress_of(
    saver: Saver,
    carry: Carry,
    rate: float,
    row: dict[str, np.ndarray],
    added: dict[str, Arrays],
) -> Progress:
    """Return the progress after a chunk, which added these rows at a `rate` in steps per second.

    `row` is the evaluation of networks that was due, or empty.
    """
    program, step = saver.program, int(carry.state.step)
    verdicts = np.asarray(carry.counters.pairs)[:, PAIR_COUNTS.index("verdicts")]
    attempts = num_attempts(int(program.counted_from), step, program.settings.swap_every)
    return Progress(
        step=step,
        num_steps=program.num_steps,
        steps_per_second=rate,
        seconds_left=(program.num_steps - step) / max(rate, 1e-9),
        cold_energy=np.asarray(carry.counters.energy)[:, 0],
        round_trips=completed_trips(np.asarray(carry.counters.turns)).sum(axis=1),
        verdict_rate=verdicts / max(attempts, 1),
        carry=carry,
        evaluation=_read_only(row),
        rows={group: _read_only(rows) for group, rows in added.items()},
        metadata=saver.records.metadata,
        run_dir=saver.records.folder,
        average=saver.evaluation.average,
    )


def _read_only(arrays: Arrays) -> Arrays:
    """Return views that nobody can write into: the arrays are those of the records."""
    views = {name: np.asarray(array).view() for name, array in arrays.items()}
    for view in views.values():
        view.flags.writeable = False
    return views


def reason_to_stop(answers: list[Any]) -> str | None:
    """Return why callbacks stop the run, as the end of a sentence; None if none does."""
    for answer in answers:
        if isinstance(answer, str) and (answer == "stop" or answer.startswith("stop: ")):
            return f"{answer.removeprefix('stop')}."
    return None


class Display:
    """Shows on standard error how far a run is: a bar, or without one a line now and then."""

    def __init__(self, bar: Any = None) -> None:
        self.bar, self.began = bar, time.monotonic()
        self.last = self.began
        self.task = None if bar is None else bar.add_task("", total=None, status="compiling ...")

    def say(self, line: str) -> None:
        """Show a line that stays."""
        if self.bar is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self.bar.console.print(line, highlight=False)

    def run(self, progress: Progress) -> None:
        """Show a run after a chunk, and the evaluation of networks if one was made."""
        done, planned, told = progress.step, progress.num_steps, bool(progress.evaluation)
        place, words = f"step {done:,} of {planned:,}", status(progress)
        if told and self.bar is not None:
            self.say(f"step {done:,} | {epoch_line(progress)}")
        elif told:
            words = f"{epoch_line(progress)} | {words}"
        self._show(done, planned, place, words, progress.seconds_left, told or done == planned)

    def sweeps(self, done: float, planned: int, words: str, ends: bool = False) -> None:
        """Show that so many sweeps are `done`, a part of the next one among them."""
        sweep = int(done) if ends else min(int(done) + 1, planned)
        part = "" if ends or self.bar else f", {done - int(done):.0%} of its rows"
        left = (time.monotonic() - self.began) * (planned / max(done, 1e-9) - 1)
        self._show(done, planned, f"sweep {sweep} of {planned}{part}", words, left, ends)

    def _show(
        self, done: float, planned: int, place: str, words: str, left: float, at_once: bool
    ) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=planned, status=f"{place} | {words}")
            return
        now = time.monotonic()
        seconds = now - self.began
        if at_once or now - self.last >= max(_LINE_SECONDS, 0.01 * seconds):
            self.last = now
            self.say(
                f"{place} | {format_seconds(seconds)}, {format_seconds(left)} left | "
                f"{format_bytes(memory_in_use())} | {words}"
            )


@contextlib.contextmanager
def display(wanted: bool | None) -> Iterator[Display | None]:
    """Yield the display of a run, None where none is wanted: by default a bar in a terminal."""
    in_terminal = sys.stderr.isatty()
    if not (in_terminal if wanted is None else wanted):
        yield None
    elif not in_terminal:
        yield Display()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[status]}")
        with Bar(*columns, console=Console(stderr=True)) as bar:
            yield Display(bar)


def status(progress: Progress) -> str:
    """Return speed, energy and exchange of a run in a few words."""
    rates = progress.verdict_rate
    pairs = f" | pair rates {rates.min():.2f}-{rates.max():.2f}" if rates.size else ""
    return (
        f"{progress.steps_per_second:,.0f} steps/s | cold energy "
        f"{np.mean(progress.cold_energy):.4g} | round trips "
        f"{int(progress.round_trips.sum())}{pairs}"
    )


def epoch_line(progress: Progress) -> str:
    """Return the evaluation of networks after an epoch in one line: the scores of its test."""
    row = progress.evaluation
    words = [f"coldest {_scores(row, '{}')}" if "nll" in row else "no test"]
    if row["weight"] > 0:
        scores = _scores(row, "average_{}_probabilities")
        words.append(f"average of {row['weight']:g}{': ' * bool(scores)}{scores}")
    return " | ".join(words)


def _scores(row: Arrays, name: str) -> str:
    """Return the scores of the coldest network, or of the average, those that the row has."""
    shown = []
    for score, form in _SCORES.items():
        value = row.get(name.format(score))
        if value is not None:
            shown.append(form(float(np.ravel(value)[0])))
    return " ".join(shown)


def format_seconds(seconds: float) -> str:
    """Return a time as h:mm:ss.

    >>> format_seconds(3725.4)
    '1:02:05'
    """
    total = int(min(seconds, 1e9))
    return f"{total // 3600}:{total // 60 % 60:02d}:{total % 60:02d}"


def format_bytes(count: float) -> str:
    """Return a size in words.

    >>> format_bytes(3.2 * 2**30)
    '3.2 GiB'
    """
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
