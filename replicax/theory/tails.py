"""Log-probabilities of the bias-corrected rule under normal noise, accurate in both tails.

With d = dU / (sqrt(2) sigma), b = sqrt(2) dT sigma, u = d - b/2 and v = d + b/2, the rule
accepts with probability Phi(u) + e^{bd} Phi(-v) and, because e^{bd} phi(v) = phi(u), rejects with
probability phi(u) (m(u) - m(v)), m(x) = Phi(-x) / phi(x) being Mills' ratio.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Intervals narrower than this fraction of their scale are integrated by the midpoint rule, whose
# error (about the fraction squared) is then smaller than that of subtracting two rounded values.
_NARROW = 1e-5


def log_accept(energy_gap: Array, inverse_temperature_gap: Array, noise: Array) -> Array:
    """Return log E[min(1, e^{dT dU~ - dT^2 sigma^2})], the log-probability of accepting."""
    from scipy.special import log_ndtr

    d, b = energy_gap / (math.sqrt(2) * noise), math.sqrt(2) * inverse_temperature_gap * noise
    log_ratio = inverse_temperature_gap * energy_gap
    both = np.logaddexp(log_ndtr(d - b / 2), log_ratio + log_ndtr(-d - b / 2))
    return np.minimum(both, 0.0)


def log_reject(energy_gap: Array, inverse_temperature_gap: Array, noise: Array) -> Array:
    """Return the log-probability of rejecting, accurate where that of accepting is 1/2 or more."""
    d, b = energy_gap / (math.sqrt(2) * noise), math.sqrt(2) * inverse_temperature_gap * noise
    with np.errstate(all="ignore"):  # each branch may overflow where the other one is taken
        return np.where(d < 0, np.log(_reject_below(d, b)), _log_reject_above(d, b))


def _reject_below(d: Array, b: Array) -> Array:
    """Return (1 - e^{bd}) Phi(-v) + Phi(v) - Phi(u): two positive terms where d < 0."""
    from scipy.special import ndtr

    u, v = d - b / 2, d + b / 2
    density = np.exp(-(d**2) / 2) / math.sqrt(2 * math.pi)
    between = np.where(b < _NARROW, b * density, ndtr(v) - ndtr(u))
    return -np.expm1(b * d) * ndtr(-v) + between


def _log_reject_above(d: Array, b: Array) -> Array:
    """Return log phi(u) (m(u) - m(v)) where d >= 0."""
    from scipy.special import erfcx

    def mills(x: Array) -> Array:
        return math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))

    u, v = d - b / 2, d + b / 2
    far = np.maximum(d, 1.0)  # the continued fraction of 1 - d m(d) holds for large d only
    fraction = 1 / (far + 2 / (far + 3 / (far + 4 / (far + 5 / far))))
    slope = np.where(d > 30, fraction / (far + fraction), 1 - d * mills(d))
    drop = np.where(b < _NARROW * (1 + d), b * slope, mills(u) - mills(v))
    return -(u**2) / 2 - math.log(2 * math.pi) / 2 + np.log(drop)
