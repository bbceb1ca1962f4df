"""Runs of sweeps over all rows: which runs they are, and from what is said to finished records.

What one sweep does is in `sweep.py`. The state is saved after each: a run that was interrupted does
its last sweep again.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from replicax.algorithm.tuning import MOST_DENSE
from replicax.errors import EndedBySignal
from replicax.run import fingerprint, start, trees
from replicax.run.bayesian import Bayesian
from replicax.run.devices import describe_machine, peak_memory
from replicax.run.finder import POINTS, find
from replicax.run.initial import checked_points, num_parameters
from replicax.run.methods import Method, as_method
from replicax.run.options import Sampling, Session
from replicax.run.processes import ends_process, interruptible, sentence_of
from replicax.run.program import Program
from replicax.run.progress import Progress, display, reason_to_stop
from replicax.run.records import Arrays, Records, Result
from replicax.run.resolve import resolve
from replicax.run.storage.folder import FolderRecords, records_of_run
from replicax.run.storage.metadata import SWEEPS, Ending, Metadata, Resolved
from replicax.run.sweep import Sampler
from replicax.run.sweep_state import (
    CONFIRMING,
    LEARNING,
    MINIMA,
    NAMES,
    WITNESSES,
    State,
    restored,
)

FEWEST_SWEEPS, MOST_SWEEPS = 4, 64  # kept, of a run that decides itself how many
_FINDER_REPLICAS = 8  # of the starts of one chain
_ROWS_PER_PARAMETER, _FEWEST_ROWS, _MOST_ROWS = 100, 3_000, 10_000  # that the finder sees
_CHEAP = 20.0  # times the cost of sweeps that a ladder over all rows may have
_SHORT = 1e10  # evaluations of a row that a ladder may take whatever sweeps take, half a minute
_LADDER_STEPS, _LADDER_CHAINS = 600, 4  # of the ladder, at least


class Interrupted(Exception):
    """A sweep was not finished."""


class Choice(NamedTuple):
    """Whether a run makes sweeps, and how that was decided."""

    sweeps: bool
    words: str | None


def choose(task: Any, method: Any, at: Any, given: dict[str, Any]) -> Choice:
    """Return whether a posterior of rows is sampled by sweeps over all of them: if only sweeps
    reach them, if it is asked for, or if they are dear for a ladder, by counted evaluations.

    `given` are options of the call that a ladder alone has; one that is not None decides for it.
    """
    method = as_method(method)
    if not isinstance(task, Bayesian):
        if method.name == SWEEPS:
            raise ValueError("Sweeps go over rows: give an rx.bayesian posterior.")
        return Choice(False, None)
    told = [name for name, value in given.items() if value is not None]
    by_name, is_open = method.name == SWEEPS, method == as_method("posterior")
    in_blocks = task.streams or (is_open and not task.has_exact_energies)
    if in_blocks or by_name:
        _check_told([name for name in told if name != "num_steps"], task, by_name)
    if by_name:
        return Choice(True, "sweeps over all rows, as the method says")
    if task.streams and not is_open:
        raise ValueError(
            f'The rows are a source or of Dask, which only sweeps reach: leave out method="'
            f'{method.name}", or give the rows as arrays.'
        )
    if in_blocks:
        _check_asked(given.get("num_steps"), task)
        if task.block_rows is None:
            return Choice(True, "sweeps over all rows, which are no arrays in memory")
        return Choice(True, f"sweeps over all rows, {task.block_rows:,} of them at a time")
    if not task.has_exact_energies:
        return Choice(False, f"mini-batches of {task.block_rows:,} rows, as the method is given")
    if not is_open or told or task.usual_replicas:
        by = "the method is given" if task.usual_replicas is None else "the posterior has one mode"
        by = f"{told[0]} is given" if told else by
        return Choice(False, f"all rows in every step of the ladder, because {by}")
    return _by_cost(num_parameters(task.start_from(at)), task.num_rows)


def _by_cost(d: int | None, num_rows: int) -> Choice:
    """Return whether sweeps over so many rows are worth while, with d parameters."""
    if not d or d > MOST_DENSE or num_rows <= _num_some(d, num_rows):
        return Choice(False, "all rows in every step of the ladder")
    ladder, sweeps = costs(d, num_rows)
    ratio = f"{ladder:.2g} evaluations of a row, and with sweeps {sweeps:.2g}"
    if ladder > max(_CHEAP * sweeps, _SHORT):
        return Choice(True, f"sweeps over all rows: the ladder would take {ratio}")
    return Choice(False, f"all rows in every step of the ladder, which are cheap: {ratio}")


def _check_told(of_ladder: list[str], task: Bayesian, by_name: bool) -> None:
    """Raise where options are given that only a ladder has."""
    less = ", or batch_size for a ladder" if task.block_rows and not by_name else ""
    for name in of_ladder:
        raise ValueError(
            f"{name} is given, which only a ladder has: leave it out for sweeps over all rows"
            f"{less}."
        )


def _check_asked(num_steps: int | None, task: Bayesian) -> None:
    """Raise where steps were meant and sweeps would be made."""
    if num_steps is None or num_steps <= MOST_SWEEPS:
        return
    less = "" if task.block_rows is None else "; or batch_size, for a ladder that sees all rows"
    raise ValueError(
        f"num_steps is {num_steps:,}, and the rows are read in blocks, by sweeps over all of them: "
        f"it would count the sweeps whose draws are kept, of which {FEWEST_SWEEPS} to "
        f"{MOST_SWEEPS} are usual. Leave it out, and the run ends when it is done{less}. "
        'method="sweeps" takes any number.'
    )


def costs(d: int, num_rows: int) -> tuple[float, float]:
    """Return how many evaluations of one row's likelihood the shortest run takes, of a ladder over
    all rows and of finder and sweeps; a gradient counts as two."""
    moves, jumps, chains = 2 * 8 * 8, 128, _LADDER_CHAINS
    ladder = float(_LADDER_STEPS * chains * (moves + jumps) * num_rows)
    stages = 5 * d**0.5  # of a population that is cooled, each 18 gradients
    found = 2 * POINTS * (144 + 18 * stages) * _num_some(d, num_rows)
    proposals = chains * jumps + WITNESSES
    each = 2 * 2 * (2 * d + 3) + (2 + FEWEST_SWEEPS) * proposals
    return ladder, float(found + each * num_rows)


def _num_some(d: int, num_rows: int) -> int:
    """Return how many rows the finder sees."""
    wanted = int(np.clip(_ROWS_PER_PARAMETER * d, _FEWEST_ROWS, _MOST_ROWS))
    return min(wanted, num_rows)


def begin(
    task: Any, run: Sampling, method: Any, at: Any, session: Session, words: str | None
) -> tuple[Records, Any]:
    """Sample by sweeps, from the start; return the records, and the shapes of one point."""
    start.refuse_traced(at)
    sampler, points = _sampler(task, run, as_method(method), at, session)
    with records_of_run(session.run_dir) as records:
        records.task = task
        folder = records.folder
        records.write_metadata(
            Metadata(
                kind="sample",
                run=sampler.run,
                method=sampler.method,
                resolved=_resolved(sampler, words),
                params=trees.describe(sampler.like),
                batches=task.batches.describe(),
                note=session.note or {},
                machine=describe_machine(),
                fingerprint=(fingerprint.write(folder, sampler.finder, points) if folder else None),
            )
        )
        _go_on(sampler, None, sampler.flat(points), records, session)
    return records, sampler.like


def proceed(
    records: FolderRecords,
    task: Any,
    num_steps: int | None,
    session: Session,
    *,
    params: Any = None,
    force: bool = False,
    changes: dict[str, Any] | None = None,
) -> tuple[Records, Any]:
    """Go on with the run in a folder, after the last sweep that was saved."""
    start.refuse_traced()
    metadata, folder = records.metadata, records.folder
    like = start.point_like(records, params)
    kept = {name: value for name, value in (changes or {}).items() if value is not None}
    if num_steps is not None:
        kept["num_steps"] = num_steps
    run = replace(metadata.run, **kept)
    assert isinstance(run, Sampling)
    if not isinstance(task, Bayesian) or task.batches.describe() != metadata.batches:
        raise ValueError(
            f"The run in {folder} goes over the rows of {metadata.batches}: give the same "
            "rx.bayesian posterior again."
        )
    sampler = Sampler(task, _finder(task, run, like), like, run, metadata.method, _devices(session))
    if not force:
        fingerprint.check(folder, sampler.finder, like, metadata.fingerprint)
    state = restored(records.final)
    if int(state.step) - int(state.burn_in) > run.num_steps and int(state.phase) == CONFIRMING:
        raise ValueError(
            f"num_steps is {run.num_steps}, but the run has kept "
            f"{int(state.step - state.burn_in)} sweeps: write more."
        )
    records.rewind()
    records.task = task
    noted = metadata.note if session.note is None else session.note
    records.write_metadata(replace(metadata, run=run, note=noted, result=None))
    _go_on(sampler, state, None, records, session)
    return records, like


class Standing(NamedTuple):
    """Where a run in memory stands."""

    sampler: Sampler
    state: State


def extended(records: Records, task: Any, num_steps: int, session: Session) -> Records:
    """Go on with a run, in memory or in its folder, by so many kept sweeps more."""
    kept = int(records.final["step"]) - records.metadata.resolved.burn_in
    total = max(kept, 0) + num_steps
    if records.folder is not None:
        with start.resumed_records(records.folder) as found:
            if task is None:
                raise ValueError(
                    f"A folder holds no functions: write rx.load({str(records.folder)!r}, target) "
                    "to go on from there."
                )
            return proceed(found, task, total, session)[0]
    standing: Any = records.standing
    run = replace(standing.sampler.run, num_steps=total)
    more = records.copy()
    more.write_metadata(replace(records.metadata, run=run, result=None))
    _go_on(replace(standing.sampler, run=run), standing.state, None, more, session)
    return more


def _sampler(
    task: Bayesian, run: Sampling, method: Method, at: Any, session: Session
) -> tuple[Sampler, Any]:
    """Return what is fixed of a run, and its starts, leading axes (chain, replica)."""
    if jax.process_count() > 1:
        raise ValueError(
            "Sweeps run in one process: rows that are spread over machines are given as a Dask "
            "array or dataframe."
        )
    run = replace(run, num_chains=run.num_chains or 4, burn_in=None, thin=1)
    method = replace(method, name=SWEEPS, jumps=method.jumps or 128)
    if not method.exact and task.target.exchangeable is not None:
        raise ValueError(
            "exact=False does not know of exchangeable labels: leave out exchangeable, or exact."
        )
    first = task.start_from(at)
    d = num_parameters(first)
    if d is not None and d > MOST_DENSE:
        raise ValueError(
            f"There are {d} parameters, and the mixture of sweeps has at most {MOST_DENSE}: write "
            "num_steps=10_000 for a ladder over all rows, or learning_rate=(cold, hot) of "
            "rx.deo_star and a batch_size for the paper's moves on mini-batches."
        )
    finder = _finder(task, run, first)
    points = checked_points(finder, finder.task.start_from(at), anywhere=True)
    like = jax.eval_shape(trees.first, points)
    return Sampler(task, finder, like, run, method, _devices(session)), points


def _finder(task: Bayesian, run: Sampling, at: Any) -> Program:
    """Return the posterior of some of the rows as a program, with the starts of a population."""
    some = task.rows.some(_num_some(num_parameters(at) or 1, task.num_rows))
    options = Sampling(
        num_steps=2,
        num_chains=POINTS // _FINDER_REPLICAS,
        num_replicas=_FINDER_REPLICAS,
        seed=run.seed,
    )
    return resolve(task.part(some), options, "posterior")


def _devices(session: Session) -> Any:
    """Return the devices that share the blocks of rows, None for the threads of one CPU."""
    wanted = session.devices
    if hasattr(wanted, "devices"):
        return list(wanted.devices.ravel())
    present = jax.devices()
    if wanted is None:
        shared = session.data_parallel > 1 or present[0].platform != "cpu"
        return present if shared else None
    return present if wanted == "all" else present[: int(wanted)]


def _resolved(sampler: Sampler, words: str | None) -> Resolved:
    return replace(
        sampler.finder.describe(),
        num_steps=sampler.run.num_steps,
        num_chains=sampler.num_chains,
        burn_in=0,
        thin=1,
        keep_draws=sampler.run.keep_draws,
        num_replicas=1,
        draws_per_step=sampler.num_proposals,
        schedule="none",
        swaps="at_most_one",
        counted_from=0,
        draw_rungs=(0,),
        adapts=None,
        kernel=SWEEPS,
        decided=words,
    )


def _go_on(
    sampler: Sampler, state: State | None, starts: Any, records: Records, session: Session
) -> None:
    """Find, and sweep until all sweeps are done; save the state after each, and record how the run
    ended."""
    before = float(records.final.get("seconds", 0.0))
    began = time.monotonic()

    def save(state: State, rows: dict[str, Arrays]) -> None:
        final = _final(sampler, state) | {
            "seconds": np.asarray(before + time.monotonic() - began),
            "peak_bytes": np.asarray(peak_memory()),
        }
        resolved = records.metadata.resolved
        burn_in = int(state.burn_in)
        if resolved.burn_in != burn_in and rows:
            planned = burn_in + sampler.run.num_steps
            resolved = replace(resolved, burn_in=burn_in, counted_from=burn_in, num_steps=planned)
            records.write_metadata(replace(records.metadata, resolved=resolved))
        if isinstance(records, FolderRecords):
            arrays = {"step": np.asarray(state.step)}
            keep = sampler.run.keep_checkpoints
            records.write(int(state.step), rows, final, arrays, keep)
            return
        for group, arrays in rows.items():
            records.append(group, arrays)
        records.keep(final)
        records.standing = Standing(sampler, state)  # type: ignore[assignment]

    with interruptible() as signals, _watching(sampler, records, session) as watch:
        if state is None:
            watch.say(
                f"Modes are looked for on {len(jax.tree.leaves(sampler.some)[0]):,} of "
                f"{sampler.rows.num_rows:,} rows."
            )
            state = find(sampler, starts, lambda: _end_at(signals))
            save(state, {})
        result = None
        while result is None and not _is_done(sampler, state):
            phase = int(state.phase)
            try:
                state, rows = sampler.advance(state, watch.seen(state, signals))
            except Interrupted:
                break
            save(state, rows)
            result = watch.after(state, rows, phase)
        if signals and result is None:
            sentence = sentence_of(signals[0], int(state.step), records.folder)
            result = Result("interrupted", sentence)
        result = result or Result("finished", f"All {int(state.step)} sweeps were done.")
        ending = Ending(*result, step=int(state.step))
        records.write_metadata(replace(records.metadata, result=ending))
    if signals:
        watch.say(result.sentence, always=True)
    if ends_process(signals):
        raise EndedBySignal(128 + signals[0])


def _end_at(signals: list[int]) -> None:
    """Raise if a signal came before there is anything to save."""
    if ends_process(signals):
        raise EndedBySignal(128 + signals[0])
    if signals:
        raise KeyboardInterrupt


def _is_done(sampler: Sampler, state: State) -> bool:
    kept = int(state.step) - int(state.burn_in)
    return int(state.phase) == CONFIRMING and kept >= sampler.run.num_steps


def _final(sampler: Sampler, state: State) -> Arrays:
    """Return what the posterior reports, and the state itself."""
    chains, none = state.chains, np.zeros((sampler.num_chains, 1))
    count = sampler.num_chains
    values = {
        "step": np.asarray(state.step),
        "learning_rates": none,
        "temperatures": none + 1,
        "buffer": np.zeros(count),
        "energy_unit": np.ones(count),
        "window_correction": np.zeros(count),
        "energy": chains.energy[:, :1] + state.at_centre[0],
        "nonfinite": np.zeros(count, bool),
        "restarts": none,
        "acceptance": none + np.nan,
        "best_energy": np.full(count, np.inf),
        "round_trips": np.zeros(count, int),
        **{name: np.zeros((count, 0), int) for name in ("verdicts", "windows", "window_swaps")},
    }
    values |= {
        f"jumps.{name}": getattr(chains, name)
        for name in ("proposals", "accepted", "held", "longest", "log_sum", "log_sum_square")
    }
    values |= {f"mixture.{name}": value for name, value in state.mixture._asdict().items()}
    if int(state.phase) != CONFIRMING:
        values["mixture.count"] = np.int32(0)
    if sampler.places is not None:
        values |= {"labels.places": sampler.places, "labels.direction": state.direction}
    return values | {
        f"sweeps.{name}": np.asarray(value) for name, value in zip(NAMES, jax.tree.leaves(state))
    }


class _Watch:
    """Shows how far the sweeps are, calls the user's callbacks, and ends a sweep at a signal."""

    def __init__(self, sampler: Sampler, records: Records, callbacks: list, display: Any) -> None:
        self.sampler, self.records = sampler, records
        self.callbacks, self.display = callbacks, display
        self.rate, self.began = float("nan"), time.monotonic()

    def say(self, words: str, always: bool = False) -> None:
        if self.display is not None:
            self.display.say(words)
        elif always:
            print(words, file=sys.stderr, flush=True)

    def seen(self, state: State, signals: list[int]) -> Callable[[int], None]:
        """Return what is told of the rows of the next sweep."""
        done, self.began = 0, time.monotonic()

        def told(count: int) -> None:
            nonlocal done
            if signals:
                raise Interrupted
            done += count
            self.rate = done / max(time.monotonic() - self.began, 1e-9)
            if self.display is not None:
                part = done / self.sampler.rows.num_rows
                words = self.words(int(state.phase))
                self.display.sweeps(int(state.step) + part, self.planned(state), words)

        return told

    def planned(self, state: State) -> int:
        """Return how many sweeps there will be, as far as is known."""
        more = {MINIMA: 2, LEARNING: 1, CONFIRMING: 0}[int(state.phase)]
        return int(state.burn_in) + more + self.sampler.run.num_steps

    def words(self, phase: int) -> str:
        what = ("follows minima", "learns the mixture", "draws")[phase]
        return f"{what} | {self.rate:,.0f} rows/s"

    def after(self, state: State, rows: dict[str, Arrays], phase: int) -> Result | None:
        """Call the callbacks after a sweep; return how they end the run, or None."""
        planned, step = self.planned(state), int(state.step)
        seconds = max(time.monotonic() - self.began, 1e-9)
        progress = Progress(
            step=step,
            num_steps=planned,
            steps_per_second=1 / seconds,
            seconds_left=(planned - step) * seconds,
            cold_energy=state.chains.energy[:, 0] + state.at_centre[0],
            round_trips=np.zeros(self.sampler.num_chains, int),
            verdict_rate=np.zeros((self.sampler.num_chains, 0)),
            carry=None,  # type: ignore[arg-type]
            evaluation={},
            rows=rows,
            metadata=self.records.metadata,
            run_dir=self.records.folder,
        )
        if self.display is not None:
            self.display.sweeps(step, planned, self.words(phase), ends=True)
        reason = reason_to_stop([callback(progress) for callback in self.callbacks])
        if reason is None:
            return None
        return Result("stopped", f"Stopped after sweep {step}{reason}")


@contextlib.contextmanager
def _watching(sampler: Sampler, records: Records, session: Session) -> Iterator[_Watch]:
    with display(session.progress) as shown:
        yield _Watch(sampler, records, session.callbacks, shown)
