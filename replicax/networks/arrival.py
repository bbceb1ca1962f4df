"""Learning rates that fall after an arrival, so that networks settle at the cold end of a ladder.

What has come down from a hotter rung moves on at the rate of the coldest one, and is cooled there:

    eta_t = eta (final + (1 - final) (1 + cos(pi min(t / settle_steps, 1))) / 2),

t steps after it last was on a hotter rung. All other rungs keep their rates, and explore.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax
from jax import Array

from replicax.algorithm.kernel import Kernel, Replica, TimedMemory
from replicax.algorithm.ladder import Ladder

_FINAL = 0.01  # of the learning rate
_ROUNDING = 1 + 1e-5  # of rates in float32


def settling(kernel: Kernel, cold_rate: float, settle_steps: int) -> Kernel:
    """Return a kernel that counts the steps of its replica at the cold end, whose rate is given in
    the unit of the energies, and lowers the rate there."""
    factor = optax.cosine_decay_schedule(1.0, settle_steps, _FINAL)

    def is_cold(rung: Ladder) -> Array:
        return rung.learning_rate <= cold_rate * _ROUNDING

    def rung_at(rung: Ladder, since: Array) -> Ladder:
        change = jnp.where(is_cold(rung), factor(since), 1.0).astype(rung.learning_rate.dtype)
        return rung._replace(learning_rate=change * rung.learning_rate)

    def init(params: Any) -> Replica:
        return Replica(params, TimedMemory(jnp.array(0, jnp.int32), kernel.init(params).memory))

    def step(noise: Any, replica: Replica, evaluate: Callable, rung: Ladder):
        since, inner = replica.memory
        inner = Replica(replica.params, inner)
        inner, energy = kernel.step(noise, inner, evaluate, rung_at(rung, since))
        since = jnp.where(is_cold(rung), since + 1, 0)  # the step after a hotter one is the first
        return Replica(inner.params, TimedMemory(since, inner.memory)), energy

    def change_rung(replica: Replica, old: Ladder, new: Ladder) -> Replica:
        since, inner = replica.memory
        assert kernel.change_rung is not None
        inner = Replica(replica.params, inner)
        inner = kernel.change_rung(inner, rung_at(old, since), rung_at(new, since))
        return Replica(inner.params, TimedMemory(since, inner.memory))

    return kernel._replace(
        init=init,
        step=step,
        keeps_time=True,
        spec=None,
        change_rung=None if kernel.change_rung is None else change_rung,
    )
