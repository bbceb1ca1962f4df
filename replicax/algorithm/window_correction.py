"""The window correction lambda_W tuned by the run itself: `window_corrected("auto")`.

At most one swap in a window warms the cold rung, and lambda_W cools it. Which lambda_W is right
shows in the mean energy of the cold rung, once it is known what that energy should be:

1. reference: windows of one step and lambda = 0, where the rule has no bias, measure
   U_ref = mean U~_cold, the first tenth of the stage left out;
2. tuning: windows as asked for, and stochastic approximation of E[U~_cold] = U_ref in 50 blocks,
   lambda <- lambda + 100 / (j + 5) dT (mean U~_cold of block j - U_ref),  j = 0, 1, ..., 49;
3. from then on lambda is the average over the second half of the tuning.

Energies are those of the moved replicas before they swap: a swap prefers lucky noise. Within a
block lambda stands still. If it followed the energy step by step it would rise while the cold
replica stays in a mode of high energy and so keep it there, a bias of its own.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from replicax.algorithm.kernel import select
from replicax.algorithm.schedule import Schedule

_BLOCKS = 50
_GAIN = 100.0  # about 1 / slope: on two modes dT dE[U] / dlambda is -.005 to -.03
_GAIN_DELAY = 5  # blocks after which the gain has halved
_FEWEST_WINDOWS = 10  # in which lambda_W may be tuned
_UNSETTLED = 10  # a tenth of the reference is not yet stationary


def check_stages(rule: Any, schedule: Schedule, burn_in: int, num_steps: int) -> Any:
    """Return the rule, with lambda_W 0 where windows have no bias; raise where its stages do not
    fit the windows or the run."""
    if schedule.window == 1 or schedule.swaps == "no_gate":  # no gate that stays closed: no bias
        return replace(rule, window_correction=0.0, reference_steps=None, tuning_steps=None)
    if schedule.swaps == "exactly_one":
        raise ValueError(
            'window_correction="auto" compares with windows of one step, in which "exactly_one" '
            "swaps at every step; write method=rx.deo_star(..., rule=...), or give a number."
        )
    if rule.tuning_steps < _FEWEST_WINDOWS * schedule.window:
        raise ValueError(
            f'window_correction="auto" tunes for {rule.tuning_steps} steps (a third of num_steps '
            f"unless tuning_steps is given); windows of {schedule.window} steps need at least "
            f"{_FEWEST_WINDOWS} of them, and hundreds to be precise."
        )
    frozen = rule.reference_steps + rule.tuning_steps
    if not frozen <= burn_in < num_steps:
        raise ValueError(
            f'window_correction="auto" measures and tunes until step {frozen}, and draws must '
            f"begin there or later: write burn_in={frozen} and num_steps above it "
            f"(they are {burn_in} and {num_steps})."
        )
    return rule


class Sum(NamedTuple):
    """A compensated (Kahan) sum: millions of terms in single precision."""

    total: Array  # shape ()
    lost: Array  # lost to rounding so far, shape ()

    def add(self, term: Array) -> "Sum":
        term = term - self.lost
        total = self.total + term
        return Sum(total, (total - self.total) - term)


class Correction(NamedTuple):
    """The state of the estimate of lambda_W."""

    value: Array  # lambda_W in force                                     shape ()
    anchor: Array  # an energy, from which those of the reference differ  shape ()
    reference: Sum  # of these differences
    block: Sum  # of those since lambda_W last changed
    tuned: Sum  # of lambda_W over the second half of the tuning


def start(rule: Any, dtype: DTypeLike) -> Correction:
    """Return the state before the first step."""
    if rule.reference_steps is None or rule.tuning_steps is None:
        raise ValueError(
            'window_corrected("auto") needs the lengths of its stages here: write '
            'rx.swap.window_corrected("auto", reference_steps=..., tuning_steps=...).'
        )
    zero = jnp.zeros((), dtype)
    none = Sum(zero, zero)
    return Correction(zero, zero, none, none, none)


def in_force(
    rule: Any, schedule: Schedule, step: Array, correction: Correction
) -> tuple[Any, Schedule]:
    """Return the rule with the lambda_W, and the schedule with the window, of this step."""
    window = jnp.where(step < rule.reference_steps, 1, schedule.window)
    return replace(rule, window_correction=correction.value), replace(schedule, window=window)


def update(
    rule: Any,
    window: Any,
    step: Array,
    correction: Correction,
    cold_energy: Array,
    temperature: Array,
) -> Correction:
    """Return the state after a step; `cold_energy` is U~ of rung 0 before the swap.

    |lambda_W| <= log W, as W attempts make a swap W times as likely at most: a window of one step
    needs no correction.
    """
    dtype = cold_energy.dtype
    finite = jnp.isfinite(cold_energy)
    anchor = jnp.where((step == 0) & finite, cold_energy, correction.anchor)
    difference = jnp.where(finite, cold_energy - anchor, 0)
    settled = rule.reference_steps // _UNSETTLED
    measures = (step >= settled) & (step < rule.reference_steps)
    reference = select(measures, correction.reference.add(difference), correction.reference)

    place = step - rule.reference_steps
    tunes = (place >= 0) & (place < rule.tuning_steps)
    length = jnp.maximum(1, rule.tuning_steps // _BLOCKS)
    block = select(tunes, correction.block.add(difference), correction.block)
    ends = tunes & ((place + 1) % length == 0)
    num_measured = jnp.asarray(rule.reference_steps - settled, dtype)
    excess = block.total / length.astype(dtype) - correction.reference.total / num_measured
    gain = _GAIN / (place // length + _GAIN_DELAY).astype(dtype)
    slope = 1 / temperature[0] - 1 / temperature[1]
    most = jnp.log(jnp.asarray(window, dtype))
    moved = jnp.clip(correction.value + gain * slope * excess, -most, most)
    value = jnp.where(ends, moved, correction.value)
    block = jax.tree.map(lambda part: jnp.where(ends, 0, part), block)

    half = rule.tuning_steps // 2
    tuned = select(tunes & (place >= half), correction.tuned.add(value), correction.tuned)
    average = tuned.total / jnp.asarray(rule.tuning_steps - half, dtype)
    value = jnp.where(place + 1 == rule.tuning_steps, average, value)
    return Correction(value, anchor, reference, block, tuned)
