"""The loop on the host: between compiled chunks record, report, checkpoint, stop or go on."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from replicax.run import checkpoint
from replicax.run.batches import ArrayBatches, BatchesEnded, EpochBatches, HostBatches
from replicax.run.compiled_loop import Carry, Chunk, build_chunk, chunk_capacity
from replicax.run.counters import PAIR_COUNTS
from replicax.run.program import Program, Programs
from replicax.run.pytrees import leaf_names
from replicax.run.records import Records
from replicax.run.round_trips import Trips, follow_trips

_FIRST_STEPS = 64
_CHUNK_SECONDS = 0.5
_CHECKPOINT_SECONDS = 30.0
_PENDING_BYTES = 2**28


class Result(NamedTuple):
    """How a run ended."""

    code: str  # finished, interrupted, stopped, batches_ended or nonfinite
    sentence: str


class Progress(NamedTuple):
    """What a callback sees between two chunks; return "stop" from it to end the run."""

    step: int
    num_steps: int
    steps_per_second: float
    seconds_left: float
    cold_energy: np.ndarray  # shape (chain,)
    round_trips: np.ndarray  # shape (chain,)
    verdict_rate: np.ndarray  # shape (chain, pair)
    carry: Carry  # on the device
    seen: dict[str, np.ndarray]  # of the last look of a `Watch`, in the step that it was taken


@dataclass
class Watch:
    """Something that looks at the replicas every so many steps, such as a test of the networks.

    What it remembers is part of the checkpoint; each look leaves a row of the records "epochs".
    """

    every: int  # steps
    memory: Any  # pytree of arrays
    look: Callable[[Any, Carry], tuple[Any, dict[str, Any]]]  # -> memory, row
    final: Callable[[Any], dict[str, np.ndarray]]  # memory -> what the run leaves at its end

    def until_look(self, step: int) -> int:
        return self.every - step % self.every


class Pace(NamedTuple):
    """How many steps the next chunk takes: half a second's worth, and enough to outweigh what a
    chunk costs whatever its length."""

    length: int
    capacity: int
    before: tuple[int, float] | None = None  # steps and seconds of the chunk before

    def after(self, steps: int, seconds: float) -> "Pace":
        """The pace once a chunk of `steps` took `seconds`; the first one's time is compilation."""
        if steps == 0:
            return self
        if self.before is None:
            return self._replace(before=(0, 0.0))
        before_steps, before_seconds = self.before
        per_step, fixed = seconds / steps, 0.0
        if before_steps and before_steps != steps:
            slope = (seconds - before_seconds) / (steps - before_steps)
            per_step = max(slope, 0.01 * per_step)
            fixed = max(seconds - per_step * steps, 0.0)
        wanted = max(_CHUNK_SECONDS, 4 * fixed) / per_step
        length = int(np.clip(wanted, steps / 4, steps * 4))
        return self._replace(length=min(max(length, 1), self.capacity), before=(steps, seconds))


@dataclass
class Saver:
    """Flushes records and commits a checkpoint when it is due."""

    records: Records
    folder: Path | None
    every: int | None = None  # steps; None: by the clock
    step: int = 0
    clock: float = 0.0
    watch: Watch | None = None

    def is_due(self, step: int) -> bool:
        if self.folder is None:
            return False
        if self.records.pending_bytes > _PENDING_BYTES:
            return True
        if self.every is not None:
            return step - self.step >= self.every
        return time.monotonic() - self.clock >= _CHECKPOINT_SECONDS

    def save(self, program: Program, carry: Carry, trips: Trips, step: int) -> None:
        """Records first: those beyond a checkpoint are dropped when a run resumes."""
        values = final_values(program, carry, trips)
        memory = None if self.watch is None else self.watch.memory
        if self.watch is not None:
            values |= self.watch.final(memory)
        self.records.flush(values)
        if self.folder is not None:
            checkpoint.save(self.folder, step, (carry, trips, memory))
        self.step, self.clock = step, time.monotonic()

    @contextlib.contextmanager
    def saving_on_error(
        self, program: Program, carry: Carry, trips: Trips, step: int
    ) -> Iterator[None]:
        """Whatever goes wrong in here, what was drawn before is saved."""
        try:
            yield
        except BaseException:
            self.save(program, carry, trips, step)
            raise


def run(
    program: Program,
    carry: Carry,
    trips: Trips,
    keys: jax.Array,
    num_steps: int,
    saver: Saver,
    callback: Callable[[Progress], Any] | None = None,
    display: Callable[[Progress], None] | None = None,
    programs: Programs | None = None,
) -> tuple[Carry, Trips, Result]:
    """Go on until step `num_steps`, an interrupt, a callback's "stop" or a non-finite energy."""
    step = int(carry.state.step)
    capacity = chunk_capacity(program, carry)
    chunk = build_chunk(program, keys, capacity, programs)
    batches = program.batches
    data = batches.data if isinstance(batches, ArrayBatches | EpochBatches) else None
    saver.step, saver.clock = step, time.monotonic()
    pace = Pace(program.chunk_steps or min(capacity, _FIRST_STEPS), capacity)
    result = None
    with interruptible() as interrupted:
        while step < num_steps and result is None:
            count = min(pace.length, num_steps - step)
            if saver.watch is not None:
                count = min(count, saver.watch.until_look(step))
            if isinstance(program.batches, HostBatches):
                count, data = program.batches.feed(step, count, capacity)
                if count == 0:
                    result = Result("batches_ended", str(BatchesEnded(step)))
                    break
            began = time.monotonic()
            carry, rows = chunk(carry, data, count, draw_slots(program, step, count, capacity))
            done = int(rows.count)
            seconds = max(time.monotonic() - began, 1e-9)
            trips = record(program, saver.records, trips, rows, step, done)
            step += done
            if program.chunk_steps is None:
                pace = pace.after(done, seconds)
            broken = program.stop_on_nonfinite and bool(np.any(carry.tally.nonfinite))
            result = _look(program, carry, broken, bool(interrupted), step)
            seen = {} if broken else _watch(saver, carry, done, step)
            progress = _progress(program, carry, trips, step, num_steps, done / seconds, seen)
            if display is not None:
                display(progress)
            if callback is not None:
                with saver.saving_on_error(program, carry, trips, step):
                    answer = callback(progress)
                if answer == "stop" and result is None:
                    result = Result("stopped", f"The callback stopped the run at step {step}.")
            if saver.is_due(step):
                saver.save(program, carry, trips, step)
    saver.save(program, carry, trips, step)
    return carry, trips, result or Result("finished", f"All {num_steps} steps were done.")


def _watch(saver: Saver, carry: Carry, done: int, step: int) -> dict[str, np.ndarray]:
    """The row of a look that is due after `step` steps, if one is."""
    watch = saver.watch
    if watch is None or done == 0 or step % watch.every:
        return {}
    watch.memory, row = watch.look(watch.memory, carry)
    row = {name: np.asarray(value) for name, value in row.items()}
    saver.records.append("epochs", {name: value[None] for name, value in row.items()})
    return row


def draw_slots(program: Program, step: int, count: int, capacity: int) -> np.ndarray:
    """The row of each step's draw; steps without one share the last row, which is not read."""
    drawn = program.is_drawn(np.arange(step, step + count))
    slots = np.full(capacity, capacity // program.thin + 1, np.int32)
    slots[:count][drawn] = np.arange(drawn.sum())
    return slots


def record(
    program: Program, records: Records, trips: Trips, rows: Chunk, step: int, done: int
) -> Trips:
    """Move a chunk's rows to the records and count its round trips."""
    before, after = program.lengths(step), program.lengths(step + done)
    rung_of = _first_rows(rows.rung_of, done)
    num_draws = after["draws"] - before["draws"]
    num_points = after["history"] - before["history"]
    leaves = [_first_rows(leaf, num_draws) for leaf in jax.tree.leaves(rows.draws)]
    draws = dict(zip(leaf_names(rows.draws), leaves, strict=True))
    records.append("steps", {"rung_of": rung_of})
    records.append("draws", {"__energy__": _first_rows(rows.energies, num_draws), **draws})
    records.append("history", {n: _first_rows(x, num_points) for n, x in rows.history.items()})
    return follow_trips(trips, rung_of.transpose(1, 0, 2))


def _first_rows(rows: Any, count: int) -> np.ndarray:
    """Cut on the host: on the device every new length would be compiled."""
    return np.asarray(rows)[:count].copy()


def final_values(program: Program, carry: Carry, trips: Trips) -> dict[str, np.ndarray]:
    """What the posterior reports of the end of the run; leading axis: chain."""
    state, tally = jax.device_get(carry)
    values = {
        "step": np.asarray(state.step),
        "learning_rates": state.ladder.learning_rate,
        "temperatures": state.ladder.temperature,
        "buffer": state.buffer,
        "energy_unit": np.asarray(jax.jit(type(state.energy_unit).value)(state.energy_unit)),
        "window_correction": _window_correction(program, state),
        "energy": tally.energy,
        "nonfinite": tally.nonfinite,
        "restarts": tally.restarts,
        "best_energy": tally.best_energy,
        "round_trips": trips.count,
        **{name: tally.pairs[:, row] for row, name in enumerate(PAIR_COUNTS)},
    }
    best = jax.tree.leaves(tally.best)
    return {**values, **{f"best.{i:06d}": leaf for i, leaf in enumerate(best)}}


def _window_correction(program: Program, state: Any) -> np.ndarray:
    """lambda_W in force, (chain,)."""
    rule = program.settings.rule
    if rule.tunes_correction:
        return state.correction.value
    return np.full(program.num_chains, rule.window_correction)


def _look(program: Program, carry: Carry, cut_short: bool, interrupted: bool, step: int):
    if cut_short:
        energy = np.asarray(carry.tally.energy)
        chain, rung = np.argwhere(~np.isfinite(energy))[0]
        replica = int(carry.state.replica_at[chain, rung])
        return Result(
            "nonfinite",
            f"The energy of replica {replica} on rung {rung} of chain {chain} became "
            f"{energy[chain, rung]} at step {step - 1}. Draws up to there are kept. A smaller "
            'learning rate on the hot rungs, or on_nonfinite="ignore", lets the run go on.',
        )
    if interrupted:
        return Result("interrupted", f"The run was interrupted at step {step}; all is saved.")
    return None


def _progress(
    program: Program,
    carry: Carry,
    trips: Trips,
    step: int,
    num_steps: int,
    rate: float,
    seen: dict[str, np.ndarray],
) -> Progress:
    verdicts = np.asarray(carry.tally.pairs[:, PAIR_COUNTS.index("verdicts")])
    return Progress(
        step=step,
        num_steps=num_steps,
        steps_per_second=rate,
        seconds_left=(num_steps - step) / max(rate, 1e-9),
        cold_energy=np.asarray(carry.tally.energy[:, 0]),
        round_trips=trips.count,
        verdict_rate=verdicts / max(step - program.burn_in, 1),
        carry=carry,
        seen=seen,
    )


@contextlib.contextmanager
def interruptible() -> Iterator[list]:
    """Ctrl-C fills the list instead of raising; a second one raises as usual."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def note(number: int, frame: Any) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)
