"""Progress of a long run: a bar in a terminal, lines in a log."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


@contextlib.contextmanager
def display_progress(
    wanted: bool | None, num_steps: int, start: int
) -> Iterator[Callable[[Any], None] | None]:
    """A progress bar on standard error; `None` shows it where a terminal is attached."""
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if not console.is_terminal:  # a log file: room for the whole line
        console = Console(stderr=True, width=140)
    picture = (BarColumn(), TimeRemainingColumn()) if console.is_terminal else ()
    columns = (*picture, MofNCompleteColumn(), TextColumn("{task.fields[seen]}"))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=num_steps, completed=start, seen="compiling ...")

        def show(progress: Any) -> None:
            if progress.seen:
                bar.console.print(epoch_line(progress), highlight=False)
            rates = progress.verdict_rate
            pairs = f" | pair rates {rates.min():.2f}-{rates.max():.2f}" if rates.size else ""
            seen = (
                f"{progress.steps_per_second:,.0f} steps/s | cold energy "
                f"{np.mean(progress.cold_energy):.4g} | round trips "
                f"{int(progress.round_trips.sum())}{pairs}"
            )
            bar.update(task, completed=progress.step, seen=seen)

        yield show


def epoch_line(progress: Any) -> str:
    """How the networks of a training do after an epoch, in one line."""
    seen = progress.seen
    words = f"coldest {100 * seen['accuracy'][0]:.2f} % {seen['nll'][0]:.4f}"
    if seen["weight"] > 0:
        accuracy, nll = (seen[f"average_{name}_probabilities"] for name in ("accuracy", "nll"))
        words += f" | average of {seen['weight']:g}: {100 * accuracy:.2f} % {nll:.4f}"
    return f"step {progress.step:,} | {words} | round trips {int(progress.round_trips.sum())}"
