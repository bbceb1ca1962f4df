"""One run, whatever is sampled: from a program to finished records, from its start or from a
folder.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm.kernel import Replica
from replicax.algorithm.state import State
from replicax.algorithm.target import check_energy
from replicax.errors import is_concrete, show
from replicax.run import fingerprint, processes, trees
from replicax.run.carry import Carry
from replicax.run.compiled_once import on_disk
from replicax.run.devices import describe_machine, spread_over
from replicax.run.initial import (
    PerReplica,
    carry_like,
    check_memory,
    have_one_start,
    initial_carry,
    use_rows,
    with_row_energies,
)
from replicax.run.loop import run
from replicax.run.methods import Method, as_method, written
from replicax.run.options import Session
from replicax.run.program import Program
from replicax.run.records import Between, Records, Standing
from replicax.run.resolve import resolve
from replicax.run.storage import checkpoint
from replicax.run.storage.folder import (
    FolderRecords,
    open_records,
    records_of_run,
    resumed_records,
)
from replicax.run.storage.metadata import Metadata, given_again
from replicax.run.task import Task

# What checkpoints of version 0.2 also hold: averages of start networks.
_GONE = ("['evaluation'].starts.", "['evaluation'].averages.starts.")


# like, carry -> what the host does between chunks, such as evaluations of networks, given the
# shapes of one point and the carry at the start (None where a run resumes)
Evaluates = Callable[[Program, Any, Carry | None], Between]


def begin(
    kind: str,
    program: Program,
    start: Any,
    session: Session,
    evaluates: Evaluates | None = None,
    about: dict[str, Any] | None = None,
) -> tuple[Records, Any]:
    """Run a program from the start; return its records, and the shapes of one point.

    `about` are further entries of the metadata; a function `resolved(like)` among them adds to what
    the options came to.
    """
    start = program.task.start_from(start)
    refuse_traced(start)
    check_memory(start, program.num_chains, program.num_replicas)
    program = spread_over(program, session.devices, session.data_parallel)
    with on_disk(quick=0.0):  # dozens of small programs, which take a second in all
        carry = initial_carry(program, start)
        if program.settings.rule.estimates_noise:
            program = use_rows(program, carry)
        points, one_start = carry.state.points, have_one_start(carry)
        like = jax.eval_shape(trees.first, points)
        evaluation = (evaluates or _learns)(program, like, carry)
        carry = evaluation.first(program, carry)
    with records_of_run(session.run_dir) as records:
        records.task = program.task
        folder, about = records.folder, dict(about or {})
        described = about.pop("resolved", lambda network: {})(like if folder else None)
        records.write_metadata(
            Metadata(
                kind=kind,
                run=program.run,
                method=program.method,
                resolved=replace(program.describe(), one_start=one_start, **described),
                params=trees.describe(like),
                batches=program.batches.describe(),
                note=session.note or {},
                machine=describe_machine(),
                fingerprint=fingerprint.write(folder, program, points) if folder else None,
                **about,
            )
        )
        run(program, carry, records, session, evaluation)
    return records, like


def _learns(program: Program, like: Any, carry: Carry | None) -> Between:
    """Return what a run learns in its burn-in."""
    if not program.round_ends:
        return Between()
    from replicax.run.learning import Learning  # its search and its fits import half of SciPy

    return Learning(program, like)


def refuse_traced(start: Any = None) -> None:
    """Raise if JAX is tracing a function that calls a run."""
    try:
        is_traced = not is_concrete((jnp.zeros(()), start))
    except (TypeError, ValueError):  # no tree: that is said where the start is looked at
        return
    if is_traced:
        raise ValueError(
            "The run is started inside a function that JAX compiles or transforms: call it outside "
            "jax.jit, jax.vmap and jax.grad; it compiles its own loop."
        )


def proceed(
    records: FolderRecords,
    task: Task,
    changes: dict[str, Any],
    session: Session,
    *,
    method: str | Method | None = None,
    params: Any = None,
    force: bool = False,
    evaluates: Evaluates | None = None,
) -> tuple[Records, Any]:
    """Resume the run in a folder; return its records, and the shapes of one point.

    `changes` are options that may be others than before, and the objects that are given again;
    `method` has those of the method. None keeps what is stored.
    """
    metadata, folder = records.metadata, records.folder
    refuse_traced()
    program = _program_again(metadata, folder, task, changes, method)
    program = spread_over(program, session.devices, session.data_parallel)
    like = point_like(records, params)
    check_memory(like, program.num_chains, program.num_replicas)
    keys = program.keys
    check_energy(program.target, like, program.batches.first(keys[0]), keys[0])
    if not force:
        fingerprint.check(folder, program, like, metadata.fingerprint)
    evaluation = (evaluates or _learns)(program, like, None)
    carry = _restore(records, program, like, evaluation)
    if records.commit.step > program.num_steps:
        raise ValueError(
            f"num_steps is {program.num_steps}, but the run stands at step {records.commit.step}: "
            "write more."
        )
    kept = records_from(records, program)
    kept.task = program.task
    noted = metadata.note if session.note is None else session.note
    # What else was resolved cannot change.
    resolved = replace(metadata.resolved, num_steps=program.num_steps)
    again = replace(metadata, run=program.run, method=program.method, resolved=resolved)
    kept.write_metadata(
        replace(again, note=noted, result=None, format_version=Metadata.format_version)
    )
    run(program, carry, kept, session, evaluation)
    processes.wait()  # the others read what the first one wrote
    return (kept if processes.is_first() else open_records(folder)), like


def extended(records: Records, task: Task | None, num_steps: int, session: Session) -> Records:
    """Continue a run, in memory or in its folder, to `num_steps` in all."""
    if records.folder is not None:
        with resumed_records(records.folder) as found:
            task = _needed(task, records)
            return proceed(found, task, {"num_steps": num_steps}, session)[0]
    standing = _standing(records, task)
    options = replace(standing.program.run, num_steps=num_steps)
    program = replace(standing.program, num_steps=num_steps, run=options)
    # The loop writes over its arrays: the run that is extended keeps its own.
    carry = jax.tree.map(jnp.copy, standing.carry)
    more = records.copy()
    resolved = replace(records.metadata.resolved, num_steps=num_steps)
    more.write_metadata(replace(records.metadata, run=options, resolved=resolved, result=None))
    run(program, carry, more, session, copy(standing.evaluation))
    return more


def retuned(
    records: Records, task: Task | None, num_steps: int, session: Session, redraws: int = 0
) -> tuple[Records, Any]:
    """Run anew from where the replicas of a run are: with a new burn-in, and no earlier draws. So
    many `redraws`, unless they are 0, take evaluations from the jumps."""
    program, carry, _ = _standing(records, task)
    places = np.asarray(carry.state.replica_at)
    by_rung = jax.tree.map(
        lambda leaf: np.asarray(leaf)[np.arange(len(places))[:, None], places], carry.state.points
    )
    options = replace(program.run, num_steps=num_steps, burn_in=None)
    method = program.method
    if redraws:
        jumps = (method.jumps or 0) // 2
        draws = min(method.draws_per_step or 1, max(jumps, 1))
        method = replace(method, redraws=redraws, jumps=jumps, draws_per_step=draws)
    again = resolve(program.task, options, method)
    return begin("sample", again, PerReplica(by_rung, by_chain=True), session)


def _standing(records: Records, task: Task | None) -> Standing:
    """Return where a run stands, in memory or by the newest checkpoint of its folder."""
    if records.standing is not None:
        return records.standing
    assert isinstance(records, FolderRecords)
    found = open_records(records.folder, with_checkpoint=True)
    program = _program_again(found.metadata, found.folder, _needed(task, records), {}, None)
    like = point_like(found)
    evaluation = _learns(program, like, None)
    return Standing(program, _restore(found, program, like, evaluation), evaluation)


def _needed(task: Task | None, records: Records) -> Task:
    if task is None:
        raise ValueError(
            f"A folder holds no functions: write rx.load({str(records.folder)!r}, target) to go on "
            "from there."
        )
    return task


def point_like(records: FolderRecords, params: Any = None) -> Any:
    """Return the shapes of one point; `params` gives containers that a folder cannot hold."""
    spec = records.metadata.params
    if spec.structure is None and params is None:
        raise ValueError(
            f"The params of the run in {records.folder} are in custom containers: give a tree of "
            "the same kind, rx.resume(run_dir, target, params=...). Networks need params and "
            "model_state of dicts, lists and tuples to be resumed."
        )
    return trees.shapes_of(spec, params)


def restore_points(records: FolderRecords, like: Any) -> tuple[Any, np.ndarray]:
    """Return the points of the checkpoint, leading axes (chain, replica), and `replica_at`.

    Of targets with a model state; whatever kernel moved them. `like` is one point.
    """
    lead = records.final["learning_rates"].shape  # (chain, rung)
    params, model_state = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype), like
    )
    nothing = State(*(None for _ in State._fields))  # type: ignore[arg-type]
    state = nothing._replace(
        replicas=Replica(params, None),
        model_state=model_state,
        replica_at=jax.ShapeDtypeStruct(lead, jnp.int32),
    )
    wanted = {"carry": Carry(state, None)}  # type: ignore[arg-type]
    arrays = checkpoint.restore(records.folder, records.commit.step, wanted, part=True)
    state = arrays["carry"].state
    return jax.tree.map(jnp.asarray, state.points), np.asarray(state.replica_at)


def _restore(records: FolderRecords, program: Program, like: Any, evaluation: Between) -> Carry:
    """Return the carry of the checkpoint that the records stand at, and give the evaluation its
    state. `like` has the shapes of one point."""
    state = jax.eval_shape(lambda: evaluation.state)
    shapes = {"carry": carry_like(program, like), "evaluation": state}
    arrays = checkpoint.restore(records.folder, records.commit.step, shapes, gone=_GONE)
    arrays = jax.tree.map(jnp.asarray, arrays)
    evaluation.state = arrays["evaluation"]
    return arrays["carry"]


def records_from(records: FolderRecords, program: Program) -> Any:
    """Bring records and batches to the step of a checkpoint, later rows dropped; return the records
    in the first process, and new ones in memory in the others, once all have read what they need.
    """
    processes.wait()
    source = records.final.get("source")
    position = None if source is None else source.tobytes()
    program.batches.skip_to(records.commit.step, position)
    if processes.is_first():
        records.rewind()
        return records
    copy = Records(records.folder)
    copy.write_metadata(records.metadata)
    return copy


def _program_again(
    metadata: Metadata,
    folder: Path,
    task: Task,
    changes: dict[str, Any],
    method: str | Method | None,
) -> Program:
    """Return the program of a run that resumes, if the task fits it."""
    for name, value in metadata.gone.items():
        raise ValueError(
            f"The run in {folder} was started with {name}={show(value)}, which is gone since "
            "version 0.3, so it cannot be continued: start a new run. rx.load(folder) reads it."
        )
    again = {} if method is None else vars(as_method(method))
    name = metadata.method.name
    if again.get("name", name) != name:
        raise ValueError(
            f'The method "{again["name"]}" is given, but the run in {folder} continues with its '
            f'own, "{name}": leave out method.'
        )
    method = given_again(
        metadata.method,
        again,
        lambda part: f"rx.resume(run_dir, target, method={written(name, f'{part}=...')})",
    )
    run = given_again(metadata.run, changes, lambda part: f"rx.resume(run_dir, target, {part}=...)")
    batches = task.batches.describe()
    if batches != metadata.batches:
        raise ValueError(
            f"The run in {folder} was started with batches: {metadata.batches}; now there are: "
            f"{batches}. Give the same target and batches again."
        )
    if metadata.resolved.row_energies and task.target.row_energies is None:
        task = replace(task, target=with_row_energies(task.target))
    return resolve(task, run, method)
