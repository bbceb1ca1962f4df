"""The paper's self-tuning of ladder and buffer, one step at a time (Eq. 10 to 12): gains, rungs,
buffer, unit of energy, and which of them adapt for how long."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.ladder import Ladder
from replicax.algorithm.rounds import BarrierTuning, StepSizeTuning
from replicax.errors import check_function, check_number, explained, is_number, not_negative, show


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


def as_gain(name: str, gain: Any) -> Callable:
    """Return a gain from a number, a function of the step or a gain."""
    if isinstance(gain, Gain | ConstantGain):
        return gain
    is_class = isinstance(gain, type)
    if callable(gain) and not is_class:
        check_function(name, gain, "step")
        with explained(name, "It must return one number."):
            value = jax.eval_shape(gain, jax.ShapeDtypeStruct((), jnp.int32))
        if getattr(value, "shape", None) != ():
            raise ValueError(f"{name} must return one number for a step.")
        return gain
    if not is_number(gain) or gain < 0:
        raise ValueError(
            f"{name} is {show(gain)}; give a number, a function of the step, or rx.Gain(...)."
        )
    return ConstantGain(float(gain))


class EnergyUnit(NamedTuple):
    """The spread of neighbouring energy differences: the unit of buffer and buffer gain.

    The geometric mean of |U~_cold - U~_hot|: it can be updated step by step, scales with the
    energy, and is robust against a few extreme values. Times 1.887 it is the standard deviation of
    a centred Gaussian.
    """

    log_sum: Array  # shape ()
    count: Array  # shape ()

    def measure(self, energy: Array) -> "EnergyUnit":
        """Add the differences of one step, except ties and non-finite values."""
        difference = jnp.abs(energy[1:] - energy[:-1])
        usable = (difference > 0) & jnp.isfinite(difference)
        logs = jnp.where(usable, jnp.log(jnp.where(usable, difference, 1.0)), 0.0)
        count = self.count + jnp.sum(usable, dtype=self.count.dtype)
        return EnergyUnit(self.log_sum + jnp.sum(logs), count)

    def value(self) -> Array:
        """Return the unit, 1 before anything was measured."""
        spread = 1.887 * jnp.exp(self.log_sum / jnp.maximum(self.count, 1))
        return jnp.where(self.count > 0, spread, 1.0).astype(self.log_sum.dtype)


@dataclass(frozen=True)
class Tuning:
    """Which parts adapt, how fast and for how long."""

    target_swap_rate: float = 0.4
    gain: Callable[[Array], Array] = Gain()  # of the ladder
    buffer_gain: Callable[[Array], Array] | None = None  # None: `gain`, in units of the energy
    adapts: str | None = "learning_rate"  # by Eq. 11; "temperature": by the barrier; or None
    adapts_buffer: bool = True
    until: int | None = None  # the step from which ladder and buffer are frozen
    measure_steps: int = 0  # first steps, without exchange, that measure the unit of energy
    measure_buffer: bool = False  # whether the buffer starts at that unit
    barrier: BarrierTuning = BarrierTuning()  # how temperatures adapt
    step_sizes: StepSizeTuning | None = None  # how learning rates adapt to the kernel's own error

    def measuring(self, step: Array) -> Array:
        """Return whether `step` only measures the unit of energy, without exchange."""
        return step < self.measure_steps


_STATIC = [field.name for field in fields(Tuning) if field.name != "target_swap_rate"]
jax.tree_util.register_dataclass(Tuning, ["target_swap_rate"], _STATIC)


def tune(
    tuning: Tuning,
    step: Array,
    ladder: Ladder,
    buffer: Array,
    unit: EnergyUnit,
    energy: Array,
    wanted: Array,
) -> tuple[Ladder, Array, EnergyUnit]:
    """Return ladder, buffer and energy unit after one step of self-tuning.

    `wanted` has the verdicts of all pairs, before any swap.
    """
    measuring = tuning.measuring(step)
    if tuning.measure_steps:
        unit = jax.lax.cond(measuring, lambda: unit.measure(energy), lambda: unit)
    tunes = ~measuring
    if tuning.until is not None:
        tunes = tunes & (step < tuning.until)
    if tuning.adapts == "learning_rate":
        rates = ladder.learning_rate
        tuned = adapt_rungs(rates, wanted, tuning.target_swap_rate, tuning.gain(step))
        ladder = ladder._replace(learning_rate=jnp.where(tunes, tuned, rates))
    if tuning.adapts_buffer:
        gain = tuning.buffer_gain(step) if tuning.buffer_gain else tuning.gain(step) * unit.value()
        tuned = adapt_buffer(buffer, wanted, tuning.target_swap_rate, gain)
        buffer = jnp.where(tunes, tuned, buffer)
    if tuning.measure_buffer:
        buffer = jnp.where(measuring, unit.value(), buffer)
    return ladder, buffer, unit


def adapt_rungs(rungs: Array, wanted: Array, target_swap_rate: float, gain: Array) -> Array:
    """Move the rungs towards equal swap rates of all pairs, with both ends fixed (Eq. 11).

    The gap belongs to its pair. If gaps are unequal, noise can make neighbours cross: the result
    is sorted.
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
