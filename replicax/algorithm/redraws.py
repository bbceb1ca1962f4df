"""Redraws: replicas move to draws from the prior, of all parameters or of a block of them.

Local moves follow the slopes of a rough likelihood; a draw from the prior lands anywhere. The law
of a rung is prior x exp(-U / temperature). A block drawn from the prior, given all other
parameters, is a proposal whose own density cancels from the Metropolis ratio (Hastings, 1970): it
is accepted with probability

    min(1, exp(-(U' - U) / temperature) r),   r = p(others | new block) / p(others | old block),

with only what is drawn after the block, its children, in r; for whole draws and for blocks that are
independent of each other r is 1. Hot rungs accept many of them, that of infinite temperature all
whole draws, and the ladder carries what was found to the coldest rung.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.kernel import Kernel, PyTree, Replica, select
from replicax.algorithm.randomness import make_key
from replicax.algorithm.spread import on_all
from replicax.algorithm.target import StepEnergy, Target


def build_redraws(target: Target, kernel: Kernel, settings: Any) -> Callable:
    """Build `redraw(key, state, energy_of, batch) -> state, energy_of, accepted`: every replica
    takes some proposals one after another, on the rung it is on.

    The last two are by replica: its energy, and how many of its proposals were accepted. The
    proposals of all replicas are evaluated together.
    """
    spread, count = settings.spread, settings.redraws
    assert target.redraw is not None and kernel.traits.prepare is not None
    propose, prepare = target.redraw, kernel.traits.prepare

    def redraw_one(keys, threshold, params, energy, slope, batch) -> tuple[PyTree, Array, Array]:
        def attempt(now: tuple, drawn_from: tuple[Array, Array]) -> tuple[tuple, None]:
            params, energy, accepted = now
            key, threshold = drawn_from
            drawn, log_ratio = propose(key, params)
            there = target.energy(drawn, batch, None).astype(energy.dtype)
            accepts = accepted_if(threshold, slope, energy, there, log_ratio) & _is_finite(drawn)
            after = select(accepts, (drawn, there), (params, energy))
            return (*after, accepted + accepts), None

        start = params, energy, jnp.zeros((), jnp.int32)
        return jax.lax.scan(attempt, start, (keys, threshold))[0]

    redraw_all = settings.map_replicas(redraw_one, in_axes=(0, 0, 0, 0, 0, None))

    def redraw(key: Array, state: Any, energy_of: Array, batch: PyTree) -> tuple[Any, Array, Array]:
        replicas = state.replicas
        propose_key, accept_key = jax.random.split(key)
        each = spread.count(replicas), count
        keys = jax.random.split(propose_key, each)
        threshold = jax.random.exponential(accept_key, each, energy_of.dtype)
        slope = 1 / state.ladder.temperature[state.rung_of]
        keys, threshold, slope, energy = spread.here((keys, threshold, slope, energy_of))
        drawn = redraw_all(keys, threshold, replicas.params, energy, slope, batch)
        params, energy, accepted = on_all(drawn)
        evaluate = StepEnergy(target, batch, target.draw(make_key(0)))  # which is exact

        def settled(params: PyTree, replica: Replica, accepted: Array) -> Replica:
            there = prepare(Replica(params, replica.memory), evaluate)
            return select(accepted > 0, there, replica)

        replicas = on_all(settings.map_replicas(settled)(params, replicas, accepted))
        energy_of, accepted = spread.gathered((energy, accepted))
        return state._replace(replicas=replicas), energy_of, accepted

    return redraw


def accepted_if(
    threshold: Array, slope: Array, energy: Array, drawn_energy: Array, log_ratio: Array | float = 0
) -> Array:
    """Return whether a draw is accepted; `threshold` is minus log u, `slope` 1 / temperature.

    A state whose own energy is not finite is left for any that has one.
    """
    change = jnp.where(slope == 0, 0.0, slope * (drawn_energy - energy)) - log_ratio
    possible = jnp.isfinite(drawn_energy) & jnp.isfinite(log_ratio)
    return possible & ((change < threshold) | ~jnp.isfinite(energy))


def _is_finite(params: PyTree) -> Array:
    leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(params)]
    return jnp.all(jnp.stack(leaves))
