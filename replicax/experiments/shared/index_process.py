"""The index process alone: pairs that swap with a known constant probability.

All replicas stand still and have the same energy, so the bias-corrected rule says yes with a
probability that is the same wherever the replicas are. Nothing of the exchange is a fake: draws,
rule, schedule, gates and swaps are the library's own step. Two ways to set that probability:

- exact energies, sigma_p told to the rule: exp(-(dT sigma_p)^2), so any rate can be had;
- energies with noise of the standard deviation sigma that the rule is told: what is left of the
  swaps in big data, `theory.swap_probability_under_noise(0, dT, sigma)`.

`simulate_trips` makes coins of known rates by itself, a window at a time, for runs of any length.

A count of n trips has a relative standard error of 0.45 to 0.75 / sqrt(n), by schedule.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax import theory
from replicax.algorithm import prng
from replicax.algorithm import step as algorithm
from replicax.algorithm.kernels import Kernel, Replica
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.schedule import Schedule
from replicax.algorithm.swap import bias_corrected
from replicax.algorithm.target import Target
from replicax.algorithm.tuning import Tuning
from replicax.run.compiled_loop import STATE_AXES

INVERSE_TEMPERATURES = 1.0, 0.1  # cold and hot, the temperatures 1 and 10 of appendix C.3
STANDS_STILL = Kernel(
    init=lambda params: Replica(params, ()),
    step=lambda noise, replica, evaluate, rung: (replica, jnp.zeros(())),
    draw=lambda key, replica: (),
)
_RELATIVE_STD = 0.75  # over sqrt(n), at most the error of a time from n trips
_DISCARDED, _COUNTED = 3, 12  # expected round trips of every replica
_NOT_YET, _UP, _DOWN = 0, 1, 2  # a replica's way: not yet been coldest; to the hottest; back


class CoinLadder(NamedTuple):
    """A ladder whose pairs toss coins: constant rejection rates under a schedule."""

    schedule: Schedule
    rejection_rate: tuple[float, ...]  # one per pair

    @property
    def num_replicas(self) -> int:
        return len(self.rejection_rate) + 1

    @property
    def energy_noise_std(self) -> np.ndarray:
        """sigma_p such that exp(-(dT sigma_p)^2) = 1 - r_p, for a rule that sees no noise."""
        odds = np.sqrt(-np.log1p(-np.array(self.rejection_rate)))
        return odds / inverse_temperature_gap(self.num_replicas)

    def __str__(self) -> str:
        rates = self.rejection_rate
        shown = f"r={rates[0]}" if len(set(rates)) == 1 else f"r={rates}"
        return f"{self.schedule.name}-W={self.schedule.window}-P={self.num_replicas}-{shown}"


class NoisyLadder(NamedTuple):
    """A ladder whose energies are noise, told to the bias-corrected rule."""

    schedule: Schedule
    num_replicas: int
    energy_noise_std: float

    @property
    def rejection_rate(self) -> float:
        """The same for every pair."""
        gap = inverse_temperature_gap(self.num_replicas)
        swap_rate = theory.swap_probability_under_noise(0.0, gap, self.energy_noise_std)
        return 1 - float(swap_rate)


class Counted(NamedTuple):
    """Round trips of all replicas, by chain, in so many steps."""

    trips: np.ndarray  # shape (chain,)
    num_steps: int
    num_replicas: int

    @property
    def round_trip_time(self) -> float:
        """Steps of one replica's round trip."""
        replica_steps = self.trips.size * self.num_replicas * self.num_steps
        return replica_steps / max(int(self.trips.sum()), 1)


class Walk(NamedTuple):
    """Many chains on their way."""

    states: algorithm.State
    way: Array  # shape (chain, replica)
    trips: Array  # shape (chain,)


def equal_rates(schedule: Schedule, num_replicas: int, rejection_rate: float) -> CoinLadder:
    return CoinLadder(schedule, (rejection_rate,) * (num_replicas - 1))


def inverse_temperature_gap(num_replicas: int) -> float:
    """dT, the same for every pair."""
    cold, hot = INVERSE_TEMPERATURES
    return (cold - hot) / (num_replicas - 1)


def start(num_replicas: int, num_chains: int) -> Walk:
    """Many chains before their first step: replica i is on rung i."""
    cold, hot = INVERSE_TEMPERATURES
    temperature = 1 / np.linspace(cold, hot, num_replicas)
    rungs = Ladder(jnp.ones(num_replicas), jnp.asarray(temperature, jnp.float32))
    state = algorithm.init(STANDS_STILL, jnp.zeros(num_replicas), rungs, algorithm.Settings())
    copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_chains, *leaf.shape)), state)
    way = jnp.where(copies.rung_of == 0, _UP, _NOT_YET)
    return Walk(copies._replace(step=state.step), way, jnp.zeros(num_chains, jnp.int32))


def build_step(
    schedule: Schedule, energy_noise_std: Any, noisy: bool = False
) -> Callable[[Array, Walk], Walk]:
    """The library's step for many chains at once, `step(keys, walk) -> walk`."""
    settings = algorithm.Settings(
        schedule=schedule,
        rule=bias_corrected(energy_noise_std),
        tuning=Tuning(adapts=None, adapts_buffer=False),
        langevin=False,
    )
    target = _noisy(energy_noise_std) if noisy else _ALL_EQUAL
    step = algorithm.build_step(target, STANDS_STILL, settings)
    steps = jax.vmap(step, (0, STATE_AXES), (STATE_AXES, 0))
    return lambda keys, walk: _follow(steps(keys, walk.states)[0], walk)


def build(name: str, noisy: bool = False, seed: int = 2024) -> Callable[..., Walk]:
    """Compile `run(window, energy_noise_std, num_steps, walk) -> walk`; all ladders of one size
    under this schedule share a program."""

    @jax.jit
    def run(window: Any, energy_noise_std: Any, num_steps: Any, walk: Walk) -> Walk:
        step = build_step(Schedule(name, window), energy_noise_std, noisy)
        keys = jax.random.split(prng.make_key(seed), walk.trips.size)
        return jax.lax.fori_loop(0, num_steps, lambda _, walk: step(keys, walk), walk)

    return run


def count_trips(
    run: Callable[..., Walk],
    ladder: CoinLadder | NoisyLadder,
    expected: float,
    num_trips: int,
    tick: Callable[[float], None] = lambda fraction: None,
) -> Counted:
    """About `num_trips` round trips: of as many chains as make them in 12 `expected` times, after
    3 that are discarded. `run` is built for the ladder's schedule."""
    num_replicas, window = ladder.num_replicas, ladder.schedule.window
    sigma = jnp.asarray(ladder.energy_noise_std, jnp.float32)
    block = math.ceil(expected)
    walk = start(num_replicas, math.ceil(num_trips / (_COUNTED * num_replicas)))
    walk = run(window, sigma, _DISCARDED * block, walk)
    walk = walk._replace(trips=jnp.zeros_like(walk.trips))
    for done in range(_COUNTED):
        tick((_DISCARDED + done) / (_DISCARDED + _COUNTED))
        walk = run(window, sigma, block, walk)
    return Counted(np.asarray(walk.trips), _COUNTED * block, num_replicas)


def simulate_trips(
    rates: np.ndarray, window: int, num_steps: int, repeats: int, seed: int = 0
) -> np.ndarray:
    """Round trips of all replicas if verdicts were coins with these rates  -> (repeat,).

    A pair moves at most once in its window and every second window is its own, so a window is one
    draw: it swaps with probability 1 - (1 - rate)^W. Replica i starts on rung i.
    """
    rates, random = np.asarray(rates, float), np.random.default_rng(seed)
    num_replicas = len(rates) + 1
    replica_at = np.tile(np.arange(num_replicas), (repeats, 1))
    was_hot = np.zeros((repeats, num_replicas), bool)  # by replica, since it was on the coldest
    been_cold = np.zeros((repeats, num_replicas), bool)
    been_cold[:, 0] = True
    trips, row = np.zeros(repeats, int), np.arange(repeats)
    for number, first in enumerate(range(0, num_steps, window)):
        length = min(window, num_steps - first)
        pairs = np.arange(len(rates))[(np.arange(len(rates)) + 1) % 2 == number % 2]
        swaps = random.random((repeats, len(pairs))) < 1 - (1 - rates[pairs]) ** length
        cold, hot = replica_at[:, pairs], replica_at[:, pairs + 1]
        replica_at[:, pairs] = np.where(swaps, hot, cold)
        replica_at[:, pairs + 1] = np.where(swaps, cold, hot)
        coldest, hottest = replica_at[:, 0], replica_at[:, -1]
        trips += was_hot[row, coldest]
        was_hot[row, coldest], been_cold[row, coldest] = False, True
        was_hot[row, hottest] |= been_cold[row, hottest]
    return trips


def error_bound(num_trips: int) -> float:
    """How far a time from so many trips may be off: 1 % or three standard errors."""
    return max(0.01, 3 * _RELATIVE_STD / math.sqrt(num_trips))


def _follow(states: algorithm.State, before: Walk) -> Walk:
    hottest = states.rung_of.shape[1] - 1
    is_cold, is_hot = states.rung_of == 0, states.rung_of == hottest
    ended = jnp.sum(is_cold & (before.way == _DOWN), axis=1, dtype=jnp.int32)
    way = jnp.where(is_hot & (before.way == _UP), _DOWN, before.way)
    return Walk(states, jnp.where(is_cold, _UP, way), before.trips + ended)


def _noisy(energy_noise_std: Any) -> Target:
    return Target(
        energy=lambda params, batch, noise: energy_noise_std * noise,
        noise=lambda key: jax.random.normal(key),
    )


_ALL_EQUAL = Target(energy=lambda params, batch, noise: jnp.zeros(()), noise=lambda key: ())
