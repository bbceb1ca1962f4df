"""Closed forms of swaps under noisy energies: swap probabilities, buffer, number of replicas.

A stochastic energy is taken as normal (C1); `energy_noise_std` is sigma_p, where the noisy energy
difference of a pair has variance 2 sigma_p^2 (Eq. 14).

Log-probabilities of the bias-corrected rule are accurate in both tails. With d = dU / (sqrt(2)
sigma), b = sqrt(2) dT sigma, u = d - b/2 and v = d + b/2, the rule accepts with probability
Phi(u) + e^{bd} Phi(-v) and, because e^{bd} phi(v) = phi(u), rejects with probability
phi(u) (m(u) - m(v)), m(x) = Phi(-x) / phi(x) being Mills' ratio.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replicax.errors import choose
from replicax.theory import inputs
from replicax.theory.inputs import Numbers, as_number

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


Exponent = Literal["corrected", "paper"]

# Noise costs a factor exp(-(dT sigma)^2 / divisor). The paper divides by 8, the value for a
# difference of variance sigma^2; its own Eq. 14 says 2 sigma^2, hence 4.
_EXPONENT_DIVISOR = {"corrected": 4.0, "paper": 8.0}


class ReplicaCount(NamedTuple):
    """The number of replicas of a noisy ladder (the corollary on the number of chains)."""

    num_replicas: int  # minimiser for the pair that needs most
    lower: float  # 1.1 min_p mu_p
    upper: float  # sqrt(2) max_p mu_p


def swap_probability_under_noise(
    energy_gap: ArrayLike, inverse_temperature_gap: ArrayLike, energy_noise_std: ArrayLike
) -> Numbers:
    """Return the mean swap probability of the bias-corrected rule (Eq. 15, appendix C.1).

    E[min(1, exp(dT (dU + sqrt(2) sigma xi) - dT^2 sigma^2))], where dU = U^(p) - U^(p+1) is the
    energy on the colder rung minus that on the hotter. Without noise: the Metropolis rule.

    >>> round(swap_probability_under_noise(0.0, 0.9, 3.0), 4)
    0.0562
    """
    gap, slope, noise = inputs.check_swap_inputs(
        energy_gap, inverse_temperature_gap, energy_noise_std
    )
    metropolis = np.exp(np.minimum(0.0, slope * gap))
    noisy = slope * noise > 0
    corrected = np.exp(log_accept(gap, np.where(noisy, slope, 1.0), np.where(noisy, noise, 1.0)))
    return as_number(np.where(noisy, corrected, metropolis))


def deterministic_swap_probability(
    energy_gap: ArrayLike, buffer: ArrayLike, energy_noise_std: ArrayLike
) -> Numbers:
    """Return the probability that a noisy energy difference exceeds the buffer (Eq. 7, C.1).

    P(dU + sqrt(2) sigma xi > C) = Phi((dU - C) / (sqrt(2) sigma)).

    >>> round(deterministic_swap_probability(0.0, 6.734, 3.0), 4)
    0.0562
    """
    from scipy.special import ndtr

    noise = inputs.check_non_negative("energy_noise_std", energy_noise_std)
    margin = np.asarray(energy_gap, float) - np.asarray(buffer, float)
    scale = math.sqrt(2) * np.where(noise > 0, noise, 1.0)
    return as_number(np.where(noise > 0, ndtr(margin / scale), margin > 0))


def optimal_buffer(
    energy_gap: ArrayLike, inverse_temperature_gap: ArrayLike, energy_noise_std: ArrayLike
) -> Numbers:
    """Return C_star, where both rules have the same swap probability (Lemma 2).

    C = dU - sqrt(2) sigma Phi^{-1}(`swap_probability_under_noise`). At most dT sigma^2, but not
    always positive as the lemma assumes: at dU = 0 only where dT sigma > 0.954.

    >>> round(optimal_buffer(0.0, 0.9, 3.0), 3)
    6.734
    >>> round(optimal_buffer(0.0, 0.9, 0.5), 3)
    -0.478
    """
    from scipy.special import ndtri_exp

    gap, slope, noise = inputs.check_swap_inputs(
        energy_gap, inverse_temperature_gap, energy_noise_std
    )
    if not np.all(slope * noise > 0):
        raise ValueError(
            "optimal_buffer needs inverse_temperature_gap > 0 and energy_noise_std > 0: without "
            "noise no buffer has the same swap probability; use the Metropolis rule."
        )
    accept, reject = log_accept(gap, slope, noise), log_reject(gap, slope, noise)
    # Invert the smaller of the two probabilities: the other is 1 to rounding in the tails.
    quantile = np.where(accept < math.log(0.5), ndtri_exp(accept), -ndtri_exp(reject))
    return as_number(np.minimum(gap - math.sqrt(2) * noise * quantile, slope * noise**2))


def optimal_num_replicas(
    energy_noise_std: ArrayLike, temperatures: ArrayLike, exponent: Exponent = "corrected"
) -> ReplicaCount:
    """Return the optimal number of replicas for bias-corrected swaps (corollary 1, appendix B.3).

    Minimises h_p(P) = log P + log log P + mu_p^2 / P^2 over integers P >= 4 (the paper's domain;
    4 means that the noise needs no more), mu_p = sigma_p log(hot / cold) / (c tau^(p+1)), c = 2,
    or 2 sqrt(2) with `exponent="paper"`. The bounds 1.1 min_p mu_p and sqrt(2) max_p mu_p hold for
    a minimiser of 5 or more.

    `temperatures` is (cold, hot) of a geometric ladder, or one value per rung; `energy_noise_std`
    is one value, or one per pair. With (cold, hot) and one noise level, tau^(p+1) ranges over all
    of [cold, hot].

    >>> count = optimal_num_replicas(30.0, (1.0, 10.0))
    >>> count.num_replicas, round(count.lower, 1), round(count.upper, 1)
    (43, 3.8, 48.8)
    """
    divisor = _EXPONENT_DIVISOR[choose("exponent", exponent, _EXPONENT_DIVISOR)]
    temperatures = inputs.check_temperatures(temperatures)
    noise = inputs.check_non_negative("energy_noise_std", energy_noise_std)
    upper_rung = temperatures[1:]
    if temperatures.size == 2:
        geometric = np.geomspace(temperatures[0], temperatures[1], noise.size + 1)
        upper_rung = temperatures if noise.ndim == 0 else geometric[1:]
    if noise.ndim > 1 or noise.shape not in ((), upper_rung.shape):
        raise ValueError(
            f"energy_noise_std has shape {noise.shape} but the ladder has {upper_rung.size} pairs; "
            "give one number, or one per pair."
        )
    log_ratio = math.log(temperatures[-1] / temperatures[0])
    mu = noise / upper_rung * log_ratio / math.sqrt(divisor)
    hardest = float(mu.max())

    def next_is_no_faster(num: int) -> bool:
        growth = math.log1p(1 / num) + math.log1p(math.log1p(1 / num) / math.log(num))
        relief = (hardest / num - hardest / (num + 1)) * (hardest / num + hardest / (num + 1))
        return growth >= relief

    best = inputs.smallest_integer(next_is_no_faster, start=4)
    return ReplicaCount(best, 1.1 * float(mu.min()), math.sqrt(2) * hardest)
