"""What happens when the replicas on two rungs meet: the rule sees their energies and decides."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.swap import Encounter, Rule, energy_noise_variance
from replicax.algorithm.target import Target


class Surroundings(NamedTuple):
    """What a rule may look at beside the energies."""

    temperature: Array  # shape (rung,)
    energy_noise_var: Array  # sigma^2 where estimated, shape (rung, rung)
    buffer: Array


class Seen(NamedTuple):
    """How energies can be had again: points by replica, and mini-batches."""

    points: Any  # leading axis: replica
    batch: Any
    fresh_batch: Callable[[Array], Any] | None  # key -> a further mini-batch

    def another_batch(self, key: Array) -> Any:
        return self.batch if self.fresh_batch is None else self.fresh_batch(key)


def wanted(
    rule: Rule,
    around: Surroundings,
    cold: Array,
    hot: Array,
    cold_energy: Array,
    hot_energy: Array,
    log_uniform: Array,
) -> Array:
    """The rule's verdict on rungs `cold` and `hot`; any shape."""
    if not rule.uses_temperature:
        pair = Encounter(cold_energy, hot_energy, 0.0, 0.0, around.buffer, log_uniform)
        return rule.wanted(pair)
    if rule.estimates_noise:
        noise_var = around.energy_noise_var[cold, hot]
    else:
        std = jnp.asarray(rule.energy_noise_std)
        noise_var = (std if std.ndim == 0 else std[cold]) ** 2
    inverse = 1 / around.temperature
    gap = inverse[cold] - inverse[hot]
    return rule.wanted(
        Encounter(cold_energy, hot_energy, gap, noise_var, around.buffer, log_uniform)
    )


def build_verdict(
    target: Target, rule: Rule, around: Surroundings, seen: Seen, energy_of: Array
) -> Callable[[Any, Array, Array], Array]:
    """The verdict of one attempt in sequence; noisy energies are drawn afresh for it."""

    def energy(replica: Array, attempt: Any, side: int, batch: Any) -> Array:
        point = jax.tree.map(lambda leaf: leaf[replica], seen.points)
        noise = jax.tree.map(lambda leaf: leaf[side], attempt.energy)
        return target.energy_at(point, batch, noise).astype(energy_of.dtype)

    def verdict(attempt: Any, cold_replica: Array, hot_replica: Array) -> Array:
        if rule.assumes_exact_energies:
            cold_energy, hot_energy = energy_of[cold_replica], energy_of[hot_replica]
        else:
            batch = seen.another_batch(attempt.batch)
            cold_energy = energy(cold_replica, attempt, 0, batch)
            hot_energy = energy(hot_replica, attempt, 1, batch)
        cold, hot = attempt.order
        return wanted(rule, around, cold, hot, cold_energy, hot_energy, attempt.log_uniform)

    return verdict


def estimate_noise(
    target: Target,
    rule: Rule,
    key: Array,
    step: Array,
    before: Array,
    replica_at: Array,
    seen: Seen,
) -> Array:
    """Renew sigma^2 every `rule.estimate_every` steps, averaging over the estimates so far."""
    if not rule.estimates_noise:
        return before

    def energies(key: Array) -> Array:
        batch_key, noise_key = jax.random.split(key)
        noise = jax.vmap(target.draw)(jax.random.split(noise_key, replica_at.shape[0]))
        batch = seen.another_batch(batch_key)
        return jax.vmap(target.energy_at, (0, None, 0))(seen.points, batch, noise)[replica_at]

    def renew() -> Array:
        many = jax.lax.map(energies, jax.random.split(key, rule.estimate_draws))
        latest = energy_noise_variance(many).astype(before.dtype)
        weight = jnp.maximum(1 / (step // rule.estimate_every + 1), 0.05)
        return before + weight.astype(before.dtype) * (latest - before)

    return jax.lax.cond(step % rule.estimate_every == 0, renew, lambda: before)
