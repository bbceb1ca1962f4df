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
    """Show a progress bar on standard error; `None` shows it where a terminal is attached."""
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
    columns = (*picture, MofNCompleteColumn(), TextColumn("{task.fields[status]}"))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=num_steps, completed=start, status="compiling ...")

        def show(progress: Any) -> None:
            if progress.evaluation:
                bar.console.print(epoch_line(progress), highlight=False)
            rates = progress.verdict_rate
            pairs = f" | pair rates {rates.min():.2f}-{rates.max():.2f}" if rates.size else ""
            status = (
                f"{progress.steps_per_second:,.0f} steps/s | cold energy "
                f"{np.mean(progress.cold_energy):.4g} | round trips "
                f"{int(progress.round_trips.sum())}{pairs}"
            )
            bar.update(task, completed=progress.step, status=status)

        yield show


def epoch_line(progress: Any) -> str:
    """Return the evaluation of networks after an epoch in one line."""
    row = progress.evaluation
    words = f"coldest {100 * row['accuracy'][0]:.2f} % {row['nll'][0]:.4f}"
    if row["weight"] > 0:
        accuracy, nll = (row[f"average_{name}_probabilities"] for name in ("accuracy", "nll"))
        words += f" | average of {row['weight']:g}: {100 * accuracy:.2f} % {nll:.4f}"
    return f"step {progress.step:,} | {words} | round trips {int(progress.round_trips.sum())}"
