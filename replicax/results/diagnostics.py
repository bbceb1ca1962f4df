"""Diagnostics of a run: round trips, R-hat, effective sample size."""

import numpy as np

from replicax.run.round_trips import round_trips as round_trips


def split_rhat(values: np.ndarray) -> float:
    """Return the split R-hat of (chain, draw): near 1 when the halves of all chains agree."""
    halves = _halves(values)
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
    halves = _halves(values)
    num_chains, length = halves.shape
    if length < 4:
        return float("nan")
    centred = halves - halves.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * length, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, axis=1)[:, :length].mean(axis=0) / length
    within = covariance[0] * length / (length - 1)
    total = covariance[0] + (halves.mean(axis=1).var(ddof=1) if num_chains > 1 else 0.0)
    if total == 0:
        return float(num_chains * length)
    correlation = 1 - (within - covariance) / total
    pairs = correlation[: length // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.nonzero(pairs < 0)[0]
    pairs = np.minimum.accumulate(pairs[: negative[0] if negative.size else None])
    time = max(-1 + 2 * pairs.sum(), 1 / np.log10(num_chains * length))
    return float(num_chains * length / time)


def _halves(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, float)
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, values.shape[1] - half :]])
