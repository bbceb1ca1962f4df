"""Closed forms of round trips and windows (Lemma 1, Theorem 1).

Verdicts of a pair are taken as independent coin flips (assumptions B1, B2); `rejection_rate` is
r_p, the probability that the rule rejects a swap of pair p in one step.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replicax.theory import inputs
from replicax.theory.inputs import Numbers, as_number

_SWAP_RATES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
_ENOUGH = 5  # round trips


def round_trip_time(
    rejection_rate: ArrayLike, window: ArrayLike = 1, num_replicas: int | None = None
) -> Numbers:
    """Return the expected number of steps of one replica's round trip under DEO_W (Lemma 1, Eq. 3).

    E[T] = 2 W P (1 + sum_p r_p^W / (1 - r_p^W)). `rejection_rate` is one rate, with
    `num_replicas`, or one rate per pair. `window` need not be an integer; an array of windows
    gives an array of times.

    >>> round(round_trip_time(0.6, 8, num_replicas=16), 2)
    321.6
    >>> round(round_trip_time([0.5, 0.6, 0.7], window=2), 2)
    45.71
    """
    rates, repeats, num_replicas = inputs.check_rejection_rates(rejection_rate, num_replicas)
    needed = "be at least 1; window=1 is plain DEO"
    windows = inputs.as_floats("window", window, lambda w: (w >= 1) & np.isfinite(w), needed)
    retries = repeats * _odds(rates, windows[..., None]).sum(axis=-1)
    return as_number(2 * windows * num_replicas * (1 + retries))


def round_trip_rate(
    rejection_rate: ArrayLike, window: ArrayLike = 1, num_replicas: int | None = None
) -> Numbers:
    """Return the round trips per step of all replicas together: P / E[T] (after Lemma 1).

    >>> round(1000 * round_trip_rate(0.6, 8, num_replicas=16), 2)
    49.75
    """
    num_replicas = inputs.check_rejection_rates(rejection_rate, num_replicas)[2]
    return num_replicas / round_trip_time(rejection_rate, window, num_replicas)


def expected_round_trips(
    num_steps: float, swap_rate: float, num_replicas: int, window: int | None = None
) -> float:
    """Return how many round trips Lemma 1 expects in so many steps, in the windows of Theorem 1
    unless another is given.

    >>> round(expected_round_trips(1000, 0.4, num_replicas=16), 1)
    49.8
    """
    window = window or optimal_window(num_replicas, swap_rate)
    return num_steps * float(round_trip_rate(1 - swap_rate, window, num_replicas))


def fitting_swap_rate(num_steps: float, num_replicas: int, window: int | None = None) -> float:
    """Return the lowest of seven swap rates that makes five round trips in so many steps, or the
    one that makes most.

    >>> fitting_swap_rate(1000, num_replicas=4), fitting_swap_rate(10, num_replicas=4)
    (0.05, 0.4)
    """
    trips = [expected_round_trips(num_steps, rate, num_replicas, window) for rate in _SWAP_RATES]
    enough = [rate for rate, some in zip(_SWAP_RATES, trips) if some >= _ENOUGH]
    return min(enough, default=_SWAP_RATES[int(np.argmax(trips))])


def round_trip_time_seo(rejection_rate: ArrayLike, num_replicas: int | None = None) -> float:
    """Return the expected number of steps of a round trip under SEO (Table 1).

    A coin picks even or odd pairs at every step. E[T] = 2 P (P-1) + 2 P sum_p r_p / (1 - r_p) is
    quadratic in P at any rate.

    >>> round(round_trip_time_seo(0.6, num_replicas=16), 6)
    1200.0
    """
    rates, repeats, num_replicas = inputs.check_rejection_rates(rejection_rate, num_replicas)
    retries = repeats * _odds(rates, 1.0).sum()
    return float(2 * num_replicas * (num_replicas - 1 + retries))


def round_trip_time_adj(rejection_rate: ArrayLike, num_replicas: int | None = None) -> float:
    """Return the expected number of *sweeps* of a round trip under ADJ.

    A sweep attempts pairs 0, 1, ..., P-2 in sequence and so costs P-1 attempts in a row.
    E[T] = P (1 + sum_p r_p / (1 - r_p)) is half of DEO's: Table 1's O(P^2) is not its limit at
    small rejection rates.

    >>> round(round_trip_time_adj(0.6, num_replicas=16), 6)
    376.0
    """
    rates, repeats, num_replicas = inputs.check_rejection_rates(rejection_rate, num_replicas)
    return float(num_replicas * (1 + repeats * _odds(rates, 1.0).sum()))


def optimal_window(num_replicas: int, target_swap_rate: float, exact: bool = False) -> int:
    """Return the window with the shortest round trip.

    Theorem 1: W_star = ceil((log P + log log P) / -log(1 - S)), and 1 for P <= 3. This is
    asymptotic and can be worse than window 1 where few replicas swap often: at P = 4 for r from
    0.2 to 0.7, at larger P only for smaller r. `exact=True` gives the integer argmin of Lemma 1.

    >>> optimal_window(16, 0.4), optimal_window(16, 0.4, exact=True)
    (8, 7)
    >>> optimal_window(10, 0.005), optimal_window(10, 0.005, exact=True)
    (626, 604)
    """
    num_replicas = inputs.check_num_replicas(num_replicas)
    decay = -math.log1p(-inputs.check_swap_rate(target_swap_rate))
    if num_replicas <= 3:
        return 1
    if not exact:
        log_p = math.log(num_replicas)
        return math.ceil((log_p + math.log(log_p)) / decay)

    def next_is_no_faster(window: int) -> bool:
        # The sign of E[T](W+1) - E[T](W), rearranged: at S = 1e-6 neighbouring times agree to 13
        # digits, and their difference would be a rounding error.
        here, there = -math.expm1(-decay * window), -math.expm1(-decay * (window + 1))
        saved = (here - window * math.expm1(decay)) * math.exp(-decay * (window + 1))
        return 1 + (num_replicas - 1) * saved / (here * there) >= 0

    # E[T] falls, then rises (appendix B.2.1).
    return inputs.smallest_integer(next_is_no_faster, start=1)


def _odds(rates: NDArray[np.float64], windows: Numbers) -> NDArray[np.float64]:
    """Return r^W / (1 - r^W), accurate for r near 1."""
    with np.errstate(divide="ignore"):  # r = 0
        decay = -windows * np.log(rates)
    return np.exp(-decay) / -np.expm1(-decay)
