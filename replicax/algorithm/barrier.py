"""Temperatures that tune themselves in the burn-in: equal rejection along the ladder.

The rejection rates of the pairs, added up along the ladder, are the barrier between its ends (Syed
et al., 2022). Cut into equal parts it gives temperatures at which all pairs reject equally often;
the target rate is then the ladder's own. A hottest temperature that is free moves to where a pair
rejects about half of its attempts, which is where round trips are fastest.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

_BEST_REJECTION = 0.5
_MOST_REJECTION = 0.6  # a free ladder above this is made shorter
_POWER = 0.25  # the ladder is interpolated in (1 / temperature)^power, which reaches infinity


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


def start(num_pairs: int, dtype) -> Verdicts:
    """Return the statistics before the first round."""
    return Verdicts(jnp.array(0, jnp.int32), jnp.zeros(num_pairs, dtype))


def tune(
    tuning: BarrierTuning,
    step: Array,
    temperature: Array,
    verdicts: Verdicts,
    wanted: Array,
    attempted: Array | bool = True,
) -> tuple[Array, Verdicts]:
    """Return temperatures and statistics after one step."""
    if tuning.first_step:
        attempted = attempted & (step >= tuning.first_step)
    added = Verdicts(
        verdicts.count + jnp.asarray(attempted, jnp.int32),
        verdicts.wanted + (wanted & attempted).astype(verdicts.wanted.dtype),
    )
    ends = jnp.any(step == jnp.array(tuning.round_ends) - 1)
    return jax.lax.cond(
        ends & (added.count > 0),
        lambda: (_equalised(tuning, step, temperature, added), jax.tree.map(jnp.zeros_like, added)),
        lambda: (temperature, added),
    )


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
        end, hot = jax.tree.map(
            lambda new, old: jnp.where(free, new, old),
            _free_end(tuning, rejection, place),
            (end, hot),
        )
    # A ladder made longer has its last pair stretched; one made shorter ends inside.
    barrier = barrier.at[-1].max(end)
    cuts = jnp.linspace(0.0, end, num_pairs + 1, dtype=place.dtype)
    places = jnp.interp(cuts, barrier, place.at[-1].set(hot))
    rounded = 16 * jnp.finfo(place.dtype).eps  # so near to 0, a place is that of the prior
    tuned = jnp.where(places < rounded, 0.0, places) ** (-1 / _POWER)
    tuned = tuned.at[0].set(temperature[0])
    return tuned if tuning.free_until else tuned.at[-1].set(temperature[-1])


def _free_end(tuning: BarrierTuning, rejection: Array, place: Array) -> tuple[Array, Array]:
    """Return how much of the barrier a free ladder spans, and the place of its hottest rung."""
    num_pairs, end = rejection.shape[0], jnp.sum(rejection)
    best, most = _BEST_REJECTION * num_pairs, _MOST_REJECTION * num_pairs
    slope = (place[-2] - place[-1]) / jnp.maximum(rejection[-1], 0.1)
    longer = jnp.minimum(best, 2 * end)
    coolest_end = jnp.asarray((1 / tuning.hottest) ** _POWER, place.dtype)
    hot = jnp.maximum(place[-1] - slope * jnp.maximum(longer - end, 0.0), coolest_end)
    span = jnp.where(end > most, best, jnp.maximum(end, longer))
    return span, jnp.where(end < best, hot, place[-1])
