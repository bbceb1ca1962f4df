"""All randomness of one step.

The randomness of step k is a function of (key, k, replica) alone: drawn for many steps at once or
inside the loop, it is the same.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.kernels import Kernel
from replicax.algorithm.schedule import Schedule, Sequential
from replicax.algorithm.spread import WHOLE, Spread
from replicax.algorithm.swap import Rule
from replicax.algorithm.target import Target


class Randomness(NamedTuple):
    """The draws of one step; None where the combination of parts needs none."""

    move: Any  # drawn by the kernel                    leading axis: replica
    gradient: Any  # the target's key or noise          leading axis: replica
    energy: Any  # the target's key or noise            leading axis: replica
    log_uniform: Any  #                                 shape (pair,)
    schedule: Any  # drawn by the schedule
    attempts: "Attempts | None"  #                      leading axis: attempt
    judge: Any  # key of further energies               shape ()
    batch: Any  # row numbers of the mini-batch         shape (row,)


class Attempts(NamedTuple):
    """The draws of a sequential schedule for each of its attempts."""

    order: Array  # colder and hotter rung              shape (attempt, 2)
    log_uniform: Array  #                               shape (attempt,)
    energy: Any  # the target's key or noise            leading axes: attempt, 2
    batch: Array  # key of a further mini-batch         shape (attempt,)


def build_draw(
    target: Target,
    kernel: Kernel,
    schedule: Schedule,
    rule: Rule,
    *,
    moved: bool,
    langevin: bool,
    draw_batch: Callable[[Array], Any] | None = None,
    spread: Spread = WHOLE,
) -> Callable[[Array, Array, Any], Randomness]:
    """Build `draw(key, step, replicas) -> Randomness`; of `replicas` only the shapes matter."""

    def draw(key: Array, step: Array, replicas: Any) -> Randomness:
        num_replicas = spread.count(replicas)
        replica_key, exchange_key = jax.random.split(jax.random.fold_in(key, step))
        keys = spread.here(jax.random.split(replica_key, (num_replicas, 3)))
        pair_key, schedule_key, attempt_key, judge_key, batch_key = jax.random.split(
            exchange_key, 5
        )
        return Randomness(
            move=jax.vmap(kernel.draw)(keys[:, 0], replicas) if langevin else None,
            gradient=jax.vmap(target.draw)(keys[:, 1]),
            energy=jax.vmap(target.draw)(keys[:, 2]) if moved else None,
            log_uniform=log_uniform(pair_key, num_replicas - 1) if rule.uses_temperature else None,
            schedule=schedule.draw(schedule_key, num_replicas),
            attempts=draw_attempts(schedule, attempt_key, num_replicas)
            if isinstance(schedule, Sequential)
            else None,
            judge=judge_key if rule.judges_afresh else None,
            batch=draw_batch(batch_key) if draw_batch else None,
        )

    def draw_attempts(schedule: Sequential, key: Array, num_replicas: int) -> Attempts:
        count = schedule.num_attempts(num_replicas)
        order_key, uniform_key, energy_key, batch_key = jax.random.split(key, 4)
        return Attempts(
            order=schedule.attempt_order(order_key, num_replicas),
            log_uniform=log_uniform(uniform_key, count),
            energy=jax.vmap(jax.vmap(target.draw))(jax.random.split(energy_key, (count, 2))),
            batch=jax.random.split(batch_key, count),
        )

    return draw


def draw_block(draw: Callable[[Array], Randomness], steps: Array) -> Randomness:
    """Draw the randomness of many steps at once, leading axis: step.

    Computed with the step axis last, which XLA turns into long vector loops, and then moved to
    the front; the barrier keeps XLA from undoing this.
    """
    block = jax.lax.optimization_barrier(jax.vmap(draw, out_axes=-1)(steps))
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), block)


def log_uniform(key: Array, count: int) -> Array:
    """Draw log u for u uniform in (0, 1), never -inf."""
    return -jax.random.exponential(key, (count,))
