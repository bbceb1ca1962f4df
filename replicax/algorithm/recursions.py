"""The recursions of the paper's self-tuning, Eq. 10 to 12: gains, rungs, buffer, unit of energy."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import check_number, not_negative


@dataclass(frozen=True)
class Gain:
    """gamma_k = min(cap, scale / (k^power + offset)): the step size of the self-tuning.

    >>> round(float(Gain()(0)), 4), round(float(Gain()(10_000)), 4)
    (0.1, 0.024)
    """

    scale: float = 50.0
    offset: float = 500.0
    power: float = 0.8
    cap: float = 0.5

    def __post_init__(self) -> None:
        not_negative("scale", self.scale)
        check_number("power", self.power, lambda x: 0 <= x <= 1, "a gain needs 0 <= power <= 1")
        for name in ("offset", "cap"):
            value = getattr(self, name)
            check_number(name, value, lambda x: x > 0, f"a gain needs a {name} above 0")

    def __call__(self, step: Array | float) -> Array:
        growth = jnp.asarray(step, jnp.float32) ** self.power
        return jnp.minimum(self.cap, self.scale / (growth + self.offset))


@dataclass(frozen=True)
class ConstantGain:
    """gamma_k = value at every step."""

    value: float

    def __call__(self, step: Array | float) -> Array:
        return jnp.full(jnp.shape(step), self.value, jnp.float32)


def adapt_rungs(rungs: Array, wanted: Array, target_swap_rate: float, gain: Array) -> Array:
    """Push every pair to the same swap rate, both ends of the ladder fixed (Eq. 11).

    The gap belongs to its pair. Where gaps are unequal, noise can make neighbours cross: the
    result is sorted.
    """
    excess = wanted.astype(rungs.dtype) - target_swap_rate
    gap = jnp.maximum(0.0, rungs[1:] - rungs[:-1]) * jnp.exp(gain.astype(rungs.dtype) * excess)
    forward = rungs[:-2] + gap[:-1]
    backward = rungs[2:] - gap[1:]
    inner = jnp.clip((forward + backward) / 2, rungs[0], rungs[-1])
    tuned = jnp.concatenate([rungs[:1], inner, rungs[-1:]])
    crossed = jnp.any(tuned[1:] < tuned[:-1])
    return jax.lax.cond(crossed, sort_positive, lambda in_order: in_order, tuned)


def sort_positive(values: Array) -> Array:
    """Sort positive numbers, in a tenth of the time of `jnp.sort` at the size of a ladder.

    Few: all comparisons at once give the ranks. Many: positive floats are ordered as their bits
    are, and XLA has a fast sort for integers only.
    """
    places = jnp.arange(values.shape[0])
    if values.shape[0] > 32:
        bits = jnp.int32 if values.dtype.itemsize == 4 else jnp.int64
        ordered = jax.lax.sort(jax.lax.bitcast_convert_type(values, bits))
        return jax.lax.bitcast_convert_type(ordered, values.dtype)
    mine, other = values[:, None], values[None, :]
    before = (other < mine) | ((other == mine) & (places[None, :] < places[:, None]))
    rank = jnp.sum(before, axis=1)
    return jnp.sum(jnp.where(rank[None, :] == places[:, None], other, 0), axis=1)


def adapt_buffer(buffer: Array, wanted: Array, target_swap_rate: float, gain: Array) -> Array:
    """C_{k+1} = C_k + gamma_k (mean_p A^(p) - S)  (Eq. 12)."""
    excess = jnp.mean(wanted, dtype=buffer.dtype) - target_swap_rate
    return buffer + gain.astype(buffer.dtype) * excess


class EnergyUnit(NamedTuple):
    """The spread of neighbouring energy differences: the unit of buffer and buffer gain.

    The geometric mean of |U~_cold - U~_hot|: it streams, scales with the energy, and a few wild
    values cannot move it far. Times 1.887 it is the standard deviation of a centred Gaussian.
    """

    log_sum: Array  # shape ()
    count: Array  # shape ()

    def measure(self, energy: Array) -> "EnergyUnit":
        """Add the differences of one step, without ties and non-finite values."""
        difference = jnp.abs(energy[1:] - energy[:-1])
        usable = (difference > 0) & jnp.isfinite(difference)
        logs = jnp.where(usable, jnp.log(jnp.where(usable, difference, 1.0)), 0.0)
        count = self.count + jnp.sum(usable, dtype=self.count.dtype)
        return EnergyUnit(self.log_sum + jnp.sum(logs), count)

    def value(self) -> Array:
        """Return the unit; 1 as long as nothing was measured."""
        spread = 1.887 * jnp.exp(self.log_sum / jnp.maximum(self.count, 1))
        return jnp.where(self.count > 0, spread, 1.0).astype(self.log_sum.dtype)
