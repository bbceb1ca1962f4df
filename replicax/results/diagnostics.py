"""Diagnostics of a run: round trips, R-hat over chains and over replicas, effective sample size,
movement of the ladder.

R-hat and effective sizes are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), as
ArviZ has them.
"""

from typing import Any

import numpy as np

from replicax.errors import show
from replicax.results.replica_rhat import replica_rhat as replica_rhat
from replicax.run.round_trips import round_trips as round_trips


def rhat(values: np.ndarray) -> float:
    """Return the rank-normalised R-hat of (chain, draw), the larger of bulk and folded."""
    halves = _halves(values)
    if halves.shape[1] < 2 or not np.all(np.isfinite(halves)):
        return float("nan")
    folded = np.abs(halves - np.median(halves))
    return max(_rhat(rank_normalised(halves)), _rhat(rank_normalised(folded)))


def bulk_size(values: np.ndarray) -> float:
    """Return the effective sample size of (chain, draw) for its centre, by ranks."""
    return _effective_size(rank_normalised(_halves(values)))


def tail_size(values: np.ndarray) -> float:
    """Return the effective sample size of (chain, draw) for its tails: the smaller of those of the
    5 % and 95 % quantiles."""
    return min(tail_sizes(values))


def tail_sizes(values: np.ndarray) -> tuple[float, float]:
    """Return the effective sample sizes of (chain, draw) for its lower and its upper tail."""
    halves, whole = _halves(values), np.asarray(values, float)
    lower, upper = (_effective_size(halves <= np.quantile(whole, q)) for q in (0.05, 0.95))
    return lower, upper


def split_rhat(values: np.ndarray) -> float:
    """Return the split R-hat of (chain, draw): near 1 when the halves of all chains agree."""
    return _rhat(_halves(values))


def _rhat(halves: np.ndarray) -> float:
    length = halves.shape[1]
    if length < 2:
        return float("nan")
    within = halves.var(axis=1, ddof=1).mean()
    between = length * halves.mean(axis=1).var(ddof=1)
    if within == 0:
        return 1.0 if between == 0 else float("inf")
    return float(np.sqrt((length - 1) / length + between / within / length))


def effective_size(values: np.ndarray) -> float:
    """Return the effective sample size of (chain, draw) by Geyer's initial monotone sequence."""
    return _effective_size(_halves(values))


def _effective_size(halves: np.ndarray) -> float:
    num_chains, length = halves.shape
    if length < 2 or not np.all(np.isfinite(halves)):
        return float("nan")
    centred = halves - halves.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * length, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, axis=1)[:, :length].mean(axis=0) / length
    within = covariance[0] * length / (length - 1)
    total = covariance[0] + (halves.mean(axis=1).var(ddof=1) if num_chains > 1 else 0.0)
    if total == 0:
        return float(num_chains * length)
    correlation = 1 - (within - covariance) / total
    correlation[0] = 1.0
    pairs = correlation[: length // 2 * 2].reshape(-1, 2).sum(axis=1)
    last = max(length - 3, 0) // 2  # of the few pairs after it too little is known
    end = np.append(np.flatnonzero(pairs[1 : last + 1] < 0) + 1, last)[0]
    sums, rest = np.minimum.accumulate(pairs[:end]), correlation[2 * end]
    time = -1 + 2 * sums.sum() + (rest if pairs[end] >= 0 else max(rest, 0.0))
    return float(num_chains * length / max(time, 1 / np.log10(num_chains * length)))


def _halves(values: np.ndarray) -> np.ndarray:
    values = as_draws(values)
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, values.shape[1] - half :]])


def as_draws(values: Any) -> np.ndarray:
    """Return numbers (chain, draw); raise unless they are."""
    try:
        draws = np.asarray(values, float)
    except (TypeError, ValueError):
        draws = np.zeros(())
    if draws.ndim != 2:
        raise ValueError(f"values is {show(values)}; give numbers as an array (chain, draw).")
    return draws


def rank_normalised(halves: np.ndarray) -> np.ndarray:
    """Return normal scores of the ranks of all draws; ties share their mean rank."""
    from scipy.special import ndtri

    _, place, counts = np.unique(halves, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return ndtri((ranks - 3 / 8) / (halves.size + 1 / 4))[place].reshape(halves.shape)


def ladder_moved(posterior: Any) -> float:
    """Return how far any rung moved while draws were kept, relative to where it was at burn-in."""
    name, history = posterior.options["adapts"], posterior.history
    metadata = posterior.metadata
    epochs = (metadata.training or {}).get("burn_in", 0)  # of networks, after which they count
    burn_in = max(posterior.options["burn_in"], epochs * (metadata.steps_per_epoch or 0), 1)
    kept = history["step"] >= burn_in
    if name is None or not kept.any():
        return 0.0
    rungs, first = history[name][:, kept], history[name][:, kept][:, :1]
    stands = rungs == first  # also where both are infinite: the prior alone
    return float(np.abs(np.where(stands, 1.0, rungs) / np.where(stands, 1.0, first) - 1).max())
