"""Which energies judge swaps: other mini-batches than those that moved the replicas, and the noise
of the two states that meet. Bayesian linear regression has an exact posterior to compare with."""

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import slow

import replicax as rx
from replicax.algorithm import energy_noise
from replicax.algorithm.energy_noise import EnergySource
from replicax.algorithm.swap import BiasCorrected
from replicax.algorithm.target import Target, as_target
from replicax.run.batches import as_batches, as_epochs
from replicax.run.initial import use_rows, with_row_energies
from replicax.run.options import Sampling
from replicax.run.resolve import resolve
from replicax.run.task import as_task

NUM_ROWS, NOISE_VAR, PRIOR_VAR = 1000, 4.0, 100.0
_RNG = np.random.default_rng(0)
INPUTS = np.c_[np.ones(NUM_ROWS), _RNG.normal(size=(NUM_ROWS, 2))].astype(np.float32)
OUTPUTS = (INPUTS @ [0.5, -1.0, 2.0] + 2 * _RNG.normal(size=NUM_ROWS)).astype(np.float32)
COVARIANCE = np.linalg.inv(INPUTS.T @ INPUTS / NOISE_VAR + np.eye(3) / PRIOR_VAR)
MEAN = COVARIANCE @ (INPUTS.T @ OUTPUTS / NOISE_VAR)


def energy(weights: Any, batch: Any) -> jax.Array:
    inputs, outputs = batch
    loss = jnp.sum((outputs - inputs @ weights) ** 2) / (2 * NOISE_VAR)
    return NUM_ROWS / len(outputs) * loss + jnp.sum(weights**2) / (2 * PRIOR_VAR)


def std_ratio(num_steps: int = 5_000) -> float:
    """Standard deviations of the cold rung over the exact ones; standard error about .012."""
    posterior = rx.sample(
        energy,
        jnp.asarray(MEAN, jnp.float32),
        batches=(INPUTS, OUTPUTS),
        batch_size=100,
        num_steps=num_steps,
        burn_in=500,
        thin=5,
        num_chains=16,
        num_replicas=6,
        method=rx.deo_star(
            learning_rate=(1e-4, 1e-3), temperature=(1.0, 10.0), window=1, rule="bias_corrected"
        ),
        progress=False,
    )
    assert posterior.options["row_energies"]
    assert posterior.verdict_rate.min() > 0.02
    draws = posterior.draws.reshape(-1, 3)
    return float(np.mean(draws.std(axis=0) / np.sqrt(np.diag(COVARIANCE))))


def test_exchange_on_mini_batches_does_not_widen_the_posterior() -> None:
    """Without exchange the ratio is 1.058: the gradient's own noise."""
    assert 1.0 < std_ratio() < 1.09


@pytest.mark.slow
def test_judged_on_the_batch_that_moved_the_replicas_it_does(monkeypatch) -> None:
    monkeypatch.setattr(BiasCorrected, "judges_afresh", False)
    assert std_ratio() > 1.1


def points_of(num_replicas: int) -> jax.Array:
    spread = np.linspace(0.2, 2.0, num_replicas)[:, None] * _RNG.normal(size=(num_replicas, 3))
    return jnp.asarray(MEAN + spread, jnp.float32)


@pytest.mark.parametrize(
    ("batch_size", "kind"),
    [
        (50, "arrays"),
        slow(500, "arrays"),
        (NUM_ROWS, "arrays"),
        slow(50, "epochs"),
        (500, "epochs"),
        slow(NUM_ROWS, "epochs"),
    ],
)
def test_the_noise_of_two_states_is_that_of_their_difference(batch_size: int, kind: str) -> None:
    make = as_batches if kind == "arrays" else as_epochs
    batches = make((INPUTS, OUTPUTS), batch_size)
    target, points = with_row_energies(as_target(energy)), points_of(3)
    fresh = batches.fresh(batches.data)
    assert fresh is not None

    @jax.jit
    def once(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        batch = fresh(key)
        energies = jax.vmap(lambda point: energy(point, batch))(points)
        source = EnergySource(target, points, batch, fresh)
        noise = jax.vmap(target.draw)(jax.random.split(key, 3))
        return energies, source.row_noise(noise, jnp.float32)

    energies, estimates = jax.lax.map(once, jax.random.split(jax.random.key(1), 2_000))
    difference = np.asarray(energies)[:, :, None] - np.asarray(energies)[:, None, :]
    exact = difference.var(axis=0) / 2
    np.testing.assert_allclose(np.asarray(estimates).mean(axis=0), exact, rtol=0.15, atol=1e-3)
    if batch_size == NUM_ROWS:
        assert np.all(np.asarray(estimates) == 0)


def test_energies_that_are_no_mean_over_rows_are_estimated_by_further_batches() -> None:
    """`len(batch)` is not in this energy, so a batch of one row says another thing."""

    def fixed_scale(x: Any, rows: Any) -> jax.Array:
        return 10.0 * jnp.sum((rows - x) ** 2)

    def has_rows(energy: Any) -> bool:
        rule = {"rule": "bias_corrected", "temperature": (1.0, 2.0)}
        task = as_task(energy, OUTPUTS[:100], 10)
        program = resolve(task, Sampling(num_steps=20, num_replicas=2), rx.deo(1e-5, **rule))
        carry: Any = SimpleNamespace(state=SimpleNamespace(points=jnp.zeros((1, 2))))
        return use_rows(program, carry).target.row_energies is not None

    assert not has_rows(fixed_scale)
    assert has_rows(lambda x, rows: 100.0 * jnp.mean((rows - x) ** 2))


def test_one_energy_that_is_not_finite_does_not_spoil_the_noise_for_good() -> None:
    rule = rx.swap.bias_corrected(estimate_every=1)
    before = jnp.full((2, 2), 3.0)
    for broken in (jnp.nan, jnp.inf):
        source = EnergySource(
            Target(lambda x, batch, noise: x * noise, noise=jax.random.normal),
            jnp.array([1.0, broken]),
            None,
            None,
        )
        state = rx.algorithm.State(*[None] * len(rx.algorithm.State._fields))._replace(  # type: ignore[arg-type]
            step=jnp.array(5), replica_at=jnp.arange(2), energy_noise_var=before
        )
        random: Any = type("Random", (), {"fresh": jax.random.key(0), "energy": None})
        noise = energy_noise.estimate(rule, random, state, source)
        assert np.all(np.isfinite(noise.by_rung))
        np.testing.assert_array_equal(noise.of_pairs(state.replica_at), [3.0])


WHOLE: dict[str, Any] = {
    "num_steps": 30,
    "num_replicas": 3,
    "progress": False,
    "method": rx.deo(1e-4, temperature=(1.0, 4.0), rule="metropolis"),
}


def test_metropolis_takes_all_rows_and_refuses_mini_batches() -> None:
    start, data = jnp.asarray(MEAN, jnp.float32), (INPUTS, OUTPUTS)
    posterior = rx.sample(energy, start, batches=data, batch_size=NUM_ROWS, **WHOLE)
    assert posterior.result.code == "finished"
    with pytest.raises(ValueError, match="metropolis.*bias_corrected"):
        rx.sample(energy, start, batches=data, batch_size=NUM_ROWS - 1, **WHOLE)
    with pytest.raises(ValueError, match="other mini-batches.*arrays with batch_size"):
        corrected = WHOLE | {"method": replace(WHOLE["method"], rule="bias_corrected")}
        rx.sample(energy, start, batches=lambda step: data, **corrected)


@pytest.mark.slow
def test_metropolis_warns_of_batches_that_it_cannot_look_into() -> None:
    start, data = jnp.asarray(MEAN, jnp.float32), (INPUTS, OUTPUTS)
    with pytest.warns(UserWarning, match="unless each contains all the data"):
        rx.sample(energy, start, batches=lambda step: data, **WHOLE)


@pytest.mark.slow
def test_a_ladder_that_claims_a_target_is_frozen_at_burn_in() -> None:
    method = rx.deo(0.05, temperature=(1.0, 10.0), rule="metropolis", adapt=True)
    options = WHOLE | {"num_steps": 600, "history_every": 50, "num_replicas": 4, "method": method}
    target, start = rx.targets.gaussian(), 1.0
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="The ladder moved")
        frozen = rx.sample(target, start, burn_in=300, **options)
    temperatures = frozen.history["temperature"][0]
    assert np.ptp(temperatures[:5, 1:-1], axis=0).min() > 0.01
    assert np.ptp(temperatures[6:], axis=0).max() == 0
    assert frozen.summary()["ladder_moved"] == 0
    with pytest.warns(UserWarning, match="moved by .* while draws were kept.*burn_in"):
        moving = rx.sample(target, start, **options)
    assert moving.summary()["ladder_moved"] > 0.01
