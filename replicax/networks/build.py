"""The program of a training and its evaluation, built from a problem and its options."""

import warnings
from typing import Any

import numpy as np

from replicax.algorithm.kernels import Kernel
from replicax.networks import evaluate, swag_cycles
from replicax.networks.checks import checked_first
from replicax.networks.kept import Thinning
from replicax.networks.methods import Clock
from replicax.networks.options import TrainOptions
from replicax.networks.problem import Supervised
from replicax.run.evaluation import Evaluation
from replicax.run.program import Program, build_program

_LOW_PEAK = 0.5  # lowest peak of a rate schedule, which should be 1


def build_training(problem: Supervised, options: TrainOptions) -> Program:
    """Return the program of a training."""
    every, posed = options.test_every * problem.steps_per_epoch, options.posed(problem)
    program = build_program(options.sampler(problem), posed.target, posed.batches, every)
    if callable(options.parts.rate_schedule):
        _warn_of_low_peak(options.parts.rate_schedule, options.run_epochs * problem.steps_per_epoch)
    return program


def _warn_of_low_peak(schedule: Any, num_steps: int) -> None:
    """Warn if a schedule of learning rates seems to return rates instead of factors."""
    steps = np.unique(np.linspace(0, num_steps - 1, 50).astype(np.int32))
    peak = max(float(schedule(step)) for step in steps)
    if peak < _LOW_PEAK:
        warnings.warn(
            f"rate_schedule is at most {peak:.3g} in the {num_steps} steps of this run, but it is "
            "a factor of the learning rates: write a schedule with the peak 1.0, and "
            "learning_rate=... for the rates.",
            stacklevel=4,
        )


def build_evaluation(problem: Supervised, options: TrainOptions, like: Any) -> Evaluation:
    """Return the evaluation after every epoch, with the average of networks that the method
    defines.

    `like` has the shapes of one network, (params, model_state).
    """
    clock, kernel, method = options.clock(problem), options.kernel_of(problem), options.parts
    weights = method.weights(clock, kernel, options.pick_every, options.burn_in)
    if method.picks:
        _check_picks(options, clock, kernel, weights)
    thinning = Thinning.of(like, options.keep_averaged)
    evaluation = evaluate.build(
        problem,
        weights,
        options.test_every,
        thinning,
    )
    evaluation = checked_first(evaluation)
    if method.draws_gaussian:
        evaluation = _draw_gaussian(problem, options, evaluation, like, thinning)
    if options.evaluate is None:
        return evaluation
    return evaluate.with_hook(evaluation, options.evaluate, problem.steps_per_epoch)


def _check_picks(options: TrainOptions, clock: Clock, kernel: Kernel, weights: Any) -> None:
    """Raise if no network of the run would be averaged."""
    tested = range(options.test_every, options.run_epochs + 1, options.test_every)
    epochs = [epoch for epoch in tested if epoch > options.burn_in]
    if options.parts.draws_gaussian:
        last = options.run_epochs // clock.cycle_epochs * clock.cycle_epochs
        ends = (epoch * clock.steps_per_epoch - 1 for epoch in epochs if epoch <= last)
        picked = any(bool(kernel.exploits(end)) for end in ends)  # type: ignore[misc]
    else:
        picked = any(weights(epoch, 1).any() for epoch in epochs)
    if picked:
        return
    when = f"every {options.pick_every} epochs" if options.parts.picks_all else "at cycles' ends"
    rarely = options.test_every > 1
    every = f"tests networks every {options.test_every} epochs and " if rarely else ""
    raise ValueError(
        f"burn_in is {options.burn_in} of {options.run_epochs} epochs; the method "
        f'"{options.method_name}" {every}averages networks {when}, so none would be averaged: '
        "write a smaller burn_in, or more epochs."
    )


def _draw_gaussian(
    problem: Supervised,
    options: TrainOptions,
    evaluation: Evaluation,
    like: Any,
    thinning: Thinning,
) -> Evaluation:
    if problem.batches.data is None:
        raise ValueError(
            f'The method "{options.method_name}" recomputes batch statistics from rows in memory, '
            "but the data are a source: give arrays, or another method."
        )
    clock, kernel = options.clock(problem), options.kernel_of(problem)
    return swag_cycles.build(
        evaluation, problem, clock, kernel, like[0], options.seed, options.burn_in, thinning
    )
