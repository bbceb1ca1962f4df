"""Saving a run: records and a checkpoint are written and committed when that is due."""

import errno
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from replicax.run import processes
from replicax.run.counters import PAIR_COUNTS, completed_trips
from replicax.run.options import checkpoint_interval
from replicax.run.program import Program
from replicax.run.rows import Carry
from replicax.run.storage import checkpoint
from replicax.run.storage.files import NotWritten
from replicax.run.storage.folder import FolderRecords
from replicax.run.storage.records import Records

_PENDING_BYTES = 2**28


@dataclass
class Evaluation:
    """An evaluation of the replicas every `Program.evaluate_every` steps, such as a test of
    networks.

    Its state is part of the checkpoint; each evaluation leaves a row of the records "epochs", and
    rows of "networks" that are to be kept, or none.
    """

    state: Any  # pytree of arrays
    # state, carry -> state, row, networks
    evaluate: Callable[[Any, Carry], tuple[Any, dict[str, Any], dict[str, np.ndarray]]]
    final: Callable[[Any], dict[str, np.ndarray]]  # state -> values that the run leaves at its end
    # state, rung_of (step, chain, replica) of the steps just done -> state
    follow: Callable[[Any, np.ndarray], Any] | None = None
    running: Callable[[Any], Any] | None = None  # state -> the average so far, for callbacks


class Saver:
    """Writes records and a checkpoint when one is due, beside the loop, one at a time.

    `every` is a number of steps, or a time as "30s"; the last `keep` commits stay.
    """

    def __init__(self, records: Records, every: int | str | None = None, keep: int = 2) -> None:
        self.records, self.every, self.keep = records, every, keep
        self.worker, self.writing = ThreadPoolExecutor(1, "replicax"), None
        self.began = self.clock = time.monotonic()
        self.before = float(records.final.get("seconds", 0.0))  # of earlier processes
        step = records.commit.step if isinstance(records, FolderRecords) else -1
        (self.step,) = processes.agree(step)  # of the last save

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, *error: Any) -> None:
        self.worker.shutdown()

    def is_due(self, step: int) -> bool:
        if self.records.folder is None:
            return False
        if self.records.pending_bytes > _PENDING_BYTES:
            return True
        steps, seconds = checkpoint_interval(self.every)
        if steps is not None:
            return step - self.step >= steps
        return time.monotonic() - self.clock >= seconds

    def save(self, program: Program, carry: Carry, evaluation: Evaluation | None) -> None:
        """Begin to write the state; wait first until the one before it is written."""
        step = int(carry.state.step)
        if step == self.step:  # a step has one state only
            return
        self.wait()
        values = final_values(program, carry)
        if evaluation is not None:
            values |= evaluation.final(evaluation.state)
        values["seconds"] = np.asarray(self.before + time.monotonic() - self.began)
        values["peak_bytes"] = np.asarray(peak_memory())
        values = {name: np.array(value) for name, value in values.items()}  # the loop goes on
        self.step, self.clock = step, time.monotonic()
        if self.records.shared is None:
            self.records.keep(values)
            return
        state = None if evaluation is None else evaluation.state
        arrays = checkpoint.copy_arrays({"carry": carry, "evaluation": state})
        if isinstance(self.records, FolderRecords):
            rows, write = self.records.take_pending(), self.records.write
            self.writing = self.worker.submit(write, step, rows, values, arrays, self.keep)
        else:  # the first process writes all but the checkpoint
            self.records.keep(values)
            self.writing = self.worker.submit(checkpoint.save, self.records.shared, step, arrays)

    def wait(self) -> None:
        """Wait until all processes have written, or say why one could not."""
        writing, self.writing = self.writing, None
        error = None if writing is None else writing.exception()
        (failed,) = processes.agree(error is not None)
        if failed:
            error = error or NotWritten("another process could not write its part.")
            raise NotWritten(_failure(self.records, self.step, error)) from error

    def finish(self, result: tuple[str, str]) -> None:
        """Wait until all is written, and write down how the run ended."""
        self.wait()
        try:
            self.records.write_metadata(self.records.metadata.with_result(*result, self.step))
        except OSError as error:
            raise NotWritten(_failure(self.records, self.step, error)) from error


def _failure(records: Any, step: int, error: BaseException) -> str:
    """Return one sentence about a state that could not be written."""
    folder = records.shared
    full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
    lines = str(error).splitlines() or [""]
    reason = "no space is left on the disk" if full else f"{type(error).__name__}: {lines[0][:200]}"
    if not isinstance(records, FolderRecords):  # the first process knows what there is
        return f"The state of step {step} could not be saved in {folder}: {reason}."
    before = records.commit.step
    kept = (
        f"The state of step {before} is intact: once that is mended, continue by "
        f"rx.resume({str(folder)!r}, target)."
        if before >= 0
        else "Nothing was saved before."
    )
    return f"The state of step {step} could not be saved in {folder}: {reason}. {kept}"


def peak_memory() -> int:
    """Return the most bytes that were in use: of the accelerators if there are any, else of this
    process."""
    on_devices = [(device.memory_stats() or {}) for device in jax.local_devices()]
    if peak := sum(stats.get("peak_bytes_in_use", 0) for stats in on_devices):
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def final_values(program: Program, carry: Carry) -> dict[str, np.ndarray]:
    """Return what the posterior reports of the end of the run, leading axis: chain; and the state
    of the source of its batches."""
    state = carry.state._replace(replicas=None, model_state=None)
    state, counters = jax.device_get((state, carry.counters))
    values = {
        "step": np.asarray(state.step),
        "learning_rates": state.ladder.learning_rate,
        "temperatures": state.ladder.temperature,
        "buffer": state.buffer,
        "energy_unit": np.asarray(jax.jit(type(state.energy_unit).value)(state.energy_unit)),
        "window_correction": _window_correction(program, state),
        "energy": counters.energy,
        "nonfinite": counters.nonfinite,
        "restarts": counters.restarts,
        "acceptance": counters.acceptance,
        "heating": counters.heating,
        "best_energy": counters.best_energy,
        "round_trips": completed_trips(counters.turns).sum(axis=1),
        **{name: counters.pairs[:, row] for row, name in enumerate(PAIR_COUNTS)},
    }
    source = program.batches.state(int(state.step))
    if source is not None:
        values["source"] = np.frombuffer(source, np.uint8)
    best = jax.tree.leaves(counters.best)
    return {**values, **{f"best.{i:06d}": leaf for i, leaf in enumerate(best)}}


def _window_correction(program: Program, state: Any) -> np.ndarray:
    """Return lambda_W in force, (chain,)."""
    rule = program.settings.rule
    if rule.tunes_correction:
        return state.correction.value
    return np.full(program.num_chains, rule.window_correction)
