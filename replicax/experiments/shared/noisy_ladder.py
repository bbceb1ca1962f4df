"""Swap rates and round trip times (Lemma 1) of ladders with equal but noisy energies.

Inverse temperatures are evenly spaced, so every pair has the same dT sigma.
"""

import functools
import math
from typing import Any

import numpy as np

from replicax import theory
from replicax.experiments.shared import index_process

SCHEMES = ("DEO", "DEO*")
EXACT, CORRECTED, PAPER = "exact", "corrected", "paper"  # formulas of the swap rate
_COLD, _HOT = index_process.INVERSE_TEMPERATURES


def swap_rate(num_replicas: int, noise: float, kind: str = EXACT) -> float:
    """Return the swap rate of every pair, if energies are equal except for their noise."""
    gap = index_process.inverse_temperature_gap(num_replicas)
    if kind == EXACT:
        return float(theory.swap_probability_under_noise(0.0, gap, noise))
    return float(theory.swap_rate_under_noise(1.0, gap, noise, exponent=kind))  # pyright: ignore


def window_of(scheme: str, num_replicas: int, rate: float) -> int:
    return theory.optimal_window(num_replicas, rate) if scheme == "DEO*" else 1


@functools.cache
def round_trip_time(scheme: str, num_replicas: int, noise: float, kind: str = EXACT) -> float:
    """Return the round trip time of Lemma 1."""
    rate = swap_rate(num_replicas, noise, kind)
    window = window_of(scheme, num_replicas, rate)
    return float(theory.round_trip_time(1 - rate, window, num_replicas))


def sizes_around(noise: float) -> range:
    """Return numbers of replicas from very rare swaps to well above the optimum."""
    span = (_COLD - _HOT) * noise  # dT sigma of two replicas
    return range(max(4, math.ceil(span / 8)), math.ceil(3 * span) + 8)


@functools.cache
def best_size(scheme: str, noise: float, kind: str = EXACT) -> int:
    """Return the number of replicas with the shortest round trip time of Lemma 1."""
    return min(sizes_around(noise), key=lambda size: round_trip_time(scheme, size, noise, kind))


def corollary(noise: float, exponent: Any = CORRECTED) -> theory.ReplicaCount:
    """Return the paper's estimate and bounds, for a geometric ladder of equal dT sigma per pair."""
    hot = math.e  # log(hot / cold) = 1
    return theory.optimal_num_replicas([(_COLD - _HOT) * noise * hot], (1.0, hot), exponent)


def gain_of_window(noise: float, num_replicas: int, kind: str = EXACT) -> float:
    """Return E[T] of DEO divided by E[T] of DEO*."""
    deo, windowed = (round_trip_time(scheme, num_replicas, noise, kind) for scheme in SCHEMES)
    return deo / windowed


def barrier(noise: float) -> float:
    """Return the limit of P r for many replicas: 1 - S = dT sigma / sqrt(pi) for small dT sigma."""
    return (_COLD - _HOT) * noise / math.sqrt(math.pi)


def decay_of_swap_rate() -> float:
    """Return -d log S / d (dT sigma)^2 of the exact rate, between dT sigma = 8 and 9."""
    noise = np.array([8.0, 9.0])
    rates = np.log(theory.swap_probability_under_noise(0.0, 1.0, noise))
    return float(-np.diff(rates)[0] / np.diff(noise**2)[0])
