"""The stationary law of two replicas on two modes, solved on a grid: the chain of appendix C.3.

The only pair is active in every window. Both rungs move on the same grid, so one step takes the
joint masses X (cold, hot) to K_cold X K_hot'. Of the mass with an open gate the share S(cold, hot)
swaps: it is transposed, and its gate is closed for the rest of the window. A window is a linear
map, and its fixed point is the stationary law.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.polynomial.chebyshev import chebinterpolate

import replicax as rx
from replicax import theory

_PRECISION = 1e-7  # of a power of the step
_MAX_ITERATIONS = 30
_RESIDUAL = 1e-6  # of the stationary law: its allowed change in a hundred steps


class TwoModes(NamedTuple):
    """A mixture of two Gaussians, and the SGLD chain of two replicas on it."""

    means: tuple[float, float]
    stds: tuple[float, float]
    learning_rate: float
    grid: tuple[float, float, int]  # first point, last point, number of points
    weights: tuple[float, float] = (0.4, 0.6)
    temperatures: tuple[float, float] = (1.0, 10.0)

    def points(self) -> np.ndarray:
        return np.linspace(*self.grid)

    def log_densities(self) -> np.ndarray:
        """Return the weighted log densities of both components  -> (point, component)."""
        std = np.array(self.stds)
        scaled = (self.points()[:, None] - np.array(self.means)) / std
        return np.log(np.array(self.weights) / std) - scaled**2 / 2 - np.log(2 * np.pi) / 2

    def energy(self) -> np.ndarray:
        return -np.logaddexp(*self.log_densities().T)

    def gradient(self) -> np.ndarray:
        shares = np.exp(self.log_densities() + self.energy()[:, None])
        slopes = (self.points()[:, None] - np.array(self.means)) / np.array(self.stds) ** 2
        return np.sum(shares * slopes, axis=1)

    def truth(self) -> np.ndarray:
        """Return the masses of the target  -> (point,)."""
        density = np.exp(-self.energy())
        return density / density.sum()

    def target(self, energy_noise_std: float = 0.0) -> rx.Target:
        """Return the mixture as a target: exact gradients, Gaussian noise on energies."""
        mean, std, weight = (jnp.array(values) for values in (self.means, self.stds, self.weights))

        def exact(x: Any) -> Any:
            log_parts = jnp.log(weight / std) - 0.5 * ((x - mean) / std) ** 2
            return -jax.nn.logsumexp(log_parts) + 0.5 * jnp.log(2 * jnp.pi)

        return rx.Target(
            energy=lambda x, batch, noise: exact(x) + energy_noise_std * noise,
            gradient=lambda x, batch, noise: jax.grad(exact)(x),
            noise=lambda key: jax.random.normal(key),
        )

    def moves(self, temperature: float) -> np.ndarray:
        """Return the matrix of one SGLD step, from the masses before to the masses after."""
        x, variance = self.points(), 2 * self.learning_rate * temperature
        mean = x - self.learning_rate * self.gradient()
        density = np.exp(-((x - mean[:, None]) ** 2) / (2 * variance))
        density[density < 1e-12] = 0  # denormal numbers would be slow
        return (density / density.sum(axis=1, keepdims=True)).T

    def left_of(self, masses: np.ndarray) -> float:
        """Return the mass below 0."""
        x = self.points()
        return float(masses[x < -1e-9].sum() + masses[np.abs(x) < 1e-9].sum() / 2)


# The grid spacing is about the step of the cold rung, 0.14; half of it changes no mass by 0.0005.
OF_THE_PAPER = TwoModes((-4.0, 3.0), (0.7, 0.5), 0.01, grid=(-12.0, 9.5, 145))


class Solution(NamedTuple):
    """The stationary chain, averaged over the steps of a window."""

    cold: np.ndarray  # masses of the cold rung        shape (point,)
    left: float  # mass of the cold rung below 0
    distance: float  # total variation between the cold rung and the target
    swaps_per_window: float
    start: np.ndarray  # masses of both rungs at the start of a window   shape (cold, hot)


def solve(
    modes: TwoModes,
    energy_noise_std: float,
    window: int,
    window_correction: float = 0.0,
    gated: bool = True,
    guess: np.ndarray | None = None,
) -> Solution:
    """Return the stationary law under the rule `window_corrected`; `gated=False` is "no_gate".

    >>> solution = solve(OF_THE_PAPER, energy_noise_std=3.0, window=10)
    >>> round(solution.left, 3), round(solution.swaps_per_window, 3)
    (0.425, 0.249)
    """
    one_window = _Window(modes, energy_noise_std, window, window_correction, gated)
    if guess is None:
        energy = modes.energy()
        guess = np.exp(-energy[:, None] - energy[None, :] / modes.temperatures[1])
    start = _fixed_point(one_window, guess / guess.sum())
    mean, swapped = one_window.average(start)
    cold = mean.sum(axis=1)
    distance = np.abs(cold - modes.truth()).sum() / 2
    return Solution(cold, modes.left_of(cold), float(distance), swapped, start)


def solve_correction(
    modes: TwoModes, energy_noise_std: float, window: int, left: float, uncorrected: Solution
) -> tuple[float, Solution]:
    """Return the lambda_W for which the cold rung has the left mass `left`, and its solution.

    Regula falsi on a curve that is nearly straight: four or five solutions.
    """
    guess = min(1.0 + np.log10(window), 4.0)
    tried = [(0.0, uncorrected)]
    while abs(tried[-1][1].left - left) > 5e-5 and len(tried) < 12:
        if len(tried) > 1:
            (one, first), (other, second) = sorted(tried, key=lambda t: abs(t[1].left - left))[:2]
            guess = one + (left - first.left) * (other - one) / (second.left - first.left)
        start = tried[-1][1].start
        tried.append((guess, solve(modes, energy_noise_std, window, guess, guess=start)))
    return tried[-1]


class _Window:
    """The linear map of a window on masses (cold, gate, hot); gate 0 is open, 1 closed."""

    def __init__(
        self,
        modes: TwoModes,
        energy_noise_std: float,
        window: int,
        window_correction: float,
        gated: bool,
    ) -> None:
        self.window, self.gated = window, gated
        self.cold_moves, self.hot_moves = (modes.moves(t) for t in modes.temperatures)
        energy, (cold, hot) = modes.energy(), modes.temperatures
        slope = 1 / cold - 1 / hot
        gap = energy[:, None] - energy[None, :] - window_correction / slope
        self.swaps = theory.swap_probability_under_noise(gap, slope, energy_noise_std)

    def move(self, masses: np.ndarray) -> np.ndarray:
        """Return K_cold X K_hot' for both gates."""
        cold, gate, hot = masses.shape
        moved = self.cold_moves @ masses.reshape(cold, gate * hot)
        return (moved.reshape(cold * gate, hot) @ self.hot_moves.T).reshape(cold, gate, hot)

    def step(self, masses: np.ndarray) -> np.ndarray:
        moved = self.move(masses)
        swapped = moved[:, 0] * self.swaps
        moved[:, 0] -= swapped
        moved[:, 1 if self.gated else 0] += swapped.T
        return moved

    def polynomial(self, coefficients: np.ndarray, start: np.ndarray) -> np.ndarray:
        """Return sum_k c_k T_k(G) applied to `start`, where G is one step."""
        before, now = start, self.step(start)
        total = coefficients[0] * before + coefficients[1] * now
        for coefficient in coefficients[2:]:
            before, now = now, 2 * self.step(now) - before
            total += coefficient * now
        return total

    def end(self, start: np.ndarray) -> np.ndarray:
        """Return the masses (cold, hot) after the window."""
        return self.polynomial(_power(self.window), _opened(start)).sum(axis=1)

    def average(self, start: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the masses (cold, hot) averaged over the steps of the window, and its swaps."""
        before = self.polynomial(_mean_power(self.window), _opened(start))
        swapped = self.window * np.sum(self.move(before)[:, 0] * self.swaps)
        return self.step(before).sum(axis=1), float(swapped)


def _opened(joint: np.ndarray) -> np.ndarray:
    return np.stack([joint, np.zeros_like(joint)], axis=1)


def _expand(polynomial: Any, window: int) -> np.ndarray:
    """Return Chebyshev coefficients of a polynomial of degree `window`.

    Those of x^W vanish beyond sqrt(2 W log(2 / precision)): 318 steps of the chain are enough for a
    window of 3,000.
    """
    degree = min(window, int(np.sqrt(2 * window * np.log(2 / _PRECISION))) + 1)
    return chebinterpolate(polynomial, degree)


@functools.cache
def _power(window: int) -> np.ndarray:
    """Return the Chebyshev coefficients of x^W."""
    return _expand(lambda x: x**window, window)


@functools.cache
def _mean_power(window: int) -> np.ndarray:
    """Return the Chebyshev coefficients of the mean of 1, x, ..., x^(W-1)."""
    return _expand(lambda x: np.mean(x[:, None] ** np.arange(window), axis=1), window)


def _fixed_point(one_window: _Window, joint: np.ndarray) -> np.ndarray:
    """Return the joint law that a window does not change, by Anderson acceleration.

    An iteration of about a hundred steps damps all but the slowest eigenmode, the exchange between
    the two modes, which the extrapolation handles.
    """
    repeats = max(1, 100 // one_window.window)
    laws, changes = [], []
    for _ in range(_MAX_ITERATIONS):
        after = joint
        for _ in range(repeats):
            after = one_window.end(after)
        after = after / after.sum()
        laws.append(after.ravel())
        changes.append(laws[-1] - joint.ravel())
        if np.abs(changes[-1]).sum() < _RESIDUAL:
            return after
        if len(laws) > 1:
            steps = np.stack([change - changes[-1] for change in changes[:-1]], axis=1)
            weights = np.linalg.lstsq(steps, -changes[-1], rcond=None)[0]
            mixed = laws[-1] + sum(
                w * (law - laws[-1]) for w, law in zip(weights, laws[:-1], strict=True)
            )
            after = mixed.reshape(joint.shape)
        joint = after
    raise RuntimeError(f"The stationary law did not converge in {_MAX_ITERATIONS} iterations.")
