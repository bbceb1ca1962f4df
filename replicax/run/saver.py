"""Saving a run: in memory the values at its end; in a folder records and a checkpoint, when due."""

import errno
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Self

import jax
import numpy as np

from replicax.algorithm.labels import first_direction, label_places
from replicax.algorithm.mixture import in_use
from replicax.run import trees
from replicax.run.carry import PAIR_COUNTS, Carry, completed_trips
from replicax.run.devices import peak_memory, to_host
from replicax.run.options import checkpoint_interval
from replicax.run.processes import agree
from replicax.run.program import Program
from replicax.run.records import Arrays, Between, Records, Result, Standing
from replicax.run.storage import checkpoint
from replicax.run.storage.files import NotWritten
from replicax.run.storage.folder import FolderRecords, steps_of
from replicax.run.storage.metadata import FILE, Ending

_PENDING_BYTES = 2**28


class Saver:
    """Adds to the records of a run, and saves its state: in memory at the end; in a folder when
    that is due, beside the loop, one state at a time."""

    def __init__(self, records: Records, program: Program, evaluation: Between) -> None:
        self.records, self.program, self.evaluation = records, program, evaluation
        self.began = self.clock = time.monotonic()
        self.before = float(records.final.get("seconds", 0.0))  # of earlier processes
        self.worker, self.writing = ThreadPoolExecutor(1, "replicax"), None
        step = records.commit.step if isinstance(records, FolderRecords) else -1
        (self.step,) = agree(step)  # of the last save

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.worker.shutdown()

    def append(self, carry: Carry, rows: dict[str, Arrays]) -> tuple[Carry, Arrays]:
        """Add the rows of a chunk, by group; return the carry with what is renewed after it, and
        the numbers of an evaluation of networks if one is due, else none."""
        for group, arrays in rows.items():
            self.records.append(group, arrays)
        num_steps = len(rows["steps"]["rung_of"])
        return self.evaluation.after_chunk(self.program, carry, num_steps, self.records)

    def is_due(self, step: int) -> bool:
        """Return whether the state is to be saved now; in memory, only at the end."""
        if self.records.folder is None:
            return False
        if self.records.pending_bytes > _PENDING_BYTES:
            return True
        steps, seconds = checkpoint_interval(self.program.run.checkpoint_every)
        if steps is not None:
            return step - self.step >= steps
        return time.monotonic() - self.clock >= seconds

    def save_if_due(self, carry: Carry) -> None:
        """Save the state if that is due, in any process."""
        (due,) = agree(self.is_due(int(carry.state.step)))
        if due:
            self.save(carry)

    def save(self, carry: Carry) -> None:
        """Begin to save the state, after the one before it is saved. All processes give their
        replicas to the first one, which writes."""
        step = int(carry.state.step)
        if step == self.step:  # a step has one state only
            return
        self.wait()
        values = final_values(self.program, carry) | self.evaluation.final(self.evaluation.state)
        values["seconds"] = np.asarray(self.before + time.monotonic() - self.began)
        values["peak_bytes"] = np.asarray(peak_memory())
        values = {name: np.array(value) for name, value in values.items()}  # the loop goes on
        self.step, self.clock, records = step, time.monotonic(), self.records
        in_folder = isinstance(records, FolderRecords)
        if not in_folder:
            records.keep(values)
            records.standing = Standing(self.program, carry, self.evaluation)
        if records.shared is None:
            return
        state = to_host({"carry": carry, "evaluation": self.evaluation.state})
        if in_folder:
            rows, kept = records.take_pending(), self.program.run.keep_checkpoints
            arrays = checkpoint.by_path(state)
            self.writing = self.worker.submit(records.write, step, rows, values, arrays, kept)

    def wait(self) -> None:
        """Wait until all processes have written; raise if one could not."""
        writing, self.writing = self.writing, None
        error = None if writing is None else writing.exception()
        (failed,) = agree(error is not None)
        if failed:
            error = error or NotWritten("the first process could not write")
            raise NotWritten(_failure(self.records, self.step, error)) from error

    def finish(self, result: Result) -> None:
        """Wait until everything is saved, and record how the run ended."""
        self.wait()
        ending = Ending(*result, step=self.step)
        try:
            self.records.write_metadata(replace(self.records.metadata, result=ending))
        except OSError as error:
            raise NotWritten(_failure(self.records, self.step, error)) from error


def final_values(program: Program, carry: Carry) -> dict[str, np.ndarray]:
    """Return the values at the end of the run that the posterior reports, leading axis: chain; and
    the state of the source of its batches."""
    state = carry.state._replace(replicas=None, model_state=None)
    state, counters = jax.device_get((state, carry.counters))
    values = {
        "step": np.asarray(state.step),
        "learning_rates": state.ladder.learning_rate,
        "temperatures": state.ladder.temperature,
        "buffer": state.buffer,
        "energy_unit": np.asarray(jax.jit(type(state.energy_unit).value)(state.energy_unit)),
        "window_correction": np.full(program.num_chains, program.settings.rule.window_correction),
        "energy": counters.energy,
        "nonfinite": counters.nonfinite,
        "restarts": counters.restarts,
        "acceptance": counters.acceptance,
        "best_energy": counters.best_energy,
        "round_trips": completed_trips(counters.turns).sum(axis=1),
        **{name: counters.pairs[:, row] for row, name in enumerate(PAIR_COUNTS)},
    }
    if jax.tree.leaves(state.mixture):
        stats, mixture = state.jumps.stats, in_use(state.mixture)
        values |= {f"jumps.{name}": value for name, value in stats._asdict().items()}
        values |= {f"mixture.{name}": value for name, value in mixture._asdict().items()}
    like = jax.eval_shape(trees.first, carry.state.points)
    places = label_places(program.target.exchangeable, like)
    if places is not None:
        learned = jax.tree.leaves(state.order)
        direction = np.asarray(learned[0]) if learned else first_direction(places)
        values |= {"labels.places": places, "labels.direction": direction}
    if program.settings.redraws:
        values["redrawn"] = counters.redrawn
    source = program.batches.state(int(state.step))
    if source is not None:
        values["source"] = np.frombuffer(source, np.uint8)
    best = jax.tree.leaves(counters.best)
    return {**values, **{f"best.{i:06d}": leaf for i, leaf in enumerate(best)}}


def _failure(records: Records, step: int, error: BaseException) -> str:
    """Return one sentence about a state that could not be written."""
    assert records.shared is not None
    folder, first = records.shared, (str(error).splitlines() or [""])[0][:200]
    reason = (
        first.rstrip(".") if isinstance(error, NotWritten) else f"{type(error).__name__}: {first}"
    )
    if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error):
        reason = "no space is left on the disk"
    if not (folder / FILE).exists():  # a removal may meet the writing anywhere
        reason = f"{folder} was removed while the run went on"
    said = f"The state of step {step} could not be saved in {folder}: {reason}."
    if not isinstance(records, FolderRecords):  # the first process knows what there is
        return said
    before = records.commit.step
    if before < 0:
        return f"{said} Nothing was saved before."
    if before not in steps_of(folder):
        return f"{said} What was saved before was removed, too: start the run again."
    return (
        f"{said} The state of step {before} is intact: once that is mended, continue by "
        f"rx.resume({str(folder)!r}, target)."
    )
