"""Self-tuning of ladder and buffer: which parts adapt, for how long, and one step of it."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.barrier import BarrierTuning
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.recursions import (
    ConstantGain,
    EnergyUnit,
    Gain,
    adapt_buffer,
    adapt_rungs,
)
from replicax.algorithm.step_sizes import StepSizeTuning
from replicax.errors import check_function, explained, is_number, show


def as_gain(name: str, gain: Any) -> Callable:
    """Return the gain of a number, of a function of the step, or itself."""
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

    `wanted` holds the verdicts of all pairs, taken before any swap.
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
