"""One run, whatever is sampled: from a program to finished records, from its start or from a
folder."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from replicax.algorithm.target import check_energy
from replicax.errors import show
from replicax.run import fingerprint, plain
from replicax.run.evaluation import Evaluation
from replicax.run.host_loop import run
from replicax.run.initial import check_memory, have_one_start, initial_carry
from replicax.run.machine import describe_machine
from replicax.run.methods import Method, as_method, written
from replicax.run.options import Session
from replicax.run.program import Program, spread_over
from replicax.run.records import Records
from replicax.run.resolve import resolve
from replicax.run.restore import point_like, records_to_continue, restore, rewind, whole_records
from replicax.run.row_energies import use_rows, with_row_energies
from replicax.run.rows import Carry
from replicax.run.storage.encoding import given_again
from replicax.run.storage.folder import FolderRecords, records_of_run
from replicax.run.storage.metadata import Metadata
from replicax.run.task import Task

# like, carry -> evaluation: of networks, given the shapes of one and the carry at the start
# (None where a run resumes)
Evaluates = Callable[[Program, Any, Carry | None], Evaluation]


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
    check_memory(start, program.num_chains, program.num_replicas)
    program = spread_over(program, session.devices, session.data_parallel)
    carry = initial_carry(program, start)
    if program.settings.rule.estimates_noise:
        program = use_rows(program, carry)
    points = carry.state.points
    like = jax.eval_shape(plain.first, points)
    evaluation = None if evaluates is None else evaluates(program, like, carry)
    with records_of_run(session.run_dir) as records:
        folder, about = records.folder, dict(about or {})
        described = about.pop("resolved", lambda network: {})(like if folder else None)
        records.write_metadata(
            Metadata(
                kind=kind,
                run=program.run,
                method=program.method,
                resolved=replace(program.describe(), one_start=have_one_start(carry), **described),
                params=plain.describe(like),
                batches=program.batches.describe(),
                note=session.note or {},
                machine=describe_machine(),
                fingerprint=fingerprint.write(folder, program, points) if folder else None,
                **about,
            )
        )
        run(program, carry, records, session, evaluation)
    return records, like


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
    """Continue the run in a folder; return its records, and the shapes of one point.

    `changes` are options that may be others than before, and the objects that are given again;
    `method` has those of the method. None keeps what is stored.
    """
    metadata, folder = records.metadata, records.folder
    _check_not_gone(metadata, folder)
    program = _program_again(metadata, folder, task, changes, method)
    program = spread_over(program, session.devices, session.data_parallel)
    like = point_like(records, params)
    keys = program.keys
    check_energy(program.target, like, program.batches.first(keys[0]), keys[0])
    if not force:
        fingerprint.check(folder, program, like, metadata.fingerprint)
    state = None
    if evaluates is not None:
        state = jax.eval_shape(lambda: evaluates(program, like, None).state)
    step, carry, evaluated, position = restore(records, program, like, state)
    if step > program.num_steps:
        raise ValueError(
            f"num_steps is {program.num_steps}, but the run stands at step {step}: write more."
        )
    evaluation = None
    if evaluates is not None:
        evaluation = evaluates(program, like, None)
        evaluation.state = evaluated
    kept = records_to_continue(records)
    rewind(kept, program, step, position)
    noted = metadata.note if session.note is None else session.note
    kept.write_metadata(
        replace(
            metadata,
            run=program.run,
            method=program.method,
            resolved=replace(
                metadata.resolved,
                num_steps=program.num_steps,  # what else was resolved cannot change
            ),
            note=noted,
            result=None,
            format_version=Metadata.format_version,
        )
    )
    run(program, carry, kept, session, evaluation)
    return whole_records(kept, folder), like


def _check_not_gone(metadata: Metadata, folder: Path) -> None:
    """Raise if the run has options of an earlier version that this one lacks."""
    for name, value in metadata.gone.items():
        raise ValueError(
            f"The run in {folder} was started with {name}={show(value)}, which is gone since "
            "version 0.3, so it cannot be continued: start a new run without it. "
            "rx.load(folder) reads this one."
        )


def _program_again(
    metadata: Metadata,
    folder: Path,
    task: Task,
    changes: dict[str, Any],
    method: str | Method | None,
) -> Program:
    """Return the program of a run that resumes, if the task fits it."""
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
