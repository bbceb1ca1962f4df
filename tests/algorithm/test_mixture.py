"""Mixtures: the density is that of the draws, and empty places change nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import rng_of
from scipy import stats

from replicax.algorithm import fitting
from replicax.algorithm.mixture import (
    draw_proposed,
    in_use,
    log_density,
    make_mixture,
    most_components,
    padded,
    propose,
)

MEANS = np.array([[-2.0, 1.0], [3.0, 0.0], [0.0, -4.0]])
ROOTS = np.array([[[0.5, 0.0], [0.3, 0.4]], [[1.0, 0.0], [-0.5, 2.0]], [[1.0, 0.0], [0.0, 1.0]]])


def three():
    return make_mixture(np.log([0.2, 0.5, 0.3]), MEANS, ROOTS, np.array([np.inf, 4.0, 5.0]))


THREE = three()


def scipy_density(x):
    covs = ROOTS @ ROOTS.swapaxes(1, 2)
    laws = [
        stats.multivariate_normal(MEANS[0], covs[0]),
        stats.multivariate_t(MEANS[1], covs[1], 4),
        stats.multivariate_t(MEANS[2], covs[2], 5),
    ]
    return np.log(sum(w * law.pdf(x) for w, law in zip([0.2, 0.5, 0.3], laws)))


@pytest.mark.parametrize("is_padded", [False, True])
def test_the_density_is_that_of_the_components(is_padded) -> None:
    mixture = padded(three()) if is_padded else three()
    x = 3 * rng_of(0).standard_normal((50, 2))
    expected = scipy_density(x)
    assert np.allclose(log_density(mixture, jnp.asarray(x, jnp.float32)), expected, atol=1e-4)
    assert np.allclose(fitting.log_density(mixture, x), expected, atol=1e-5)


@pytest.mark.parametrize("d", [1, 3])
def test_heavy_tails_have_their_constant_in_any_dimension(d) -> None:
    """In two dimensions the degrees of freedom cancel from it."""
    root = np.tril(rng_of(d).uniform(0.5, 1.5, (d, d)))
    one = make_mixture(np.zeros(1), np.ones((1, d)), root[None], np.array([4.0]))
    x = rng_of(0).standard_normal((20, d))
    expected = stats.multivariate_t(np.ones(d), root @ root.T, 4).logpdf(x)
    np.testing.assert_allclose(log_density(one, jnp.asarray(x, jnp.float32)), expected, atol=1e-4)


@pytest.mark.parametrize("on_host", [True, False])
def test_draws_have_the_density(on_host) -> None:
    if on_host:
        x = fitting.draw(THREE, rng_of(1), 40_000)
    else:
        mixture = jax.tree.map(jnp.asarray, padded(THREE))
        x = np.asarray(propose(mixture, draw_proposed(jax.random.key(1), 40_000, 2)), float)
    # E_q[p / q] = 1 for any p, and E_q[f] is an integral over a grid.
    other = stats.multivariate_normal([1.0, 0.0], 2 * np.eye(2))
    ratio = np.exp(other.logpdf(x) - scipy_density(x))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / 200
    grid = np.stack(np.meshgrid(*2 * [np.linspace(-40, 40, 801)]), axis=-1).reshape(-1, 2)
    cell = np.exp(scipy_density(grid)) * 0.01
    for f in (lambda x: x[:, 0] > 1, lambda x: np.tanh(x[:, 1]), lambda x: abs(x[:, 0]) > 6):
        assert abs(np.mean(f(x)) - np.sum(cell * f(grid))) < 0.012


def test_means_far_from_zero_keep_their_digits() -> None:
    mixture = padded(make_mixture(np.zeros(1), np.array([[1000.0]]), np.array([[[0.01]]])))
    x = np.float32(1000.0) + np.float32(0.01) * np.arange(-3, 4, dtype=np.float32)
    expected = stats.norm(1000.0, 0.01).logpdf(x.astype(float))
    assert np.allclose(log_density(mixture, x[:, None]), expected, atol=1e-2)


def test_a_mixture_of_a_run_has_room_for_what_fits_find() -> None:
    for d in (1, 2, 10, 100, 300):
        bare = make_mixture(np.zeros(2), np.zeros((2, d)), np.stack([np.eye(d)] * 2))
        wide = padded(bare)
        assert len(wide.mean) >= most_components(d) >= 3 and len(in_use(wide).mean) == 2
        assert np.isclose(in_use(wide).log_factor, bare.log_factor, rtol=1e-5).all()
    with pytest.raises(ValueError, match="at most"):
        padded(make_mixture(np.zeros(999), np.zeros((999, 1)), np.ones((999, 1, 1))))
