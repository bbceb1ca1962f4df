"""SWAG along the cycles of one network: a Gaussian is fitted to the slow end of every cycle, and
networks drawn from it, with recomputed batch statistics, are averaged."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm.kernels import Kernel
from replicax.networks import evaluate, swag
from replicax.networks.evaluate import Averages
from replicax.networks.kept import Thinning
from replicax.networks.problem import Supervised
from replicax.networks.swag import Moments
from replicax.run.evaluation import Evaluation
from replicax.run.plan import Clock
from replicax.run.rows import Carry

NUM_DRAWS = 10  # networks of a cycle, as the paper's authors have it
_REFRESH_BATCHES = 50  # batches for the batch statistics of a drawn network


class CycleState(NamedTuple):
    """The state of the evaluation."""

    averages: Averages
    moments: Moments  # moments of the networks of this cycle


def build(
    evaluation: Evaluation,
    problem: Supervised,
    clock: Clock,
    kernel: Kernel,
    params: Any,
    seed: int,
    burn_in: int = 0,
    thinning: Thinning = Thinning(0),  # noqa: B008
) -> Evaluation:
    """Build an evaluation around `evaluation`; `params` gives the shapes of one network.

    Networks of the first `burn_in` epochs are not collected.
    """
    assert kernel.exploits is not None
    test = evaluate.compiled_test(problem)
    draw_networks = jax.jit(_build_draws(problem))
    collect = jax.jit(swag.collect)
    exploits = kernel.exploits

    def no_moments() -> Moments:
        return swag.start(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), params))

    def evaluate_cycle(state: CycleState, carry: Carry) -> tuple[CycleState, dict[str, Any], Any]:
        averages, moments = state
        kept: Any = {}
        epoch = int(averages.count) + 1
        network, model_state = jax.tree.map(lambda leaf: leaf[0, 0], carry.state.points)
        if epoch > burn_in and exploits(epoch * clock.steps_per_epoch - 1):
            moments = collect(moments, network)
        if epoch % clock.cycle_epochs == 0 and int(moments.count):
            key = jax.random.fold_in(jax.random.key(seed), epoch)
            networks = draw_networks(key, moments, model_state, problem.batches.data)
            sampled = test.add(averages.sampled, networks)
            averages, moments = averages._replace(sampled=sampled), no_moments()
            number = round(float(sampled.weight)) // NUM_DRAWS
            drawn = np.ones(NUM_DRAWS), np.full(NUM_DRAWS, -1)
            kept = thinning.rows(number, epoch, *drawn, lambda: networks)
        averages, row, _ = evaluation.evaluate(averages, carry)
        return CycleState(averages, moments), row, kept

    return Evaluation(
        CycleState(evaluation.state, no_moments()),
        evaluate_cycle,
        lambda state: evaluation.final(state.averages),
        running=lambda state: state.averages.sampled,
    )


def _build_draws(problem: Supervised):
    """Build `draws(key, moments, state, data) -> (params, state)`, leading axis: network."""
    batches, target = problem.batches, problem.target

    def draws(key: jax.Array, moments: Moments, state: Any, data: Any) -> tuple[Any, Any]:
        def apply(params: Any, state: Any, key: jax.Array, train: bool):
            # A key stands for images, so that no more than one batch is in memory at a time.
            fresh = batches.fresh(data)
            assert fresh is not None  # sources are refused
            return target.energy(params, state, fresh(key), key)

        def one(key: jax.Array) -> tuple[Any, Any]:
            draw_key, key = jax.random.split(key)
            params = swag.draw(moments, draw_key)
            keys = jax.random.split(key, _REFRESH_BATCHES)
            return params, swag.refresh_statistics(apply, params, state, keys)

        return jax.vmap(one)(jax.random.split(key, NUM_DRAWS))

    return draws
