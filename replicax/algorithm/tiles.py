"""Energies of many points at once, in tiles that stay in the cache.

A tile is some proposals by some rows: each block of rows is read once for all proposals, and no
intermediate value of a tile is larger than a budget. Without rows a tile is some of the proposals.
The size of a tile follows from the shapes of the energy's own computation, so it is the same in
every run.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import jaxprs_in_params

from replicax.algorithm.kernel import PyTree
from replicax.algorithm.target import Target

_TILE_BYTES = 2**17  # of the largest intermediate value of a tile


def build_energies(target: Target, unravel: Callable[[Array], Any]) -> Callable:
    """Build `energies(points, batch) -> U, V` for flattened points (m, d), `batch` being all rows
    or None; V is 0 where the target has no prior."""
    tiled = target.whole_energy is not None  # then the energy is a sum over rows

    def prior(point: Array) -> Array:
        if target.prior is None:
            return jnp.zeros((), point.dtype)
        return target.prior(unravel(point)).astype(point.dtype)

    def energy(point: Array, batch: PyTree) -> Array:
        return target.energy(unravel(point), batch, None).astype(point.dtype)

    def energies(points: Array, batch: PyTree = None) -> tuple[Array, Array]:
        by_rows = tiled and batch is not None
        both = _by_rows if by_rows else _by_points
        return both(energy, points, batch), jax.vmap(prior)(points)

    return energies


def _by_points(energy: Callable, points: Array, batch: PyTree) -> Array:
    """Return energies, of as many points at once as the budget allows."""
    one = lambda point: energy(point, batch)  # noqa: E731
    most = max(1, _TILE_BYTES // max(largest_value(one, points[0]), 1))
    if most >= len(points):
        return jax.vmap(one)(points)
    return jax.lax.map(one, points, batch_size=most)


def _by_rows(energy: Callable, points: Array, batch: PyTree) -> Array:
    """Return energies of all points, as sums over blocks of rows."""
    num_rows = jax.tree.leaves(batch)[0].shape[0]
    some = min(num_rows, 64)
    few = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((some, *leaf.shape[1:]), leaf.dtype), batch
    )
    per_row = largest_value(energy, points[0], few) / some
    size = int(max(1, _TILE_BYTES / max(per_row * len(points), 1)))
    if size >= num_rows:
        return jax.vmap(energy, (0, None))(points, batch)
    num_blocks = -(-num_rows // size)
    size = num_rows // num_blocks  # equal blocks, and less than one of them at the end

    def of_block(rows: Any) -> Array:
        # The energy of some rows stands for that of all, and is scaled by their share.
        share = jax.tree.leaves(rows)[0].shape[0] / num_rows
        return share * jax.vmap(energy, (0, None))(points, rows)

    in_blocks = num_blocks * size
    blocks = jax.tree.map(
        lambda leaf: leaf[:in_blocks].reshape(num_blocks, size, *leaf.shape[1:]), batch
    )

    def add(total: Array, rows: Any) -> tuple[Array, None]:
        return total + of_block(rows), None

    total, _ = jax.lax.scan(add, jnp.zeros(len(points), points.dtype), blocks)
    if in_blocks < num_rows:
        total = total + of_block(jax.tree.map(lambda leaf: leaf[in_blocks:], batch))
    return total


def largest_value(function: Callable, *args: Any) -> int:
    """Return the bytes of the largest value that a function computes, beside its arguments."""
    return _largest_of(jax.make_jaxpr(function)(*args).jaxpr)


def _largest_of(jaxpr: Any) -> int:
    largest = 0
    for equation in jaxpr.eqns:
        sizes = [
            v.aval.size * v.aval.dtype.itemsize for v in equation.outvars if hasattr(v.aval, "size")
        ]
        inner = [_largest_of(j) for j in jaxprs_in_params(equation.params)]
        largest = max([largest, *sizes, *inner])
    return largest
