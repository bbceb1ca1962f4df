"""What a posterior says of its draws."""

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_best_draw_is_the_lowest_finite_one() -> None:
    posterior = rx.sample(
        lambda x: jnp.sum(x**2) / 2, jnp.ones(2), num_steps=30, num_replicas=2, num_chains=3,
        learning_rate=(0.1, 0.2), buffer=0.1, buffer_gain=0.1, progress=False,
    )  # fmt: skip
    draws, energies = posterior.draws, posterior.energies.copy()
    energies[0, 3], energies[1, 4], energies[2, 5] = np.nan, -np.inf, np.inf
    energies[2, 9] = energies[np.isfinite(energies)].min() - 1
    stored = posterior._records._pending["draws"][0]
    stored["energy"] = np.moveaxis(energies, 1, 0)[:, :, None]
    finite = np.where(np.isfinite(energies), energies, np.inf)
    places = finite.argmin(axis=1)
    points, lowest = posterior.best_by_chain
    np.testing.assert_array_equal(points, draws[np.arange(3), places])
    np.testing.assert_array_equal(lowest, finite.min(axis=1))
    point, energy = posterior.best
    np.testing.assert_array_equal(point, draws[2, 9])
    assert energy == finite.min()
