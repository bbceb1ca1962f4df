"""The evaluation of a training, with the average of networks that its method defines."""

from collections.abc import Callable
from typing import Any

import numpy as np

from replicax.networks import evaluate, swag_cycles
from replicax.networks.checks import checked_first
from replicax.networks.kept import Thinning
from replicax.networks.problem import Supervised
from replicax.run.evaluation import Evaluation
from replicax.run.options import Training
from replicax.run.plan import Clock, clock_of
from replicax.run.program import Program


def build_evaluation(problem: Supervised, program: Program, like: Any) -> Evaluation:
    """Return the evaluation after every epoch; `like` has the shapes of one network,
    (params, model_state)."""
    run, method = program.run, program.method
    assert isinstance(run, Training)
    clock = clock_of(run, method, problem.steps_per_epoch)
    thinning = Thinning.of(like, run.keep_averaged)
    weights = weights_of(program, clock)
    evaluation = checked_first(evaluate.build(problem, weights, clock.test_every, thinning))
    if method.draws_gaussian:
        evaluation = swag_cycles.build(
            evaluation, problem, clock, program.kernel, like[0], run.seed, run.burn_in, thinning
        )
    if run.evaluate is None:
        return evaluation
    return evaluate.with_hook(evaluation, run.evaluate, problem.steps_per_epoch)


def weights_of(program: Program, clock: Clock) -> Callable[[int, int], np.ndarray]:
    """Build `weights(epoch, num_replicas) -> (rung,)`, the weights of networks in the average;
    epochs count from 1."""
    method, exploits, burn_in = program.method, program.kernel.exploits, program.run.burn_in

    def weights(epoch: int, num_replicas: int) -> np.ndarray:
        none, coldest = np.zeros(num_replicas), np.eye(num_replicas)[0]
        if not method.picks or method.draws_gaussian or epoch <= (burn_in or 0):
            return none
        if method.picks_all:
            return none if epoch % clock.pick_every else np.ones(num_replicas)
        last_step = epoch * clock.steps_per_epoch - 1
        return coldest if exploits is None or bool(exploits(last_step)) else none

    return weights
