"""Energies of many points in tiles are those of one point after another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import rng_of
from jax.flatten_util import ravel_pytree

import replicax as rx
from replicax.algorithm import tiles
from replicax.algorithm.target import as_target

START = {"a": jnp.zeros(3), "b": jnp.zeros(())}


def regression(num_rows):
    rng = rng_of(1)
    rows = jnp.asarray(rng.normal(size=(num_rows, 3)), jnp.float32), jnp.arange(num_rows) % 2
    return rx.bayesian(
        lambda p, r: r[1] * (r[0] @ p["a"] + p["b"]) - jax.nn.softplus(r[0] @ p["a"] + p["b"]),
        lambda p: -jnp.sum(p["a"] ** 2) / 2,
        rows,
    )


def points(m=33):
    return jnp.asarray(rng_of(2).normal(size=(m, 4)), jnp.float32)


@pytest.mark.parametrize("num_rows", [1, 7, 1000, 4001])
@pytest.mark.parametrize("tile_bytes", [1, 2**14, 2**30])
def test_rows_are_all_counted_once(num_rows, tile_bytes, monkeypatch) -> None:
    monkeypatch.setattr(tiles, "_TILE_BYTES", tile_bytes * (1 if num_rows < 10 else 64))
    task, unravel = regression(num_rows), ravel_pytree(START)[1]
    energies = jax.jit(tiles.build_energies(task.target, unravel))
    energy, prior = energies(points(), task.batches.data)
    one = lambda x: task.target.energy(unravel(x), task.batches.data, None)  # noqa: E731
    assert np.allclose(energy, jax.vmap(one)(points()), rtol=1e-4)
    assert np.allclose(prior, jnp.sum(points()[:, :3] ** 2, axis=1) / 2, rtol=1e-5)


@pytest.mark.parametrize("tile_bytes", [1, 2**30])
def test_bare_energies_are_evaluated_in_tiles_of_proposals(tile_bytes, monkeypatch) -> None:
    monkeypatch.setattr(tiles, "_TILE_BYTES", tile_bytes)
    target = as_target(lambda p: jnp.sum(jnp.outer(p["a"], p["a"])) + p["b"])
    energy, prior = jax.jit(tiles.build_energies(target, ravel_pytree(START)[1]))(points())
    expected = jnp.sum(points()[:, :3], axis=1) ** 2 + points()[:, 3]
    assert np.allclose(energy, expected, atol=1e-4) and np.all(np.asarray(prior) == 0)


def test_a_tile_stays_within_the_budget() -> None:
    task, unravel = regression(20_000), ravel_pytree(START)[1]
    energies = tiles.build_energies(task.target, unravel)
    largest = tiles.largest_value(lambda x: energies(x, task.batches.data), points(256))
    rows = sum(leaf.nbytes for leaf in jax.tree.leaves(task.batches.data))
    assert largest <= max(tiles._TILE_BYTES, rows)
    plain = lambda x: jax.vmap(lambda p: task.target.energy(unravel(p), task.batches.data, None))(x)  # noqa: E731
    assert tiles.largest_value(plain, points(256)) > 8 * max(tiles._TILE_BYTES, rows)
