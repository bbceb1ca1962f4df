"""Swap schedules: which pairs may swap at step k.

Parity and gate share one clock: window number k // W and place in the window k % W of the same
k, starting at 0. The paper counts pairs from 1, so its odd pairs are i = 0, 2, 4, ... here.

A schedule of your own is a frozen dataclass that extends `Schedule` (all pairs are decided at once,
from energies before any swap) or `Sequential` (one attempt after another, each sees the swaps
before it) and overrides the methods that differ.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.randomness import Attempts
from replicax.algorithm.swap import Index, swap_two
from replicax.errors import at_least, check_flag, choose, is_concrete

SWAPS_PER_WINDOW = ("at_most_one", "exactly_one", "no_gate")


@dataclass(frozen=True)
class Schedule:
    """The base of all schedules: active pairs are decided at once, and swap at most once in a
    window of W steps."""

    window: Any = 1

    name: ClassVar[str] = "custom"
    exchanges: ClassVar[bool] = True
    swaps: ClassVar[str] = "at_most_one"

    def __post_init__(self) -> None:
        if not is_concrete(self.window):
            return
        window = self.window.item() if isinstance(self.window, jax.Array) else self.window
        at_least("window", window, 1)

    def check(self, num_replicas: int) -> None:
        """Raise where the schedule cannot serve this number of replicas."""
        if num_replicas < (2 if self.exchanges else 1):
            raise ValueError(
                f"num_replicas is {num_replicas}; an exchange needs at least 2. "
                'For independent replicas without exchange write schedule="none", as in '
                'method=rx.deo(..., schedule="none").'
            )

    def draw(self, key: Array, num_replicas: int) -> Any:
        """Draw the randomness of one step, handed to `active_pairs`; None where there is none."""
        return None

    def active_pairs(self, step: Array, drawn: Any, num_pairs: int) -> Array:
        """Return the pairs that may swap at this step, no two of them neighbours  -> (pair,)."""
        raise NotImplementedError

    def window_opens(self, step: Array) -> Array:
        """Return whether `step` is the first of its window: all gates open."""
        return step % self.window == 0

    def window_start(self, step: Array) -> Array:
        """Return the first step of the window that `step` lies in."""
        return step - step % self.window

    def swapping_pairs(
        self, step: Array, active: Array, gate: Array, wanted: Array, finite: Array
    ) -> Array:
        """Return the pairs that swap  -> (pair,) bool; `finite`: both energies are finite."""
        return active & gate & wanted


@dataclass(frozen=True)
class WindowedDEO(Schedule):
    """See `windowed_deo`."""

    swaps: str = "at_most_one"  # type: ignore[misc]
    alternate: bool = True

    name: ClassVar[str] = "windowed_deo"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("swaps", self.swaps, SWAPS_PER_WINDOW)
        check_flag("alternate", self.alternate)

    def check(self, num_replicas: int) -> None:
        super().check(num_replicas)
        if not self.alternate and num_replicas != 2:
            raise ValueError(
                "alternate=False keeps the only pair of a two-replica ladder active in every "
                f"window; with num_replicas={num_replicas} leave alternate=True."
            )

    def active_pairs(self, step: Array, drawn: Any, num_pairs: int) -> Array:
        """P_k = {p : p mod 2 = floor(k / W) mod 2}."""
        if not self.alternate:
            return jnp.ones(num_pairs, bool)
        return pairs_of_parity((step // self.window) % 2, num_pairs)

    def swapping_pairs(
        self, step: Array, active: Array, gate: Array, wanted: Array, finite: Array
    ) -> Array:
        if self.swaps == "no_gate":
            return active & wanted
        if self.swaps == "exactly_one":
            closes = (step + 1) % self.window == 0
            wanted = wanted | (closes & finite)
        return active & gate & wanted


@dataclass(frozen=True)
class StochasticEvenOdd(Schedule):
    """See `seo`."""

    name: ClassVar[str] = "seo"

    def draw(self, key: Array, num_replicas: int) -> Array:
        return jax.random.bernoulli(key)

    def active_pairs(self, step: Array, drawn: Any, num_pairs: int) -> Array:
        return pairs_of_parity(drawn, num_pairs)


@dataclass(frozen=True)
class NoExchange(Schedule):
    """See `none`."""

    name: ClassVar[str] = "none"
    exchanges: ClassVar[bool] = False

    def active_pairs(self, step: Array, drawn: Any, num_pairs: int) -> Array:
        return jnp.zeros(num_pairs, bool)


@dataclass(frozen=True)
class Sequential(Schedule):
    """Pairs attempted one after another, each seeing the swaps before it; all are active."""

    def num_attempts(self, num_replicas: int) -> int:
        """Return the number of attempts of one step."""
        raise NotImplementedError

    def attempt_order(self, key: Array, num_replicas: int) -> Array:
        """Return the colder and the hotter rung of each attempt  -> (attempt, 2)."""
        raise NotImplementedError

    def active_pairs(self, step: Array, drawn: Any, num_pairs: int) -> Array:
        return jnp.ones(num_pairs, bool)

    def sweep(
        self, index: Index, attempts: Attempts, wanted: Callable[[Attempts, Array, Array], Array]
    ) -> tuple[Index, Array]:
        """Return the index process after all attempts, and the adjacent pairs that swapped.

        `attempts.order` lists the colder and hotter rung; `wanted(attempt, cold_replica,
        hot_replica)` is the verdict of the rule.
        """

        def attempt_one(index: Index, attempt: Attempts) -> tuple[Index, Array]:
            cold, hot = attempt.order
            swapped = wanted(attempt, index.replica_at[cold], index.replica_at[hot])
            return swap_two(index, cold, hot, swapped), swapped

        index, swapped = jax.lax.scan(attempt_one, index, attempts)
        cold, hot = attempts.order[:, 0], attempts.order[:, 1]
        adjacent = swapped & (hot == cold + 1)
        num_pairs = index.rung_of.shape[0] - 1
        return index, jnp.zeros(num_pairs + 1, bool).at[cold].max(adjacent)[:num_pairs]


@dataclass(frozen=True)
class AllPairs(Sequential):
    """See `ape`."""

    name: ClassVar[str] = "ape"

    def num_attempts(self, num_replicas: int) -> int:
        return num_replicas * (num_replicas - 1) // 2

    def attempt_order(self, key: Array, num_replicas: int) -> Array:
        pairs = jnp.stack(jnp.triu_indices(num_replicas, k=1), axis=1)
        return jax.random.permutation(key, pairs)


@dataclass(frozen=True)
class Adjacent(Sequential):
    """See `adj`."""

    name: ClassVar[str] = "adj"

    def num_attempts(self, num_replicas: int) -> int:
        return num_replicas - 1

    def attempt_order(self, key: Array, num_replicas: int) -> Array:
        cold = jnp.arange(num_replicas - 1)
        return jnp.stack([cold, cold + 1], axis=1)

    def sweep(
        self, index: Index, attempts: Attempts, wanted: Callable[[Attempts, Array, Array], Array]
    ) -> tuple[Index, Array]:
        """`Sequential.sweep` with less to carry: one replica climbs until it is refused, and the
        one that refused it climbs on."""

        def attempt_one(
            climber: Array, attempted: tuple[Attempts, Array]
        ) -> tuple[Array, tuple[Array, Array]]:
            attempt, above = attempted
            swapped = wanted(attempt, climber, above)
            stays, climbs = jnp.where(swapped, above, climber), jnp.where(swapped, climber, above)
            return climbs, (stays, swapped)

        attempted = attempts, index.replica_at[1:]
        last, (stayed, swapped) = jax.lax.scan(attempt_one, index.replica_at[0], attempted)
        replica_at = jnp.append(stayed, last)
        rungs = jnp.arange(replica_at.shape[0], dtype=index.rung_of.dtype)
        return Index(jnp.zeros_like(rungs).at[replica_at].set(rungs), replica_at), swapped


for _class in (Schedule, StochasticEvenOdd, NoExchange, AllPairs, Adjacent):
    jax.tree_util.register_dataclass(_class, ["window"], [])
jax.tree_util.register_dataclass(WindowedDEO, ["window"], ["swaps", "alternate"])


def windowed_deo(window: Any, swaps: str = "at_most_one", alternate: bool = True) -> Schedule:
    """DEO_W: odd pairs for W steps, even pairs for W steps, and so on.

    `swaps="at_most_one"` is the paper's scheme (DEO* at the optimal window); "exactly_one" makes
    a pair that has not swapped do so at the last step of its window (appendix A.4, for
    optimisation); "no_gate" lets a pair swap at every step of its window (the paper's hat-DEO).
    `alternate=False` keeps the single pair of a two-replica ladder active in every window.
    """
    return WindowedDEO(window, swaps, alternate)


def deo() -> Schedule:
    """Deterministic even-odd: `windowed_deo(1)`."""
    return WindowedDEO()


def seo() -> Schedule:
    """Stochastic even-odd: a fair coin picks even or odd pairs at every step."""
    return StochasticEvenOdd()


def none() -> Schedule:
    """No exchange: independent replicas, the baseline."""
    return NoExchange()


def adj() -> Schedule:
    """Adjacent pairs: one step is one ascending sweep of P-1 attempts."""
    return Adjacent()


def ape() -> Schedule:
    """All-pairs exchange: one step is one sweep over all P(P-1)/2 pairs in random order."""
    return AllPairs()


def pairs_of_parity(parity: Array, num_pairs: int) -> Array:
    """Return the pairs p, counted from 1 as in the paper, with p mod 2 = parity  -> (pair,)."""
    return (jnp.arange(num_pairs) + 1) % 2 == parity
