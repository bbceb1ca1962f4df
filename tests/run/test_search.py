"""The search for minima: what is one, what is none, and the mixture of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import rng_of, slow

from replicax.algorithm.fitting import log_density
from replicax.run import search as rooms

EFFECTS = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def search(energy, points):
    return rooms.search(lambda x, data: energy(x), points)


def starts(d, scale=2.0, n=8):
    return (scale * rng_of(0).standard_normal((n, d))).astype(np.float32)


def schools(x, centred):
    mean, log_scale, rest = x[0], x[1], x[2:]
    scale = jnp.exp(log_scale)
    energy = mean**2 / 50 + scale**2 / 50 - log_scale
    if centred:
        energy += jnp.sum((rest - mean) ** 2) / (2 * scale**2) + 8 * log_scale
        return energy + jnp.sum(((EFFECTS - rest) / ERRORS) ** 2) / 2
    energy += jnp.sum(rest**2) / 2
    return energy + jnp.sum(((EFFECTS - mean - scale * rest) / ERRORS) ** 2) / 2


def test_a_funnel_has_no_minimum() -> None:
    found = search(lambda x: schools(x, centred=True), starts(10))
    assert len(found.minima) == 0 and found.rejected > 0
    assert found.mixture() is None and found.covariance is None


@pytest.mark.parametrize("scale", [2.0, slow(0.1), slow(20.0)])
def test_the_same_posterior_without_a_funnel_has_one(scale) -> None:
    found = search(lambda x: schools(x, centred=False), starts(10, scale))
    assert len(found.minima) == 1
    gradient = jax.grad(lambda x: schools(x, centred=False))(jnp.asarray(found.minima[0]))
    assert np.abs(gradient).max() < 1e-2


def test_scales_that_differ_by_1e4_need_newton() -> None:
    sd = jnp.array([0.01, 1.0, 100.0])
    found = search(lambda x: jnp.sum(((x - 3.0) / sd) ** 2) / 2, starts(3))
    assert np.allclose(found.minima, 3.0, atol=0.02) and len(found.minima) == 1
    assert np.allclose(found.covariances[0], np.diag(np.asarray(sd) ** 2), rtol=0.01, atol=1e-6)
    assert found.evaluations > 0


def test_without_forward_derivatives_curvature_comes_of_gradients() -> None:
    """As of energies that solve differential equations; the scales differ by 1e4."""
    root = jnp.array([[0.01, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 30.0, 100.0]])

    @jax.custom_vjp
    def energy(x):
        return jnp.sum(jnp.linalg.solve(root, x - 3.0) ** 2) / 2

    def forward(x):
        return jax.value_and_grad(lambda x: jnp.sum(jnp.linalg.solve(root, x - 3.0) ** 2) / 2)(x)

    energy.defvjp(forward, lambda gradient, by: (by * gradient,))
    found = search(energy, starts(3))
    assert len(found.minima) == 1 and np.allclose(found.minima, 3.0, atol=0.1)
    sd = np.sqrt(np.diag(np.asarray(root @ root.T)))
    expected = np.asarray(root @ root.T) / np.outer(sd, sd)
    assert np.allclose(found.covariances[0] / np.outer(sd, sd), expected, atol=0.02)


def test_more_starts_are_searched_while_they_are_cheap() -> None:
    """The ninth start is the only one in the second mode."""

    def energy(x):
        return -jnp.logaddexp(-jnp.sum((x - 9) ** 2) / 2, -jnp.sum((x + 9) ** 2) / 2)

    points = np.full((9, 2), -8.0, np.float32)
    points[8] = 8.0
    assert len(search(energy, points).minima) == 1
    assert len(rooms.search(lambda x, data: energy(x), points, budget=10_000).minima) == 2


def test_where_starts_lead_to_minima_of_their_own_others_are_sought() -> None:
    """Nine wells and twelve starts."""
    sizes = jnp.array([1.0, 1.1])

    def energy(x, data):
        return jnp.sum(jnp.maximum(0.0, jnp.abs(x) - 2) ** 2 - jnp.cos(jnp.pi * x / sizes))

    points = rng_of(3).uniform(-3, 3, (12, 2)).astype(np.float32)
    few, many = (rooms.search(energy, points, budget=n) for n in (0, 100_000))
    with_mass = many.energies < many.energies.min() + 1
    assert len(few.minima) <= 8 and with_mass.sum() == 9
    assert many.evaluations < 50_000, "a hundred starts or so, and then it is enough"


ORDERS = np.array([[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
PARTS = np.array([[-4.0, 0.0, 5.0], [1.0, -1.0, 2.0]])


def labelled(x, weights=0.0):
    """Three values, each with a scale: which of the three has which number is free."""
    away = jnp.square(x.reshape(2, 3) - PARTS[:, ORDERS].swapaxes(0, 1)) * jnp.array(
        [[[1.0], [4.0]]]
    )
    return -jax.nn.logsumexp(weights - jnp.sum(away, axis=(1, 2)) / 2)


def test_permutations_that_lead_from_one_minimum_to_another_are_applied_to_all() -> None:
    """Two swaps of labels make six orders of them."""
    points = PARTS[:, ORDERS[:3]].swapaxes(0, 1).reshape(-1, 6) + 0.1
    found = search(labelled, points.astype(np.float32))
    assert len(found.minima) == 6
    for at, energy, cov in zip(found.minima, found.energies, found.covariances):
        assert abs(float(labelled(jnp.asarray(at))) - energy) < 0.01
        assert np.allclose(np.diag(cov), [1, 1, 1, 0.25, 0.25, 0.25], rtol=0.1)


def test_permutations_that_change_the_energy_add_nothing() -> None:
    weights = jnp.array([0.0, 0.0, 0.0, -1.0, -1.0, -1.0])
    points = PARTS[:, ORDERS[:3]].swapaxes(0, 1).reshape(-1, 6).astype(np.float32) + 0.1
    assert len(search(lambda x: labelled(x, weights), points).minima) < 6


def modes(x):
    centres, widths = jnp.array([[-3.0, 0.0], [3.0, 1.0]]), jnp.array([0.3, 1.0])
    parts = -jnp.sum((x - centres) ** 2, axis=1) / (2 * widths**2) - 2 * jnp.log(widths)
    return -jax.nn.logsumexp(parts + jnp.log(jnp.array([0.8, 0.2])))


def test_minima_are_weighted_by_their_mass() -> None:
    found = search(modes, starts(2))
    assert len(found.minima) == 2
    mixture = found.mixture()
    x = found.minima + 0.1
    # A wide component has a twentieth, and the others are somewhat wider than the modes.
    difference = log_density(mixture, x) + np.array([modes(jnp.asarray(at)) for at in x])
    assert np.ptp(difference) < 0.1


def test_starts_at_infinite_energy_are_pulled_to_where_it_is_finite() -> None:
    energy = lambda x: jnp.where(jnp.sum(x**2) < 4, jnp.sum((x - 0.5) ** 2), jnp.inf)  # noqa: E731
    found = search(energy, starts(2, 50.0))
    assert np.allclose(found.minima, 0.5, atol=1e-2) and len(found.minima) == 1


def test_in_many_dimensions_one_hessian_is_computed_for_each_minimum() -> None:
    """Its own approximation by L-BFGS knows no masses: here they differ by e^22."""
    widths = np.array([1.0, 0.8])
    energy = two_widths(120, 40.0, widths)
    points = starts(120, 20.0, 288)
    found = rooms.search(lambda x, data: energy(x), points[:32], budget=10_000, more=points[32:])
    assert len(found.minima) == 2 and found.evaluations < 5_000
    shares = np.sort(np.exp(found.mixture().log_weight))
    assert np.allclose(shares, [0.05, 0.95 * 0.3, 0.95 * 0.7], atol=0.02)


def two_widths(d: int, distance: float, widths: np.ndarray):
    """Return the energy of modes of masses .7 and .3, so far apart."""
    centres = np.random.default_rng(d).standard_normal(d)
    centres = np.stack([-centres, centres]) * distance / 2 / np.linalg.norm(centres)
    log_factor = jnp.log(jnp.array([0.7, 0.3])) - d * jnp.log(widths)

    def energy(x):
        parts = -jnp.sum((x - centres) ** 2, axis=1) / (2 * widths**2)
        return -jax.nn.logsumexp(parts + log_factor)

    return energy


@pytest.mark.parametrize(("d", "distance"), [(16, 32.0), (64, 8.0), (64, 32.0)])
def test_narrow_modes_within_dispersed_starts_are_found(d: int, distance: float) -> None:
    """All descents from N(0, (distance / 2)^2) lead past them to the wide mode."""
    energy = two_widths(d, distance, np.array([1.0, 0.7]))
    points = starts(d, distance / 2, 288)
    every = {"budget": 12_000, "more": points[32:]}
    found = rooms.search(lambda x, data: energy(x), points[:32], **every)
    assert len(found.minima) == 2
    shares = np.sort(np.exp(found.mixture().log_weight))
    assert np.allclose(shares, [0.05, 0.95 * 0.3, 0.95 * 0.7], atol=0.02)


def test_inner_starts_are_where_known_minima_explain_least() -> None:
    energy = two_widths(3, 6.0, np.array([1.0, 0.3]))
    one = rooms.search(lambda x, data: energy(x), starts(3, 0.1, 1))
    minima = list(zip(*one[:3]))
    counted = rooms.Counted(lambda x, data: energy(x), None, jnp.dtype(jnp.float32))
    points = starts(3, 3.0, 32).astype(float)
    inner = rooms._Inner(points, minima, jax.vmap(energy), counted, 0)
    points = np.concatenate([inner.points(1) for _ in range(100)])
    best = np.stack([inner.unexplained() for _ in range(10)])
    gap = lambda x: np.linalg.norm(x + one.minima[0], axis=1)  # noqa: E731
    assert np.mean(gap(points) < 2) < 0.1 and np.mean(gap(best) < 2) > 0.5
    assert counted.calls == 10 * 16


@pytest.mark.parametrize(("sd", "rounds"), [(10.0, 2), (0.1, 1), (1e-4, 2)])
def test_differences_take_steps_that_suit_the_curvature(sd: float, rounds: int) -> None:
    """From steps that are far too long or too short they come to it, and others do for good."""
    energy = lambda x, data: jnp.sum(jnp.log(jnp.cosh(10 * x)))  # noqa: E731
    counted = rooms.Counted(energy, None, jnp.dtype(jnp.float32))
    hessian = counted.differences(np.zeros(2), np.full(2, sd))
    np.testing.assert_allclose(hessian, 100 * np.eye(2), rtol=0.05, atol=1e-3)
    assert counted.calls == rounds * 2 * 2
