"""The evidence, log of the integral of prior x likelihood: from the energies of all rungs, and by a
bridge to a density whose integral is known.

Both rest on the acceptance ratio of Bennett (1976), which is the optimal bridge of Meng and Wong
(1996). Between neighbouring rungs of inverse temperatures a > b it gives log Z_a / Z_b; the sum
from the prior (b = 0) to the posterior (a = 1) is the evidence. Estimates from all rungs at once
(MBAR) are hardly more precise: on ladders that reject half of their swaps, a median of 4 % in
variance.

Every chain gives an estimate of its own. To first order its error is the mean of a series over the
draws, whose autocorrelation says how large it is.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replicax.results import diagnostics

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

_FEWEST = 40  # draws per chain
_CHANCE = 1e-3  # probability of taking noise for a difference
_MATTERS = 0.5  # nats: a smaller difference is none
_SHARED = 2.0  # draws that are where those of the other density are: fewer tell nothing
_BLOCKS = 20  # an effective size is known about as well as from so many blocks


class Evidence(NamedTuple):
    """The log evidence and its standard error."""

    value: float
    standard_error: float


class Estimates(NamedTuple):
    """The log evidence by each chain, and the standard error from within the chain."""

    values: np.ndarray  # (chain,)
    errors: np.ndarray  # infinite where neighbouring densities share too few draws  (chain,)

    def combined(self) -> Evidence:
        """Return the mean of the chains; its standard error is the larger of those that follow from
        within the chains and from their spread."""
        count = len(self.values)
        within = np.sqrt(np.sum(self.errors**2)) / count
        between = np.std(self.values, ddof=1) / np.sqrt(count) if count > 1 else 0.0
        return Evidence(float(self.values.mean()), float(max(within, between)))

    def differ(self) -> bool:
        """Return whether chains differ by more than noise, and by more than half a nat."""
        from scipy.special import fdtrc

        known = np.isfinite(self.errors)
        values, count = self.values[known], int(known.sum())
        if count < 2 or not np.ptp(values) > _MATTERS:
            return False
        ratio = np.var(values, ddof=1) / np.mean(self.errors[known] ** 2)
        return bool(fdtrc(count - 1, count * _BLOCKS, ratio) < _CHANCE)


def certainty(count: int) -> float:
    """Return how many standard errors the largest of `count` means exceeds only by chance."""
    from scipy.special import stdtrit

    return -float(stdtrit(_BLOCKS, _CHANCE / count))


def of_run(posterior: "Posterior", num_draws: int | None = None) -> dict[str, Estimates]:
    """Return the estimates that a run has, by its first draws or all: of its "ladder", and of a
    "bridge" between its draws and the proposals of its mixture."""
    found = {}
    if refusal(posterior) is None:
        energies = posterior.rung_energies[:, :num_draws]
        found["ladder"] = by_ladder(energies, posterior.temperatures)
    weights = posterior.jump_weights
    if weights is not None and _unknown(posterior) is None:
        weights = weights[:, :num_draws]
        found["bridge"] = bridge(weights[..., 0], weights[..., 1:])
    return found


def reported(found: dict[str, Estimates]) -> tuple[str, Evidence]:
    """Return which estimate is reported, and this: the more precise one. Where two disagree it is
    that of the ladder, which may know a mode that the draws have missed, with an error that reaches
    to a bridge below it.

    A bridge above the ladder is usually that of a prior that is not normalised, which the ladder
    normalises by itself.
    """
    each = {name: one.combined() for name, one in found.items()}
    by = min(each, key=lambda name: each[name].standard_error)
    value, error = each[by]
    if len(each) == 2 and disagree(**each):
        (value, error), by = each["ladder"], "ladder"
    if misses(each):
        error = max(error, value - each["bridge"].value)
    return by, Evidence(value, error)


def misses(found: dict[str, Evidence]) -> bool:
    """Return whether the bridge is so far below the ladder that draws and mixture miss a mode."""
    below = len(found) == 2 and found["bridge"].value < found["ladder"].value
    return below and disagree(**found)


def disagree(ladder: Evidence, bridge: Evidence) -> bool:
    """Return whether two estimates differ by more than noise and by more than half a nat."""
    error = np.hypot(ladder.standard_error, bridge.standard_error)
    return bool(abs(ladder.value - bridge.value) > max(_MATTERS, certainty(2) * error))


def _unknown(posterior: "Posterior") -> str | None:
    """Return why no evidence of a run can be computed, None if there may be one."""
    resolved = posterior.metadata.resolved
    if not resolved.tempers_likelihood:
        return "The evidence needs separate prior and likelihood: sample an rx.bayesian posterior."
    if not resolved.adjusted:
        return (
            "The evidence needs exact energies: give rx.bayesian all rows as arrays and no "
            "batch_size, so that moves are accepted or rejected."
        )
    if posterior.num_draws < _FEWEST:
        return (
            f"There are {posterior.num_draws} draws per chain, too few for the standard error of "
            f"the evidence: at least {_FEWEST} are needed."
        )
    return None


def refusal(posterior: "Posterior") -> str | None:
    """Return why the ladder of a run gives no evidence, None if it does."""
    temperatures = posterior.temperatures
    unknown = _unknown(posterior)
    if unknown is None and not np.all(np.isinf(temperatures[:, -1])):
        return (
            "The evidence needs the prior on the hottest rung, and the ladder ends at temperature "
            f"{temperatures[:, -1].min():.3g}: write "
            f"method=rx.posterior(temperature=(1, np.inf)), with more than the "
            f"{posterior.num_replicas} replicas of this run."
        )
    return unknown


def by_ladder(energies: np.ndarray, temperatures: np.ndarray) -> Estimates:
    """Return log evidences from energies (chain, draw, rung) on temperatures (chain, rung).

    Energies that are not finite are those of points without likelihood.
    """
    return _estimates([_of_ladder(*chain) for chain in zip(energies, 1 / temperatures)])


def bridge(at_draws: np.ndarray, at_proposals: np.ndarray) -> Estimates:
    """Return log evidences from log prior + log likelihood - log q at draws (chain, draw) and at
    proposals from q (chain, draw, proposal) of the same steps, which draws depend on.

    The density q is normalised and was chosen before these draws. It may be narrower than the
    posterior: what matters is how many draws are where proposals are.
    """
    found = []
    for draws, proposals in zip(at_draws.astype(float), at_proposals.astype(float), strict=True):
        size = diagnostics.bulk_size(np.nan_to_num(draws[None]))
        value, *parts = _bennett(draws, proposals.ravel(), size / proposals.size)
        of_draws, of_proposals = parts[0], parts[1].reshape(proposals.shape)
        apart = mean_error(of_draws), np.std(of_proposals) / np.sqrt(proposals.size)
        both = mean_error(of_draws + of_proposals.mean(axis=1))
        found.append((value, np.maximum(both, np.hypot(*apart))))
    return _estimates(found)


def _estimates(found: list[tuple[float, float]]) -> Estimates:
    values, errors = np.array(found, float).T
    return Estimates(values, np.where(np.isnan(errors), np.inf, errors))


def _of_ladder(energies: np.ndarray, inverse: np.ndarray) -> tuple[float, float]:
    """Return the log evidence and its standard error from energies (draw, rung) of one chain."""
    energies = np.where(np.isfinite(energies), energies, np.inf).astype(float)
    value, series = 0.0, np.zeros(len(energies))
    gaps = inverse[:-1] - inverse[1:]
    for rung in np.flatnonzero(gaps):
        ratio, *parts = _bennett(*(-gaps[rung] * energies[:, rung : rung + 2].T))
        value, series = value + ratio, series + sum(parts)
    return value, mean_error(series)


def mean_error(series: np.ndarray) -> float:
    """Return the standard error of the mean of a series (draw,), by its autocorrelation."""
    return float(np.std(series) / np.sqrt(diagnostics.effective_size(series[None])))


def _bennett(
    cold: np.ndarray, hot: np.ndarray, odds: float = 1.0
) -> tuple[float, np.ndarray, np.ndarray]:
    """Return log Z_cold / Z_hot, and for every cold and hot draw how far it moves it.

    `cold` and `hot` are the log of the ratio of both densities, without their constants, at draws
    of each; `odds` is the effective number of cold draws for one of the hot ones. The result x
    solves mean_hot f(t) = odds mean_cold f(-t), with f(t) = 1 / (1 + e^-t) and
    t = ratio - x + log odds. How far draws move it is NaN where too few are shared: it is then not
    known how wrong x is.
    """
    from scipy.optimize import brentq
    from scipy.special import expit

    if not (np.isfinite(cold).any() and np.isfinite(hot).any()):
        return np.nan, np.full(len(cold), np.nan), np.full(len(hot), np.nan)
    known = np.concatenate([values[np.isfinite(values)] for values in (cold, hot)])
    shift = np.log(odds)

    def sides(x: float) -> tuple[np.ndarray, np.ndarray]:
        return -odds * expit(x - shift - cold), expit(hot - x + shift)

    def balance(x: float) -> float:
        return sum(float(side.mean()) for side in sides(x))

    reach = 1 + 2 * abs(shift) + np.log(len(cold) + len(hot))
    x: Any = brentq(balance, known.min() - reach, known.max() + reach, xtol=1e-9, maxiter=2000)
    of_cold, of_hot = sides(x)
    slope = np.mean(of_hot * (1 - of_hot)) - np.mean(of_cold * (1 + of_cold / odds))
    slope = slope if of_hot.sum() > _SHARED else np.nan
    return x, of_cold / slope, of_hot / slope
