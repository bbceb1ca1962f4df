"""Swap rules (when two replicas exchange rungs) and the swap itself.

A rule compares the energies on a colder and a hotter rung and says whether the two replicas want
to swap. A swap changes two integers; parameters stay where they are.

A rule of your own is a frozen dataclass that extends `Rule` and overrides `wanted`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.errors import at_least, check_number, choose, is_concrete, show

RULES = ("deterministic", "metropolis", "bias_corrected", "window_corrected")


class Proposal(NamedTuple):
    """A proposed swap, all that a rule may use; any shape, one entry per pair or attempt."""

    cold_energy: Array  # U~ on the colder rung
    hot_energy: Array  # U~ on the hotter rung
    inverse_temperature_gap: Array | float  # 1/tau_cold - 1/tau_hot; 0 without temperatures
    energy_noise_var: Array | float  # sigma^2: half the variance of the energy difference
    buffer: Array | float  # C
    log_uniform: Any  # log u, u ~ Unif(0, 1); None for rules without temperatures

    @property
    def is_finite(self) -> Array:
        return jnp.isfinite(self.cold_energy) & jnp.isfinite(self.hot_energy)


@dataclass(frozen=True)
class Rule:
    """The base of all rules."""

    name: ClassVar[str] = "custom"
    uses_temperature: ClassVar[bool] = True  # whether every rung needs a temperature
    assumes_exact_energies: ClassVar[bool] = False
    energy_noise_std: ClassVar[Any] = 0.0  # sigma told to the rule; None: estimated by the run
    window_correction: ClassVar[Any] = 0.0  # lambda_W

    @property
    def estimates_noise(self) -> bool:
        return self.energy_noise_std is None

    @property
    def judges_afresh(self) -> bool:
        """Whether energies must not come from the mini-batch that moved the replicas: there they
        are too low, by the learning rate times the trace of the gradient's noise."""
        return self.uses_temperature and not self.assumes_exact_energies

    def wanted(self, proposal: Proposal) -> Array:
        """Return the verdict A^(p), whether or not the pair may act on it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Deterministic(Rule):
    """See `deterministic`."""

    name: ClassVar[str] = "deterministic"
    uses_temperature: ClassVar[bool] = False

    def wanted(self, proposal: Proposal) -> Array:
        return proposal.buffer < proposal.cold_energy - proposal.hot_energy


@dataclass(frozen=True)
class Metropolis(Rule):
    """See `metropolis`."""

    name: ClassVar[str] = "metropolis"
    assumes_exact_energies: ClassVar[bool] = True

    def wanted(self, proposal: Proposal) -> Array:
        log_probability = log_swap_probability(proposal, self.window_correction)
        return proposal.log_uniform < log_probability


@dataclass(frozen=True)
class BiasCorrected(Metropolis):
    """See `bias_corrected`."""

    energy_noise_std: Any = None  # type: ignore[misc]
    estimate_every: int = 100  # steps between two estimates of sigma
    estimate_draws: int = 8  # further mini-batches or keys of one estimate

    name: ClassVar[str] = "bias_corrected"
    assumes_exact_energies: ClassVar[bool] = False

    def __post_init__(self) -> None:
        std = self.energy_noise_std
        if isinstance(std, str):
            choose("energy_noise_std", std, ("estimate",))
            object.__setattr__(self, "energy_noise_std", None)
        elif std is not None and is_concrete(std) and not _are_levels(std):
            raise ValueError(
                f"energy_noise_std is {show(std)}; a standard deviation is a finite number of at "
                'least 0: write one, one per pair, or "estimate".'
            )
        at_least("estimate_every", self.estimate_every, 1)
        at_least("estimate_draws", self.estimate_draws, 2)


@dataclass(frozen=True)
class WindowCorrected(BiasCorrected):
    """See `window_corrected`."""

    window_correction: Any = 0.0  # type: ignore[misc]

    name: ClassVar[str] = "window_corrected"

    def __post_init__(self) -> None:
        super().__post_init__()
        value = self.window_correction
        if is_concrete(value):
            number = value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value
            needed = "give lambda_W, a finite number"
            check_number("window_correction", number, lambda _: True, needed)


_ESTIMATE = ["estimate_every", "estimate_draws"]
_CORRECTION = ["energy_noise_std", "window_correction"]
jax.tree_util.register_dataclass(Deterministic, [], [])
jax.tree_util.register_dataclass(Metropolis, [], [])
jax.tree_util.register_dataclass(BiasCorrected, ["energy_noise_std"], _ESTIMATE)
jax.tree_util.register_dataclass(WindowCorrected, _CORRECTION, _ESTIMATE)


def deterministic() -> Rule:
    """Swap when U~_hot + C < U~_cold (Eq. 7); C is the adaptive buffer of Eq. 12."""
    return Deterministic()


def metropolis() -> Rule:
    """Swap with probability 1 ^ exp(dT (U_cold - U_hot)) (Eq. 2); for exact energies."""
    return Metropolis()


def bias_corrected(energy_noise_std: Any = "estimate", **estimate: int) -> Rule:
    """Eq. 2 with noisy energies, corrected by -dT^2 sigma^2 in the exponent (appendix A.1).

    With `"estimate"`, sigma^2 is half the variance of a pair's energy difference over
    `estimate_draws` further mini-batches or keys, renewed every `estimate_every` steps.
    """
    return BiasCorrected(energy_noise_std, **estimate)


def window_corrected(
    window_correction: Any, energy_noise_std: Any = "estimate", **estimate: int
) -> Rule:
    """`bias_corrected` with lambda_W, a number, subtracted in the exponent (appendix C.3).

    >>> window_corrected(1.13, 3.0).name
    'window_corrected'
    """
    return WindowCorrected(energy_noise_std, window_correction=window_correction, **estimate)


def log_swap_probability(proposal: Proposal, window_correction: Any = 0.0) -> Array:
    """log S~_W = min(0, dT (U~_cold - U~_hot) - dT^2 sigma^2 - lambda_W)."""
    difference = proposal.cold_energy - proposal.hot_energy
    slope = proposal.inverse_temperature_gap
    exponent = slope * difference - slope**2 * proposal.energy_noise_var - window_correction
    return jnp.minimum(0.0, exponent)


def judge(rule: Rule, proposal: Proposal) -> Array:
    """Return the verdict of the rule; False where an energy is not finite."""
    return rule.wanted(proposal) & proposal.is_finite


class RuleInForce(NamedTuple):
    """A rule with the temperatures, noise levels and buffer in force at one step."""

    rule: Rule
    temperature: Array  # shape (rung,)
    buffer: Array  # shape ()

    def verdict(
        self,
        cold: Array,
        hot: Array,
        cold_energy: Array,
        hot_energy: Array,
        log_uniform: Array | None,
        noise_var: Any = None,
    ) -> Array:
        """Return whether the replicas on rungs `cold` and `hot` want to swap; any shape.

        `noise_var` is sigma^2 where it was estimated, of the shape of the rungs.
        """
        gap = 0.0
        if self.rule.uses_temperature:
            inverse = 1 / self.temperature
            gap = inverse[cold] - inverse[hot]
            if noise_var is None:
                std = jnp.asarray(self.rule.energy_noise_std)
                noise_var = (std if std.ndim == 0 else std[cold]) ** 2
        return judge(
            self.rule, Proposal(cold_energy, hot_energy, gap, noise_var, self.buffer, log_uniform)
        )


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


def _are_levels(value: Any) -> bool:
    """Return whether these are finite numbers of at least 0."""
    try:
        values = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        return False
    return values.dtype.kind in "iuf" and bool(np.all((values >= 0) & (values < np.inf)))
