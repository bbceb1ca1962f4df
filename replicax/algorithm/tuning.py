"""The self-tuning of ladder, buffer and step sizes.

The paper's is one step at a time (Eq. 10 to 12): gains, rungs, buffer, unit of energy. That of
exact samplers is in rounds of the burn-in: temperatures to equal rejection, step sizes to the
kernel's own error, the metric from gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from replicax.algorithm.kernel import Observed, check_of_step, select
from replicax.algorithm.ladder import Ladder, Metric
from replicax.errors import check_number, is_number, not_negative, show

MOST_DENSE = 300  # dimensions up to which the metric is a full matrix
WIDEST = 1e6  # between the scale of a parameter and the geometric mean of all
SQUARE_OF_NORMAL = 0.281  # exp(E log z^2) of a standard normal z
_ITERATIONS = 50  # in which the shape of a metric is fitted
_BEST_REJECTION = 0.5
_MOST_REJECTION = 0.6  # a free ladder above this is made shorter
_POWER = 0.25  # the ladder is interpolated in (1 / temperature)^power, which reaches infinity
_FEWEST_GRADIENTS, _MOST_GRADIENTS = 64, 512  # that a rung keeps of a round: 4 for each dimension


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
    if callable(gain) and not isinstance(gain, type):
        check_of_step(name, gain)
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
class BarrierTuning:
    """How temperatures are tuned in rounds, and the highest that the hottest rung may get.

    The rejection rates of the pairs, added up along the ladder, are the barrier between its ends
    (Syed et al., 2022). Cut into equal parts it gives temperatures at which all pairs reject
    equally often; the target rate is then the ladder's own. A hottest temperature that is free
    moves to where a pair rejects about half of its attempts: round trips are fastest there.

    Verdicts count from step `first_step` on, when replicas have left their starts. The hottest
    temperature is free in rounds that end before step `free_until`, and fixed then. Temperatures
    may be renewed `on_host`, by the verdicts of all chains.
    """

    round_ends: tuple[int, ...] = tuple(64 * 2**i for i in range(25))
    first_step: int = 0
    hottest: float = 1.0
    free_until: int = 0
    on_host: bool = False


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


class Verdicts(NamedTuple):
    """Verdicts of the swap rule in one round of tuning."""

    count: Array  # attempts                         shape ()
    wanted: Array  # of those, how many wanted       shape (pair,)


class StepSizes(NamedTuple):
    """Statistics of one round of tuning."""

    count: Array  # steps of the round so far                         shape ()
    log_steepness: Any  # sum over the round                          leading axis: rung
    # Of a dense metric instead: gradients at some steps of the round, shape (sample, rung, d); in
    # the last place nothing is kept.
    gradients: Any = ()


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
    if tuning.on_host:
        return temperature, added
    return jax.lax.cond(
        _is_last(step, tuning.round_ends) & (added.count > 0),
        lambda: (equalised(tuning, step, temperature, added), jax.tree.map(jnp.zeros_like, added)),
        lambda: (temperature, added),
    )


def _is_last(step: Array, round_ends: tuple[int, ...]) -> Array:
    """Return whether `step` is the last one of a round."""
    return jnp.any(step == jnp.array(round_ends) - 1)


def equalised(
    tuning: BarrierTuning, step: Array | int, temperature: Array, verdicts: Verdicts
) -> Array:
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
    strides = (-(-lengths // places)).astype(np.int32)
    if isinstance(step, int):  # on the host, where nothing is to be compiled
        return strides[np.searchsorted(round_ends, step, side="right")]
    return jnp.asarray(strides)[jnp.searchsorted(jnp.array(round_ends), step, side="right")]


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


def metric_root(gradients: np.ndarray, before: np.ndarray, independent: float = 1.0) -> np.ndarray:
    """Return L with L L' close to (E[g g'])^-1, from gradients (sample, d), for the local moves of
    a rung. For a Gaussian that is its covariance; it sees the width inside a mode and not the
    distance between modes.

    The scale of each parameter is that of the geometric mean of g^2, which a few steep places
    hardly change. Between parameters it is the shape that fits the directions of the gradients
    (Tyler, 1987), whatever their lengths. Both are measured in the coordinates of the metric
    `before`, to which few gradients are shrunk: round by round it comes closer. `independent` is
    the share of the gradients that counts for that.
    """
    informs = np.isfinite(gradients).all(axis=1) & (gradients != 0).any(axis=1)  # 0: it is flat
    gradients = gradients[informs].astype(float)
    if len(gradients) < 10:
        return before
    whitened = gradients @ before
    scale = _scales(whitened)
    whitened = whitened * scale
    shape = _shape(whitened, independent)
    # Gradients have the covariance C of `shape`: the metric is C^-1 = R R', R = C^-1/2.
    value, vector = np.linalg.eigh(shape)
    return _bounded((before * scale) @ (vector / np.sqrt(value)), before)


def _bounded(root: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return the root with variances, by direction, that differ at most by `WIDEST`: gradients that
    all point the same way say nothing of other directions, which would grow round by round."""
    with np.errstate(over="ignore", invalid="ignore"):
        covariance = root @ root.T
        sd = np.sqrt(np.diag(covariance))
        shape = covariance / sd / sd[:, None]
    if not np.isfinite(shape).all():
        return before
    value, vector = np.linalg.eigh(shape)
    lowest = max(value.min(), 1e-14 * value.max())  # less is rounding
    if value.max() <= WIDEST * lowest:
        return root
    return sd[:, None] * (vector * np.sqrt(np.clip(value, lowest, WIDEST * lowest)))


def _scales(gradients: np.ndarray) -> np.ndarray:
    log_square = np.mean(np.log(np.square(gradients) + 1e-30), axis=0)
    log_scale = (np.log(SQUARE_OF_NORMAL) - log_square) / 2
    # Where there is nothing but rounding, the scale stays as it is.
    known = log_scale < log_scale.min() + 2 * np.log(WIDEST)
    centre, widest = log_scale[known].mean(), np.log(WIDEST) / 2
    return np.where(known, np.exp(np.clip(log_scale, centre - widest, centre + widest)), 1.0)


def _shape(x: np.ndarray, independent: float) -> np.ndarray:
    """Return the shrunk scatter of the directions of x (sample, d), its diagonal 1 on average."""
    n, d = x.shape
    shape = np.eye(d)
    num = independent * n
    share = max(5 / (num + 5), min(1.0, (d / num) ** 2))  # of the diagonal
    for _ in range(_ITERATIONS):
        square = np.sum(x * np.linalg.solve(shape, x.T).T, axis=1)
        scatter = d / n * (x / square[:, None]).T @ x
        scatter = (1 - share) * scatter * d / np.trace(scatter) + share * np.eye(d)
        done = np.max(np.abs(scatter - shape)) < 1e-3
        shape = scatter
        if done:
            break
    return shape
