"""SWAG along the cycles of one network: a Gaussian is fitted to the slow end of every cycle, and
networks drawn from it, with batch statistics of their own, join the average."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from replicax.algorithm.kernels import Kernel
from replicax.networks import evaluate as examine
from replicax.networks import predict, swag
from replicax.networks.evaluate import Averages
from replicax.networks.methods import Clock
from replicax.networks.problem import Supervised
from replicax.networks.swag import Moments
from replicax.run.compiled_loop import Carry
from replicax.run.host_loop import Watch

NUM_DRAWS = 10  # networks of a cycle, as the paper's authors have it
_REFRESH_BATCHES = 50  # for the batch statistics of a drawn network


class Memory(NamedTuple):
    """What is remembered from epoch to epoch."""

    averages: Averages
    moments: Moments  # of the networks of this cycle


def build(
    watch: Watch, problem: Supervised, clock: Clock, kernel: Kernel, params: Any, seed: int
) -> Watch:
    """A watch around `watch`; `params` gives the shapes of one network."""
    assert problem.test is not None and kernel.exploits is not None
    compute_logits = examine.build_logits(problem.test)
    draw_networks = jax.jit(_build_draws(problem))
    collect = jax.jit(swag.collect)
    base_look, exploits = watch.look, kernel.exploits

    def no_moments() -> Moments:
        return swag.start(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), params))

    def look(memory: Memory, carry: Carry) -> tuple[Memory, dict[str, Any]]:
        averages, moments = memory
        epoch = int(averages.looks) + 1
        network, state = jax.tree.map(lambda leaf: leaf[0, 0], carry.state.points)
        if exploits(epoch * clock.steps_per_epoch - 1):
            moments = collect(moments, network)
        if epoch % clock.cycle_epochs == 0:
            key = jax.random.fold_in(jax.random.key(seed), epoch)
            drawn = draw_networks(key, moments, state, problem.batches.data)
            sampled = predict.merge(averages.sampled, predict.average(compute_logits(drawn)))
            averages, moments = averages._replace(sampled=sampled), no_moments()
        averages, row = base_look(averages, carry)
        return Memory(averages, moments), row

    memory = Memory(watch.memory, no_moments())
    return Watch(watch.every, memory, look, lambda memory: watch.final(memory.averages))


def _build_draws(problem: Supervised):
    """`draws(key, moments, state, data) -> (params, state)`, leading axis: network."""
    batches, target = problem.batches, problem.target

    def draws(key: jax.Array, moments: Moments, state: Any, data: Any) -> tuple[Any, Any]:
        def apply(params: Any, state: Any, key: jax.Array, train: bool):
            # What stands for images is a key, so that no more than one batch is held at a time.
            return target.energy(params, state, batches.fresh(data, key), key)

        def one(key: jax.Array) -> tuple[Any, Any]:
            draw_key, key = jax.random.split(key)
            params = swag.draw(moments, draw_key)
            keys = jax.random.split(key, _REFRESH_BATCHES)
            return params, swag.refresh_statistics(apply, params, state, keys)

        return jax.vmap(one)(jax.random.split(key, NUM_DRAWS))

    return draws
