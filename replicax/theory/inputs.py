"""Checks of the arguments of closed forms, and the helpers that they share."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replicax.errors import at_least, check_number, show

Array = NDArray[np.float64]
Numbers = float | Array


def as_floats(name: str, value: ArrayLike) -> Array:
    """Return numbers as an array of floats."""
    try:
        return np.asarray(value, float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {show(value)}; give numbers.") from None


def check_rejection_rates(
    rejection_rate: ArrayLike, num_replicas: int | None
) -> tuple[Array, int, int]:
    """Return the rates, the number of pairs that share each, and the number of replicas."""
    rates = as_floats("rejection_rate", rejection_rate)
    if not np.all((rates >= 0) & (rates < 1)):
        raise ValueError(
            f"rejection_rate must lie in [0, 1), got {rejection_rate}; it is 1 - swap rate, and "
            "there are no round trips over a pair that never swaps."
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


def check_swap_inputs(
    energy_gap: ArrayLike, inverse_temperature_gap: ArrayLike, energy_noise_std: ArrayLike
) -> tuple[Array, Array, Array]:
    gap = as_floats("energy_gap", energy_gap)
    if not np.all(np.isfinite(gap)):
        raise ValueError(f"energy_gap must be finite, got {energy_gap}; leave diverged pairs out.")
    slope = check_non_negative(inverse_temperature_gap, "inverse_temperature_gap")
    return gap, slope, check_non_negative(energy_noise_std, "energy_noise_std")


def check_non_negative(value: ArrayLike, name: str) -> Array:
    array = as_floats(name, value)
    if not np.all((array >= 0) & np.isfinite(array)):
        raise ValueError(f"{name} must be finite and not negative, got {value}.")
    return array


def check_window(window: ArrayLike) -> Array:
    windows = as_floats("window", window)
    if not np.all((windows >= 1) & np.isfinite(windows)):
        raise ValueError(f"window must be at least 1, got {window}; window=1 is plain DEO.")
    return windows


def check_num_replicas(num_replicas: int) -> int:
    at_least("num_replicas", num_replicas, 2)
    return int(num_replicas)


def check_swap_rate(swap_rate: float) -> float:
    needed = "it must lie strictly between 0 and 1; try 0.4"
    check_number("target_swap_rate", swap_rate, lambda x: 0 < x < 1, needed)
    return float(swap_rate)


def check_temperatures(temperatures: ArrayLike) -> Array:
    """Return (cold, hot) or one temperature per rung, positive and increasing."""
    array = as_floats("temperatures", temperatures)
    increasing = array.ndim == 1 and array.size >= 2 and bool(np.all(np.diff(array) > 0))
    if not increasing or array[0] <= 0 or not np.isfinite(array[-1]):
        raise ValueError(
            f"temperatures must be positive and increasing, got {temperatures}; give (cold, hot) "
            "or one per rung, coldest first."
        )
    return array


def smallest_integer(holds: Callable[[int], bool], start: int) -> int:
    """Return the smallest integer from `start` on where `holds`, which stays true once true."""
    low, high = start - 1, start
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def as_number(value: Any) -> Numbers:
    """Return a Python float for a single number, an array otherwise."""
    value = np.asarray(value, float)
    return float(value) if value.ndim == 0 else value
