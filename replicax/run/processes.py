"""The processes that share a run: how they find each other (`connect`) and agree, and the signals
that end them.

Every process runs the same program on its own devices. Only the first one prints and writes; the
others keep their records in memory.
"""

import contextlib
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np

COORDINATOR, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
_HEARTBEAT_SECONDS = 30  # after which a process that does not answer is taken for dead
# Besides Ctrl-C. SLURM sends SIGUSR1 ahead of a time limit (--signal), and SIGTERM at it.
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name)]


def is_first() -> bool:
    """Return whether this process prints and writes."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def agree(*values: int | bool) -> list[int]:
    """Return the maximum of each value over all processes, which must all call this together."""
    return _gather(values).max(axis=0).tolist()


def follow(value: int) -> int:
    """Return the value of the first process."""
    return int(_gather([value])[0, 0])


def wait() -> None:
    """Wait until all processes call this."""
    _gather([0])


def _gather(values: Sequence[int | bool]) -> np.ndarray:
    """Return the values of all processes  -> (process, value)."""
    mine = np.asarray(values, np.int64)
    if not jax.distributed.is_initialized() or jax.process_count() == 1:
        return mine[None]
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(mine.astype(np.int32)))


def connect() -> bool:
    """Join the other processes of this run, before JAX is used; return whether there are others.

    What `replicax launch` or the environment says is taken (JAX_COORDINATOR_ADDRESS,
    JAX_NUM_PROCESSES, JAX_PROCESS_ID), or what JAX finds out about SLURM, Open MPI or Kubernetes; a
    process that is alone stays alone.
    """
    if jax.distributed.is_initialized():
        return jax.process_count() > 1
    given = _given()
    if given is None and not _is_in_cluster(os.environ):
        return False
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would swallow SIGTERM
    try:
        address, count, number = given or (None, None, None)  # None: JAX finds out
        jax.distributed.initialize(
            address, count, number, heartbeat_timeout_seconds=_HEARTBEAT_SECONDS
        )
    except RuntimeError as error:
        if "before" not in str(error):
            raise
        raise ValueError(
            "JAX was used before the processes joined; write rx.connect() at the top of the script."
        ) from None
    return jax.process_count() > 1


def _given() -> tuple[str, int, int] | None:
    """Return coordinator, number of processes and number of this one from the environment."""
    address, count, number = (os.environ.get(name) for name in (COORDINATOR, COUNT, NUMBER))
    if count is None or number is None:
        return None
    are_numbers = count.isdigit() and number.isdigit() and int(number) < int(count)
    if address is None or not re.fullmatch(r".+:\d+", address) or not are_numbers:
        raise ValueError(
            f"{COORDINATOR} is {address}, {COUNT} is {count} and {NUMBER} is {number}: give the "
            'first process as "host:port", how many there are, and which one this is, from 0 on.'
        )
    return address, int(count), int(number)


def _is_in_cluster(environment: Mapping[str, str]) -> bool:
    """Return whether this is one of several tasks of SLURM, Open MPI or Kubernetes."""
    tasks = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
    several = any(environment.get(name, "1") not in ("", "1") for name in tasks)
    in_kubernetes = {"KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"} <= set(environment)
    return several or in_kubernetes


@contextlib.contextmanager
def interruptible() -> Iterator[list[int]]:
    """Collect Ctrl-C, SIGTERM and SIGUSR1 in a list instead of ending; a second one raises.

    Handlers that the user has set for the last two stay.
    """
    numbers: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield numbers
        return

    def note(number: int, frame: object) -> None:
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
