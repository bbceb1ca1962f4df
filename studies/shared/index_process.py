"""The index process alone: pairs that swap with a known constant probability.

Replicas do not move and all have the same energy, so the bias-corrected rule accepts with a
constant probability. The exchange itself is real: random numbers, rule, schedule, gates and swaps
are those of the library's step. There are two ways to set the probability:

- exact energies and a rule that corrects for noise sigma_p: exp(-(dT sigma_p)^2), any rate;
- energies with noise of standard deviation sigma, for which the rule corrects, as in big data:
  `theory.swap_probability_under_noise(0, dT, sigma)`.

`simulate_trips` does not use the library's step: it draws one coin per pair and window.

A count of n trips has a relative standard error of 0.45 to 0.75 / sqrt(n), by schedule.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import replicax as rx
from replicax import theory
from replicax.algorithm.randomness import make_key
from replicax.run import carry

INVERSE_TEMPERATURES = 1.0, 0.1  # cold and hot, the temperatures 1 and 10 of appendix C.3
STANDS_STILL = rx.kernels.Kernel(
    init=lambda params: rx.kernels.Replica(params, ()),
    step=lambda noise, replica, evaluate, rung: (replica, jnp.zeros(()), None),
    draw=lambda key, replica: (),
)
# Axes of chains: all are at the same step.
_AXES: Any = rx.algorithm.State._make([None] + [0] * (len(rx.algorithm.State._fields) - 1))
_RELATIVE_STD = 0.75  # upper bound on the relative error of a time from n trips, times sqrt(n)
_DISCARDED, _COUNTED = 3, 12  # in expected round trip times


class CoinLadder(NamedTuple):
    """A ladder with constant rejection rates under a schedule."""

    schedule: rx.schedule.Schedule
    rejection_rate: tuple[float, ...]  # one per pair

    @property
    def num_replicas(self) -> int:
        return len(self.rejection_rate) + 1

    @property
    def energy_noise_std(self) -> np.ndarray:
        """Return sigma_p with exp(-(dT sigma_p)^2) = 1 - r_p, for exact energies."""
        odds = np.sqrt(-np.log1p(-np.array(self.rejection_rate)))
        return odds / inverse_temperature_gap(self.num_replicas)

    def __str__(self) -> str:
        rates = self.rejection_rate
        text = f"r={rates[0]}" if len(set(rates)) == 1 else f"r={rates}"
        return f"{self.schedule.name}-W={self.schedule.window}-P={self.num_replicas}-{text}"


class NoisyLadder(NamedTuple):
    """A ladder whose energies are pure noise of a known standard deviation."""

    schedule: rx.schedule.Schedule
    num_replicas: int
    energy_noise_std: float

    @property
    def rejection_rate(self) -> float:
        """Return the rejection rate, which is the same for every pair."""
        gap = inverse_temperature_gap(self.num_replicas)
        swap_rate = theory.swap_probability_under_noise(0.0, gap, self.energy_noise_std)
        return 1 - float(swap_rate)


class TripCount(NamedTuple):
    """Round trips of all replicas, by chain, in `num_steps` steps."""

    trips: np.ndarray  # shape (chain,)
    num_steps: int
    num_replicas: int

    @property
    def round_trip_time(self) -> float:
        """Return the mean number of steps of a round trip."""
        replica_steps = self.trips.size * self.num_replicas * self.num_steps
        return replica_steps / max(int(self.trips.sum()), 1)


class Walk(NamedTuple):
    """The state of many chains, and the round trips they have made."""

    states: rx.algorithm.State
    turns: Array  # arrivals at the ends of the ladder, shape (chain, replica)

    @property
    def trips(self) -> Array:
        """Round trips of all replicas, (chain,)."""
        return jnp.sum(carry.completed_trips(self.turns), axis=1)


def equal_rates(
    schedule: rx.schedule.Schedule, num_replicas: int, rejection_rate: float
) -> CoinLadder:
    return CoinLadder(schedule, (rejection_rate,) * (num_replicas - 1))


def inverse_temperature_gap(num_replicas: int) -> float:
    """Return dT, which is the same for every pair."""
    cold, hot = INVERSE_TEMPERATURES
    return (cold - hot) / (num_replicas - 1)


def start(num_replicas: int, num_chains: int) -> Walk:
    """Return many chains before their first step, replica i on rung i."""
    cold, hot = INVERSE_TEMPERATURES
    temperature = 1 / np.linspace(cold, hot, num_replicas)
    rungs = rx.algorithm.Ladder(jnp.ones(num_replicas), jnp.asarray(temperature, jnp.float32))
    state = rx.algorithm.init(STANDS_STILL, jnp.zeros(num_replicas), rungs, rx.algorithm.Settings())
    copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_chains, *leaf.shape)), state)
    turns = carry.start_turns(copies.rung_of)
    return Walk(copies._replace(step=state.step), turns)


def build_step(
    schedule: rx.schedule.Schedule, energy_noise_std: Any, noisy: bool = False
) -> Callable[[Array, Walk], Walk]:
    """Return the library's step for many chains at once, `step(keys, walk) -> walk`."""
    settings = rx.algorithm.Settings(
        schedule=schedule,
        rule=rx.swap.bias_corrected(energy_noise_std),
        tuning=rx.algorithm.Tuning(adapts=None, adapts_buffer=False),
        langevin=False,
    )
    target = _noisy(energy_noise_std) if noisy else _ALL_EQUAL
    step = rx.algorithm.build_step(target, STANDS_STILL, settings)
    steps = jax.vmap(step, (0, _AXES), (_AXES, 0))
    return lambda keys, walk: _count(steps(keys, walk.states)[0], walk)


def build(
    schedule: rx.schedule.Schedule, noisy: bool = False, seed: int = 2024
) -> Callable[..., Walk]:
    """Return a compiled `run(window, energy_noise_std, num_steps, walk) -> walk`.

    All ladders of one size under this schedule share the program.
    """

    @jax.jit
    def run(window: Any, energy_noise_std: Any, num_steps: Any, walk: Walk) -> Walk:
        step = build_step(replace(schedule, window=window), energy_noise_std, noisy)
        keys = jax.random.split(make_key(seed), len(walk.turns))
        return jax.lax.fori_loop(0, num_steps, lambda _, walk: step(keys, walk), walk)

    return run


def count_trips(
    run: Callable[..., Walk],
    ladder: CoinLadder | NoisyLadder,
    expected: float,
    num_trips: int,
    tick: Callable[[float], None] = lambda fraction: None,
) -> TripCount:
    """Simulate about `num_trips` round trips with `run`, built for the schedule of the ladder.

    The number of chains is such that 12 `expected` round trip times suffice; 3 more before them
    are discarded.
    """
    num_replicas, window = ladder.num_replicas, ladder.schedule.window
    sigma = jnp.asarray(ladder.energy_noise_std, jnp.float32)
    block = math.ceil(expected)
    walk = start(num_replicas, math.ceil(num_trips / (_COUNTED * num_replicas)))
    walk = run(window, sigma, _DISCARDED * block, walk)
    discarded = walk.trips
    for done in range(_COUNTED):
        tick((_DISCARDED + done) / (_DISCARDED + _COUNTED))
        walk = run(window, sigma, block, walk)
    return TripCount(np.asarray(walk.trips - discarded), _COUNTED * block, num_replicas)


def simulate_trips(
    rates: np.ndarray, window: int, num_steps: int, repeats: int, seed: int = 0
) -> np.ndarray:
    """Return the round trips of all replicas if verdicts are independent coins  -> (repeat,).

    A pair swaps at most once in a window, and only in every second window, so one draw per window
    suffices: it swaps with probability 1 - (1 - rate)^W. Replica i starts on rung i.
    """
    rates, random = np.asarray(rates, float), np.random.default_rng(seed)
    num_replicas = len(rates) + 1
    replica_at = np.tile(np.arange(num_replicas), (repeats, 1))
    rung_of, rungs = replica_at.copy(), replica_at.copy()
    turns = carry.start_turns(rung_of)
    for number, first in enumerate(range(0, num_steps, window)):
        length = min(window, num_steps - first)
        pairs = np.arange(len(rates))[(np.arange(len(rates)) + 1) % 2 == number % 2]
        swaps = random.random((repeats, len(pairs))) < 1 - (1 - rates[pairs]) ** length
        cold, hot = replica_at[:, pairs], replica_at[:, pairs + 1]
        replica_at[:, pairs] = np.where(swaps, hot, cold)
        replica_at[:, pairs + 1] = np.where(swaps, cold, hot)
        np.put_along_axis(rung_of, replica_at, rungs, axis=1)
        turns = carry.count_turns(turns, rung_of, num_replicas - 1)
    return carry.completed_trips(turns).sum(axis=1)


def error_bound(num_trips: int) -> float:
    """Return the allowed relative error of a time from `num_trips`: 1 % or 3 standard errors."""
    return max(0.01, 3 * _RELATIVE_STD / math.sqrt(num_trips))


def _count(states: rx.algorithm.State, before: Walk) -> Walk:
    hottest = states.rung_of.shape[1] - 1
    return Walk(states, carry.count_turns(before.turns, states.rung_of, hottest))


def _noisy(energy_noise_std: Any) -> rx.Target:
    return rx.Target(
        energy=lambda params, batch, noise: energy_noise_std * noise,
        noise=lambda key: jax.random.normal(key),
    )


_ALL_EQUAL = rx.Target(energy=lambda params, batch, noise: jnp.zeros(()), noise=lambda key: ())
