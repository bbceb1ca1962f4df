"""Energies evaluated again, on further mini-batches or keys, and the variance of their noise.

sigma^2 of a pair is half the variance of its energy difference (appendix A.1).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.target import Target


class EnergySource(NamedTuple):
    """Further evaluations of the energy: at the points of all replicas, on other mini-batches."""

    target: Target
    points: Any  # leading axis: replica
    batch: Any
    fresh_batch: Callable[[Array], Any] | None  # key -> a further mini-batch

    def another_batch(self, key: Array) -> Any:
        """Return a further mini-batch, or this step's where there are no others."""
        return self.batch if self.fresh_batch is None else self.fresh_batch(key)

    def energies(self, key: Array) -> Array:
        """Evaluate all replicas on one further mini-batch  -> (replica,)."""
        batch_key, noise_key = jax.random.split(key)
        num_replicas = jax.tree.leaves(self.points)[0].shape[0]
        noise = jax.vmap(self.target.draw)(jax.random.split(noise_key, num_replicas))
        batch = self.another_batch(batch_key)
        return jax.vmap(self.target.energy_at, (0, None, 0))(self.points, batch, noise)

    def energy_pair(self, attempt: Any, cold_replica: Array, hot_replica: Array, dtype: Any):
        """Evaluate the two replicas of one attempt in sequence, on a mini-batch of its own."""
        batch = self.another_batch(attempt.batch)

        def energy(replica: Array, side: int) -> Array:
            point = jax.tree.map(lambda leaf: leaf[replica], self.points)
            noise = jax.tree.map(lambda leaf: leaf[side], attempt.energy)
            return self.target.energy_at(point, batch, noise).astype(dtype)

        return energy(cold_replica, 0), energy(hot_replica, 1)


def estimate(
    rule: Any, key: Array, step: Array, before: Array, replica_at: Array, source: EnergySource
) -> Array:
    """Renew sigma^2 every `rule.estimate_every` steps, averaging over the estimates so far.

    `before` and the result have shape (rung, rung).
    """

    def renew() -> Array:
        keys = jax.random.split(key, rule.estimate_draws)
        energies = jax.lax.map(lambda key: source.energies(key)[replica_at], keys)
        latest = difference_variance(energies).astype(before.dtype)
        weight = jnp.maximum(1 / (step // rule.estimate_every + 1), 0.05)
        return before + weight.astype(before.dtype) * (latest - before)

    return jax.lax.cond(step % rule.estimate_every == 0, renew, lambda: before)


def difference_variance(energies: Array) -> Array:
    """Return sigma^2 of every two rungs, half the variance of their energy difference.

    `energies` has shape (draw, rung): the same states on several mini-batches or keys.
    """
    centred = energies - jnp.mean(energies, axis=0)
    covariance = centred.T @ centred / (energies.shape[0] - 1)
    variance = jnp.diagonal(covariance)
    return (variance[:, None] + variance[None, :]) / 2 - covariance
