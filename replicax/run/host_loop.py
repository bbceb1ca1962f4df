"""The loop on the host: between compiled chunks record, evaluate, report, checkpoint, stop."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from replicax.run import devices
from replicax.run import rows as layout
from replicax.run.compiled_loop import Pace, build_chunk, chunk_capacity
from replicax.run.evaluation import Evaluation
from replicax.run.initial import seed_keys
from replicax.run.machine import agree, follow, is_first
from replicax.run.options import Options
from replicax.run.program import Program
from replicax.run.progress import Callback, display_progress, progress_of, reason_to_stop
from replicax.run.records import Arrays, Keeper, Records, Result
from replicax.run.rows import Carry
from replicax.run.saver import Saver

_FIRST_STEPS = 64
# Besides Ctrl-C. SLURM sends SIGUSR1 ahead of a time limit (--signal), and SIGTERM at it.
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name)]


def run(
    program: Program,
    carry: Carry,
    records: Records,
    options: Options,
    *,
    evaluation: Evaluation | None = None,
    progress: bool | None = None,
    callback: Callback | Sequence[Callback] | None = None,
) -> None:
    """Run from the step of `carry` to `options.num_steps`, and record how the run ended.

    A signal, a callback's "stop", the end of the batches or a non-finite energy end it before;
    SIGTERM and SIGUSR1 end the process as well, once all is saved.
    """
    num_steps = options.num_steps
    saving = Keeper(records, program, evaluation)
    if records.shared is not None:
        every, num_kept = options.checkpoint_every, options.keep_checkpoints
        saving = Saver(records, program, evaluation, every, num_kept)
    with interruptible() as signals, saving as saver:
        shown = _display(progress, num_steps, int(carry.state.step))
        with shown as display, contextlib.closing(program.batches):
            callbacks = [callback] if callback is None or callable(callback) else callback
            watchers = [watch for watch in (display, *callbacks) if watch is not None]
            result = _loop(saver, carry, num_steps, watchers, signals)
        saver.finish(result)
    if signals and is_first():
        print(result.sentence, file=sys.stderr, flush=True)
    if ends_process(signals):
        raise SystemExit(128 + signals[0])


def _display(progress: bool | None, num_steps: int, start: int) -> Any:
    """Return a context that displays progress and yields a callback, or None without display."""
    if is_first() and (sys.stderr.isatty() if progress is None else progress):
        return display_progress(num_steps, start)
    return contextlib.nullcontext()


def _loop(
    saver: Keeper,
    carry: Carry,
    num_steps: int,
    watchers: list[Callback],
    signals: list[int],
) -> Result:
    """Run chunk after chunk, and return how the run ended."""
    program = saver.program
    step, capacity = int(carry.state.step), chunk_capacity(program, carry)
    keys, _ = seed_keys(program.seed, program.num_chains)
    if program.mesh is not None:
        carry = devices.place(program.mesh, carry)
    chunk = build_chunk(program, keys, capacity)
    pace = Pace(min(capacity, _FIRST_STEPS), capacity)
    if saver.records.shared is not None:
        saver.save(carry)  # so that the folder can be resumed from now on
    result = None
    while step < num_steps and result is None:
        count = min(pace.length, num_steps - step, _until_evaluation(program, step))
        count = follow(count)
        with _saving_on_error(saver, carry):
            count, data = program.batches.feed(step, count, capacity)
        if count == 0:
            result = Result("batches_ended", program.batches.ending(step))
            break
        began = time.monotonic()
        slots = layout.draw_slots(program, step, count, capacity)
        carry, rows = chunk(carry, data, count, slots)
        program.batches.read_ahead(step + count, min(count, num_steps - step - count))
        done = int(rows.count)
        seconds = max(time.monotonic() - began, 1e-9)
        pace = pace.after(done, seconds)
        added = layout.to_records(program, rows, step, done)
        result = _after_chunk(saver, carry, added, watchers, signals, num_steps, done / seconds)
        step += done
    saver.save(carry)
    return result or Result("finished", f"All {num_steps} steps were done.")


def _after_chunk(
    saver: Keeper,
    carry: Carry,
    added: dict[str, Arrays],
    watchers: list[Callback],
    signals: list[int],
    num_steps: int,
    rate: float,
) -> Result | None:
    """Record, evaluate, report and save; return how the run ends at this step, or None."""
    records, evaluation, step = saver.records, saver.evaluation, int(carry.state.step)
    for group, arrays in added.items():
        records.append(group, arrays)
    row = {}
    if evaluation is not None:
        row = evaluation.after_chunk(saver.program, carry, added["steps"]["rung_of"], records)
    (number,) = agree(signals[0] if signals else 0)
    signals += [number] if number and not signals else []
    result = _ending(saver.program, carry, number, step, records.folder)
    reason = None
    if watchers:
        progress = progress_of(saver, carry, num_steps, rate, row, added)
        with _saving_on_error(saver, carry):
            reason = reason_to_stop([watch(progress) for watch in watchers])
    stops, due = agree(reason is not None, saver.is_due(step))
    if stops and result is None:
        result = Result("stopped", f"The callback stopped the run at step {step}{reason or '.'}")
    if due:
        saver.save(carry)
    return result


@contextlib.contextmanager
def _saving_on_error(saver: Keeper, carry: Carry) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if jax.process_count() == 1:  # else the others would have to take part
            saver.save(carry)
        raise


def _until_evaluation(program: Program, step: int) -> int:
    every = program.evaluate_every
    return 2**62 if every is None else every - step % every


def _ending(
    program: Program, carry: Carry, number: int, step: int, folder: Path | None
) -> Result | None:
    """Return how a broken energy or a signal (its number, or 0) ends the run, or None."""
    if program.is_broken(carry):
        energy = np.asarray(carry.counters.energy)
        chain, rung = np.argwhere(~np.isfinite(energy))[0]
        replica = int(carry.state.replica_at[chain, rung])
        remedy = 'A smaller learning rate there, or on_nonfinite="restart", lets the run go on.'
        if rung == 0:
            remedy = "A smaller learning rate lets the run go on."
        return Result(
            "nonfinite",
            f"The energy of replica {replica} on rung {rung} of chain {chain} became "
            f"{energy[chain, rung]} at step {step - 1}. Draws up to there are kept. {remedy}",
        )
    if number:
        name = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
        saved = (
            "it has no run_dir, so nothing is on the disk."
            if folder is None
            else f"all is saved. Continue it with: replicax resume {folder}, or "
            f"rx.resume({str(folder)!r}, target)."
        )
        return Result("interrupted", f"The run was interrupted{name} at step {step}; {saved}")
    return None


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
