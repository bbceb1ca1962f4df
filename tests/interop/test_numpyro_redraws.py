"""Redraws of NumPyro models: which blocks are drawn anew, and what the rest of the prior gains."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import quick_jit
from jax.scipy.stats import norm

numpyro = pytest.importorskip("numpyro")

import numpyro.distributions as dist  # noqa: E402

import replicax as rx  # noqa: E402

Y = jnp.array([0.2, 1.0, 1.4])


def grouped(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    with numpyro.plate("groups", 3):
        numpyro.sample("period", dist.Uniform(0.0, 1.0))
        level = numpyro.sample("level", dist.Normal(mean, 1.0).expand([2, 3]))
    numpyro.sample("y", dist.Normal(level.sum(axis=0), 1.0), obs=y)


def redrawn(model, count=2000):
    """Return a position, those after redraws, and the gains."""
    posterior = rx.interop.from_numpyro(model, Y)
    params = posterior.start(jax.random.key(0))
    keys, choices = jax.random.split(jax.random.key(1), (2, count))
    redraw = jax.vmap(lambda key, choice: posterior.target.redraw(key, params, choice))
    after, gains = quick_jit(redraw)(keys, choices)
    return params["unconstrained"], after["unconstrained"], np.asarray(gains)


def test_all_sites_or_an_element_of_a_plate_or_a_site_alone_are_drawn() -> None:
    before, after, gains = redrawn(grouped)
    changed = {name: np.asarray(after[name] != before[name]) for name in before}
    table = np.concatenate([x.reshape(2000, -1) for x in changed.values()], axis=1)
    kinds, counts = np.unique(table, axis=0, return_counts=True)
    # All 10 numbers, the mean, and those of each of three groups.
    size = kinds.sum(axis=1)
    assert sorted(size) == [1, 3, 3, 3, 10]
    expected = 2000 / np.where(size == 3, 9, 3)
    assert np.all(np.abs(counts - expected) < 6 * expected**0.5)
    mean_alone = changed["mean"] & ~changed["level"].any(axis=(1, 2))
    level = np.asarray(before["level"])

    def children(mean):
        return norm.logpdf(level[None], np.asarray(mean)[:, None, None], 1.0).sum(axis=(1, 2))

    expected = children(after["mean"]) - children(np.full(2000, before["mean"]))
    np.testing.assert_allclose(gains[mean_alone], expected[mean_alone], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(gains[~mean_alone], 0.0, atol=1e-3)


def counted_twice(y):
    with numpyro.handlers.scale(scale=2.0):
        mean = numpyro.sample("mean", dist.Normal(0.0, 2.0))
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def test_a_density_that_counts_twice_is_drawn_once() -> None:
    before, after, gains = redrawn(counted_twice, 50)
    expected = norm.logpdf(after["mean"], 0, 2) - norm.logpdf(before["mean"], 0, 2)
    np.testing.assert_allclose(gains, expected, rtol=1e-3, atol=1e-4)
    assert np.ptp(gains) > 0.5


def masked(y):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0).mask(False).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(mean.sum(), 1.0), obs=y)


def partly_masked(y):
    with numpyro.handlers.mask(mask=False):
        mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    scale = numpyro.sample("scale", dist.HalfCauchy(2.0))
    numpyro.sample("y", dist.Normal(mean, scale), obs=y)


def test_sites_without_density_are_not_drawn() -> None:
    before, after, gains = redrawn(partly_masked, 50)
    assert np.all(after["mean"] == before["mean"]) and np.all(after["scale"] != before["scale"])
    np.testing.assert_allclose(gains, 0.0, atol=1e-5)
    assert rx.interop.from_numpyro(masked, Y).target.redraw is None
