"""`train`: sample networks epoch by epoch; and how a training is continued."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from replicax.errors import check_path, show
from replicax.networks import evaluate, starting, swag
from replicax.networks.checks import check_apart, check_start, checked_first
from replicax.networks.evaluate import Epoch, Thinning
from replicax.networks.task import Supervised, check_problem
from replicax.networks.tempered import check_posterior, tempered
from replicax.networks.trained import Trained
from replicax.networks.validation import (
    Phase,
    build_watched,
    is_averaged,
    share_of,
    without_held_out,
)
from replicax.nn.network import Network
from replicax.run.carry import Carry
from replicax.run.initial import per_replica
from replicax.run.methods import Method, as_method, refuse_unknown, written
from replicax.run.options import Session, Training, given
from replicax.run.parts import Clock, check_extends, clock_of
from replicax.run.program import Program
from replicax.run.progress import Callback
from replicax.run.records import Evaluation, Records
from replicax.run.resolve import resolve
from replicax.run.start import (
    Evaluates,
    begin,
    point_like,
    proceed,
    refuse_traced,
    restore_points,
)
from replicax.run.storage.folder import FolderRecords, check_free, open_records

_LOW_PEAK = 0.5  # lowest peak of a rate schedule, which should be 1


def train(
    problem: Supervised,
    start: Any,
    *,
    epochs: int,
    method: str | Method = "deep-ensemble",
    num_replicas: int = 10,
    burn_in: int | None = None,
    seed: int = 0,
    run_dir: str | Path | None = None,
    progress: bool | None = None,
    callback: Callback | Sequence[Callback] | None = None,
    evaluate: Callable[[Epoch], dict[str, Any]] | None = None,
    keep_networks: bool = False,
    keep_averaged: int = 100,
    hold_out: float | None = None,
    early_stop: int | None = None,
    on_nonfinite: str | None = None,
    checkpoint_every: int | str | None = None,
    keep_checkpoints: int = 2,
    note: dict[str, Any] | None = None,
    devices: Any = None,
    data_parallel: int = 1,
    **unknown: Any,
) -> Trained:
    """Train networks and average their predictions: by default a deep ensemble.

    Args:
        problem: from `rx.classification`, `rx.regression` or `rx.supervised`.
        start: (params, model_state); a function of a key that returns it, such as `network.init`;
            `rx.per_replica((params, model_state))`; or a run folder, to start from its last
            networks.
        epochs: epochs of each replica. Methods with one network take `num_replicas` times as many.
        method: "deep-ensemble"; the paper's "deo-star" and "deo", and its baselines "ensemble",
            "cyc-sghmc" and "cyc-swag" (section 5.2); "sghmc-pt", "sgld" or "pretrain"; the function
            of that name with options, such as `rx.deo_star(learning_rate=(0.01, 0.1))`; or an
            `rx.Method`.
        num_replicas: the number of networks.
        burn_in: epochs before the average begins; from new networks at least those in which the
            method trains them (`pretrain` of `rx.Method`).
        seed: seed of all random numbers.
        callback: as in `rx.sample`; the `average` of its `Progress` has the running sums of
            predictions, its `evaluation` the results of the last test.
        evaluate: `evaluate(epoch)`, called with an `Epoch` after every test (networks, test
            results, running average); the dict of numbers that it returns is added to
            `Trained.epochs`.
        keep_networks: store the coldest network of every epoch, as draws.
        keep_averaged: the largest number of averaged networks to keep for `trained.predict`, evenly
            spaced and at most 256 MiB; 0 keeps none.
        hold_out: the share of the training rows that is held out, the same ones each time; a
            tenth where `early_stop` or the method decides by them, else none.
            `trained.epochs["validation"]` has the loss of every network there.
        early_stop: of deep ensembles: end the training after so many epochs without a lower mean
            loss on the rows held out, and average the networks of the best epoch.
        on_nonfinite: "restart" a network whose loss is not finite from a colder one, or "stop";
            by default the former with a ladder and the latter without, where copies would stay
            identical.
        run_dir, progress, checkpoint_every, keep_checkpoints, note, devices, data_parallel: as in
            `rx.sample`.
    """
    refuse_unknown(train, unknown, method)
    refuse_traced()
    _check_call(problem, start)
    session = given(Session, locals())
    check_free(session.run_dir)
    method, run = as_method(method), given(Training, locals())
    problem = without_held_out(problem, share_of(run, method))
    task, start = _posed(problem, method), _points_of(start, problem, run, method)
    method, run, tested = starting.fitted(problem, task, method, run, start)
    program = resolve(task, run, method)
    _warn_of_low_peak(program)
    starting.warn(problem, program)

    about = {
        "resolved": lambda like: {**problem.describe(like), "range_test": tested},
        "steps_per_epoch": problem.steps_per_epoch,
        "num_rows": problem.num_rows,
    }
    phase = Phase()
    session = _watched_by(session, run, phase)
    records, like = begin("train", program, start, session, _evaluates(problem, phase), about)
    return _trained(records, like, problem)


def _points_of(start: Any, problem: Supervised, run: Training, method: Method) -> Any:
    """Return the start, or the last networks of the folder that it is."""
    if not isinstance(start, str | Path):
        return start
    count = 1 if method.is_single else run.num_replicas
    return per_replica(last_networks(start, problem, count), by_chain=False)


def resume_training(
    records: FolderRecords,
    problem: Any,
    changes: dict[str, Any],
    session: Session,
    method: str | Method | None = None,
    force: bool = False,
) -> Trained:
    """Continue a training whose records are open, or extend it to more epochs; see `rx.resume`."""
    metadata = records.metadata
    if not isinstance(problem, Supervised):
        raise ValueError(
            f"{records.folder} was made by rx.train, and the target is {show(problem)}: give the "
            "problem that the training was started with, and make it longer by epochs=...."
        )
    run, phase = metadata.run, Phase()
    assert isinstance(run, Training)
    problem = without_held_out(problem, share_of(run, metadata.method))
    _check_fits(records, problem)
    check_extends(metadata.run, metadata.method, changes["epochs"])
    task = _posed(problem, metadata.method)
    session, evaluates = _watched_by(session, run, phase), _evaluates(problem, phase)
    kept, like = proceed(
        records, task, changes, session, method=method, force=force, evaluates=evaluates
    )
    return _trained(kept, like, problem)


def _watched_by(session: Session, run: Training, phase: Phase) -> Session:
    """Return the session with the callback that stops a training early."""
    if run.early_stop is None:
        return session
    return replace(session, callback=[*session.callbacks, phase.reason_to_stop])


def _evaluates(problem: Supervised, phase: Phase) -> Evaluates:
    """Return what makes the evaluation of a run, after a check of its networks at the start."""

    def evaluates(program: Program, like: Any, carry: Carry | None) -> Evaluation:
        if carry is not None:
            _check_networks(problem, program, like, carry)
        return build_evaluation(problem, program, like, phase)

    return evaluates


def last_networks(run_dir: str | Path, problem: Supervised, num_replicas: int) -> Any:
    """Return the last networks of a run as (params, model_state), leading axis: rung, coldest
    first."""
    records = open_records(check_path("run_dir", run_dir), with_checkpoint=True)
    _check_fits(records, problem)
    points, replica_at = restore_points(records, point_like(records))
    if num_replicas > len(replica_at[0]):
        raise ValueError(
            f"{run_dir} holds {len(replica_at[0])} networks, but {num_replicas} are needed to "
            "start from: write fewer replicas, or pretrain more networks."
        )
    wanted = replica_at[0][:num_replicas]
    return jax.tree.map(lambda leaf: leaf[0][wanted], points)


def build_evaluation(
    problem: Supervised,
    program: Program,
    like: Any,
    phase: Phase = Phase(),  # noqa: B008
) -> Evaluation:
    """Return the evaluation after every epoch; `like` has the shapes of one network,
    (params, model_state)."""
    run, method = program.run, program.method
    assert isinstance(run, Training)
    clock = clock_of(run, method, problem.steps_per_epoch)
    thinning = Thinning.of(like, run.keep_averaged)
    weights = weights_of(program, clock, phase)
    evaluation = evaluate.build_average(problem, weights, clock.test_every, thinning)
    evaluation = checked_first(evaluation, method)
    if method.draws_gaussian:
        evaluation = swag.build_cycles(
            evaluation,
            problem,
            clock,
            program.kernel,
            like[0],
            run.seed,
            run.burn_in or 0,
            thinning,
        )
    if run.evaluate is not None:
        evaluation = evaluate.with_hook(evaluation, run.evaluate, problem.steps_per_epoch)
    if problem.validation is None and method.sample_from is None:
        return evaluation
    return build_watched(evaluation, problem, program, clock, phase, like)


def weights_of(
    program: Program,
    clock: Clock,
    phase: Phase = Phase(),  # noqa: B008
) -> Callable[[int, int], np.ndarray]:
    """Build `weights(epoch, num_replicas) -> (rung,)`, the weights of networks in the average;
    epochs count from 1."""
    method, exploits, burn_in = program.method, program.kernel.traits.exploits, program.run.burn_in

    def weights(epoch: int, num_replicas: int) -> np.ndarray:
        none, coldest = np.zeros(num_replicas), np.eye(num_replicas)[0]
        if not method.picks or method.draws_gaussian or epoch <= (burn_in or 0):
            return none
        if method.averages == "last":
            averaged = is_averaged(epoch, phase.begun, clock.epochs)
            if phase.stopped:
                averaged = epoch == phase.stopped
            return np.ones(num_replicas) if averaged else none
        if method.picks_all:
            return none if epoch % clock.pick_every else np.ones(num_replicas)
        last_step = epoch * clock.steps_per_epoch - 1
        return coldest if exploits is None or bool(exploits(last_step)) else none

    return weights


def _posed(problem: Supervised, method: Method) -> Supervised:
    """Return the problem that the method samples, with a tempered likelihood if it uses one."""
    return tempered(problem) if method.tempers_likelihood else problem


def _trained(records: Records, like: Any, problem: Supervised) -> Trained:
    trained = Trained(records, like, problem)
    check_start(trained)
    return trained.warned()


def _check_call(problem: Any, start: Any) -> None:
    """Raise if arguments are swapped or of the wrong kind."""
    if isinstance(start, Supervised):
        raise ValueError("The start is a problem: write rx.train(problem, start, ...).")
    check_problem(problem)
    if isinstance(start, Network):
        raise ValueError("The start is a network; give the function network.init.")
    if isinstance(start, str | Path):
        check_path("start", start)


def _check_networks(problem: Supervised, program: Program, like: Any, carry: Carry) -> None:
    """Raise if networks of these shapes do not suit the problem or the method."""
    if problem.target.prior is not None:
        jax.eval_shape(problem.target.prior, like[0])  # raises if weight_decay matches no parameter
    if problem.predictor is not None:
        problem.predictor.check_start(like)
        problem.predictor.check(like)
    if program.method.tempers_likelihood:
        check_posterior(problem, like, program.method.name)
    check_apart(problem, program, like, carry)


def _warn_of_low_peak(program: Program) -> None:
    """Warn if a schedule of learning rates seems to return rates instead of factors."""
    schedule = program.method.rate_schedule
    if not callable(schedule):
        return
    steps = np.unique(np.linspace(0, program.num_steps - 1, 50).astype(np.int32))
    peak = max(float(np.asarray(schedule(step))) for step in steps)
    if peak < _LOW_PEAK:
        arguments = "learning_rate=..., rate_schedule=..."
        warnings.warn(
            f"rate_schedule is at most {peak:.3g} in the {program.num_steps} steps of this run, "
            "but it is a factor of the learning rates: write a schedule with the peak 1.0, and the "
            f"rates themselves, as in method={written(program.method.name, arguments)}.",
            stacklevel=3,
        )


def _check_fits(records: FolderRecords, problem: Supervised) -> None:
    """Raise unless the folder holds a training, of as many rows as the problem has."""
    folder, metadata = records.folder, records.metadata
    if metadata.kind != "train":
        raise ValueError(f"{folder} is not a run of rx.train; continue it with rx.resume.")
    if problem.num_rows != metadata.num_rows:
        raise ValueError(
            f"{folder} was trained on {metadata.num_rows} rows; the problem has "
            f"{problem.num_rows}. Give the same problem again."
        )
