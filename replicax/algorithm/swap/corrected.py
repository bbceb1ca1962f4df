"""Swap rules that correct for the noise of energies, and for the bias of windows."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np

from replicax.algorithm.swap.rules import Metropolis, Rule
from replicax.errors import at_least, choose, is_concrete, show


@dataclass(frozen=True)
class BiasCorrected(Metropolis):
    """See `bias_corrected`."""

    energy_noise_std: Any = None  # type: ignore[misc]
    estimate_every: int = 100  # steps between two estimates of sigma
    estimate_draws: int = 8  # further mini-batches or keys of one estimate

    name: ClassVar[str] = "bias_corrected"
    assumes_exact_energies: ClassVar[bool] = False

    def __post_init__(self) -> None:
        std = self.energy_noise_std
        if isinstance(std, str):
            choose("energy_noise_std", std, ("estimate",))
            object.__setattr__(self, "energy_noise_std", None)
        elif std is not None and is_concrete(std) and not _are_levels(std):
            raise ValueError(
                f"energy_noise_std is {show(std)}; a standard deviation is a finite number of at "
                'least 0: write one, one per pair, or "estimate".'
            )
        at_least("estimate_every", self.estimate_every, 1)
        at_least("estimate_draws", self.estimate_draws, 2)


@dataclass(frozen=True)
class WindowCorrected(BiasCorrected):
    """See `window_corrected`."""

    window_correction: Any = None  # type: ignore[misc]
    reference_steps: Any = None
    tuning_steps: Any = None

    name: ClassVar[str] = "window_corrected"

    def __post_init__(self) -> None:
        super().__post_init__()
        correction = self.window_correction
        if isinstance(correction, str):
            choose("window_correction", correction, ("auto",))
            object.__setattr__(self, "window_correction", None)
        elif correction is not None and is_concrete(correction) and not _is_finite(correction):
            raise ValueError(
                f"window_correction is {show(correction)}; give lambda_W as a finite number, or "
                '"auto".'
            )
        for name in ("reference_steps", "tuning_steps"):
            steps = getattr(self, name)
            if steps is None or not is_concrete(steps):
                continue
            if isinstance(correction, int | float):
                raise ValueError(
                    f'{name} belongs to window_correction="auto"; with a number leave it out.'
                )
            at_least(name, steps, 1)


_ESTIMATE = ["estimate_every", "estimate_draws"]
_CORRECTION = ["energy_noise_std", "window_correction", "reference_steps", "tuning_steps"]
jax.tree_util.register_dataclass(BiasCorrected, ["energy_noise_std"], _ESTIMATE)
jax.tree_util.register_dataclass(WindowCorrected, _CORRECTION, _ESTIMATE)


def bias_corrected(energy_noise_std: Any = "estimate", **estimate: int) -> Rule:
    """Eq. 2 with noisy energies, corrected by -dT^2 sigma^2 in the exponent (appendix A.1).

    With `"estimate"`, sigma^2 is half the variance of a pair's energy difference over
    `estimate_draws` further mini-batches or keys, renewed every `estimate_every` steps.
    """
    return BiasCorrected(energy_noise_std, **estimate)


def window_corrected(
    window_correction: Any,
    energy_noise_std: Any = "estimate",
    *,
    reference_steps: int | None = None,
    tuning_steps: int | None = None,
    **estimate: int,
) -> Rule:
    """`bias_corrected` with lambda_W subtracted in the exponent (appendix C.3).

    With `"auto"` the run finds lambda_W itself, one for each chain: for `reference_steps` steps
    without windows it measures the mean energy of the cold rung, for `tuning_steps` steps it
    moves lambda_W until that energy comes back under windows, and then lambda_W is fixed. Both
    take a third of the run unless given; draws begin after them. See
    `replicax.algorithm.window_correction`.

    >>> window_corrected("auto", 3.0, reference_steps=10_000, tuning_steps=20_000).name
    'window_corrected'
    """
    if window_correction is None:
        raise ValueError('window_correction is None; give lambda_W as a finite number, or "auto".')
    return WindowCorrected(
        energy_noise_std,
        window_correction=window_correction,
        reference_steps=reference_steps,
        tuning_steps=tuning_steps,
        **estimate,
    )


def _are_levels(value: Any) -> bool:
    """Return whether these are finite numbers of at least 0."""
    try:
        values = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        return False
    return values.dtype.kind in "iuf" and bool(np.all((values >= 0) & (values < np.inf)))


def _is_finite(value: Any) -> bool:
    real = isinstance(value, int | float | np.number | np.ndarray | jax.Array)
    return real and not isinstance(value, bool) and np.ndim(value) == 0 and bool(np.isfinite(value))
