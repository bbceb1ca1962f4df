"""`judge`: how far draws are from the reference, and whether the run said so."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
from target import Target
from targets import reference

MEAN_BOUND, SD_BOUNDS, MASS_BOUND = 0.15, (0.9, 1.1), 0.1
FOUND = 0.1  # a mode is found if it has this share of its true mass


@dataclass(frozen=True)
class Verdict:
    """Errors of one run; `warnings` are what the sampler said of itself, None where it cannot."""

    mean_error: float  # the worst over functions, in reference sd
    worst_mean: str
    sd_low: float  # smallest and largest ratio to the reference sd
    sd_high: float
    worst_sd: str
    mass_error: float | None  # worst mode, all chains together
    mass_error_by_chain: float | None  # worst mode of the worst chain
    mass_distance: float | None  # total variation over all modes
    ess: float  # smallest over functions, all chains together
    draws: int
    warnings: tuple[str, ...] | None = None
    num_modes: int | None = None
    modes_found: int | None = None  # with a tenth of their mass or more, all chains together
    mode_ess: float | None = None  # smallest over indicators of modes

    @property
    def passes(self) -> bool:
        return (
            self.mean_error <= MEAN_BOUND
            and self.sd_low >= SD_BOUNDS[0]
            and self.sd_high <= SD_BOUNDS[1]
            and (self.mass_error is None or self.mass_error <= MASS_BOUND)
        )

    @property
    def is_silent_miss(self) -> bool:
        return not self.passes and not self.warnings

    @property
    def badness(self) -> float:
        """Return the worst error as a multiple of its bound; a run passes up to about 1."""
        ratios = np.maximum([self.sd_low, self.sd_high], 1e-9)
        worst = max(self.mean_error / MEAN_BOUND, np.abs(np.log(ratios)).max() / np.log(1.1))
        worst = max(worst, (self.mass_error or 0.0) / MASS_BOUND)
        return float(_nan_last(worst))

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"passes": self.passes, "silent_miss": self.is_silent_miss}


def judge(target: Target, draws: Any, warnings: Sequence[str] | None = None) -> Verdict:
    """Compare draws, leading axes (chain, draw), with the reference of the target.

    Of replicax give `posterior.draws` and `posterior.problems()`.
    """
    truth = reference(target.name)
    values, modes = target.evaluate(draws)
    errors, ratios, sizes = {}, {}, {}
    for name, value in values.items():
        moments = truth["functions"][name]
        value = np.asarray(value, float)
        errors[name] = abs(value.mean() - moments["mean"]) / moments["sd"]
        ratios[name] = value.std() / moments["sd"]
        sizes[name] = effective_size(value)
    worst_mean = max(errors, key=lambda name: _nan_last(errors[name]))
    worst_sd = max(ratios, key=lambda name: _nan_last(abs(np.log(ratios[name]))))
    mass, by_chain, distance, found, num_modes, mode_size = (None,) * 6
    if modes is not None:
        masses = np.asarray(truth["masses"])
        shares = np.stack([np.bincount(m, minlength=masses.size) / m.size for m in modes])
        mass = float(np.abs(shares.mean(0) - masses).max())
        by_chain = float(np.abs(shares - masses).max())
        distance = float(np.abs(shares.mean(0) - masses).sum() / 2)
        num_modes, found = masses.size, int(np.sum(shares.mean(0) >= FOUND * masses))
        mode_size = min(effective_size((modes == k).astype(float)) for k in range(masses.size))
    return Verdict(
        float(errors[worst_mean]), worst_mean,
        float(np.min(list(ratios.values()))), float(np.max(list(ratios.values()))), worst_sd,
        mass, by_chain, distance, float(np.min(list(sizes.values()))),
        jax.tree.leaves(draws)[0].shape[1], None if warnings is None else tuple(warnings),
        num_modes, found, mode_size,
    )  # fmt: skip


def _nan_last(value: float) -> float:
    return np.inf if np.isnan(value) else value


def effective_size(value: np.ndarray) -> float:
    """Return the effective number of draws of all chains (chain, draw) together: Geyer's sum."""
    chains, n = value.shape
    centred = value - value.mean(1, keepdims=True)
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centred, size, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum, size, axis=1)[:, :n].mean(0) / n
    within = covariance[0] * n / max(n - 1, 1)
    between = value.mean(1).var(ddof=1) if chains > 1 else 0.0
    total = covariance[0] + between
    if not np.isfinite(total) or total == 0:
        return 0.0
    correlation = 1 - (within - covariance) / total
    correlation[0] = 1.0
    pairs = correlation[: n // 2 * 2].reshape(-1, 2).sum(1)
    end = np.argmax(pairs < 0) if (pairs < 0).any() else pairs.size
    time = max(2 * np.minimum.accumulate(pairs[:end]).sum() - 1, 1 / np.log10(chains * n + 10))
    return float(chains * n / time)
