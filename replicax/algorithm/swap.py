"""When two replicas exchange rungs (the rule), and how (the mechanism).

A rule looks at the energies of a colder and a hotter rung and says whether they want to swap.
The mechanism changes two integers; parameters stay where they are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.errors import choose, is_concrete

RULES = ("deterministic", "metropolis", "bias_corrected", "window_corrected")


class Encounter(NamedTuple):
    """All that a rule may look at; any shape, one entry per pair or attempt."""

    cold_energy: Array  # U~ on the colder rung
    hot_energy: Array  # U~ on the hotter rung
    inverse_temperature_gap: Array | float  # 1/tau_cold - 1/tau_hot
    energy_noise_var: Array | float  # sigma^2: half the variance of the energy difference
    buffer: Array | float  # C
    log_uniform: Array  # log u, u ~ Unif(0, 1)


@dataclass(frozen=True)
class Rule:
    """A swap rule; make one with `deterministic()`, `metropolis()`, ...

    `energy_noise_std` is sigma of appendix A.1: a number, one per pair, or "estimate".
    `window_correction` is a number or "auto", with the steps of its two stages.
    """

    name: str
    energy_noise_std: Any = 0.0
    window_correction: Any = 0.0  # lambda_W
    estimate_every: int = 100  # steps between two estimates of sigma
    estimate_draws: int = 8  # extra mini-batches or keys of one estimate
    reference_steps: Any = None  # of the stages of "auto": a third of the run each
    tuning_steps: Any = None

    def __post_init__(self) -> None:
        choose("rule", self.name, RULES)
        if isinstance(self.energy_noise_std, str):
            choose("energy_noise_std", self.energy_noise_std, ("estimate",))
        elif is_concrete(self.energy_noise_std) and np.any(np.asarray(self.energy_noise_std) < 0):
            raise ValueError(
                f"energy_noise_std is {self.energy_noise_std}; a standard deviation is at least 0: "
                'write a number, one per pair, or "estimate".'
            )
        if self.estimate_every < 1 or self.estimate_draws < 2:
            raise ValueError("Estimating sigma needs estimate_every >= 1 and estimate_draws >= 2.")
        self._check_correction()

    def _check_correction(self) -> None:
        given = self.window_correction
        if isinstance(given, str):
            choose("window_correction", given, ("auto",))
        elif is_concrete(given) and not _is_finite_number(given):
            raise ValueError(
                f'window_correction is {given!r}; give lambda_W as a finite number, or "auto".'
            )
        for name in ("reference_steps", "tuning_steps"):
            steps = getattr(self, name)
            if steps is None or not is_concrete(steps):
                continue
            if isinstance(given, int | float):
                raise ValueError(
                    f'{name} belongs to window_correction="auto"; with a number leave it out.'
                )
            if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
                raise ValueError(f"{name} is {steps!r}; it must be a whole number of at least 1.")

    @property
    def uses_temperature(self) -> bool:
        """Whether the rule needs a temperature on every rung."""
        return self.name != "deterministic"

    @property
    def assumes_exact_energies(self) -> bool:
        return self.name == "metropolis"

    @property
    def estimates_noise(self) -> bool:
        return isinstance(self.energy_noise_std, str)

    @property
    def tunes_correction(self) -> bool:
        return isinstance(self.window_correction, str)

    def wanted(self, pair: Encounter) -> Array:
        """The verdict A^(p), whether or not the pair may act on it; False where not finite."""
        gap = pair.cold_energy - pair.hot_energy
        if self.uses_temperature:
            log_probability = log_swap_probability(pair, self.window_correction)
            verdict = pair.log_uniform < log_probability
        else:
            verdict = pair.buffer < gap
        return verdict & both_finite(pair.cold_energy, pair.hot_energy)


def deterministic() -> Rule:
    """Swap when U~_hot + C < U~_cold (Eq. 7); C is the adaptive buffer of Eq. 12."""
    return Rule("deterministic")


def metropolis() -> Rule:
    """Swap with probability 1 ^ exp(dT (U_cold - U_hot)) (Eq. 2); for exact energies."""
    return Rule("metropolis")


def bias_corrected(energy_noise_std: Any = "estimate", **estimate: int) -> Rule:
    """Eq. 2 with noisy energies, corrected by -dT^2 sigma^2 in the exponent (appendix A.1).

    With `"estimate"`, sigma^2 is half the variance of a pair's energy difference over
    `estimate_draws` extra mini-batches or keys, renewed every `estimate_every` steps.
    """
    return Rule("bias_corrected", energy_noise_std, **estimate)


def window_corrected(
    window_correction: Any,
    energy_noise_std: Any = "estimate",
    *,
    reference_steps: int | None = None,
    tuning_steps: int | None = None,
    **estimate: int,
) -> Rule:
    """`bias_corrected` with lambda_W subtracted in the exponent (appendix C.3).

    With `"auto"` the run finds lambda_W itself, one for each chain: for `reference_steps` steps
    without windows it measures the mean energy of the cold rung, for `tuning_steps` steps it
    moves lambda_W until that energy comes back under windows, and then lambda_W is fixed. Both
    take a third of the run unless given; draws begin after them. See `replicax.correction`.

    >>> window_corrected("auto", 3.0, reference_steps=10_000, tuning_steps=20_000).name
    'window_corrected'
    """
    return Rule(
        "window_corrected",
        energy_noise_std,
        window_correction,
        reference_steps=reference_steps,
        tuning_steps=tuning_steps,
        **estimate,
    )


def log_swap_probability(pair: Encounter, window_correction: Any = 0.0) -> Array:
    """log S~_W = min(0, dT (U~_cold - U~_hot) - dT^2 sigma^2 - lambda_W)."""
    gap = pair.cold_energy - pair.hot_energy
    slope = pair.inverse_temperature_gap
    exponent = slope * gap - slope**2 * pair.energy_noise_var - window_correction
    return jnp.minimum(0.0, exponent)


def _is_finite_number(value: Any) -> bool:
    real = isinstance(value, int | float | np.number | np.ndarray | jax.Array)
    return real and not isinstance(value, bool) and np.ndim(value) == 0 and bool(np.isfinite(value))


def both_finite(cold_energy: Array, hot_energy: Array) -> Array:
    return jnp.isfinite(cold_energy) & jnp.isfinite(hot_energy)


def energy_noise_variance(energies: Array) -> Array:
    """sigma^2 of every two rungs: half the variance of their energy difference (appendix A.1).

    `energies` has shape (draw, rung): the same states on several mini-batches or keys.
    """
    centred = energies - jnp.mean(energies, axis=0)
    covariance = centred.T @ centred / (energies.shape[0] - 1)
    variance = jnp.diagonal(covariance)
    return (variance[:, None] + variance[None, :]) / 2 - covariance


class Index(NamedTuple):
    """The index process: two permutations, each the inverse of the other."""

    rung_of: Array  # shape (replica,)
    replica_at: Array  # shape (rung,)


def swap_adjacent(index: Index, swapped: Array) -> Index:
    """Exchange rungs i and i+1 wherever swapped[i]; swapped pairs must be disjoint."""
    climbs = jnp.pad(swapped, (0, 1)).astype(index.rung_of.dtype)  # rung i goes up to i+1
    falls = jnp.pad(swapped, (1, 0)).astype(index.rung_of.dtype)  # rung i+1 comes down to i
    move = climbs - falls
    rungs = jnp.arange(index.rung_of.shape[0], dtype=index.rung_of.dtype)
    return Index(
        rung_of=index.rung_of + move[index.rung_of],
        replica_at=index.replica_at[rungs + move],  # a set of disjoint swaps is its own inverse
    )


def swap_two(index: Index, cold: Array, hot: Array, swapped: Array) -> Index:
    """Exchange any two rungs if `swapped`, for schedules that attempt one pair after another."""
    cold, hot = (rung.astype(index.rung_of.dtype) for rung in (cold, hot))
    one, other = index.replica_at[cold], index.replica_at[hot]
    new_cold, new_hot = jnp.where(swapped, hot, cold), jnp.where(swapped, cold, hot)
    return Index(
        rung_of=index.rung_of.at[one].set(new_cold).at[other].set(new_hot),
        replica_at=index.replica_at.at[new_cold].set(one).at[new_hot].set(other),
    )


def sweep(index: Index, attempts: Any, wanted: Callable[[Any, Array, Array], Array]) -> tuple:
    """Attempt one pair after another, each seeing the swaps before it (APE).

    `attempts.order` lists the colder and hotter rung; `wanted(attempt, cold_replica, hot_replica)`
    is the verdict. Returns the new index and which adjacent pairs swapped.
    """

    def attempt_one(index: Index, attempt: Any) -> tuple[Index, Array]:
        cold, hot = attempt.order
        swapped = wanted(attempt, index.replica_at[cold], index.replica_at[hot])
        return swap_two(index, cold, hot, swapped), swapped

    index, swapped = jax.lax.scan(attempt_one, index, attempts)
    cold, hot = attempts.order[:, 0], attempts.order[:, 1]
    adjacent = swapped & (hot == cold + 1)
    num_pairs = index.rung_of.shape[0] - 1
    return index, jnp.zeros(num_pairs + 1, bool).at[cold].max(adjacent)[:num_pairs]


def ascend(index: Index, attempts: Any, wanted: Callable[[Any, Array, Array], Array]) -> tuple:
    """`sweep` over pairs 0, 1, ..., P-2 (ADJ), with less to remember: one replica climbs until it
    is refused, and the one that refused it climbs on."""

    def attempt_one(climber: Array, meeting: Any) -> tuple[Array, tuple[Array, Array]]:
        attempt, above = meeting
        swapped = wanted(attempt, climber, above)
        stays, climbs = jnp.where(swapped, above, climber), jnp.where(swapped, climber, above)
        return climbs, (stays, swapped)

    meetings = attempts, index.replica_at[1:]
    last, (stayed, swapped) = jax.lax.scan(attempt_one, index.replica_at[0], meetings)
    replica_at = jnp.append(stayed, last)
    rungs = jnp.arange(replica_at.shape[0], dtype=index.rung_of.dtype)
    return Index(jnp.zeros_like(rungs).at[replica_at].set(rungs), replica_at), swapped
