"""Tuning in the burn-in, in rounds: temperatures to equal rejection, step sizes to the kernel's
own error.

The rejection rates of the pairs, added up along the ladder, are the barrier between its ends (Syed
et al., 2022). Cut into equal parts it gives temperatures at which all pairs reject equally often;
the target rate is then the ladder's own. A hottest temperature that is free moves to where a pair
rejects about half of its attempts, which is where round trips are fastest.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from replicax.algorithm.kernel import Observed, select
from replicax.algorithm.ladder import Ladder, Metric
from replicax.algorithm.metric import MOST_DENSE, SQUARE_OF_NORMAL, WIDEST

_BEST_REJECTION = 0.5
_MOST_REJECTION = 0.6  # a free ladder above this is made shorter
_POWER = 0.25  # the ladder is interpolated in (1 / temperature)^power, which reaches infinity
_FEWEST_GRADIENTS, _MOST_GRADIENTS = 64, 512  # that a rung keeps of a round: 4 for each dimension


class Verdicts(NamedTuple):
    """Verdicts of the swap rule in one round of tuning."""

    count: Array  # attempts                         shape ()
    wanted: Array  # of those, how many wanted       shape (pair,)


@dataclass(frozen=True)
class BarrierTuning:
    """Rounds of tuning, and the highest temperature that the hottest rung may get.

    Verdicts count from step `first_step` on, when replicas have left their starts. The hottest
    temperature is free in rounds that end before step `free_until`, and fixed then.
    """

    round_ends: tuple[int, ...] = tuple(64 * 2**i for i in range(25))
    first_step: int = 0
    hottest: float = 1.0
    free_until: int = 0


class StepSizes(NamedTuple):
    """Statistics of one round of tuning."""

    count: Array  # steps of the round so far                         shape ()
    log_steepness: Any  # sum over the round                          leading axis: rung
    # Of a dense metric instead: gradients at some steps of the round, shape (sample, rung, d); in
    # the last place nothing is kept.
    gradients: Any = ()


@dataclass(frozen=True)
class StepSizeTuning:
    """How step sizes are tuned: in rounds that end at given steps.

    At the end of a round the scale of each parameter becomes 1 / steepness, of which the kernel
    observes an estimate such as g^2 at every step, by the geometric mean over the round. For a
    Gaussian posterior with independent parameters that is its variance. It does not depend on the
    distance of modes, and a few steep places hardly change it.

    Of a `dense` metric gradients are kept, and the host makes it of them where a round ends.
    """

    round_ends: tuple[int, ...]
    until: int  # the step from which step sizes are frozen
    dense: bool = False


def start_verdicts(num_pairs: int, dtype: DTypeLike) -> Verdicts:
    """Return the verdicts before the first round: none."""
    return Verdicts(jnp.array(0, jnp.int32), jnp.zeros(num_pairs, dtype))


def tune_temperatures(
    tuning: BarrierTuning,
    step: Array,
    temperature: Array,
    verdicts: Verdicts,
    wanted: Array,
    attempted: Array | bool = True,
) -> tuple[Array, Verdicts]:
    """Return temperatures and verdicts after one step; at the end of a round, tuned ones."""
    if tuning.first_step:
        attempted = attempted & (step >= tuning.first_step)
    added = Verdicts(
        verdicts.count + jnp.asarray(attempted, jnp.int32),
        verdicts.wanted + (wanted & attempted).astype(verdicts.wanted.dtype),
    )
    return jax.lax.cond(
        _is_last(step, tuning.round_ends) & (added.count > 0),
        lambda: (_equalised(tuning, step, temperature, added), jax.tree.map(jnp.zeros_like, added)),
        lambda: (temperature, added),
    )


def _is_last(step: Array, round_ends: tuple[int, ...]) -> Array:
    """Return whether `step` is the last one of a round."""
    return jnp.any(step == jnp.array(round_ends) - 1)


def _equalised(tuning: BarrierTuning, step: Array, temperature: Array, verdicts: Verdicts) -> Array:
    """Return temperatures that cut the measured barrier into equal parts."""
    num_pairs = temperature.shape[0] - 1
    count = verdicts.count.astype(temperature.dtype)
    # A pair that never rejected would make the barrier flat there and not invertible.
    rejection = 1.01 - verdicts.wanted / count
    barrier = jnp.concatenate([jnp.zeros(1, rejection.dtype), jnp.cumsum(rejection)])
    place = (1 / temperature) ** _POWER
    end, hot = barrier[-1], place[-1]
    if tuning.free_until:
        free = step < tuning.free_until
        end, hot = select(free, _free_end(tuning, rejection, place), (end, hot))
    # A ladder made longer has its last pair stretched; one made shorter ends inside.
    barrier = barrier.at[-1].max(end)
    cuts = jnp.linspace(0.0, end, num_pairs + 1, dtype=place.dtype)
    places = jnp.interp(cuts, barrier, place.at[-1].set(hot))
    rounded = 16 * jnp.finfo(place.dtype).eps  # so near to 0, a place is that of the prior
    tuned = jnp.where(places < rounded, 0.0, places) ** (-1 / _POWER)
    tuned = tuned.at[0].set(temperature[0])
    return tuned if tuning.free_until else tuned.at[-1].set(temperature[-1])


def _free_end(tuning: BarrierTuning, rejection: Array, place: Array) -> tuple[Array, Array]:
    """Return the part of the barrier that a free ladder spans, and where its hottest rung is."""
    num_pairs, end = rejection.shape[0], jnp.sum(rejection)
    best, most = _BEST_REJECTION * num_pairs, _MOST_REJECTION * num_pairs
    slope = (place[-2] - place[-1]) / jnp.maximum(rejection[-1], 0.1)
    longer = jnp.minimum(best, 2 * end)
    coolest_end = jnp.asarray((1 / tuning.hottest) ** _POWER, place.dtype)
    hot = jnp.maximum(place[-1] - slope * jnp.maximum(longer - end, 0.0), coolest_end)
    span = jnp.where(end > most, best, jnp.maximum(end, longer))
    return span, jnp.where(end < best, hot, place[-1])


def start_step_sizes(ladder: Ladder, params: Any, dense: bool = False) -> tuple[Ladder, StepSizes]:
    """Return the ladder with scales of 1, or a `dense` metric of 1, and empty statistics; `params`
    has a replica axis."""
    dtype, num_rungs = ladder.learning_rate.dtype, len(ladder.learning_rate)
    d = sum(leaf.size for leaf in jax.tree.leaves(params)) // num_rungs
    if dense and d <= MOST_DENSE:
        root = jnp.broadcast_to(jnp.eye(d, dtype=dtype), (num_rungs, d, d))
        kept = jnp.zeros((num_gradients(d) + 1, num_rungs, d), dtype)
        return ladder._replace(scale=Metric(root)), StepSizes(jnp.array(0, jnp.int32), (), kept)
    ones = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, dtype), params)
    zeros = jax.tree.map(jnp.zeros_like, ones)
    return ladder._replace(scale=ones), StepSizes(jnp.array(0, jnp.int32), zeros)


def tune_step_sizes(
    tuning: StepSizeTuning, step: Array, ladder: Ladder, sizes: StepSizes, observed: Observed
) -> tuple[Ladder, StepSizes]:
    """Return ladder and statistics after one step; `observed` has a leading axis of rungs."""

    def tuned() -> tuple[Ladder, StepSizes]:
        dtype = ladder.learning_rate.dtype
        gain = jnp.maximum(1.5 / (1 + sizes.count.astype(dtype)) ** 0.6, 0.02)
        error = observed.step_error.astype(dtype)
        error = jnp.where(jnp.isfinite(error), error, -1.0)  # a step that broke was too long
        rate = ladder.learning_rate * jnp.exp(gain * error)
        after = ladder._replace(learning_rate=rate)
        if isinstance(ladder.scale, Metric):
            return after, _keep_gradients(tuning, step, sizes, observed.steepness)
        log_steepness = jax.tree.map(_add_log, sizes.log_steepness, observed.steepness)
        added = StepSizes(sizes.count + 1, log_steepness)
        ends = _is_last(step, tuning.round_ends)
        return jax.lax.cond(ends, lambda: _end_round(after, added), lambda: (after, added))

    return jax.lax.cond(step < tuning.until, tuned, lambda: (ladder, sizes))


def num_gradients(d: int) -> int:
    """Return how many gradients a rung keeps of a round in d dimensions."""
    return min(max(4 * d, _FEWEST_GRADIENTS), _MOST_GRADIENTS)


def stride(round_ends: tuple[int, ...], step: Any, places: int) -> Any:
    """Return every how many steps something is kept in the round of `step`, so that it has places
    for all of it."""
    lengths = np.diff([0, *round_ends, 2 * round_ends[-1]])
    strides = jnp.asarray(-(-lengths // places), jnp.int32)
    return strides[jnp.searchsorted(jnp.array(round_ends), step, side="right")]


def _keep_gradients(
    tuning: StepSizeTuning, step: Array, sizes: StepSizes, gradients: Array
) -> StepSizes:
    """Add the gradients of a step (rung, d), at some steps of the round."""
    kept, last = sizes.gradients, sizes.gradients.shape[0] - 1
    every = stride(tuning.round_ends, step, last)
    place = jnp.where(sizes.count % every == 0, jnp.minimum(sizes.count // every, last), last)
    added = jax.lax.dynamic_update_index_in_dim(kept, gradients.astype(kept.dtype), place, 0)
    return sizes._replace(count=sizes.count + 1, gradients=added)


def _add_log(total: Array, value: Array) -> Array:
    log = jnp.log(value.astype(total.dtype) + 1e-30)
    return total + jnp.where(jnp.isfinite(log), log, 0.0)


def _end_round(ladder: Ladder, sizes: StepSizes) -> tuple[Ladder, StepSizes]:
    """Set scales from the steepness of the round, and learning rates that keep the step lengths."""
    mean = jax.tree.map(lambda total: total / sizes.count, sizes.log_steepness)
    log_scale = jax.tree.map(lambda log: -log + jnp.log(SQUARE_OF_NORMAL), mean)
    centre = _mean_by_rung(log_scale)
    widest = jnp.log(WIDEST)

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
