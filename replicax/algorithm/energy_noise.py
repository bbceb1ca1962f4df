"""Energies evaluated again, on further mini-batches or keys, and the variance of their noise.

sigma^2 of a pair is half the variance of its energy difference (appendix A.1). It grows with the
distance of the two states, so it is best estimated for the two that meet: where the energy is a
mean over rows, from the rows of the mini-batch that judges them. Elsewhere it is averaged over
further mini-batches or keys, by pair of rungs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from replicax.algorithm.kernel import PyTree
from replicax.algorithm.randomness import Attempts, Randomness
from replicax.algorithm.spread import IN_ONE_PLACE, Spread, share_rows
from replicax.algorithm.target import Target

if TYPE_CHECKING:
    from replicax.algorithm.state import State

_BATCH = 2**32 - 1  # apart from the numbers of the keys of an estimate


@dataclass(frozen=True)
class FreshBatches:
    """Further mini-batches, `fresh(key)`, and the share of the rows' variance that they have.

    The share is 1 for rows drawn with replacement, 1 - n/N without, 0 where all rows are taken.
    """

    draw: Callable[[Array], Any]
    noise_share: float = 1.0
    all_rows: Any = None

    def __call__(self, key: Array) -> Any:
        return share_rows(self.draw(key))


def batch_key(key: Array) -> Array:
    """Return the key of the mini-batch that judges swaps."""
    return jax.random.fold_in(key, _BATCH)


class EnergySource(NamedTuple):
    """Further evaluations of the energy: at the points of all replicas, on other mini-batches."""

    target: Target
    points: PyTree  # leading axis: replica, those that are here
    batch: PyTree  # the one that judges swaps
    fresh_batch: FreshBatches | None
    spread: Spread = IN_ONE_PLACE

    @property
    def has_rows(self) -> bool:
        return self.target.row_energies is not None and self.fresh_batch is not None

    def whole_energies(self) -> Array:
        """Evaluate all replicas on all rows  -> (replica,)."""
        evaluate, rows = self.target.whole_energy, self.fresh_batch
        assert evaluate is not None and rows is not None
        return self.spread.gathered(
            jax.vmap(lambda point: evaluate(point, rows.all_rows))(self.points)
        )

    def batch_energies(self, noise: Any) -> Array:
        """Evaluate all replicas on the mini-batch that judges swaps  -> (replica,)."""
        evaluate = jax.vmap(self.target.energy_at, (0, None, 0))
        return self.spread.gathered(evaluate(self.points, self.batch, noise))

    def another_batch(self, key: Array) -> Any:
        """Return a further mini-batch, or this step's where there are no others."""
        return self.batch if self.fresh_batch is None else self.fresh_batch(key)

    def energies(self, key: Array) -> Array:
        """Evaluate all replicas on one further mini-batch  -> (replica,)."""
        batch_key, noise_key = jax.random.split(key)
        keys = jax.random.split(noise_key, self.spread.count(self.points))
        noise = jax.vmap(self.target.draw)(self.spread.here(keys))
        batch = self.another_batch(batch_key)
        energies = jax.vmap(self.target.energy_at, (0, None, 0))(self.points, batch, noise)
        return self.spread.gathered(energies)

    def row_noise(self, noise: Any, dtype: DTypeLike) -> Array:
        """Return sigma^2 of every two replicas on the judging batch  -> (replica, replica).

        `noise` is that of the energies that are judged, by replica.
        """
        assert self.target.row_energies is not None and self.fresh_batch is not None
        rows = jax.vmap(self.target.row_energies, (0, None, 0))(self.points, self.batch, noise)
        scale = self.fresh_batch.noise_share / rows.shape[1]
        return scale * difference_variance(self.spread.gathered(rows).T.astype(dtype))

    def energy_pair(
        self, attempt: Attempts, cold_replica: Array, hot_replica: Array, dtype: DTypeLike
    ) -> tuple[Array, Array]:
        """Evaluate the two replicas of one attempt in sequence, on a mini-batch of its own."""
        batch = self.another_batch(attempt.batch)

        def energy(replica: Array, side: int) -> Array:
            point = self.spread.join(self.spread.rows(self.points, replica))
            noise = jax.tree.map(lambda leaf: leaf[side], attempt.energy)
            return self.target.energy_at(point, batch, noise).astype(dtype)

        return energy(cold_replica, 0), energy(hot_replica, 1)


class Noise(NamedTuple):
    """sigma^2 in force at one step: of every two replicas where known, else of every two rungs."""

    by_rung: Array  # (rung, rung), the running estimate
    by_replica: Array | None  # (replica, replica), of this step

    def of_pairs(self, replica_at: Array) -> Array:
        """Return sigma^2 of every pair  -> (pair,)."""
        if self.by_replica is not None:
            return self.by_replica[replica_at[:-1], replica_at[1:]]
        return jnp.diagonal(self.by_rung, offset=1)

    def of_two(self, rungs: Any, replicas: tuple[Array, Array]) -> Array:
        """Return sigma^2 of two rungs and the replicas on them."""
        if self.by_replica is not None:
            return self.by_replica[replicas]
        return self.by_rung[rungs[0], rungs[1]]


def estimate(rule: Any, random: Randomness, state: "State", source: EnergySource) -> Noise:
    """Estimate sigma^2 from the rows of the judging batch, or renew the running estimate every
    `rule.estimate_every` steps, averaging over the estimates so far."""
    before, step = state.energy_noise_var, state.step
    if source.has_rows:
        return Noise(before, source.row_noise(random.energy, before.dtype))

    def renew() -> Array:
        keys = jax.random.split(random.fresh, rule.estimate_draws)
        energies = jax.lax.map(lambda key: source.energies(key)[state.replica_at], keys)
        latest = difference_variance(energies).astype(before.dtype)
        weight = jnp.maximum(1 / (step // rule.estimate_every + 1), 0.05)
        renewed = before + weight.astype(before.dtype) * (latest - before)
        # One energy that is not finite must not spoil the average for good.
        return jnp.where(jnp.isfinite(latest), renewed, before)

    return Noise(jax.lax.cond(step % rule.estimate_every == 0, renew, lambda: before), None)


def difference_variance(energies: Array) -> Array:
    """Return sigma^2 of every two rungs, half the variance of their energy difference.

    `energies` has shape (draw, rung): the same states on several mini-batches or keys.
    """
    centred = energies - jnp.mean(energies, axis=0)
    covariance = centred.T @ centred / (energies.shape[0] - 1)
    variance = jnp.diagonal(covariance)
    return (variance[:, None] + variance[None, :]) / 2 - covariance
