"""`train`: sample networks epoch by epoch; `resume_training`: continue from a run folder."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from replicax.algorithm.tuning import Gain
from replicax.errors import check_flag, check_folder
from replicax.networks import evaluate, swag_cycles
from replicax.networks.kept import Keeper
from replicax.networks.options import TrainOptions
from replicax.networks.problem import Supervised, check_problem
from replicax.networks.trained import Trained
from replicax.nn.network import Network
from replicax.run import fingerprint, processes, pytrees
from replicax.run.devices import spread_over
from replicax.run.host_loop import Progress, run
from replicax.run.initial import check_memory, initial_carry, per_replica
from replicax.run.options import check_watchers
from replicax.run.program import Program, build_program
from replicax.run.restore import Restored, point_like, restore, rewind
from replicax.run.saver import Evaluation
from replicax.run.storage.folder import FolderRecords, new_records, open_records, resumed_records
from replicax.run.storage.metadata import Metadata, describe_machine


def train(
    problem: Supervised,
    start: Any,
    *,
    epochs: int,
    method: str = "deo-star",
    num_replicas: int = 10,
    learning_rate: Any = None,
    momentum: float = 0.9,
    temperature: float | None = None,
    target_swap_rate: float = 0.005,
    window: int | None = None,
    gain: Any = Gain(600.0, 1000.0),  # noqa: B008
    buffer: float = 0.1,
    buffer_gain: Any = Gain(60.0, 1000.0, cap=0.05),  # noqa: B008
    on_swap: str = "keep",
    on_nonfinite: str | None = None,
    average_starts: bool = False,
    keep_networks: bool = False,
    keep_averaged: int = 100,
    burn_in: int = 0,
    cycle_epochs: int = 100,
    seed: int = 0,
    run_dir: str | Path | None = None,
    progress: bool | None = None,
    callback: Callable[[Progress], Any] | None = None,
    checkpoint_every: int | str | None = None,
    keep_checkpoints: int = 2,
    note: dict[str, Any] | None = None,
    devices: Any = None,
) -> Trained:
    """Sample networks; the defaults are the paper's DEO*-mSGD for CIFAR-100 (section 5.2).

    All numbers are per mean loss, whatever the problem's unit.

    Args:
        problem: made by `rx.classification`, `rx.regression` or `rx.supervised`.
        start: (params, model_state); a function of a key that returns it, such as `network.init`;
            `rx.per_replica((params, model_state))`; or the folder of a run, for its last networks.
        epochs: of each replica. Methods that have one network take `num_replicas` times as many.
        method: "deo-star", "deo", "ensemble", "sgld", "cyc-sghmc", "cyc-swag" or "pretrain".
        learning_rate: (cold, hot) for methods with a ladder, one number for others.
        momentum: of the exploration kernel.
        temperature: of the posterior on the coldest rung; 0 injects no noise.
        target_swap_rate, window, gain, buffer, buffer_gain: as in `rx.sample`.
        on_swap: "keep" the momentum of a replica that swaps, or "reset" it as the authors do.
        on_nonfinite: "restart" a network whose loss is not finite from a colder one, or "stop";
            by default the former with a ladder and the latter without, where networks would
            become twins.
        average_starts: average the predictions of the start networks, too (apart).
        keep_networks: store the coldest network of every epoch, as draws.
        keep_averaged: of the networks that are averaged at most so many, evenly spaced, and at most
            256 MiB, are kept for `trained.predict`; 0 keeps none.
        burn_in: epochs before the average begins.
        cycle_epochs: of the methods that go in cycles.
        checkpoint_every, keep_checkpoints: as in `rx.sample`.
        note: plain data to keep in the run folder.
        devices: as in `rx.sample`.
    """
    _check_call(problem, start, note)
    check_watchers(progress, callback)
    check_flag("average_starts", average_starts)
    if run_dir is not None:
        check_folder("run_dir", run_dir)
    options = TrainOptions(
        epochs=epochs,
        method=method,
        num_replicas=num_replicas,
        learning_rate=learning_rate,
        momentum=momentum,
        temperature=temperature,
        target_swap_rate=target_swap_rate,
        window=window,
        gain=gain,
        buffer=buffer,
        buffer_gain=buffer_gain,
        on_swap=on_swap,
        on_nonfinite=on_nonfinite,
        keep_networks=keep_networks,
        keep_averaged=keep_averaged,
        burn_in=burn_in,
        cycle_epochs=cycle_epochs,
        seed=seed,
        checkpoint_every=checkpoint_every,
        keep_checkpoints=keep_checkpoints,
    )
    from_folder = isinstance(start, str | Path)
    check_memory(None if from_folder else start, 1, options.num_replicas)
    program = spread_over(build_training(problem, options), devices)
    if from_folder:
        start = per_replica(networks_of(start, problem, program.num_replicas), by_chain=False)
    carry = initial_carry(program, problem.start(start))
    starts = _first_chain(carry.state.points) if average_starts else None
    like = jax.eval_shape(pytrees.first, carry.state.points)
    if problem.predictor is not None:
        problem.predictor.check(like)
    evaluation = build_evaluation(problem, options, like, starts)
    sampler = options.sampler(problem)
    with new_records(processes.own_folder(run_dir)) as records:
        records.write_metadata(
            Metadata(
                kind="train",
                options=sampler.to_json(),
                resolved={**program.describe(), "likelihood": problem.likelihood},
                params=pytrees.describe(like),
                batches=problem.batches.describe(),
                training=options.to_json(),
                steps_per_epoch=problem.steps_per_epoch,
                num_rows=problem.num_rows,
                unit=problem.unit,
                note=note or {},
                machine=describe_machine(),
                fingerprint=fingerprint.write(records.folder, program, carry.state.points),
            )
        )
        run(
            program,
            carry,
            records,
            sampler,
            evaluation=evaluation,
            progress=progress,
            callback=callback,
        )
    return Trained(records, like, problem).warned()


def _check_call(problem: Any, start: Any, note: Any) -> None:
    """Refuse what stands in the wrong place."""
    if isinstance(start, Supervised):
        raise ValueError("The start is a problem: write rx.train(problem, start, ...).")
    check_problem(problem)
    if isinstance(start, Network):
        raise ValueError("The start is a network; give its networks by network.init, a function.")
    if isinstance(start, str | Path):
        check_folder("start", start)
    try:
        valid = note is None or (isinstance(note, dict) and bool(json.dumps(note)))
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise ValueError("note must be a dict of plain data: numbers, text, lists and dicts.")


def build_training(problem: Supervised, options: TrainOptions) -> Program:
    """Return the program of a training."""
    every = options.test_every * problem.steps_per_epoch
    return build_program(options.sampler(problem), problem.target, problem.batches, every)


def build_evaluation(
    problem: Supervised, options: TrainOptions, like: Any, starts: Any = None
) -> Evaluation:
    """Return the tests after every epoch, and the average of networks that the method asks for.

    `like` has the shapes of one network, (params, model_state).
    """
    clock, kernel = options.clock(problem), options.kernel(problem)
    weights = options.parts.weights(clock, kernel, options.pick_every, options.burn_in)
    keeper = Keeper.of(like, options.keep_averaged)
    evaluation = evaluate.build(problem, weights, options.test_every, starts, keeper)
    if not options.parts.draws_gaussian:
        return evaluation
    if problem.batches.data is None:
        raise ValueError(
            f'The method "{options.method}" takes batch statistics anew from rows in memory, and '
            "the data are a source: give arrays, or another method."
        )
    return swag_cycles.build(
        evaluation, problem, clock, kernel, like[0], options.seed, options.burn_in, keeper
    )


def resume_training(
    run_dir: str | Path,
    problem: Supervised,
    *,
    epochs: int | None = None,
    progress: bool | None = None,
    callback: Callable[[Progress], Any] | None = None,
    gain: Any = None,
    buffer_gain: Any = None,
    checkpoint_every: int | str | None = None,
    keep_checkpoints: int | None = None,
    force: bool = False,
    devices: Any = None,
) -> Trained:
    """Continue the training in a folder, bit for bit; more `epochs` make it longer.

    The latter is refused where a longer run would begin in another way: with a learning rate or
    cycle that follows the length, or with an average at its end.

    `gain` and `buffer_gain` are given again where they were functions of your own. A problem that
    does not fit the run is refused; `force=True` goes on with it.
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
            gain=gain,
            buffer_gain=buffer_gain,
            checkpoint_every=checkpoint_every,
            keep_checkpoints=keep_checkpoints,
        )


def resume_records(
    records: FolderRecords,
    problem: Supervised,
    *,
    progress: bool | None = None,
    callback: Callable[[Progress], Any] | None = None,
    force: bool = False,
    devices: Any = None,
    **given: Any,
) -> Trained:
    """Continue the training whose records were opened; see `resume_training`."""
    check_watchers(progress, callback)
    options = _stored_options(records, problem, given)
    batches, before = problem.batches.describe(), records.metadata.batches
    if batches != before:
        raise ValueError(
            f"{records.folder} was trained on batches: {before}; the problem has: {batches}. Give "
            "the same problem again."
        )
    program = spread_over(build_training(problem, options), devices)
    like = point_like(records)
    if not force:
        fingerprint.check(records.folder, program, like, records.metadata.fingerprint)
    restored = _restore(records, problem, options, program, like)
    evaluation = build_evaluation(problem, options, like)
    evaluation.state = restored.evaluation
    folder, records = records.folder, processes.records_to_continue(records)
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
    return Trained(processes.whole_records(records, folder), like, problem).warned()


def networks_of(run_dir: str | Path, problem: Supervised, num_replicas: int | None = None) -> Any:
    """Return the last networks of a run, (params, model_state) with a leading axis from cold to
    hot."""
    records = open_records(check_folder("run_dir", run_dir), with_checkpoint=True)
    check_problem(problem)
    # Gains do not matter here: any take the place of functions that a folder cannot hold.
    options = _stored_options(records, problem, {"gain": 0.0, "buffer_gain": 0.0})
    program, like = build_training(problem, options), point_like(records)
    state = _restore(records, problem, options, program, like).carry.state
    replica_at = np.asarray(state.replica_at[0])
    if num_replicas is not None and num_replicas > len(replica_at):
        raise ValueError(
            f"{run_dir} holds {len(replica_at)} networks, but {num_replicas} are needed to start "
            "from: write fewer replicas, or pretrain more networks."
        )
    wanted = replica_at[:num_replicas]
    return jax.tree.map(lambda leaf: leaf[wanted], _first_chain(state.points))


def _stored_options(
    records: FolderRecords, problem: Supervised, given: dict[str, Any]
) -> TrainOptions:
    """Return the options of a folder with those of `given` replaced, if the problem fits."""
    folder, metadata = records.folder, records.metadata
    if metadata.training is None:
        raise ValueError(f"{folder} was not made by rx.train; rx.resume continues it.")
    if (problem.unit, problem.num_rows) != (metadata.unit, metadata.num_rows):
        raise ValueError(
            f"{folder} was trained on {metadata.num_rows} rows in the unit {metadata.unit!r}; the "
            f"problem has {problem.num_rows} in {problem.unit!r}. Give the same problem again."
        )
    options = TrainOptions.from_json(metadata.training, given)
    options.check_extends(metadata.training["epochs"])
    return options


def _restore(
    records: FolderRecords, problem: Supervised, options: TrainOptions, program: Program, like: Any
) -> Restored:
    evaluation = jax.eval_shape(lambda: build_evaluation(problem, options, like).state)
    return restore(records, program, like, evaluation)


def _first_chain(points: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], points)
