"""What is sampled, and the unit that its user speaks in."""

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax.algorithm.tuning import ConstantGain
from replicax.run.batches import as_batches
from replicax.run.task import Task, Unit, as_task


def bowl(x):
    return jnp.sum(x**2)


def test_a_mean_loss_is_one_over_the_rows_of_the_energy_of_its_posterior() -> None:
    """Energies that are mean losses of 50 rows, and those of all rows, of the same posterior."""
    mean, total = Unit(1.0, 50), Unit(50.0, 50)
    for unit in (mean, total):
        energy, rate = unit.energy(0.3), unit.learning_rate(0.1)
        assert rate * energy == pytest.approx(0.03), "steps are the same"
        assert unit.temperatures(2.0) / energy == pytest.approx(2.0 / (50 * 0.3))
    np.testing.assert_allclose(total.learning_rate((0.1, 0.5)), [0.002, 0.01])


def test_gains_scale_with_the_energy() -> None:
    unit = Unit(4.0, 4)
    assert unit.energy(rx.Gain(2.0, 10.0, cap=0.5)) == rx.Gain(8.0, 10.0, cap=2.0)
    assert unit.energy(ConstantGain(0.25)) == ConstantGain(1.0)
    assert unit.energy(lambda step: step + 1.0)(2) == 12.0
    assert unit.energy("auto") == "auto" and unit.energy(None) is None
    assert Unit().energy(0.3) == 0.3


def test_posteriors_bring_their_own_rows() -> None:
    rows = np.zeros(20, np.float32)
    target = rx.bayesian(lambda x, rows: -((x - rows) ** 2), lambda x: -(x**2), rows, batch_size=5)
    assert as_task(target) is target and not target.has_exact_energies
    for given in ({"batches": rows}, {"batch_size": 5}):
        with pytest.raises(ValueError, match="has its own data"):
            as_task(target, **given)


def test_energies_are_exact_where_every_step_sees_all_rows_without_noise() -> None:
    rows = np.zeros(20, np.float32)
    energy = lambda x, batch: bowl(x) + jnp.mean(batch)  # noqa: E731
    assert as_task(bowl).has_exact_energies and as_task(energy, rows, 20).has_exact_energies
    assert not as_task(energy, rows, 19).has_exact_energies
    assert not as_task(energy, lambda step: rows).has_exact_energies
    noisy = rx.Target(bowl, noise=lambda key: 0.0)
    assert not Task(noisy, as_batches(rows, 20)).has_exact_energies
