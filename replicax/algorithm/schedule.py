"""Who may meet whom at step k.

Parity and gate share one clock: window number k // W and place in the window k % W of the same
k, starting at 0. The paper counts pairs from 1, so its odd pairs are i = 0, 2, 4, ... here.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import choose, is_concrete

SCHEDULES = ("windowed_deo", "seo", "adj", "ape", "none")
SWAPS_PER_WINDOW = ("at_most_one", "exactly_one", "no_gate")


@dataclass(frozen=True)
class Schedule:
    """A swap schedule; make one with `windowed_deo(W)`, `deo()`, `seo()`, `adj()`, `ape()`."""

    name: str
    window: Any = 1
    swaps: str = "at_most_one"
    alternate: bool = True

    def __post_init__(self) -> None:
        choose("schedule", self.name, SCHEDULES)
        choose("swaps", self.swaps, SWAPS_PER_WINDOW)
        if is_concrete(self.window) and (int(self.window) != self.window or self.window < 1):
            raise ValueError(f"window is {self.window}; it must be a whole number of at least 1.")

    @property
    def sequential(self) -> bool:
        """Whether pairs are attempted one after another, each seeing the swaps before it."""
        return self.name in ("adj", "ape")

    @property
    def forces(self) -> bool:
        return self.swaps == "exactly_one"

    def check(self, num_replicas: int) -> None:
        if num_replicas < 1 or (self.name != "none" and num_replicas < 2):
            raise ValueError(
                f"num_replicas is {num_replicas}; an exchange needs at least 2. "
                'For independent replicas without exchange write schedule="none".'
            )
        if not self.alternate and num_replicas != 2:
            raise ValueError(
                "alternate=False keeps the only pair of a two-replica ladder active in every "
                f"window; with num_replicas={num_replicas} leave alternate=True."
            )


def windowed_deo(window: Any, swaps: str = "at_most_one", alternate: bool = True) -> Schedule:
    """DEO_W: odd pairs for W steps, even pairs for W steps, and so on.

    `swaps="at_most_one"` is the paper's scheme (DEO* at the optimal window); "exactly_one" makes
    a pair that has not swapped do so at the last step of its window (appendix A.4, for
    optimisation); "no_gate" lets a pair swap at every step of its window (the paper's hat-DEO).
    `alternate=False` keeps the single pair of a two-replica ladder active in every window.
    """
    return Schedule("windowed_deo", window, swaps, alternate)


def deo() -> Schedule:
    """Deterministic even-odd: `windowed_deo(1)`."""
    return windowed_deo(1)


def seo() -> Schedule:
    """Stochastic even-odd: a fair coin picks even or odd pairs at every step."""
    return Schedule("seo")


def adj() -> Schedule:
    """Adjacent pairs: one step is one ascending sweep of P-1 attempts."""
    return Schedule("adj")


def ape() -> Schedule:
    """All-pairs exchange: one step is one sweep over all P(P-1)/2 pairs in random order."""
    return Schedule("ape")


def none() -> Schedule:
    """No exchange: independent replicas, the baseline."""
    return Schedule("none")


def active_pairs(schedule: Schedule, step: Array, odd: Array, num_pairs: int) -> Array:
    """P_k = {p : p mod 2 = floor(k / W) mod 2}, or the coin's choice  -> (pair,) bool."""
    if schedule.name == "none":
        return jnp.zeros(num_pairs, bool)
    if schedule.sequential or not schedule.alternate:
        return jnp.ones(num_pairs, bool)
    paper_pair = jnp.arange(num_pairs) + 1
    parity = odd if schedule.name == "seo" else (step // schedule.window) % 2
    return paper_pair % 2 == parity


def window_opens(schedule: Schedule, step: Array) -> Array:
    return step % schedule.window == 0


def window_start(schedule: Schedule, step: Array) -> Array:
    """The first step of the window that `step` lies in."""
    return step - step % schedule.window


def window_closes(schedule: Schedule, step: Array) -> Array:
    """Whether this is the last step of its window."""
    return (step + 1) % schedule.window == 0


def swapping_pairs(
    schedule: Schedule, step: Array, active: Array, gate: Array, wanted: Array, finite: Array
) -> Array:
    """active & gate & wanted, or what the schedule makes of it  -> (pair,) bool."""
    if schedule.swaps == "no_gate":
        return active & wanted
    if schedule.forces:
        wanted = wanted | (window_closes(schedule, step) & finite)
    return active & gate & wanted


def num_attempts(schedule: Schedule, num_replicas: int) -> int:
    """Attempts in sequence of one step; 0 where all pairs are decided at once."""
    if schedule.name == "adj":
        return num_replicas - 1
    return num_replicas * (num_replicas - 1) // 2 if schedule.name == "ape" else 0


def attempt_order(schedule: Schedule, key: Array, num_replicas: int) -> Array:
    """Colder and hotter rung of each attempt in sequence  -> (attempt, 2)."""
    if schedule.name == "adj":
        cold = jnp.arange(num_replicas - 1)
        return jnp.stack([cold, cold + 1], axis=1)
    pairs = jnp.stack(jnp.triu_indices(num_replicas, k=1), axis=1)
    return jax.random.permutation(key, pairs)
