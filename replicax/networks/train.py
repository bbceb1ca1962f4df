"""`train`: sample networks epoch by epoch."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from replicax.algorithm.tuning import Gain
from replicax.errors import check_flag, check_folder, check_watchers
from replicax.networks.build import build_evaluation, build_training
from replicax.networks.continued import networks_of as networks_of
from replicax.networks.continued import resume_records as resume_records
from replicax.networks.continued import resume_training as resume_training
from replicax.networks.hooks import Epoch
from replicax.networks.methods import MOMENTUM, Method
from replicax.networks.options import TrainOptions
from replicax.networks.problem import Supervised, check_problem
from replicax.networks.problems import check_apart, check_start
from replicax.networks.tempered import check_posterior
from replicax.networks.trained import Trained
from replicax.nn.network import Network
from replicax.run import fingerprint, plain
from replicax.run.host_loop import run
from replicax.run.initial import check_memory, have_one_start, initial_carry
from replicax.run.machine import describe_machine
from replicax.run.per_replica import per_replica
from replicax.run.program import spread_over
from replicax.run.progress import Callback
from replicax.run.row_energies import use_rows
from replicax.run.storage.folder import records_of_run
from replicax.run.storage.metadata import Metadata


def train(
    problem: Supervised,
    start: Any,
    *,
    epochs: int,
    method: str | Method = "deo-star",
    num_replicas: int = 10,
    learning_rate: Any = None,
    rate_schedule: Any = None,
    warmup_epochs: float = 0.0,
    kernel: Any = None,
    momentum: float = MOMENTUM,
    clip_norm: float | None = None,
    temperature: Any = None,
    schedule: Any = None,
    rule: Any = None,
    swap_every: int | None = None,
    swap_energy: str = "batch",
    target_swap_rate: float = 0.005,
    window: int | None = None,
    gain: Any = Gain(600.0, 1000.0),  # noqa: B008
    buffer: float = 0.1,
    buffer_gain: Any = Gain(60.0, 1000.0, cap=0.05),  # noqa: B008
    adapt: bool | None = None,
    on_swap: str = "keep",
    on_nonfinite: str | None = None,
    average_starts: bool = False,
    keep_networks: bool = False,
    keep_averaged: int = 100,
    burn_in: int = 0,
    average_rungs: int = 1,
    settle_epochs: float = 0.0,
    cycle_epochs: int = 100,
    seed: int = 0,
    run_dir: str | Path | None = None,
    progress: bool | None = None,
    callback: Callback | Sequence[Callback] | None = None,
    evaluate: Callable[[Epoch], dict[str, Any]] | None = None,
    checkpoint_every: int | str | None = None,
    keep_checkpoints: int = 2,
    note: dict[str, Any] | None = None,
    devices: Any = None,
    data_parallel: int = 1,
) -> Trained:
    """Sample networks; the defaults are the paper's DEO*-mSGD for CIFAR-100 (section 5.2).

    All numbers refer to the mean loss, whatever the unit of the problem.

    Args:
        problem: from `rx.classification`, `rx.regression` or `rx.supervised`.
        start: (params, model_state); a function of a key that returns it, such as `network.init`;
            `rx.per_replica((params, model_state))`; or a run folder, to start from its last
            networks.
        epochs: epochs of each replica. Methods with one network take `num_replicas` times as many.
        method: "deo-star", "deo", "sghmc-pt", "ensemble", "sgld", "cyc-sghmc", "cyc-swag",
            "pretrain", or an `rx.Method`. Options that are None take the method's values.
        learning_rate: (cold, hot) for methods with a ladder, one number for others.
        rate_schedule: the learning rates over time: "constant", "cosine" (to 0 at the end, after a
            warm-up of `warmup_epochs`), "cyclical" (cycles of `cycle_epochs`), "stepwise" (divided
            by 5 after 70 % and after 90 %), "arrival" (on the coldest rung only, down to a
            hundredth in the `settle_epochs` after a network arrives from a hotter one); or a
            function of the step that returns a factor, such as optax.cosine_decay_schedule(1.0,
            num_steps).
        kernel: "momentum" or "sghmc" (the same kernel, with `momentum`), "sgld", "preconditioned",
            one of `rx.kernels`, or an optax transform with learning rate 1, such as
            optax.adam(1.0).
        momentum: the momentum of kernels that have one.
        clip_norm: the largest norm of a gradient of the mean loss; larger ones are clipped.
        temperature: the temperature of the posterior: a number, for the coldest rung (0 adds no
            noise); (cold, hot); or "auto" with "sghmc-pt", adapted during the burn-in.
        schedule, rule, swap_every: as in `rx.sample`, for methods with a ladder.
        swap_energy: with "sghmc-pt", "batch" decides swaps on a separate mini-batch; "full" on all
            rows, with rule="metropolis" and a large `swap_every`.
        target_swap_rate, window, gain, buffer, buffer_gain: as in `rx.sample`.
        adapt: False keeps the ladder and the buffer constant.
        on_swap: "keep" the momentum of a replica that swaps, or "reset" it as in the authors' code.
        on_nonfinite: "restart" a network whose loss is not finite from a colder one, or "stop";
            by default the former with a ladder and the latter without, where copies would stay
            identical.
        average_starts: also average the predictions of the start networks, separately.
        keep_networks: store the coldest network of every epoch, as draws.
        keep_averaged: the largest number of averaged networks to keep for `trained.predict`, evenly
            spaced and at most 256 MiB; 0 keeps none.
        burn_in: epochs before the average begins.
        average_rungs: the number of coldest rungs to average, for methods with a ladder; still one
            network per epoch, from these rungs in turn.
        settle_epochs: how long a network must have been on these rungs, since it was last on a
            hotter one, before it is averaged.
        cycle_epochs: epochs per cycle of cyclical methods.
        callback: as in `rx.sample`; the `average` of an `rx.Progress` has the running sums of
            predictions, its `evaluation` the results of the last test.
        evaluate: `evaluate(epoch)`, called with an `rx.Epoch` after every test (networks, test
            results, running average); the dict of numbers that it returns is added to
            `Trained.epochs`.
        checkpoint_every, keep_checkpoints: as in `rx.sample`.
        note: plain data to store in the run folder.
        devices, data_parallel: as in `rx.sample`.
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
        rate_schedule=rate_schedule,
        warmup_epochs=warmup_epochs,
        kernel=kernel,
        momentum=momentum,
        clip_norm=clip_norm,
        temperature=temperature,
        schedule=schedule,
        rule=rule,
        swap_every=swap_every,
        swap_energy=swap_energy,
        target_swap_rate=target_swap_rate,
        window=window,
        gain=gain,
        buffer=buffer,
        buffer_gain=buffer_gain,
        adapt=adapt,
        on_swap=on_swap,
        on_nonfinite=on_nonfinite,
        keep_networks=keep_networks,
        keep_averaged=keep_averaged,
        burn_in=burn_in,
        average_rungs=average_rungs,
        settle_epochs=settle_epochs,
        cycle_epochs=cycle_epochs,
        evaluate=evaluate,
        seed=seed,
        checkpoint_every=checkpoint_every,
        keep_checkpoints=keep_checkpoints,
    )
    from_folder = isinstance(start, str | Path)
    check_memory(None if from_folder else start, 1, options.num_replicas)
    program = spread_over(build_training(problem, options), devices, data_parallel)
    if from_folder:
        start = per_replica(networks_of(start, problem, program.num_replicas), by_chain=False)
    carry = initial_carry(program, problem.start(start))
    if program.settings.rule.estimates_noise:
        program = use_rows(program, carry)
    points = carry.state.points
    starts = jax.tree.map(lambda leaf: leaf[0], points) if average_starts else None
    like = jax.eval_shape(plain.first, points)
    if problem.target.prior is not None:
        jax.eval_shape(problem.target.prior, like[0])  # raises if weight_decay matches no parameter
    if problem.predictor is not None:
        problem.predictor.check(like)
    if options.base.tempers_likelihood:
        check_posterior(problem, like, options.method_name)
    if have_one_start(carry):
        check_apart(problem, options, like)
    evaluation = build_evaluation(problem, options, like, starts)
    sampler = options.sampler(problem)
    with records_of_run(run_dir) as records:
        folder = records.folder
        records.write_metadata(
            Metadata(
                kind="train",
                options=sampler.to_json(),
                resolved=replace(program.describe(), **problem.describe(like if folder else None)),
                params=plain.describe(like),
                batches=problem.batches.describe(),
                training=options.to_json(),
                steps_per_epoch=problem.steps_per_epoch,
                num_rows=problem.num_rows,
                unit=problem.unit,
                note=note or {},
                machine=describe_machine(),
                fingerprint=fingerprint.write(folder, program, points) if folder else None,
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
    trained = Trained(records, like, problem)
    check_start(trained)
    return trained.warned()


def _check_call(problem: Any, start: Any, note: Any) -> None:
    """Raise if arguments are swapped or of the wrong kind."""
    if isinstance(start, Supervised):
        raise ValueError("The start is a problem: write rx.train(problem, start, ...).")
    check_problem(problem)
    if isinstance(start, Network):
        raise ValueError("The start is a network; give the function network.init.")
    if isinstance(start, str | Path):
        check_folder("start", start)
    try:
        valid = note is None or (isinstance(note, dict) and bool(json.dumps(note)))
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise ValueError("note must be a dict of plain data: numbers, text, lists and dicts.")
