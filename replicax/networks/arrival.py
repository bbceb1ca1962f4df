"""Learning rates that fall after a network arrives at the cold end of a ladder, so that it settles.

A network that comes from a hotter rung starts at the rate of the coldest one and is then cooled:

    eta_t = eta (final + (1 - final) (1 + cos(pi min(t / settle_steps, 1))) / 2),

t steps after it last was on a hotter rung. All other rungs keep their rates.
"""

import jax.numpy as jnp
import optax
from jax import Array

from replicax.algorithm.kernel import Kernel
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.timed_kernels import timed

_FINAL = 0.01  # final fraction of the learning rate
_ROUNDING = 1 + 1e-5  # tolerance for the rounding of rates in float32


def settling(kernel: Kernel, cold_rate: float, settle_steps: int) -> Kernel:
    """Return a kernel that counts the steps of its replica at the cold end and lowers the rate
    there. The rate of the cold end is in the unit of the energies."""
    factor = optax.cosine_decay_schedule(1.0, settle_steps, _FINAL)

    def is_cold(rung: Ladder) -> Array:
        return rung.learning_rate <= cold_rate * _ROUNDING

    def rung_at(rung: Ladder, since: Array) -> Ladder:
        change = jnp.where(is_cold(rung), factor(since), 1.0).astype(rung.learning_rate.dtype)
        return rung._replace(learning_rate=change * rung.learning_rate)

    def next_count(rung: Ladder, since: Array) -> Array:
        return jnp.where(is_cold(rung), since + 1, 0)  # the step after a hotter one is the first

    return timed(kernel, rung_at, "arrival", None, next_count)
