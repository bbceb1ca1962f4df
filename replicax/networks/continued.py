"""`resume_training`: continue a training from its folder; `networks_of`: its last networks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from replicax.errors import check_folder, check_watchers
from replicax.networks.build import build_evaluation, build_training
from replicax.networks.hooks import Epoch
from replicax.networks.options import TrainOptions
from replicax.networks.problem import Supervised, check_problem
from replicax.networks.problems import check_start
from replicax.networks.trained import Trained
from replicax.run import fingerprint
from replicax.run.host_loop import run
from replicax.run.plain import CUSTOM
from replicax.run.program import Program, spread_over
from replicax.run.progress import Callback
from replicax.run.restore import (
    Restored,
    point_like,
    records_to_continue,
    restore,
    restore_points,
    rewind,
    whole_records,
)
from replicax.run.row_energies import with_row_energies
from replicax.run.storage.folder import FolderRecords, open_records, resumed_records


def resume_training(
    run_dir: str | Path,
    problem: Supervised,
    *,
    epochs: int | None = None,
    progress: bool | None = None,
    callback: Callback | Sequence[Callback] | None = None,
    method: Any = None,
    kernel: Any = None,
    rate_schedule: Any = None,
    schedule: Any = None,
    rule: Any = None,
    gain: Any = None,
    buffer_gain: Any = None,
    evaluate: Callable[[Epoch], dict[str, Any]] | None = None,
    checkpoint_every: int | str | None = None,
    keep_checkpoints: int | None = None,
    force: bool = False,
    devices: Any = None,
    data_parallel: int = 1,
) -> Trained:
    """Continue the training in a folder, bit for bit, or extend it to more `epochs`.

    Extending is refused if a longer run would begin differently: if its learning rate or cycle
    depends on the length, or if it averages networks at its end.

    A folder cannot store your own functions and objects; pass them again: `method`, `kernel`,
    `rate_schedule`, `schedule`, `rule`, `gain`, `buffer_gain`, `evaluate`. A problem that differs
    from that of the run is refused unless `force=True`.
    """
    check_problem(problem)
    with resumed_records(check_folder("run_dir", run_dir)) as records:
        return resume_records(
            records,
            problem,
            epochs=epochs,
            progress=progress,
            callback=callback,
            force=force,
            devices=devices,
            data_parallel=data_parallel,
            method=method,
            kernel=kernel,
            rate_schedule=rate_schedule,
            schedule=schedule,
            rule=rule,
            gain=gain,
            buffer_gain=buffer_gain,
            evaluate=evaluate,
            checkpoint_every=checkpoint_every,
            keep_checkpoints=keep_checkpoints,
        )


def resume_records(
    records: FolderRecords,
    problem: Supervised,
    *,
    progress: bool | None = None,
    callback: Callback | Sequence[Callback] | None = None,
    force: bool = False,
    devices: Any = None,
    data_parallel: int = 1,
    **given: Any,
) -> Trained:
    """Continue the training whose records were opened; see `resume_training`."""
    check_watchers(progress, callback)
    training = _check_fits(records, problem)
    _check_given(records, training, given)
    options = TrainOptions.from_json(training, given)
    options.check_extends(training["epochs"])
    batches, before = problem.batches.describe(), records.metadata.batches
    if batches != before:
        raise ValueError(
            f"{records.folder} was trained on batches: {before}; the problem has: {batches}. Give "
            "the same problem again."
        )
    program = build_training(problem, options)
    if records.metadata.resolved.row_energies:
        program = replace(program, target=with_row_energies(program.target))
    program, like = spread_over(program, devices, data_parallel), point_like(records)
    if not force:
        fingerprint.check(records.folder, program, like, records.metadata.fingerprint)
    restored = _restore(records, problem, options, program, like)
    evaluation = build_evaluation(problem, options, like)
    evaluation.state = restored.evaluation
    folder, records = records.folder, records_to_continue(records)
    rewind(records, program, restored.step, restored.source)
    sampler = options.sampler(problem)
    records.write_metadata(
        replace(
            records.metadata, options=sampler.to_json(), training=options.to_json(), result=None
        )
    )
    run(
        program,
        restored.carry,
        records,
        sampler,
        evaluation=evaluation,
        progress=progress,
        callback=callback,
    )
    trained = Trained(whole_records(records, folder), like, problem)
    check_start(trained)
    return trained.warned()


def _check_given(records: FolderRecords, training: dict[str, Any], given: dict[str, Any]) -> None:
    """Raise if an object is given although the folder stores it."""
    for name in ("method", "kernel", "rate_schedule", "schedule", "rule", "evaluate"):
        stored = training.get(name)
        own = CUSTOM in stored.values() if isinstance(stored, dict) else stored == CUSTOM
        if given.get(name) is not None and not own:
            raise ValueError(
                f"{name} is given, but the run in {records.folder} continues with the one it was "
                f"started with, which its folder stores: leave out {name}."
            )


def networks_of(run_dir: str | Path, problem: Supervised, num_replicas: int | None = None) -> Any:
    """Return the last networks of a run as (params, model_state), leading axis: rung, coldest
    first."""
    records = open_records(check_folder("run_dir", run_dir), with_checkpoint=True)
    check_problem(problem)
    _check_fits(records, problem)
    points, replica_at = restore_points(records, point_like(records))
    if num_replicas is not None and num_replicas > len(replica_at[0]):
        raise ValueError(
            f"{run_dir} holds {len(replica_at[0])} networks, but {num_replicas} are needed to "
            "start from: write fewer replicas, or pretrain more networks."
        )
    wanted = replica_at[0][:num_replicas]
    return jax.tree.map(lambda leaf: leaf[0][wanted], points)


def _check_fits(records: FolderRecords, problem: Supervised) -> dict[str, Any]:
    """Return the stored options of a training; raise unless the problem fits it."""
    folder, metadata = records.folder, records.metadata
    if metadata.training is None:
        raise ValueError(f"{folder} is not a run of rx.train; continue it with rx.resume.")
    if (problem.unit, problem.num_rows) != (metadata.unit, metadata.num_rows):
        raise ValueError(
            f"{folder} was trained on {metadata.num_rows} rows in the unit {metadata.unit!r}; the "
            f"problem has {problem.num_rows} in {problem.unit!r}. Give the same problem again."
        )
    return metadata.training


def _restore(
    records: FolderRecords, problem: Supervised, options: TrainOptions, program: Program, like: Any
) -> Restored:
    evaluation = jax.eval_shape(lambda: build_evaluation(problem, options, like).state)
    return restore(records, program, like, evaluation)
