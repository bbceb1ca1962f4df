"""Exchangeable labels: where they are, their order, and densities of orbits."""

from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import rng_of

from replicax.algorithm.labels import (
    Ordering,
    aligned,
    best_direction,
    label_places,
    mixture_in_order,
    orbit_density,
    ordered,
    shuffled,
    taken,
)
from replicax.algorithm.mixture import log_density, make_mixture

PARAMS = {"mean": np.zeros((3, 2)), "sd": np.zeros(()), "slope": np.zeros((2, 3))}
AXES = {"mean": 0, "slope": 1}
PLACES = label_places(AXES, PARAMS)
ORDERING = Ordering(PLACES, np.array([0.0, 1.0, 0.0, 0.0]))


def relabelled(point, order):
    """Permute the labels of the tree, not of the flattened point."""
    params = {"mean": point[:6].reshape(3, 2)[list(order)], "sd": point[6:7]}
    slope = point[7:].reshape(2, 3)[:, list(order)]
    return np.concatenate([params["mean"].ravel(), params["sd"], slope.ravel()])


def test_a_label_owns_its_entries_of_every_array() -> None:
    point = np.arange(13.0)
    for order in permutations(range(3)):
        np.testing.assert_array_equal(
            taken(PLACES, point[None], np.array([order]))[0], relabelled(point, order)
        )
    assert label_places(None, PARAMS) is None


@pytest.mark.parametrize(
    "same",
    [
        (0, np.zeros((3, 2)), [[0, 1], [2, 3], [4, 5]]),
        (-1, [np.zeros(2), np.zeros(2)], [[0, 2], [1, 3]]),
        ([None, 0], [np.zeros(5), np.zeros(2)], [[5], [6]]),
        ({"a": {"b": 0}}, {"a": {"b": np.zeros(2), "c": np.zeros(1)}}, [[0], [1]]),
        (np.arange(6).reshape(2, 3).T, np.zeros(7), [[0, 3], [1, 4], [2, 5]]),
    ],
)
def test_axes_are_those_of_all_arrays_or_by_array(same) -> None:
    exchangeable, params, expected = same
    assert label_places(exchangeable, params).tolist() == expected


@pytest.mark.parametrize(
    ("exchangeable", "words"),
    [
        (1, "axis 1"),
        ({"maen": 0}, "Did you mean"),
        ({"mean": "first"}, "'first'"),
        ({"mean": True}, "True"),
        ({"mean": 0, "slope": 0}, "one number of labels"),
        ({}, "at least 2"),
        (np.array([[0, 1], [1, 2]]), "at most once"),
        (np.array([[0.0], [1.0]]), "whole numbers"),
        (np.array([[0], [13]]), "from 0 to 12"),
    ],
)
def test_what_names_no_labels_is_refused(exchangeable, words) -> None:
    with pytest.raises(ValueError, match=words):
        label_places(exchangeable, PARAMS)


def test_exactly_one_permutation_of_a_point_is_in_order() -> None:
    point = rng_of(0).standard_normal(13)
    orbit = np.stack([relabelled(point, order) for order in permutations(range(3))])
    for points in (orbit, jnp.asarray(orbit)):
        same, were = ordered(ORDERING, points)
        assert np.sum(were) == 1
        np.testing.assert_array_equal(same, np.tile(points[np.argmax(were)], (6, 1)))
        keys = np.asarray(same[0])[PLACES][:, 1]
        assert np.all(np.diff(keys) > 0) and same[0, 6] == points[0, 6]


def test_random_orders_are_even_and_keep_labels_together() -> None:
    point = rng_of(0).standard_normal(13).astype(np.float32)
    points = np.asarray(shuffled(PLACES, jnp.tile(point, (6000, 1)), jax.random.key(0)))
    orbit = np.stack([relabelled(point, order) for order in permutations(range(3))])
    counts = [np.sum(np.all(points == one, axis=1)) for one in orbit]
    assert sum(counts) == 6000 and np.max(np.abs(np.array(counts) - 1000)) < 5 * 30


def test_the_density_of_orbits_is_normalised_by_what_is_in_order() -> None:
    """On a grid of two labels: its integral is the share of proposals that are in order."""
    roots = np.stack([0.5 * np.eye(2)] * 2)
    mixture = make_mixture(np.log([0.7, 0.3]), np.array([[-0.5, 0.4], [0.3, 0.2]]), roots)
    ordering = Ordering(np.array([[0], [1]]), np.array([1.0]))
    grid = np.linspace(-4, 4, 161)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    cell = (grid[1] - grid[0]) ** 2
    is_state = jax.vmap(lambda x: orbit_density(ordering, mixture, x[None])[0])
    found = np.exp(np.asarray(is_state(jnp.asarray(points))))
    density = np.exp(np.asarray(log_density(mixture, points)))
    off = points[:, 0] != points[:, 1]
    share = np.sum(density[points[:, 0] < points[:, 1]]) * cell
    assert np.sum(found[off]) * cell == pytest.approx(share, rel=0.01) and 0.4 < share < 0.9
    np.testing.assert_allclose(found.reshape(161, 161), found.reshape(161, 161).T, rtol=1e-4)
    # Of proposals, those out of order stand for nothing.
    both = orbit_density(ordering, mixture, jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    assert np.isinf(both[1]) and both[0] == both[2]


def test_components_are_put_in_order_with_their_covariances() -> None:
    rng = rng_of(0)
    root = np.linalg.cholesky(np.cov(rng.standard_normal((13, 60))))
    mixture = make_mixture(np.zeros(1), rng.standard_normal((1, 13)), root[None], 4.0)
    turned = mixture_in_order(ORDERING, mixture)
    assert ordered(ORDERING, turned.mean)[1].all()
    x = rng.standard_normal(13)
    orders = [relabelled(x, order) for order in permutations(range(3))]
    values = np.asarray(log_density(turned, np.stack(orders)))
    assert np.isclose(values, float(log_density(mixture, x[None])[0]), rtol=1e-4).sum() == 1


def test_a_point_is_aligned_with_a_permutation_of_it() -> None:
    rng = rng_of(0)
    point = rng.standard_normal(13)
    for order in permutations(range(3)):
        near = relabelled(point, order) + 0.01 * rng.standard_normal(13)
        np.testing.assert_allclose(aligned(PLACES, near, point, np.eye(13)), point, atol=0.1)


def test_the_direction_is_that_in_which_labels_differ() -> None:
    """Labels are near (1, 0), (0, 1) and (-1, -1) in two entries, and alike in the others."""
    rng = rng_of(0)
    x = 0.15 * rng.standard_normal((500, 3, 4))
    x[:, :, 2:] += np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    x[:, :, 1] *= 20
    places = np.arange(12).reshape(3, 4)
    x = np.stack([one[rng.permutation(3)] for one in x]).reshape(500, 12)
    found = best_direction(Ordering(places, np.eye(4)[0]), x)
    means = ordered(Ordering(places, found), x)[0].reshape(500, 3, 4)
    assert np.all(means[:, :, 2:].std(axis=0) < 0.3)
    again = best_direction(Ordering(places, found), x)
    np.testing.assert_array_equal(again, found / np.linalg.norm(found))
    assert best_direction(Ordering(places, np.eye(4)[0]), x[:20]).tolist() == [1, 0, 0, 0]


def test_labels_that_differ_a_little_in_many_entries_are_separated_by_all_of_them() -> None:
    """By one entry one in six points would be in the wrong order."""
    rng = rng_of(1)
    x = rng.standard_normal((600, 2, 16)) + np.array([-0.7, 0.7])[None, :, None]
    true = np.stack([rng.permutation(2) for _ in range(600)])
    x = np.take_along_axis(x, true[:, :, None], axis=1).reshape(600, 32)
    ordering = Ordering(np.arange(32).reshape(2, 16), np.eye(16)[0])
    found = ordering._replace(direction=best_direction(ordering, x))
    sums = ordered(found, x)[0].reshape(600, 2, 16).sum(axis=2)
    right = np.mean(sums[:, 0] < sums[:, 1])
    assert max(right, 1 - right) > 0.97
