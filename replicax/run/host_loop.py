"""The loop on the host: between compiled chunks record, evaluate, report, checkpoint, stop."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from replicax.run import devices, processes
from replicax.run import rows as layout
from replicax.run.compiled_loop import SHARED_STEPS, Pace, build_chunk, chunk_capacity
from replicax.run.counters import PAIR_COUNTS, completed_trips, num_attempts
from replicax.run.initial import seed_keys
from replicax.run.keeper import Evaluation, Keeper, Result
from replicax.run.options import Options
from replicax.run.program import Program
from replicax.run.progress import Callback, Progress, display_progress
from replicax.run.rows import Carry
from replicax.run.saver import Saver
from replicax.run.shared_programs import Programs
from replicax.run.storage.records import Arrays, Records

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
    programs: Programs | None = None,
) -> None:
    """Run from the step of `carry` to `options.num_steps`, and write down how that ended.

    A signal, a callback's "stop", the end of the batches or a non-finite energy end it before;
    SIGTERM and SIGUSR1 end the process as well, once all is saved.
    """
    num_steps, is_first = options.num_steps, processes.is_first()
    saving = Keeper(records)
    if records.shared is not None:
        saving = Saver(records, options.checkpoint_every, options.keep_checkpoints)
    with interruptible() as signals, saving as saver:
        shown = contextlib.nullcontext()
        steps = SHARED_STEPS.get()
        is_shown = is_first and (steps is None or steps.is_shown)
        if is_shown and (sys.stderr.isatty() if progress is None else progress):
            shown = display_progress(num_steps, int(carry.state.step))
        with shown as display, contextlib.closing(program.batches):
            callbacks = [callback] if callback is None or callable(callback) else callback
            watchers = [watch for watch in (display, *callbacks) if watch is not None]
            result = _loop(
                program, carry, num_steps, saver, evaluation, watchers, programs, signals
            )
        saver.finish(result)
    if signals and is_first:
        print(result.sentence, file=sys.stderr, flush=True)
    if ends_process(signals):
        raise SystemExit(128 + signals[0])


def _loop(
    program: Program,
    carry: Carry,
    num_steps: int,
    saver: Keeper,
    evaluation: Evaluation | None,
    watchers: list[Callable[[Progress], Any]],
    programs: Programs | None,
    signals: list[int],
) -> Result:
    step = int(carry.state.step)
    keys, _ = seed_keys(program.seed, program.num_chains)
    capacity = chunk_capacity(program, carry)
    if program.mesh is not None:
        carry = devices.place(program.mesh, carry)
    chunk = build_chunk(program, keys, capacity, programs)
    pace = Pace(program.chunk_steps or min(capacity, _FIRST_STEPS), capacity)
    result = None
    if saver.records.shared is not None:
        saver.save(program, carry, evaluation)  # so that the folder can be resumed from now on
    while step < num_steps and result is None:
        count = min(pace.length, num_steps - step, _until_evaluation(program, step))
        count = processes.follow(count)
        with _saving_on_error(saver, program, carry, evaluation):
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
        added = layout.to_records(program, rows, step, done)
        for group, arrays in added.items():
            saver.records.append(group, arrays)
        if evaluation is not None and evaluation.follow is not None:
            evaluation.state = evaluation.follow(evaluation.state, added["steps"]["rung_of"])
        step += done
        if program.chunk_steps is None:
            pace = pace.after(done, seconds)
        (number,) = processes.agree(signals[0] if signals else 0)
        signals += [number] if number and not signals else []
        result = _ending(program, carry, number, step, saver.records.folder)
        row = {}
        if evaluation is not None and done and not _is_broken(program, carry):
            row = _evaluate(program, evaluation, carry, step, saver.records)
        progress = _progress(program, carry, num_steps, done / seconds, row, added, saver.records)
        if evaluation is not None and evaluation.running is not None:
            progress = progress._replace(average=evaluation.running(evaluation.state))
        with _saving_on_error(saver, program, carry, evaluation):
            answers = [watch(progress) for watch in watchers]
        reason = _reason_to_stop(answers)
        stops, due = processes.agree(reason is not None, saver.is_due(step))
        if stops and result is None:
            result = Result(
                "stopped", f"The callback stopped the run at step {step}{reason or '.'}"
            )
        if due:
            saver.save(program, carry, evaluation)
    saver.save(program, carry, evaluation)
    return result or Result("finished", f"All {num_steps} steps were done.")


def _reason_to_stop(answers: list[Any]) -> str | None:
    """Return the end of the sentence about why callbacks stop the run; None if none does."""
    for answer in answers:
        if isinstance(answer, str) and (answer == "stop" or answer.startswith("stop: ")):
            return f"{answer.removeprefix('stop')}."
    return None


@contextlib.contextmanager
def _saving_on_error(
    saver: Keeper, program: Program, carry: Carry, evaluation: Evaluation | None
) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if jax.process_count() == 1:  # else the others would have to take part
            saver.save(program, carry, evaluation)
        raise


def _until_evaluation(program: Program, step: int) -> int:
    every = program.evaluate_every
    return 2**62 if every is None else every - step % every


def _evaluate(
    program: Program, evaluation: Evaluation, carry: Carry, step: int, records: Records
) -> dict[str, np.ndarray]:
    """Return the row of an evaluation that is due after `step` steps, or an empty one."""
    if program.evaluate_every is None or step % program.evaluate_every:
        return {}
    evaluation.state, row, networks = evaluation.evaluate(evaluation.state, carry)
    row = {name: np.asarray(value) for name, value in row.items()}
    records.append("epochs", {name: value[None] for name, value in row.items()})
    if networks:
        records.append("networks", networks)
    return row


def _is_broken(program: Program, carry: Carry) -> bool:
    return program.stop_on_nonfinite and bool(np.any(carry.counters.nonfinite))


def _ending(
    program: Program, carry: Carry, number: int, step: int, folder: Path | None
) -> Result | None:
    """Return how the run ends at this step, or None; `number` is that of a signal, or 0."""
    if _is_broken(program, carry):
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


def _progress(
    program: Program,
    carry: Carry,
    num_steps: int,
    rate: float,
    row: dict[str, np.ndarray],
    added: dict[str, Arrays],
    records: Records,
) -> Progress:
    step = int(carry.state.step)
    verdicts = np.asarray(carry.counters.pairs[:, PAIR_COUNTS.index("verdicts")])
    attempts = num_attempts(int(program.counted_from), step, program.settings.swap_every)
    return Progress(
        step=step,
        num_steps=num_steps,
        steps_per_second=rate,
        seconds_left=(num_steps - step) / max(rate, 1e-9),
        cold_energy=np.asarray(carry.counters.energy[:, 0]),
        round_trips=completed_trips(np.asarray(carry.counters.turns)).sum(axis=1),
        verdict_rate=verdicts / max(attempts, 1),
        carry=carry,
        evaluation=row,
        rows=added,
        metadata=records.metadata,
        run_dir=records.folder,
    )


@contextlib.contextmanager
def interruptible() -> Iterator[list[int]]:
    """Collect Ctrl-C, SIGTERM and SIGUSR1 in a list instead of ending; a second one raises.

    Handlers that the user has set for the last two stay. Threads that share their steps share the
    list, too.
    """
    numbers: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        steps = SHARED_STEPS.get()
        yield numbers if steps is None else steps.signals
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
