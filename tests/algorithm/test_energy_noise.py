"""sigma^2 of pairs: estimated with weights of its own, and read where the replicas are."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax.algorithm import swap
from replicax.algorithm.energy_noise import (
    EnergySource,
    FreshBatches,
    Noise,
    batch_key,
    estimate,
)

REPLICA_AT = np.array([2, 0, 3, 1])  # replicas have swapped
SPREAD = jnp.array([1.0, 4.0, 2.0, 7.0])  # by replica
MATRIX = np.random.default_rng(0).uniform(1, 2, (4, 4)).astype(np.float32)


def half_variance(energies: np.ndarray) -> np.ndarray:
    """Half the variance of every difference of two columns."""
    difference = energies[:, :, None] - energies[:, None, :]
    return difference.var(axis=0, ddof=1) / 2


def noisy(key: Any) -> Any:
    """Energies by replica."""
    return SPREAD * jax.random.normal(key, (4,))


def estimated(step: int, before: np.ndarray, energies: Any = noisy) -> np.ndarray:
    rule = swap.bias_corrected("estimate", estimate_every=3, estimate_draws=6)
    state = SimpleNamespace(
        energy_noise_var=jnp.asarray(before), step=jnp.array(step), replica_at=REPLICA_AT
    )
    random = SimpleNamespace(fresh=jax.random.key(1), energy=None)
    source: Any = SimpleNamespace(has_rows=False, energies=energies)
    return np.asarray(estimate(rule, random, state, source).by_rung)


def test_an_estimate_is_by_rung_and_its_weight_falls_to_a_twentieth() -> None:
    draws = np.stack([noisy(key) for key in jax.random.split(jax.random.key(1), 6)])
    latest = half_variance(draws[:, REPLICA_AT])
    for step, weight in ((0, 1.0), (3, 1 / 2), (27, 1 / 10), (57, 1 / 20), (300, 1 / 20)):
        wanted = MATRIX + weight * (latest - MATRIX)
        np.testing.assert_allclose(estimated(step, MATRIX), wanted, rtol=1e-4)
    for step in (1, 2, 4, 301):
        np.testing.assert_array_equal(estimated(step, MATRIX), MATRIX)


def test_noise_is_estimated_every_hundred_steps_from_eight_draws_unless_it_is_told() -> None:
    rule: Any = swap.bias_corrected()
    assert (rule.estimates_noise, rule.estimate_every, rule.estimate_draws) == (True, 100, 8)
    assert not swap.bias_corrected(2.0).estimates_noise
    assert swap.window_corrected(0.1).estimates_noise
    assert not swap.window_corrected(0.1, 2.0).estimates_noise


def test_a_pair_that_is_not_finite_keeps_its_estimate() -> None:
    found = estimated(0, MATRIX, lambda key: noisy(key).at[0].set(jnp.nan))
    ill = REPLICA_AT == 0
    untouched = ill[:, None] | ill[None, :]
    np.testing.assert_array_equal(found[untouched], MATRIX[untouched])
    assert np.all(found[~untouched] != MATRIX[~untouched])


def test_noise_is_that_of_the_replicas_that_meet() -> None:
    by_replica, by_rung = Noise(None, MATRIX), Noise(MATRIX, None)  # type: ignore[arg-type]
    np.testing.assert_array_equal(
        by_replica.of_pairs(REPLICA_AT), [MATRIX[2, 0], MATRIX[0, 3], MATRIX[3, 1]]
    )
    np.testing.assert_array_equal(
        by_rung.of_pairs(REPLICA_AT), [MATRIX[0, 1], MATRIX[1, 2], MATRIX[2, 3]]
    )
    assert by_replica.of_two((0, 2), (2, 3)) == MATRIX[2, 3]  # type: ignore[arg-type]
    assert by_rung.of_two((0, 2), (2, 3)) == MATRIX[0, 2]  # type: ignore[arg-type]


POINTS = jnp.array([0.5, -1.0, 2.0])
DATA = np.random.default_rng(1).normal(size=(12, 5)).astype(np.float32)


def source_of(share: float = 0.25) -> EnergySource:
    """Energies that tell point, batch and noise apart; the judging batch is the first row."""
    target = rx.Target(
        energy=lambda x, batch, noise: jnp.mean((x - batch) ** 2) + 100 * noise,
        noise=lambda key: jax.random.normal(key),
        row_energies=lambda x, batch, noise: (x - batch) ** 2 + 100 * noise,
    )
    fresh = FreshBatches(lambda key: DATA[jax.random.randint(key, (), 1, 12)], share)
    return EnergySource(target, POINTS, jnp.asarray(DATA[0]), fresh)


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_noise_by_row_is_that_of_a_mean_over_the_batch(share: float) -> None:
    found = source_of(share).row_noise(jnp.array([0.3, 0.1, 0.2]), jnp.float32)
    rows = (np.asarray(POINTS)[None, :] - DATA[0][:, None]) ** 2
    np.testing.assert_allclose(found, share * half_variance(rows) / 5, rtol=1e-3, atol=1e-4)


def test_further_energies_have_one_batch_and_noise_of_their_own() -> None:
    key = jax.random.key(3)
    rows_key, noise_key = jax.random.split(key)
    batch = DATA[int(jax.random.randint(rows_key, (), 1, 12))]
    noise = [float(jax.random.normal(one)) for one in jax.random.split(noise_key, 3)]
    wanted = [np.mean((x - batch) ** 2) + 100 * z for x, z in zip(POINTS, noise, strict=True)]
    np.testing.assert_allclose(source_of().energies(key), wanted, rtol=1e-4)
    other = np.asarray(source_of().energies(jax.random.key(4)))
    assert not np.any(other == source_of().energies(key))


def test_energies_that_judge_are_of_one_batch_and_those_of_all_rows_of_all() -> None:
    noise = jnp.array([0.25, -0.5, 0.125])
    found = source_of().batch_energies(noise)
    np.testing.assert_allclose(
        found,
        np.mean((np.asarray(POINTS)[:, None] - DATA[0]) ** 2, axis=1) + 100 * noise,
        rtol=1e-5,
    )
    source = source_of()
    target = source.target._replace(whole_energy=lambda x, rows: x + jnp.sum(rows))
    rows = FreshBatches(lambda key: None, all_rows=jnp.array([3.0, 4.0]))
    whole = source._replace(target=target, fresh_batch=rows).whole_energies()
    np.testing.assert_allclose(whole, np.asarray(POINTS) + 7.0)


def test_the_batch_that_judges_is_none_of_an_estimate() -> None:
    judge = jax.random.key(1)
    others = [jax.random.fold_in(judge, number) for number in range(64)]
    others += list(jax.random.split(judge, 64))
    keys = {tuple(jax.random.key_data(key).tolist()) for key in others}
    assert tuple(jax.random.key_data(batch_key(judge)).tolist()) not in keys


def test_the_two_of_an_attempt_share_its_batch() -> None:
    attempt = SimpleNamespace(batch=jax.random.key(5), energy=jnp.array([0.25, -0.5]))
    cold, hot = source_of().energy_pair(attempt, jnp.array(2), jnp.array(1), jnp.float32)
    batch = DATA[int(jax.random.randint(jax.random.key(5), (), 1, 12))]
    assert float(cold) == pytest.approx(float(np.mean((2.0 - batch) ** 2)) + 25, rel=1e-5)
    assert float(hot) == pytest.approx(float(np.mean((-1.0 - batch) ** 2)) - 50, rel=1e-5)
