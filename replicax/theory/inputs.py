"""What `theory` and `plan` accept; errors are sentences with the remedy."""

import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def ladder_of(rejection_rate: ArrayLike, num_replicas: int | None) -> tuple[Array, int, int]:
    """The distinct rates, how often each counts, and the number of replicas."""
    rates = np.asarray(rejection_rate, float)
    if not np.all((rates >= 0) & (rates < 1)):
        raise ValueError(
            f"rejection_rate must lie in [0, 1), got {rejection_rate}; it is 1 - swap rate, and a "
            "pair that never swaps lets nobody make a round trip."
        )
    if rates.ndim == 0:
        if num_replicas is None:
            raise ValueError(
                "a single rejection_rate needs num_replicas; or give one rate per pair."
            )
        num_replicas = check_num_replicas(num_replicas)
        return rates[None], num_replicas - 1, num_replicas
    if rates.ndim > 1:
        raise ValueError(f"rejection_rate has shape {rates.shape}; give a number or one per pair.")
    if num_replicas is not None and check_num_replicas(num_replicas) != rates.size + 1:
        raise ValueError(
            f"{rates.size} rejection rates belong to {rates.size + 1} replicas, not to "
            f"{num_replicas}; give one rate per pair, or leave num_replicas out."
        )
    return rates, 1, check_num_replicas(rates.size + 1)


def swap_inputs(
    energy_gap: ArrayLike, inverse_temperature_gap: ArrayLike, energy_noise_std: ArrayLike
) -> tuple[Array, Array, Array]:
    gap = np.asarray(energy_gap, float)
    if not np.all(np.isfinite(gap)):
        raise ValueError(f"energy_gap must be finite, got {energy_gap}; leave diverged pairs out.")
    slope = at_least_zero(inverse_temperature_gap, "inverse_temperature_gap")
    return gap, slope, at_least_zero(energy_noise_std, "energy_noise_std")


def at_least_zero(value: ArrayLike, name: str) -> Array:
    array = np.asarray(value, float)
    if not np.all((array >= 0) & np.isfinite(array)):
        raise ValueError(f"{name} must be finite and not negative, got {value}; give its size.")
    return array


def check_window(window: ArrayLike) -> Array:
    windows = np.asarray(window, float)
    if not np.all((windows >= 1) & np.isfinite(windows)):
        raise ValueError(f"window must be at least 1, got {window}; window=1 is plain DEO.")
    return windows


def check_fraction(x: ArrayLike) -> Array:
    fractions = np.asarray(x, float)
    if not np.all((fractions > 0) & (fractions <= 1)):
        raise ValueError(f"x must lie in (0, 1], got {x}; it stands for rejection_rate**window.")
    return fractions


def check_num_replicas(num_replicas: int) -> int:
    try:
        count = operator.index(num_replicas)
    except TypeError:
        count = 0
    if count < 2:
        raise ValueError(f"num_replicas must be an integer of at least 2, got {num_replicas!r}.")
    return count


def check_swap_rate(swap_rate: float) -> float:
    if not 0 < swap_rate < 1:
        raise ValueError(
            f"target_swap_rate must lie strictly between 0 and 1, got {swap_rate}; try 0.4."
        )
    return float(swap_rate)


def check_temperatures(temperatures: ArrayLike) -> Array:
    """One increasing positive temperature per rung, or (cold, hot)."""
    array = np.asarray(temperatures, float)
    increasing = array.ndim == 1 and array.size >= 2 and bool(np.all(np.diff(array) > 0))
    if not increasing or array[0] <= 0 or not np.isfinite(array[-1]):
        raise ValueError(
            f"temperatures must be positive and increasing, got {temperatures}; give (cold, hot) "
            "or one per rung, coldest first."
        )
    return array
