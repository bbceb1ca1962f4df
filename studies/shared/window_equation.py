"""The slope of the round trip time in the window (Eq. 4), and the equation of its zero."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def round_trip_time_derivative(rate: float, window: ArrayLike, num_replicas: int) -> Array:
    """Return dE[T] / dW for a continuous window, at one rejection rate (Eq. 4).

    2 P {1 + (P-1) x (1 - x + W log r) / (1 - x)^2},  x = r^W.

    >>> round(float(round_trip_time_derivative(0.6, 7, 16)), 3)
    -5.031
    """
    decay = -np.asarray(window, float) * np.log(rate)
    swapped = -np.expm1(-decay)
    bend = np.exp(-decay) * (swapped - decay) / swapped**2
    return 2 * num_replicas * (1 + (num_replicas - 1) * bend)


def window_equation(x: ArrayLike, num_replicas: int) -> Array:
    """Return g(x) = (1-x)^2 + (P-1) x (1 - x + log x), with x = r^W (appendix B.2).

    It has the sign of dE[T] / dW; for P > 3 its only zero in (0, 1) is the optimal window.

    >>> round(float(window_equation(0.03, 16)), 4)
    -0.2006
    """
    x = np.asarray(x, float)
    return (1 - x) ** 2 + (num_replicas - 1) * x * (1 - x + np.log(x))


def window_equation_derivative(x: ArrayLike, num_replicas: int) -> Array:
    """Return g'(x) = (4 - 2P)(x - 1) + (P-1) log x (appendix B.2).

    >>> round(float(window_equation_derivative(0.03, 16)), 4)
    -25.4384
    """
    x = np.asarray(x, float)
    return (4 - 2 * num_replicas) * (x - 1) + (num_replicas - 1) * np.log(x)
