"""Newton steps towards the minima of all rows, from those of some of them, a sweep each."""

from typing import NamedTuple

import numpy as np

from replicax.run.search import hessian_scale
from replicax.run.sweep_state import Finder, Newton

_SETTLED = 0.05  # energy left to gain, for each dimension, at which Newton steps end
_REACH = 5.0  # standard deviations of the finder beyond a typical draw, of a Newton step
_NO_MASS = 30.0  # energy above the lowest minimum at which one is not followed to its end
_FLAT = 1e-5  # curvature, in units of its diagonal, that no direction is taken to be below


class Followed(NamedTuple):
    """Where the steps lead, (minimum, ...)."""

    newton: Newton
    ahead: np.ndarray  # shape (minimum, d)
    gain: np.ndarray  # energy that is left to gain
    is_open: np.ndarray  # whether another sweep should look there


def followed(
    newton: Newton,
    tried: np.ndarray,
    seen: tuple[np.ndarray, np.ndarray, np.ndarray],
    finder: Finder,
) -> Followed:
    """Return the next damped steps, given energies, gradients and Hessians that were `seen` at the
    points that were tried. A point that is worse than the one before is forgotten."""
    energy, gradient, hessian = seen
    hessian = (hessian + hessian.swapaxes(1, 2)) / 2
    finite = np.isfinite(energy) & np.isfinite(gradient).all(1) & np.isfinite(hessian).all((1, 2))
    better = finite & ~(energy > newton.energy + 1e-3 + 1e-6 * np.abs(energy))
    pick = lambda new, old: np.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)  # noqa: E731
    newton = Newton(
        tried,
        pick(tried.astype(float), newton.at),
        pick(energy, newton.energy),
        pick(gradient, newton.gradient),
        pick(hessian, newton.hessian),
        np.where(better, newton.damping / 10, np.maximum(10 * newton.damping, 1e-2)),
    )
    steps = [_newton_step(*at) for at in zip(newton.gradient, newton.hessian, newton.damping)]
    ahead = newton.at + _shortened(finder, np.array([step for step, _ in steps]))
    gain = np.array([gain for _, gain in steps])
    lowest = newton.energy - np.minimum(gain, 1e9)
    d = tried.shape[1]
    has_mass = lowest < lowest.min() + _NO_MASS + d
    is_open = (~better | (gain > _SETTLED * d)) & has_mass
    newton = newton._replace(tried=np.where(is_open[:, None], ahead, newton.at))
    return Followed(newton, ahead, gain, is_open)


def _newton_step(
    gradient: np.ndarray, hessian: np.ndarray, damping: float
) -> tuple[np.ndarray, float]:
    """Return a damped Newton step, and the energy that it should gain."""
    scale, value, vector = hessian_scale(hessian)
    whitened = vector.T @ (scale * gradient)
    size = np.maximum(np.abs(value), 1e-6)
    step = -scale * (vector @ (whitened / (size + damping)))
    return step, float(np.sum(whitened**2 / size) / 2)


def _shortened(finder: Finder, step: np.ndarray) -> np.ndarray:
    """Return steps (minimum, d) no longer than the finder's draws are wide: a longer one may lead
    to another mode, and that from which it came would be lost."""
    length = np.linalg.norm(np.linalg.solve(finder.roots, step[..., None])[..., 0], axis=1)
    most = np.sqrt(step.shape[1]) + _REACH
    return step * np.minimum(1, most / np.maximum(length, 1e-300))[:, None]


def covariance_of(hessian: np.ndarray) -> np.ndarray:
    """Return the inverse of a Hessian; of a direction that curves downwards, as if upwards."""
    scale, value, vector = hessian_scale(hessian)
    root = scale[:, None] * (vector / np.sqrt(np.maximum(np.abs(value), _FLAT)))
    return root @ root.T


def moved(finder: Finder, minima: np.ndarray, roots: np.ndarray) -> Finder:
    """Return the finder's draws around the minima of all rows, as they are around its own, in the
    scale there."""
    own, k = finder.minima, finder.minimum
    step = np.linalg.solve(finder.roots[k], (finder.draws - own[k])[..., None])
    draws = minima[k] + (roots[k] @ step)[..., 0]
    return Finder(draws, k, minima, roots)
