"""Step sizes that tune themselves in the burn-in: a learning rate and parameter scales by rung."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.kernel import Observed
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.spread import Spread

_SQUARE_OF_NORMAL = 0.281  # exp(E log z^2) of a standard normal z
_WIDEST = 1e6  # between the scale of a parameter and their geometric mean


class StepSizes(NamedTuple):
    """Statistics of one round of tuning."""

    count: Array  # steps of the round so far                         shape ()
    log_steepness: Any  # sum over the round                          leading axis: rung


@dataclass(frozen=True)
class StepSizeTuning:
    """How step sizes are tuned: in rounds that end at given steps.

    At the end of a round the scale of each parameter becomes 1 / steepness, of which the kernel
    observes an estimate such as g^2 at every step, by the geometric mean of the round. That is the
    posterior's own variance where it is a Gaussian with independent parameters, does not see how
    far modes are apart, and a few steep places hardly move it.
    """

    round_ends: tuple[int, ...]
    until: int  # the step from which step sizes are frozen


def start(ladder: Ladder, params: Any) -> tuple[Ladder, StepSizes]:
    """Return the ladder with scales of 1, and empty statistics; `params` has a replica axis."""
    dtype = ladder.learning_rate.dtype
    ones = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, dtype), params)
    zeros = jax.tree.map(jnp.zeros_like, ones)
    return ladder._replace(scale=ones), StepSizes(jnp.array(0, jnp.int32), zeros)


def tune(
    tuning: StepSizeTuning, step: Array, ladder: Ladder, sizes: StepSizes, observed: Observed
) -> tuple[Ladder, StepSizes]:
    """Return ladder and statistics after one step; `observed` has a leading axis of rungs."""

    def tuned() -> tuple[Ladder, StepSizes]:
        dtype = ladder.learning_rate.dtype
        gain = jnp.maximum(1.5 / (1 + sizes.count.astype(dtype)) ** 0.6, 0.02)
        error = observed.step_error.astype(dtype)
        error = jnp.where(jnp.isfinite(error), error, -1.0)  # a step that broke was too long
        rate = ladder.learning_rate * jnp.exp(gain * error)
        log_steepness = jax.tree.map(_add_log, sizes.log_steepness, observed.steepness)
        added = StepSizes(sizes.count + 1, log_steepness)
        after = ladder._replace(learning_rate=rate)
        ends = jnp.any(step == jnp.array(tuning.round_ends) - 1)
        return jax.lax.cond(ends, lambda: _end_round(after, added), lambda: (after, added))

    return jax.lax.cond(step < tuning.until, tuned, lambda: (ladder, sizes))


def gather(
    tuning: StepSizeTuning | None, spread: Spread, step: Array, observed: Observed | None
) -> Observed | None:
    """Return on every device what the replicas of all observed.

    The steepness has the size of the parameters: it is sent while step sizes are tuned, and is zero
    thereafter.
    """
    if observed is None:
        return None
    numbers = spread.whole(observed._replace(steepness=None))
    if tuning is None:
        return numbers

    def none() -> Any:
        count = spread.parts
        return jax.tree.map(
            lambda leaf: jnp.zeros((leaf.shape[0] * count, *leaf.shape[1:]), leaf.dtype),
            observed.steepness,
        )

    sent = jax.lax.cond(step < tuning.until, lambda: spread.whole(observed.steepness), none)
    return numbers._replace(steepness=sent)


def _add_log(total: Array, value: Array) -> Array:
    log = jnp.log(value.astype(total.dtype) + 1e-30)
    return total + jnp.where(jnp.isfinite(log), log, 0.0)


def _end_round(ladder: Ladder, sizes: StepSizes) -> tuple[Ladder, StepSizes]:
    """Set the scales from the round's steepness, the learning rate so that steps stay as long."""
    mean = jax.tree.map(lambda total: total / sizes.count, sizes.log_steepness)
    log_scale = jax.tree.map(lambda log: -log + jnp.log(_SQUARE_OF_NORMAL), mean)
    centre = _mean_by_rung(log_scale)
    widest = jnp.log(_WIDEST)

    def limited(log: Array) -> Array:
        middle = centre.reshape(-1, *[1] * (log.ndim - 1))
        return jnp.clip(log, middle - widest, middle + widest)

    log_scale = jax.tree.map(limited, log_scale)
    before = _mean_by_rung(jax.tree.map(jnp.log, ladder.scale))
    rate = ladder.learning_rate * jnp.exp(before - _mean_by_rung(log_scale))
    scale = jax.tree.map(jnp.exp, log_scale)
    empty = jax.tree.map(jnp.zeros_like, sizes)
    return ladder._replace(learning_rate=rate, scale=scale), empty


def _mean_by_rung(tree: Any) -> Array:
    leaves = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(tree)]
    return jnp.mean(jnp.concatenate(leaves, axis=1), axis=1)
