"""Energies whose distribution is known, to try and to test samplers on; and `averaged`."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm.target import Target, as_target


def averaged(target_or_energy: Any, num_evaluations: int) -> Target:
    """A target whose energy is the mean of several evaluations, each with noise of its own.

    Swaps then see less noise, at the cost of the evaluations; gradients stay as they are.

    >>> quiet = averaged(modes25(noise_std=2.0), num_evaluations=4)
    >>> noise = quiet.draw(jax.random.key(0))
    >>> noise.shape
    (4, 2)
    """
    if num_evaluations < 1:
        raise ValueError(f"num_evaluations is {num_evaluations}; it must be at least 1.")
    target = as_target(target_or_energy)
    one_gradient = target.gradient or jax.grad(target.energy)

    def energy(params: Any, batch: Any, noise: Any) -> Array:
        return jnp.mean(jax.vmap(target.energy, (None, None, 0))(params, batch, noise))

    def gradient(params: Any, batch: Any, noise: Any) -> Any:
        return one_gradient(params, batch, jax.tree.map(lambda leaf: leaf[0], noise))

    def draw(key: Array) -> Any:
        return jax.vmap(target.draw)(jax.random.split(key, num_evaluations))

    return Target(energy, gradient, draw)


# The paper's 25 modes (section 5.1). The paper omits the wall that keeps hot replicas near.
MODES = tuple((float(x), float(y)) for x in range(-2, 3) for y in range(-2, 3))
_WALL = 20.0


def modes25_energy(position: Array) -> Array:
    """U = 0.2 r^2 - 2 (cos 2 pi x + cos 2 pi y), plus (r^2 - 20) outside r^2 = 20."""
    square = jnp.sum(position**2, axis=-1)
    wells = 2 * jnp.sum(jnp.cos(2 * jnp.pi * position), axis=-1)
    return 0.2 * square - wells + jnp.maximum(0.0, square - _WALL)


def modes25(noise_std: float = 2.0, stretch: tuple[float, float] = (1.0, 1.0)) -> Target:
    """The 25-mode posterior, its energy and gradient each seen through their own Gaussian noise.

    `stretch` is the unit of each coordinate: positions divided by it are those of the plain
    target, whose truth holds for them. Gradients and their noise shrink by it, as those of
    mini-batches would.

    >>> float(modes25(noise_std=0.0).energy(jnp.zeros(2), None, jnp.zeros(2)))
    -4.0
    """
    unit = np.asarray(stretch, np.float32)

    def energy(position: Array, batch: Any, noise: Array) -> Array:
        return modes25_energy(position / unit) + noise_std * noise[0]

    def gradient(position: Array, batch: Any, noise: Array) -> Array:
        position = position / unit
        outside = jnp.sum(position**2) > _WALL
        slope = (0.4 + 2.0 * outside) * position + 4 * jnp.pi * jnp.sin(2 * jnp.pi * position)
        return (slope + noise_std * noise) / unit

    return Target(energy, gradient, noise=lambda key: jax.random.normal(key, (2,)))


def modes25_start(key: Array) -> Array:
    """One start, uniform in [-1, 1]^2."""
    return jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)


def mode_masses(positions: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Mass in the cell |x - mode| < 1/2 around each of the 25 modes, and outside  -> (26,)."""
    positions = np.asarray(positions, float).reshape(-1, 2)
    cell = np.rint(positions).astype(int)
    inside = np.all(np.abs(cell) <= 2, axis=1)
    index = np.where(inside, (cell[:, 0] + 2) * 5 + cell[:, 1] + 2, 25)
    masses = np.bincount(index, weights=weights, minlength=26).astype(float)
    return masses / masses.sum()


def modes25_grid(span: float, num_bins: int, points_per_bin: int = 10) -> np.ndarray:
    """True masses of square bins on [-span, span]^2, by quadrature, renormalised  -> (x, y)."""
    middle = _midpoints(span, num_bins * points_per_bin)
    positions = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1)
    fine = np.exp(-_modes25_energy_exact(positions))
    coarse = fine.reshape(num_bins, points_per_bin, num_bins, points_per_bin).sum(axis=(1, 3))
    return coarse / coarse.sum()


@functools.cache
def modes25_truth(points_per_unit: int = 50) -> np.ndarray:
    """The true masses of the 25 cells and of the outside, by quadrature  -> (26,)."""
    middle = _midpoints(6.0, 12 * points_per_unit)
    positions = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1).reshape(-1, 2)
    return mode_masses(positions, np.exp(-_modes25_energy_exact(positions)))


def modes25_draws(rng: np.random.Generator, count: int) -> np.ndarray:
    """Independent draws of the 25 modes, exact up to a grid of width 1/100  -> (count, 2)."""
    span, num_bins = 6.0, 1200
    masses = modes25_grid(span, num_bins, points_per_bin=1)
    chosen = rng.choice(masses.size, count, p=masses.ravel())
    bins = np.stack(np.unravel_index(chosen, masses.shape), axis=-1)
    return (bins + rng.random((count, 2))) * (2 * span / num_bins) - span


def _midpoints(span: float, count: int) -> np.ndarray:
    return (np.arange(count) + 0.5) * (2 * span / count) - span


def _modes25_energy_exact(positions: np.ndarray) -> np.ndarray:
    """`modes25_energy` in double precision."""
    square = np.sum(positions**2, axis=-1)
    wells = 2 * np.sum(np.cos(2 * np.pi * positions), axis=-1)
    return 0.2 * square - wells + np.maximum(0.0, square - _WALL)


def mode_distance(positions: np.ndarray, truth: np.ndarray | None = None) -> float:
    """Total variation between the masses of the 25 cells, both sides renormalised.

    It is 1 where no position lies in a cell.
    """
    truth = modes25_truth() if truth is None else truth
    seen, true = mode_masses(positions)[:25], truth[:25]
    if not seen.any():
        return 1.0
    return float(0.5 * np.abs(seen / seen.sum() - true / true.sum()).sum())


def rastrigin_energy(position: Array, amplitude: float = 10.0) -> Array:
    """U = sum_i x_i^2 + A (1 - cos 2 pi x_i): a minimum near every point of the integer grid.

    The barrier between two neighbours is about 2 A high. The global minimum is 0, at 0; the next
    lowest, with one coordinate near 1 or -1, are a little below 1.
    """
    return jnp.sum(position**2 + amplitude * (1 - jnp.cos(2 * jnp.pi * position)), axis=-1)


def rastrigin(amplitude: float = 10.0) -> Target:
    """Rastrigin's function in as many dimensions as the start has, exact.

    >>> float(rastrigin().energy(jnp.zeros(10), None, None))
    0.0
    """
    return Target(lambda position, batch, key: rastrigin_energy(position, amplitude))


def gaussian(mean: float = 0.0, std: float = 1.0) -> Target:
    """U = |x - mean|^2 / (2 std^2), exact."""
    return Target(lambda x, batch, key: jnp.sum((x - mean) ** 2) / (2 * std**2))


def gaussian_mixture(
    means: tuple[float, ...] = (-4.0, 3.0),
    stds: tuple[float, ...] = (0.7, 0.5),
    weights: tuple[float, ...] = (0.4, 0.6),
    energy_noise_std: float = 0.0,
) -> Target:
    """The mixture of appendix C.3: exact gradients, energies with Gaussian noise."""
    mean, std, weight = (jnp.array(values) for values in (means, stds, weights))

    def exact(x: Array) -> Array:
        log_parts = jnp.log(weight / std) - 0.5 * ((x - mean) / std) ** 2
        return -jax.nn.logsumexp(log_parts) + 0.5 * jnp.log(2 * jnp.pi)

    return Target(
        energy=lambda x, batch, noise: exact(x) + energy_noise_std * noise,
        gradient=lambda x, batch, noise: jax.grad(exact)(x),
        noise=lambda key: jax.random.normal(key),
    )
