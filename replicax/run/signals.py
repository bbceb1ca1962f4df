"""Signals that end a run: Ctrl-C, and those of schedulers of batch jobs."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Besides Ctrl-C. SLURM sends SIGUSR1 ahead of a time limit (--signal), and SIGTERM at it.
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name)]


@contextlib.contextmanager
def interruptible() -> Iterator[list[int]]:
    """Collect Ctrl-C, SIGTERM and SIGUSR1 in a list instead of ending; a second one raises.

    Handlers that the user has set for the last two stay.
    """
    numbers: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield numbers
        return

    def note(number: int, frame: Any) -> None:
        if numbers:
            raise KeyboardInterrupt
        numbers.append(number)

    taken = [signal.SIGINT]
    taken += [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    before = {number: signal.signal(number, note) for number in taken}
    try:
        yield numbers
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ends_process(numbers: list[int]) -> bool:
    """Return whether the first signal ends the process, and not only the run."""
    return bool(numbers) and numbers[0] != signal.SIGINT


def sentence_of(number: int, step: int, folder: Path | None) -> str:
    """Return what a signal did to a run."""
    name = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
    saved = (
        "it has no run_dir, so nothing is on the disk."
        if folder is None
        else f"all is saved. Continue it with: replicax resume {folder}, or "
        f"rx.resume({str(folder)!r}, target)."
    )
    return f"The run was interrupted{name} at step {step}; {saved}"
