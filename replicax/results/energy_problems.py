"""Checks of the energies of all rungs: colder rungs, energies that fall or rise without end or are
rounded, replicas that diverge, steps that are too large or too small."""

from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.results import diagnostics
from replicax.run.methods import written

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

_COLDER = 0.1  # fraction of the mean energy of a Gaussian at the temperature of the target
_CHANCE = 1e-4  # probability of taking noise for a colder rung
_BLOCKS = 8  # blocks of a run in which a trend is sought
_FALL = 5.0  # standard deviations within a block
_RISE = 0.4  # rise of normal scores from the first to the last third
_RISE_CERTAIN = 4.5  # standard errors
_RESTARTED = 0.01  # fraction of steps
_LOW_ACCEPTANCE, _HIGH_ACCEPTANCE = 0.2, 0.98
_HEATED = 0.1  # above the temperature of the coldest rung
_ROUNDED = 1.0  # from one floating-point energy to the next, in the unit of the temperature
_FALLS = (
    "The energy falls through the whole run (from {:.3g} to {:.3g}), as if it had no lower bound: "
    "is it minus the log density, with the right sign? If so, burn_in is too short."
)


def find_energy_problems(posterior: "Posterior") -> list[str | None]:
    """Return the problems that energies and acceptance rates show, one sentence each."""
    checks = (
        _rounded_energy,
        _falling_energy,
        _runaway_rung,
        _colder_rungs,
        _broken_replicas,
        _acceptance,
        _heated_target,
    )
    return [check(posterior) for check in checks]


def _is_training(posterior: "Posterior") -> bool:
    return posterior.metadata.kind == "train"


def kept_energies(posterior: "Posterior") -> np.ndarray:
    """Return energies of all rungs after burn-in (chain, point, rung), with NaN for non-finite
    values."""
    history = posterior.history
    if "energy" not in history:
        return np.zeros((posterior.num_chains, 0, posterior.num_replicas))
    energies = history["energy"][:, history["step"] > posterior.metadata.resolved.burn_in]
    return np.where(np.isfinite(energies), energies, np.nan).astype(float)


def _rounded_energy(posterior: "Posterior") -> str | None:
    """Energies so large that their differences, which accept moves and swaps, are rounded away."""
    temperatures = np.asarray(posterior.temperatures, float)[:, :2]
    energies = posterior.energies[np.isfinite(posterior.energies)]
    exact = posterior.metadata.resolved.rule == "metropolis" and np.all(temperatures > 0)
    if _is_training(posterior) or not exact or not energies.size:
        return None
    size = np.median(np.abs(energies)).astype(energies.dtype)
    judged = 1 / temperatures[:, 0]  # by how much an energy counts
    if not posterior.metadata.resolved.adjusted:  # in swaps alone
        judged = judged - 1 / temperatures[:, -1]
    if not np.spacing(size) * judged.max() >= _ROUNDED:
        return None
    return (
        f"Energies are about {size:.2g}, where numbers of {size.dtype} are {np.spacing(size):.2g} "
        "apart: smaller differences are lost, and the draws follow the rounding. Leave large "
        "constants out of the energy, or of the log likelihood of every row, or compute in double "
        'precision: jax.config.update("jax_enable_x64", True), before any array is made.'
    )


def _falling_energy(posterior: "Posterior") -> str | None:
    """Report a downward trend in every block, far beyond the spread within a block, without an
    end."""
    energies = np.asarray(posterior.energies, float)
    broken = np.flatnonzero(~np.isfinite(energies).all(axis=0))
    energies = energies[:, : np.append(broken, energies.shape[1])[0]]
    length = energies.shape[1] // _BLOCKS
    if _is_training(posterior) or length < 4:
        return None
    blocks = energies[:, : _BLOCKS * length].reshape(len(energies), _BLOCKS, length)
    blocks = blocks / max(1.0, float(np.abs(blocks).max()))  # squares might overflow
    means, spread = blocks.mean(axis=2), np.median(blocks.std(axis=2), axis=1)
    fall, late_fall = means[:, 0] - means[:, -1], means[:, _BLOCKS // 2] - means[:, -1]
    falls = np.all(np.diff(means, axis=1) < 0, axis=1) & (fall > _FALL * spread)
    falls &= late_fall > fall / 5
    if falls.mean() < 0.5:
        return None
    chain = int(np.argmax(falls))
    return _FALLS.format(energies[chain, :length].mean(), energies[chain, -length:].mean())


def _runaway_rung(posterior: "Posterior") -> str | None:
    """Report an upward trend of the hottest rung, by ranks: it may be as slow as a logarithm."""
    energies = kept_energies(posterior)[:, :, -1]
    third = energies.shape[1] // 3
    alone = posterior.num_replicas < 2
    if _is_training(posterior) or alone or third < 4 or np.isnan(energies).any():
        return None
    scores = diagnostics.rank_normalised(energies)
    rise = (scores[:, -third:].mean(axis=1) - scores[:, :third].mean(axis=1)).mean()
    if rise < max(_RISE, _RISE_CERTAIN * np.sqrt(2 / (third * len(energies)))):
        return None
    return (
        "The hottest rung runs away: its energy rises through the whole run, and its tempered "
        "density may have no finite mass. Temper only the likelihood, with "
        "rx.bayesian(log_likelihood, log_prior, data), or lower the highest temperature (or "
        "learning rate)."
    )


def _colder_rungs(posterior: "Posterior") -> str | None:
    """Report rungs whose mean energy is below that of the coldest, which no hotter distribution can
    have."""
    target = float(posterior.temperatures[:, 0].min())
    energies = kept_energies(posterior)
    drop, error = mean_and_error(energies[:, :, :1] - energies)
    if _is_training(posterior) or drop is None or target <= 0:
        return None
    num_params = posterior.metadata.params.num_elements
    relevant = _COLDER * target * num_params / 2
    certain = drop > certainty(energies, posterior.num_replicas) * error
    if not np.any(certain & (drop > relevant)):
        return None
    rung = int(np.argmax(np.where(certain, drop, -np.inf)))
    return (
        f"Rung {rung} has a lower mean energy than the target's rung 0, by {drop[rung]:.3g}: it is "
        "colder, and exchange makes the draws too narrow. SGD without noise does this at small "
        "learning rates; energies on the mini-batch that moved the replicas have the same effect. "
        "Give all rungs noise: method=rx.deo(learning_rate=..., temperature=(1, hot), "
        'rule="bias_corrected") (exact energies: rule="metropolis"), or use rx.bayesian.'
    )


def mean_and_error(values: np.ndarray, num_batches: int = 10) -> tuple[Any, Any]:
    """Return the mean of (chain, point, ...) over chains and points, and its standard error by
    batch means; (None, None) if there are too few points."""
    length = values.shape[1] // num_batches
    if length < 1:
        return None, None
    used = values[:, values.shape[1] - num_batches * length :]
    batches = used.reshape(len(used) * num_batches, length, *used.shape[2:])
    means = batches.mean(axis=1)
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(len(means))


def certainty(values: np.ndarray, count: int, num_batches: int = 10) -> float:
    """Return the number of standard errors, from (chain, point, ...) by batch means, beyond which
    the error of a mean is significant when `count` means are tested."""
    from scipy.special import stdtrit

    return -float(stdtrit(len(values) * num_batches - 1, _CHANCE / count))


def _broken_replicas(posterior: "Posterior") -> str | None:
    rates = posterior.restart_rate
    rung = int(np.argmax(rates.max(axis=0)))
    if rates.max() <= _RESTARTED:
        return None
    remedy = (
        "Lower the highest temperature or all learning rates, make the energy finite far out (a "
        "prior; logarithms of positive parameters), or temper only the likelihood with rx.bayesian."
    )
    if posterior.metadata.kind == "train":
        clipped = in_method(posterior, "clip_norm=1.0")
        remedy = f"Write a smaller hot end of learning_rate, or {clipped}."
    return (
        f"The energy on rung {rung} was not finite in {rates[:, rung].max():.1%} of steps, and its "
        f"replica was restarted from a colder rung, which lets no mode through. {remedy}"
    )


def _acceptance(posterior: "Posterior") -> str | None:
    """Report rungs that accept too few or too many moves, for adjusted kernels."""
    rates = measured(posterior, "acceptance")
    if rates is None:
        return None
    lowest, highest = np.nanmin(rates, axis=0), np.nanmax(rates, axis=0)
    if np.nanmin(lowest) < _LOW_ACCEPTANCE:
        rung, rate, step = int(np.nanargmin(lowest)), np.nanmin(lowest), "too large"
    elif np.nanmax(highest) > _HIGH_ACCEPTANCE:
        rung, rate, step = int(np.nanargmax(highest)), np.nanmax(highest), "needlessly small"
    else:
        return None
    flat = " Where it has adapted, the density is flat: is the prior proper, has it finite mass?"
    return (
        f"Rung {rung} accepts {rate:.0%} of its moves: its step is {step}. If the step size "
        "adapts, write a longer burn_in; if learning_rate of the method is a number, change it."
        + (flat if rate > _HIGH_ACCEPTANCE else "")
    )


def _heated_target(posterior: "Posterior") -> str | None:
    """Report heating of the cold rung by gradient noise."""
    excess = measured(posterior, "excess_temperature")
    if excess is None or not np.nanmax(excess[:, 0]) > _HEATED:
        return None
    tuned = posterior.metadata.tunes_learning_rate
    exact = "or none, so that moves are accepted or rejected"
    other = exact if tuned else "or " + in_method(posterior, 'learning_rate="auto"')
    return (
        f"Gradient noise heats the cold rung by {np.nanmax(excess[:, 0]):.0%}, and the draws are "
        f"too wide: write a larger batch_size, {other}."
    )


def in_method(posterior: "Posterior", arguments: str) -> str:
    """Return how the method of a run is written with other arguments."""
    return f"method={written(posterior.metadata.method.name, f'..., {arguments}')}"


def measured(posterior: "Posterior", name: str) -> np.ndarray | None:
    """Return a statistic (chain, rung) of the kernel, None if it has none."""
    values = getattr(posterior, name, None)
    if values is None or np.all(np.isnan(values)):
        return None
    return np.asarray(values, float)
