"""Closed forms of the paper: numbers in, numbers out, no sampling.

Round trips treat the verdicts of a pair as independent coin flips (assumptions B1, B2); everything
about noise treats a stochastic energy as normal (C1).  `rejection_rate` is r_p, the chance that the
rule says no to a pair in one step; `energy_noise_std` is sigma_p, where the noisy energy difference
of a pair has variance 2 sigma_p^2 (Eq. 14).
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replicax.theory.inputs import (
    at_least_zero,
    check_fraction,
    check_num_replicas,
    check_swap_rate,
    check_temperatures,
    check_window,
    ladder_of,
    swap_inputs,
)
from replicax.theory.tails import log_no, log_yes

Numbers = float | NDArray[np.float64]
Exponent = Literal["corrected", "paper"]

# The noise costs a factor exp(-(dT sigma)^2 / divisor).  The paper divides by 8, the value for a
# difference of variance sigma^2; its own Eq. 14 says 2 sigma^2, hence 4.
_EXPONENT_DIVISOR = {"corrected": 4.0, "paper": 8.0}


class ReplicaCount(NamedTuple):
    """How many replicas a noisy ladder is worth (the corollary on the number of chains)."""

    num_replicas: int  # minimiser for the pair that asks for most
    lower: float  # 1.1 min_p mu_p
    upper: float  # sqrt(2) max_p mu_p


def round_trip_time(
    rejection_rate: ArrayLike, window: ArrayLike = 1, num_replicas: int | None = None
) -> Numbers:
    """Expected steps of one replica's round trip under DEO_W (Lemma 1, Eq. 3).

    E[T] = 2 W P (1 + sum_p r_p^W / (1 - r_p^W)).  One rate with `num_replicas`, or one rate per
    pair.  `window` need not be an integer; an array of windows gives an array of times.

    >>> round(round_trip_time(0.6, 8, num_replicas=16), 2)
    321.6
    >>> round(round_trip_time([0.5, 0.6, 0.7], window=2), 2)
    45.71
    """
    rates, repeats, num_replicas = ladder_of(rejection_rate, num_replicas)
    windows = check_window(window)
    retries = repeats * _odds(rates, windows[..., None]).sum(axis=-1)
    return _plain(2 * windows * num_replicas * (1 + retries))


def round_trip_rate(
    rejection_rate: ArrayLike, window: ArrayLike = 1, num_replicas: int | None = None
) -> Numbers:
    """Round trips per step, all replicas together: P / E[T] (after Lemma 1).

    >>> round(1000 * round_trip_rate(0.6, 8, num_replicas=16), 2)
    49.75
    """
    num_replicas = ladder_of(rejection_rate, num_replicas)[2]
    return num_replicas / round_trip_time(rejection_rate, window, num_replicas)


def round_trip_time_derivative(
    rejection_rate: ArrayLike, window: ArrayLike, num_replicas: int | None = None
) -> Numbers:
    """dE[T] / dW with the window taken as continuous (Eq. 4; unequal rates: appendix B.2).

    2 P {1 + sum_p x_p (1 - x_p + W log r_p) / (1 - x_p)^2},  x_p = r_p^W.

    >>> round(round_trip_time_derivative(0.6, 7, num_replicas=16), 3)
    -5.031
    """
    rates, repeats, num_replicas = ladder_of(rejection_rate, num_replicas)
    decay = check_window(window)[..., None] * _decay(rates)
    bounded = np.where(np.isinf(decay), 1.0, decay)  # r = 0 adds nothing: x (1 - x + log x) -> 0
    swapped = -np.expm1(-bounded)
    bend = np.where(np.isinf(decay), 0.0, np.exp(-bounded) * (swapped - bounded) / swapped**2)
    return _plain(2 * num_replicas * (1 + repeats * bend.sum(axis=-1)))


def window_equation(x: ArrayLike, num_replicas: int) -> Numbers:
    """g(x) = (1-x)^2 + (P-1) x (1 - x + log x), with x = r^W (appendix B.2).

    It has the sign of dE[T] / dW; for P > 3 its one zero in (0, 1) is the best window.

    >>> round(window_equation(0.03, num_replicas=16), 4)
    -0.2006
    """
    x, num_replicas = check_fraction(x), check_num_replicas(num_replicas)
    return _plain((1 - x) ** 2 + (num_replicas - 1) * x * (1 - x + np.log(x)))


def window_equation_derivative(x: ArrayLike, num_replicas: int) -> Numbers:
    """g'(x) = (4 - 2P)(x - 1) + (P-1) log x (appendix B.2).

    >>> round(window_equation_derivative(0.03, num_replicas=16), 4)
    -25.4384
    """
    x, num_replicas = check_fraction(x), check_num_replicas(num_replicas)
    return _plain((4 - 2 * num_replicas) * (x - 1) + (num_replicas - 1) * np.log(x))


def round_trip_time_seo(rejection_rate: ArrayLike, num_replicas: int | None = None) -> float:
    """Expected steps of a round trip when a coin picks even or odd pairs at every step.

    E[T] = 2 P (P-1) + 2 P sum_p r_p / (1 - r_p): SEO in Table 1, quadratic in P at any rate.

    >>> round(round_trip_time_seo(0.6, num_replicas=16), 6)
    1200.0
    """
    rates, repeats, num_replicas = ladder_of(rejection_rate, num_replicas)
    retries = repeats * _odds(rates, 1.0).sum()
    return float(2 * num_replicas * (num_replicas - 1 + retries))


def round_trip_time_adj(rejection_rate: ArrayLike, num_replicas: int | None = None) -> float:
    """Expected *sweeps* of a round trip under ADJ: pairs 0, 1, ..., P-2 attempted in sequence.

    E[T] = P (1 + sum_p r_p / (1 - r_p)), half of DEO: Table 1's O(P^2) is not its limit at small
    rejection rates.  A sweep waits for P-1 attempts, so count its cost as P-1 in a row.

    >>> round(round_trip_time_adj(0.6, num_replicas=16), 6)
    376.0
    """
    rates, repeats, num_replicas = ladder_of(rejection_rate, num_replicas)
    return float(num_replicas * (1 + repeats * _odds(rates, 1.0).sum()))


def optimal_window(num_replicas: int, target_swap_rate: float, exact: bool = False) -> int:
    """The window with the shortest round trip: Theorem 1, or the integer argmin of Lemma 1.

    W_star = ceil((log P + log log P) / -log(1 - S)), and 1 for P <= 3.  The closed form is
    asymptotic and can lose to window 1 where few replicas swap often: at P = 4 it does for r from
    0.2 to 0.7, at larger P only for smaller r.  `exact=True` never does.

    >>> optimal_window(16, 0.4), optimal_window(16, 0.4, exact=True)
    (8, 7)
    >>> optimal_window(10, 0.005), optimal_window(10, 0.005, exact=True)
    (626, 604)
    """
    num_replicas = check_num_replicas(num_replicas)
    decay = -math.log1p(-check_swap_rate(target_swap_rate))
    if num_replicas <= 3:
        return 1
    if not exact:
        log_p = math.log(num_replicas)
        return math.ceil((log_p + math.log(log_p)) / decay)

    def next_is_no_faster(window: int) -> bool:
        # The sign of E[T](W+1) - E[T](W), rearranged because at S = 1e-6 neighbouring times agree
        # to 13 digits and their difference would be rounding.
        here, there = -math.expm1(-decay * window), -math.expm1(-decay * (window + 1))
        saved = (here - window * math.expm1(decay)) * math.exp(-decay * (window + 1))
        return 1 + (num_replicas - 1) * saved / (here * there) >= 0

    return _first(next_is_no_faster, start=1)  # E[T] falls, then rises (appendix B.2.1)


def optimal_num_replicas(
    energy_noise_std: ArrayLike, temperatures: ArrayLike, exponent: Exponent = "corrected"
) -> ReplicaCount:
    """The number of replicas that bias-corrected swaps are worth (corollary 1, appendix B.3).

    Minimises h_p(P) = log P + log log P + mu_p^2 / P^2 over integers P >= 4 (the paper's domain;
    4 means that noise asks for no more), mu_p = sigma_p log(hot / cold) / (c tau^(p+1)), c = 2, or
    2 sqrt(2) with `exponent="paper"`.  The bounds 1.1 min_p mu_p and sqrt(2) max_p mu_p hold for a
    minimiser of 5 or more.

    `temperatures` is (cold, hot), read as a geometric ladder, or one value per rung;
    `energy_noise_std` one value, or one per pair.  With (cold, hot) and one noise level tau^(p+1)
    ranges over all of [cold, hot].

    >>> count = optimal_num_replicas(30.0, (1.0, 10.0))
    >>> count.num_replicas, round(count.lower, 1), round(count.upper, 1)
    (43, 3.8, 48.8)
    """
    temperatures = check_temperatures(temperatures)
    noise = at_least_zero(energy_noise_std, "energy_noise_std")
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
    mu = noise / upper_rung * log_ratio / math.sqrt(_divisor(exponent))
    hardest = float(mu.max())

    def next_is_no_faster(num: int) -> bool:
        growth = math.log1p(1 / num) + math.log1p(math.log1p(1 / num) / math.log(num))
        relief = (hardest / num - hardest / (num + 1)) * (hardest / num + hardest / (num + 1))
        return growth >= relief

    best = _first(next_is_no_faster, start=4)
    return ReplicaCount(best, 1.1 * float(mu.min()), math.sqrt(2) * hardest)


def swap_rate_under_noise(
    swap_rate: ArrayLike,
    inverse_temperature_gap: ArrayLike,
    energy_noise_std: ArrayLike,
    exponent: Exponent = "corrected",
) -> Numbers:
    """What noise leaves of a full-batch swap rate: S exp(-dT^2 sigma^2 / 4) (appendix A.3, B.3).

    dT = 1/tau^(p) - 1/tau^(p+1).  An order of magnitude, not a value: constants are dropped, and
    `exponent="paper"` has 8 in place of 4.

    >>> round(swap_rate_under_noise(0.4, 0.9, 3.0), 4)
    0.0646
    """
    rate = np.asarray(swap_rate, float)
    if not np.all((rate >= 0) & (rate <= 1)):
        raise ValueError(f"swap_rate must lie in [0, 1], got {swap_rate}; give a probability.")
    gap = at_least_zero(inverse_temperature_gap, "inverse_temperature_gap")
    noise = at_least_zero(energy_noise_std, "energy_noise_std")
    return _plain(rate * np.exp(-((gap * noise) ** 2) / _divisor(exponent)))


def swap_probability_under_noise(
    energy_gap: ArrayLike, inverse_temperature_gap: ArrayLike, energy_noise_std: ArrayLike
) -> Numbers:
    """How often the bias-corrected rule says yes, noise averaged out (Eq. 15, appendix C.1).

    E[min(1, exp(dT (dU + sqrt(2) sigma xi) - dT^2 sigma^2))], where dU = U^(p) - U^(p+1) is the
    energy on the colder rung minus that on the hotter.  Without noise it is the Metropolis rule.

    >>> round(swap_probability_under_noise(0.0, 0.9, 3.0), 4)
    0.0562
    """
    gap, slope, noise = swap_inputs(energy_gap, inverse_temperature_gap, energy_noise_std)
    metropolis = np.exp(np.minimum(0.0, slope * gap))
    noisy = slope * noise > 0
    corrected = np.exp(log_yes(gap, np.where(noisy, slope, 1.0), np.where(noisy, noise, 1.0)))
    return _plain(np.where(noisy, corrected, metropolis))


def deterministic_swap_probability(
    energy_gap: ArrayLike, buffer: ArrayLike, energy_noise_std: ArrayLike
) -> Numbers:
    """How often noise carries the energy difference over the buffer (Eq. 7, appendix C.1).

    P(dU + sqrt(2) sigma xi > C) = Phi((dU - C) / (sqrt(2) sigma)).

    >>> round(deterministic_swap_probability(0.0, 6.734, 3.0), 4)
    0.0562
    """
    from scipy.special import ndtr

    noise = at_least_zero(energy_noise_std, "energy_noise_std")
    margin = np.asarray(energy_gap, float) - np.asarray(buffer, float)
    scale = math.sqrt(2) * np.where(noise > 0, noise, 1.0)
    return _plain(np.where(noise > 0, ndtr(margin / scale), margin > 0))


def optimal_buffer(
    energy_gap: ArrayLike, inverse_temperature_gap: ArrayLike, energy_noise_std: ArrayLike
) -> Numbers:
    """C_star: where the deterministic rule says yes as often as the bias-corrected (Lemma 2).

    C = dU - sqrt(2) sigma Phi^{-1}(`swap_probability_under_noise`).  Never above dT sigma^2, but
    not always positive as the lemma wants: at dU = 0 only where dT sigma > 0.954.

    >>> round(optimal_buffer(0.0, 0.9, 3.0), 3)
    6.734
    >>> round(optimal_buffer(0.0, 0.9, 0.5), 3)
    -0.478
    """
    from scipy.special import ndtri_exp

    gap, slope, noise = swap_inputs(energy_gap, inverse_temperature_gap, energy_noise_std)
    if not np.all(slope * noise > 0):
        raise ValueError(
            "optimal_buffer needs inverse_temperature_gap > 0 and energy_noise_std > 0: without "
            "noise a deterministic rule cannot imitate a random one; use the Metropolis rule."
        )
    yes, no = log_yes(gap, slope, noise), log_no(gap, slope, noise)
    # Invert the smaller of the two probabilities: the other is 1 to rounding in the tails.
    quantile = np.where(yes < math.log(0.5), ndtri_exp(yes), -ndtri_exp(no))
    return _plain(np.minimum(gap - math.sqrt(2) * noise * quantile, slope * noise**2))


def _decay(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """-log r, infinite at r = 0."""
    with np.errstate(divide="ignore"):
        return -np.log(rates)


def _odds(rates: NDArray[np.float64], windows: Numbers) -> NDArray[np.float64]:
    """r^W / (1 - r^W), accurate for r near 1."""
    decay = windows * _decay(rates)
    return np.exp(-decay) / -np.expm1(-decay)


def _first(holds: Callable[[int], bool], start: int) -> int:
    """The smallest integer from `start` on at which `holds`, which stays true once true."""
    low, high = start - 1, start
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _plain(value: Any) -> Numbers:
    """A Python float where the answer is one number."""
    value = np.asarray(value, float)
    return float(value) if value.ndim == 0 else value


def _divisor(exponent: Exponent) -> float:
    if exponent not in _EXPONENT_DIVISOR:
        raise ValueError(f'exponent must be "corrected" or "paper", got {exponent!r}.')
    return _EXPONENT_DIVISOR[exponent]
