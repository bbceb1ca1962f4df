"""The loop of a run on the host: chunk after chunk is computed, recorded, shown and saved."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np

from replicax.errors import EndedBySignal
from replicax.run import devices
from replicax.run.carry import Carry
from replicax.run.chunk import Chunks
from replicax.run.options import Session
from replicax.run.processes import agree, ends_process, interruptible, is_first, sentence_of
from replicax.run.program import Program
from replicax.run.progress import Callback, display, progress_of, reason_to_stop
from replicax.run.records import Arrays, Between, Records, Result
from replicax.run.saver import Saver


def run(
    program: Program,
    carry: Carry,
    records: Records,
    session: Session,
    evaluation: Between,
    compute: Callable | None = None,
) -> None:
    """Run from the step of `carry` to the last, and record how the run ended; `compute` is the
    compiled chunk of a run that goes on.

    A signal, a callback's "stop", the end of the batches or a non-finite energy end it before;
    SIGTERM and SIGUSR1 end the process as well, once all is saved.
    """
    with interruptible() as signals, Saver(records, program, evaluation) as saver:
        with _watching(program, carry, session) as watchers, contextlib.closing(program.batches):
            result = _loop(program, carry, saver, watchers, signals, compute)
        saver.finish(result)
    if signals and is_first():
        print(result.sentence, file=sys.stderr, flush=True)
    if ends_process(signals):
        raise EndedBySignal(128 + signals[0])


def _loop(
    program: Program,
    carry: Carry,
    saver: Saver,
    watchers: list[Callback],
    signals: list[int],
    compute: Callable | None,
) -> Result:
    """Run chunk after chunk, and return how the run ended."""
    chunks, result = Chunks(program, carry, compute), None
    if program.mesh is not None:
        carry = devices.place(program.mesh, carry)
    if saver.records.shared is not None:
        saver.save(carry)  # so that the folder can be resumed from now on
    while chunks.step < program.num_steps and result is None:
        with _saving_on_error(saver, carry):
            count, data = chunks.feed()
        if count == 0:
            result = Result("batches_ended", program.batches.ending(chunks.step))
            break
        carry, rows, rate = chunks.advance(carry, count, data)
        carry, numbers = saver.append(carry, rows)
        chunks.step = int(carry.state.step)  # a burn-in may be cut short
        result = _ending(program, carry, signals, saver.records.folder)
        with _saving_on_error(saver, carry):
            stops, reason = _watched(saver, carry, rate, numbers, rows, watchers)
        if stops and result is None:
            result = Result("stopped", f"Stopped at step {chunks.step}{reason}")
        saver.save_if_due(carry)
    saver.save(carry)
    if saver.records.standing is not None:
        saver.records.standing = saver.records.standing._replace(compute=chunks.compute)
    return result or Result("finished", f"All {program.num_steps} steps were done.")


@contextlib.contextmanager
def _watching(program: Program, carry: Carry, session: Session) -> Iterator[list[Callback]]:
    """Yield the callbacks of the user, behind the display of progress where one is wanted."""
    with display(session.progress if is_first() else False) as shown:
        if shown is not None and shown.bar is None:
            shown.say(f"step {int(carry.state.step):,} of {program.num_steps:,}: compiling")
        yield [*([] if shown is None else [shown.run]), *session.callbacks]


def _watched(
    saver: Saver,
    carry: Carry,
    rate: float,
    numbers: Arrays,
    rows: dict[str, Arrays],
    watchers: list[Callback],
) -> tuple[bool, str]:
    """Call the watchers; return whether one stops the run, in any process, and why."""
    reason = None
    if watchers:
        progress = progress_of(saver, carry, rate, numbers, rows)
        reason = reason_to_stop([watch(progress) for watch in watchers])
    (stops,) = agree(reason is not None)
    return bool(stops), reason or "."


@contextlib.contextmanager
def _saving_on_error(saver: Saver, carry: Carry) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if jax.process_count() == 1:  # else the others would have to take part
            saver.save(carry)
        raise


def _ending(
    program: Program, carry: Carry, signals: list[int], folder: Path | None
) -> Result | None:
    """Return how a broken energy, or a signal in any process, ends the run here, or None."""
    (number,) = agree(signals[0] if signals else 0)
    signals += [number] if number and not signals else []
    step = int(carry.state.step)
    if program.is_broken(carry):
        return _broken(carry, step)
    if number:
        return Result("interrupted", sentence_of(number, step, folder))
    return None


def _broken(carry: Carry, step: int) -> Result:
    """Return the end of a run by an energy that is not finite."""
    energy = np.asarray(carry.counters.energy)
    chain, rung = np.argwhere(~np.isfinite(energy))[0]
    replica = int(carry.state.replica_at[chain, rung])
    there = "" if rung == 0 else ' there, or on_nonfinite="restart",'
    return Result(
        "nonfinite",
        f"The energy of replica {replica} on rung {rung} of chain {chain} became "
        f"{energy[chain, rung]} at step {step - 1}. Draws up to there are kept. A smaller learning "
        f"rate{there} lets the run go on; where the density ends at a bound, such as x > 0, write "
        "the model without it: x = exp(z), and add z to the log density.",
    )
