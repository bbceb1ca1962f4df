"""Targets with known distributions, to try and test samplers."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm.target import Target
from replicax.errors import check_number, not_negative

# The paper's 25 modes (section 5.1). The paper does not mention the wall around them.
MODES = tuple((float(x), float(y)) for x in range(-2, 3) for y in range(-2, 3))
_WALL = 20.0


def modes25_energy(position: Any, *, xp: Any = jnp) -> Any:
    """Return U = 0.2 r^2 - 2 (cos 2 pi x + cos 2 pi y), plus r^2 - 20 outside r^2 = 20; with
    `xp=numpy` in double precision."""
    square = xp.sum(position**2, axis=-1)
    wells = 2 * xp.sum(xp.cos(2 * xp.pi * position), axis=-1)
    return 0.2 * square - wells + xp.maximum(0.0, square - _WALL)


def modes25(noise_std: float = 2.0) -> Target:
    """Return the 25-mode target, with independent Gaussian noise on energy and gradient.

    >>> float(modes25(noise_std=0.0).energy(jnp.zeros(2), None, jnp.zeros(2)))
    -4.0
    """
    not_negative("noise_std", noise_std)

    def energy(position: Array, batch: Any, noise: Array) -> Array:
        return modes25_energy(position) + noise_std * noise[0]

    def gradient(position: Array, batch: Any, noise: Array) -> Array:
        outside = jnp.sum(position**2) > _WALL
        slope = (0.4 + 2.0 * outside) * position + 4 * jnp.pi * jnp.sin(2 * jnp.pi * position)
        return slope + noise_std * noise

    return Target(energy, gradient, noise=lambda key: jax.random.normal(key, (2,)))


def modes25_start(key: Array) -> Array:
    """Draw an initial position, uniform in [-1, 1]^2."""
    return jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)


def mode_masses(positions: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the masses of the cells |x - mode| < 1/2 of the 25 modes, and outside  -> (26,)."""
    positions = np.asarray(positions, float).reshape(-1, 2)
    cell = np.rint(positions).astype(int)
    inside = np.all(np.abs(cell) <= 2, axis=1)
    index = np.where(inside, (cell[:, 0] + 2) * 5 + cell[:, 1] + 2, 25)
    masses = np.bincount(index, weights=weights, minlength=26).astype(float)
    return masses / masses.sum()


def modes25_grid(span: float, num_bins: int, points_per_bin: int = 10) -> np.ndarray:
    """Return the true masses of square bins on [-span, span]^2, renormalised  -> (x, y)."""
    middle = _midpoints(span, num_bins * points_per_bin)
    positions = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1)
    fine = np.exp(-modes25_energy(positions, xp=np))
    coarse = fine.reshape(num_bins, points_per_bin, num_bins, points_per_bin).sum(axis=(1, 3))
    return coarse / coarse.sum()


@functools.cache
def modes25_truth(points_per_unit: int = 50) -> np.ndarray:
    """Return the true masses of the 25 cells and outside, by quadrature  -> (26,)."""
    middle = _midpoints(6.0, 12 * points_per_unit)
    positions = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1).reshape(-1, 2)
    return mode_masses(positions, np.exp(-modes25_energy(positions, xp=np)))


@functools.cache
def modes25_std() -> float:
    """Return the true standard deviation of each coordinate, by quadrature.

    >>> round(modes25_std(), 2)
    1.53
    """
    span, num_bins = 6.0, 600
    masses = modes25_grid(span, num_bins, points_per_bin=1).sum(axis=1)
    return float(np.sqrt(np.sum(masses * _midpoints(span, num_bins) ** 2)))


def modes25_draws(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draw independently from the 25 modes, exact up to a grid of width 1/100  -> (count, 2)."""
    span, num_bins = 6.0, 1200
    masses = modes25_grid(span, num_bins, points_per_bin=1)
    chosen = rng.choice(masses.size, count, p=masses.ravel())
    bins = np.stack(np.unravel_index(chosen, masses.shape), axis=-1)
    return (bins + rng.random((count, 2))) * (2 * span / num_bins) - span


def _midpoints(span: float, count: int) -> np.ndarray:
    return (np.arange(count) + 0.5) * (2 * span / count) - span


def mode_distance(positions: np.ndarray, truth: np.ndarray | None = None) -> float:
    """Return the total variation between the renormalised masses of the 25 cells and the truth.

    It is 1 if no position lies in a cell.
    """
    truth = modes25_truth() if truth is None else truth
    sampled, true = mode_masses(positions)[:25], truth[:25]
    if not sampled.any():
        return 1.0
    return float(0.5 * np.abs(sampled / sampled.sum() - true / true.sum()).sum())


def gaussian(mean: float = 0.0, std: float = 1.0) -> Target:
    """Return the target U = |x - mean|^2 / (2 std^2), without noise."""
    check_number("mean", mean, lambda x: True, "it must be a finite number")
    check_number("std", std, lambda x: x > 0, "it must be a number above 0")
    return Target(lambda x, batch, key: jnp.sum((x - mean) ** 2) / (2 * std**2))
