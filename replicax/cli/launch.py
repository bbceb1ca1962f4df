"""The command `replicax launch`: local processes that share one run."""

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated

import typer

from replicax.cli.output import FAULTY_INPUT, FINISHED, INTERRUPTED, NONFINITE, print_error

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 20.0  # for a process to end after SIGTERM
_SAVING_SECONDS = 120.0  # for a process to save and end after a signal from the user
_TAIL_LINES = 15  # lines to show of the stderr of a failed process
_MEANT = (FAULTY_INPUT, NONFINITE, INTERRUPTED)  # exit codes of processes that end together
_STARTS_RUNS = ("sample", "train")


def launch(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND", help="Command that each process runs.")
    ],
    processes: Annotated[int, typer.Option(min=1, metavar="N", help="Number of processes.")] = 2,
    restarts: Annotated[
        int, typer.Option(min=0, metavar="K", help="Restart up to K times if a process dies.")
    ] = 0,
) -> int:
    """Start N processes on this machine that share one run.

    Only the first process prints and writes. If one dies, the others are stopped, with a message.
    A restart continues a run of `replicax sample` or `train` with --out from its checkpoint; any
    other command is repeated. Your own scripts join the other processes with rx.connect().

    \b
    Example
      replicax launch --processes 2 --restarts 3 -- replicax train --out runs/net --devices all
    """
    for attempt in range(restarts + 1):
        code, failed = _run_once(command if attempt == 0 else _resuming(command), processes)
        if failed is None:
            return code
        print_error(failed)
        if attempt < restarts:
            print_error(f"Restart {attempt + 1} of {restarts}.")
    return code


def _run_once(command: list[str], count: int) -> tuple[int, str | None]:
    """Run all processes to their end; return an exit code and the failure as text, or None."""
    port = _free_port()
    with contextlib.ExitStack() as stack:
        errors = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(count)]
        children: list[subprocess.Popen] = []
        stack.callback(_end, children)
        with _forwarding(children) as signals:
            for number in range(count):
                heard = len(signals)
                children.append(_start(command, number, count, port, errors[number]))
                for missed in signals[heard:]:  # came while this process was being started
                    _send(missed, children[-1])
            while all(child.poll() in (None, 0) for child in children) and not signals:
                if all(child.poll() == 0 for child in children):
                    return FINISHED, None
                time.sleep(_POLL_SECONDS)
            first = next((i for i, child in enumerate(children) if child.poll()), 0)
            _wait(children, _SAVING_SECONDS if signals else 1.0)
        _end(children if signals else [])
        code = int(children[first].poll() or FINISHED)
        shown = code if code >= 0 else 128 - code
        if signals or all(child.poll() == code and code in _MEANT for child in children):
            return shown, None
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        message = f"Process {first} of {count} ended with {ended}; the others were stopped."
        return shown, message + _tail(first, errors[first])


def _start(
    command: list[str], number: int, count: int, port: int, errors: IO[bytes]
) -> subprocess.Popen:
    names = {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": str(count),
        "JAX_PROCESS_ID": str(number),
    }
    quiet = {} if number == 0 else {"stdout": subprocess.DEVNULL, "stderr": errors}
    try:
        return subprocess.Popen(command, env=os.environ | names, stdin=subprocess.DEVNULL, **quiet)
    except OSError as error:
        raise ValueError(f"{command[0]} cannot be started: {error.strerror}.") from None


def _end(children: list[subprocess.Popen]) -> None:
    """End all processes with SIGTERM, and those that remain with SIGKILL."""
    for child in children:
        if child.poll() is None:
            child.terminate()
    _wait(children, _GRACE_SECONDS)
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()


def _wait(children: list[subprocess.Popen], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(child.poll() is None for child in children):
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def _forwarding(children: list[subprocess.Popen]) -> Iterator[list[int]]:
    """Forward SIGTERM and SIGUSR1 to the processes; a terminal sends them Ctrl-C itself."""
    received: list[int] = []

    def forward(number: int, frame: object) -> None:
        received.append(number)
        for child in children:
            _send(number, child)

    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    before = [signal.signal(number, forward) for number in handled]
    try:
        yield received
    finally:
        for number, handler in zip(handled, before, strict=True):
            signal.signal(number, handler)


def _send(number: int, child: subprocess.Popen) -> None:
    if number != signal.SIGINT and child.poll() is None:
        child.send_signal(number)


def _resuming(command: list[str]) -> list[str]:
    """Return the command that continues the run of `command`, or `command` itself. Its code is
    known: the start has recorded it."""
    place = next((i for i, word in enumerate(command) if word in _STARTS_RUNS), None)
    folder = os.path.expanduser(_value_of("--out", command) or "")
    if place is None or not folder or not any(Path(folder).glob("commits/*.json")):
        return command  # also where nothing was saved yet: then the run is started again
    resumed = [*command[:place], "resume", folder]
    for option in ("--devices", "--data-parallel"):
        value = _value_of(option, command)
        resumed += [] if value is None else [option, value]
    return resumed


def _value_of(option: str, command: list[str]) -> str | None:
    for word, following in zip(command, [*command[1:], None], strict=True):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _tail(number: int, errors: IO[bytes]) -> str:
    """Return the last lines that a process wrote and that were not shown yet."""
    if number == 0:
        return ""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    lines = [line for line in lines if not line.startswith("[Gloo]")][-_TAIL_LINES:]
    return f" It wrote: {' | '.join(lines)}" if lines else ""
