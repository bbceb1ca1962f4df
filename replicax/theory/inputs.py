"""Checks of the arguments of closed forms, and the helpers that they share."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replicax.errors import at_least, check_number, show

Array = NDArray[np.float64]
Numbers = float | Array


def as_floats(name: str, value: ArrayLike, holds: Callable[[Array], Any], needed: str) -> Array:
    """Return numbers as an array of floats, all of which must be as `needed`."""
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {show(value)}; give numbers.") from None
    if not np.all(holds(array)):  # NaN fails, too
        raise ValueError(f"{name} is {show(value)}; it must {needed}.")
    return array


def check_rejection_rates(
    rejection_rate: ArrayLike, num_replicas: int | None
) -> tuple[Array, int, int]:
    """Return the rates, the number of pairs that share each, and the number of replicas."""
    needed = "lie in [0, 1): it is 1 - swap rate, and nothing passes a pair that never swaps"
    rates = as_floats("rejection_rate", rejection_rate, lambda r: (r >= 0) & (r < 1), needed)
    if rates.ndim > 1:
        raise ValueError(f"rejection_rate has shape {rates.shape}; give a number or one per pair.")
    if rates.ndim == 0 and num_replicas is None:
        raise ValueError("a single rejection_rate needs num_replicas; or give one rate per pair.")
    count = check_num_replicas(rates.size + 1 if num_replicas is None else num_replicas)
    if rates.ndim == 0:
        return rates[None], count - 1, count
    if count != rates.size + 1:
        raise ValueError(
            f"{rates.size} rejection rates belong to {rates.size + 1} replicas, not to "
            f"{num_replicas}; give one rate per pair, or leave num_replicas out."
        )
    return rates, 1, count


def check_swap_inputs(
    energy_gap: ArrayLike, inverse_temperature_gap: ArrayLike, energy_noise_std: ArrayLike
) -> tuple[Array, Array, Array]:
    """Return the three as arrays."""
    needed = "be finite; leave diverged pairs out"
    return (
        as_floats("energy_gap", energy_gap, np.isfinite, needed),
        check_non_negative("inverse_temperature_gap", inverse_temperature_gap),
        check_non_negative("energy_noise_std", energy_noise_std),
    )


def check_non_negative(name: str, value: ArrayLike) -> Array:
    """Return finite numbers of at least 0."""
    return as_floats(name, value, lambda x: (x >= 0) & np.isfinite(x), "be finite and not negative")


def check_num_replicas(num_replicas: int) -> int:
    """Return the number of replicas of a ladder."""
    at_least("num_replicas", num_replicas, 2)
    return int(num_replicas)


def check_swap_rate(swap_rate: float) -> float:
    """Return a target swap rate."""
    needed = "it must lie strictly between 0 and 1; try 0.4"
    check_number("target_swap_rate", swap_rate, lambda x: 0 < x < 1, needed)
    return float(swap_rate)


def check_temperatures(temperatures: ArrayLike) -> Array:
    """Return (cold, hot) or one temperature per rung, positive and increasing."""
    return as_floats(
        "temperatures",
        temperatures,
        lambda t: t.ndim == 1 and t.size > 1 and t[0] > 0 and t[-1] < np.inf and np.diff(t) > 0,
        "be positive and increasing: (cold, hot), or one per rung, coldest first",
    )


def smallest_integer(holds: Callable[[int], bool], start: int) -> int:
    """Return the smallest integer from `start` on where `holds`, which stays true once true."""
    low, high = start - 1, start
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def as_number(value: ArrayLike) -> Numbers:
    """Return a Python float for a single number, an array otherwise."""
    value = np.asarray(value, float)
    return float(value) if value.ndim == 0 else value
