"""Schedules that attempt one pair after another, each attempt seeing the swaps before it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.schedule.at_once import Schedule
from replicax.algorithm.swap import Index, swap_two


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
        self, index: Index, attempts: Any, wanted: Callable[[Any, Array, Array], Array]
    ) -> tuple[Index, Array]:
        """Return the index process after all attempts, and the adjacent pairs that swapped.

        `attempts.order` lists the colder and hotter rung; `wanted(attempt, cold_replica,
        hot_replica)` is the verdict of the rule.
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
        self, index: Index, attempts: Any, wanted: Callable[[Any, Array, Array], Array]
    ) -> tuple[Index, Array]:
        """`Sequential.sweep` with less to carry: one replica climbs until it is refused, and the
        one that refused it climbs on."""

        def attempt_one(climber: Array, attempted: Any) -> tuple[Array, tuple[Array, Array]]:
            attempt, above = attempted
            swapped = wanted(attempt, climber, above)
            stays, climbs = jnp.where(swapped, above, climber), jnp.where(swapped, climber, above)
            return climbs, (stays, swapped)

        attempted = attempts, index.replica_at[1:]
        last, (stayed, swapped) = jax.lax.scan(attempt_one, index.replica_at[0], attempted)
        replica_at = jnp.append(stayed, last)
        rungs = jnp.arange(replica_at.shape[0], dtype=index.rung_of.dtype)
        return Index(jnp.zeros_like(rungs).at[replica_at].set(rungs), replica_at), swapped


for _class in (AllPairs, Adjacent):
    jax.tree_util.register_dataclass(_class, ["window"], [])


def adj() -> Schedule:
    """Adjacent pairs: one step is one ascending sweep of P-1 attempts."""
    return Adjacent()


def ape() -> Schedule:
    """All-pairs exchange: one step is one sweep over all P(P-1)/2 pairs in random order."""
    return AllPairs()
