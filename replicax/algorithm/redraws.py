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
from jax.flatten_util import ravel_pytree

from replicax.algorithm.kernel import Kernel, PyTree, Replica, select
from replicax.algorithm.randomness import make_key
from replicax.algorithm.spread import on_all
from replicax.algorithm.target import StepEnergy, Target
from replicax.algorithm.tiles import build_energies


def build_redraws(target: Target, kernel: Kernel, settings: Any) -> Callable:
    """Build `redraw(key, state, energy_of, batch) -> state, energy_of, accepted`: every replica
    takes some proposals one after another, on the rung it is on.

    The last two are by replica: its energy, and how many of its proposals were accepted. In a step
    all proposals of a replica are draws of the same block, which do not depend on each other, so
    that their energies, and those of all replicas, are evaluated together.
    """
    spread, count = settings.spread, settings.redraws
    assert target.redraw is not None and kernel.traits.prepare is not None
    propose, prepare = target.redraw, kernel.traits.prepare

    def draw_one(key: Array, params: PyTree) -> tuple[PyTree, Array]:
        choice_key, draw_key = jax.random.split(key)
        keys = jax.random.split(draw_key, count)
        drawn, log_ratio = jax.vmap(lambda key: propose(key, params, choice_key))(keys)
        return drawn, jnp.broadcast_to(log_ratio, (count,))

    def redraw(key: Array, state: Any, energy_of: Array, batch: PyTree) -> tuple[Any, Array, Array]:
        replicas = state.replicas
        propose_key, accept_key = jax.random.split(key)
        num_replicas = spread.count(replicas)
        keys = jax.random.split(propose_key, num_replicas)
        threshold = jax.random.exponential(accept_key, (num_replicas, count), energy_of.dtype)
        slope = 1 / state.ladder.temperature[state.rung_of]
        keys, threshold, slope, energy = spread.here((keys, threshold, slope, energy_of))
        drawn, log_ratio = settings.map_replicas(draw_one)(keys, replicas.params)
        there = _energies(target, drawn, batch).astype(energy.dtype)
        place, accepted = jax.vmap(_decide)(threshold, slope, energy, there, log_ratio)
        moved = accepted > 0

        def picked(drawn: Array, old: Array) -> Array:
            chosen = jax.vmap(lambda rows, i: rows[i])(drawn, place)
            return jnp.where(moved.reshape(-1, *[1] * (old.ndim - 1)), chosen, old)

        params = on_all(jax.tree.map(picked, drawn, replicas.params))
        energy = jnp.where(moved, jax.vmap(lambda rows, i: rows[i])(there, place), energy)
        evaluate = StepEnergy(target, batch, target.draw(make_key(0)))  # which is exact

        def settled(params: PyTree, replica: Replica, moved: Array) -> Replica:
            there = prepare(Replica(params, replica.memory), evaluate)
            return select(moved, there, replica)

        replicas = on_all(settings.map_replicas(settled)(params, replicas, moved))
        energy_of, accepted = spread.gathered((energy, accepted))
        return state._replace(replicas=replicas), energy_of, accepted

    return redraw


def _energies(target: Target, drawn: PyTree, batch: PyTree) -> Array:
    """Return the energies of points with two leading axes (replica, proposal), infinite where a
    number is not finite."""
    each = jax.tree.leaves(drawn)[0].shape[:2]
    unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0, 0], drawn))[1]
    points = jax.vmap(jax.vmap(lambda point: ravel_pytree(point)[0]))(drawn)
    points = points.reshape(-1, points.shape[-1])
    energy = build_energies(target, unravel)(points, batch)[0]
    return jnp.where(jnp.all(jnp.isfinite(points), axis=1), energy, jnp.inf).reshape(each)


def _decide(
    threshold: Array, slope: Array, energy: Array, drawn_energy: Array, log_ratio: Array
) -> tuple[Array, Array]:
    """Return which draw of one replica was accepted last, and how many were.

    Ratios are to the point where it was, so that between two draws theirs are divided.
    """

    def attempt(now: tuple, drawn: tuple) -> tuple[tuple, None]:
        place, energy, ratio, accepted = now
        number, threshold, there, its_ratio = drawn
        accepts = accepted_if(threshold, slope, energy, there, its_ratio - ratio)
        after = select(accepts, (number, there, its_ratio), (place, energy, ratio))
        return (*after, accepted + accepts), None

    none = jnp.zeros((), jnp.int32)
    numbers = jnp.arange(len(threshold), dtype=jnp.int32)
    start = none, energy, jnp.zeros((), log_ratio.dtype), none
    drawn = numbers, threshold, drawn_energy, log_ratio
    (place, _, _, accepted), _ = jax.lax.scan(attempt, start, drawn, unroll=min(16, len(numbers)))
    return place, accepted


def accepted_if(
    threshold: Array, slope: Array, energy: Array, drawn_energy: Array, log_ratio: Array | float = 0
) -> Array:
    """Return whether a draw is accepted; `threshold` is minus log u, `slope` 1 / temperature.

    A state whose own energy is not finite is left for any that has one.
    """
    change = jnp.where(slope == 0, 0.0, slope * (drawn_energy - energy)) - log_ratio
    possible = jnp.isfinite(drawn_energy) & jnp.isfinite(log_ratio)
    return possible & ((change < threshold) | ~jnp.isfinite(energy))
