"""Signals that end a run: the chunk is finished and all is saved first."""

import contextlib
import signal
import threading
from collections.abc import Iterator
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
    """Return whether the first signal asks for the end of the process, and not of the run alone."""
    return bool(numbers) and numbers[0] != signal.SIGINT
