"""The metric of the local moves, from gradients."""

import numpy as np
import pytest
from common import rng_of

from replicax.algorithm.tuning import metric_root


def gaussian(d, correlation):
    cov = (1 - correlation) * np.eye(d) + correlation
    scales = np.logspace(-2, 2, d)
    return cov * scales * scales[:, None]


def gradients_of(cov, n, rng):
    return rng.standard_normal((n, len(cov))) @ np.linalg.cholesky(np.linalg.inv(cov)).T


def condition(root, cov):
    return np.linalg.cond(np.linalg.solve(root, np.linalg.cholesky(cov))) ** 2


@pytest.mark.parametrize(("d", "n"), [(2, 300), (30, 600)])
def test_the_metric_of_a_gaussian_comes_close_to_its_covariance(d, n) -> None:
    cov, rng, root = gaussian(d, 0.99), rng_of(0), np.eye(d)
    for _ in range(4):
        root = metric_root(gradients_of(cov, n, rng), root)
    assert condition(root, cov) < 4, "of all that is left, after 10^4 times more"
    assert np.trace(np.linalg.solve(cov, root @ root.T)) / d == pytest.approx(1.0, abs=0.2)


def test_a_few_steep_places_hardly_change_it() -> None:
    cov, rng = gaussian(3, 0.5), rng_of(0)
    gradients = gradients_of(cov, 1000, rng)
    gradients[:20] *= 1e4
    gradients[20] = np.nan
    assert condition(metric_root(gradients, np.eye(3)), cov) < 3


def test_one_parameter_has_its_scale() -> None:
    root = metric_root(gradients_of(np.array([[9.0]]), 500, rng_of(0)), np.eye(1))
    assert root.shape == (1, 1) and abs(root[0, 0] / 3 - 1) < 0.15


def test_without_gradients_it_stays() -> None:
    root = np.array([[1.0, 0.0], [0.5, 2.0]])
    assert metric_root(np.full((50, 2), np.inf), root) is root


def test_of_a_flat_energy_it_stays() -> None:
    root = np.eye(2)
    gradients = np.zeros((500, 2))
    gradients[:5] = 1.0
    assert metric_root(gradients, root) is root


def test_gradients_of_one_direction_do_not_make_it_grow_without_end() -> None:
    root = np.eye(3)
    for _ in range(30):
        root = metric_root(np.ones((500, 3)), root)
    assert np.isfinite(root).all() and np.linalg.cond(root) < 2e3
