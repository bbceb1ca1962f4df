"""The population that is cooled: what it draws, and where it begins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import rng_of, slow

from replicax.algorithm.target import Target
from replicax.run.finder import POINTS, cooled, evaluator
from replicax.run.search import Found, search

ROWS = 1_000  # that energies are said to be sums over


def found_of(energy, starts: np.ndarray) -> Found:
    return search(lambda x, data: energy(x), starts.astype(np.float32), None)


def drawn(energy, d: int, scale: float = 2.0, found: Found | None = None, **more):
    """Draws of exp(-energy), from starts N(0, scale^2)."""
    target = Target(lambda x, data, key: energy(x))
    like = jnp.zeros(d)
    evaluate = evaluator(target, lambda x: x, jnp.zeros((ROWS, 1)), like)
    starts = scale * rng_of(1).normal(size=(POINTS, d))
    found = found_of(energy, starts[:8]) if found is None else found
    return cooled(evaluate, starts, found, ROWS, rng_of(2), **more)


@pytest.mark.parametrize("d", [2, slow(50)])
def test_draws_of_a_correlated_normal_have_its_moments(d) -> None:
    sd = np.geomspace(0.01, 1.0, d)
    mix = np.linalg.qr(rng_of(3).normal(size=(d, d)))[0]
    precision = jnp.asarray(mix @ np.diag(sd**-2.0) @ mix.T, jnp.float32)
    cold = drawn(lambda x: 0.5 * (x - 1) @ precision @ (x - 1), d)
    along = (cold.draws - 1) @ mix / sd
    np.testing.assert_allclose(along.mean(axis=0), 0, atol=0.35)
    np.testing.assert_allclose(along.std(axis=0), 1, atol=0.3)
    assert 0.5 < cold.acceptance < 0.95
    assert cold.evaluations > len(cold.draws)


def two_modes(x):
    """One mode at 3 with .7 of the mass, one at -3, each of width .1."""
    parts = -50 * (x[0] - jnp.array([3.0, -3.0])) ** 2 + jnp.log(jnp.array([0.7, 0.3]))
    return 0.5 * x[1] ** 2 - jax.nn.logsumexp(parts)


def test_a_mode_that_no_minimum_is_known_of_is_found() -> None:
    one = found_of(two_modes, np.array([[2.0, 0.0]]))
    np.testing.assert_allclose(one.minima[:, 0], 3, atol=0.01)
    cold = drawn(two_modes, 2, found=one)
    share = (cold.draws[:, 0] > 0).mean()
    assert 0.3 < share < 0.95, "of .7: starts have no density, so that masses are rough"
    assert np.all(np.abs(np.abs(cold.draws[:, 0]) - 3) < 0.8)


def test_starts_without_a_finite_energy_are_led_to_where_it_is() -> None:
    def bounded(x):
        return jnp.where(jnp.all(jnp.abs(x) < 1), 50 * jnp.sum(x**2), jnp.inf)

    cold = drawn(bounded, 2, scale=30.0)
    np.testing.assert_allclose(cold.draws.std(axis=0), 0.1, rtol=0.3)


def test_the_caller_can_end_it() -> None:
    def end() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drawn(two_modes, 2, check=end)
