"""The evidence, log of the integral of prior x likelihood, from the energies of all rungs.

For neighbouring rungs of inverse temperatures a > b, Bennett's acceptance ratio gives log Z_a / Z_b
from the energies on both; the sum from the prior (b = 0) to the posterior (a = 1) is the evidence.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

_BLOCKS = 16  # blocks of draws over all chains, at least, for the standard error
_ITERATIONS = 200


class Evidence(NamedTuple):
    """The log evidence and its standard error."""

    value: float
    standard_error: float


def evidence_of(posterior: "Posterior") -> Evidence:
    """Return the log evidence of a run; raise if it cannot be computed."""
    resolved, temperatures = posterior.metadata.resolved, posterior.temperatures
    if not resolved.tempers_likelihood:
        raise ValueError(
            "The evidence needs separate prior and likelihood: sample an rx.bayesian posterior."
        )
    if not resolved.adjusted:
        raise ValueError(
            "The evidence needs exact energies: give rx.bayesian all rows as arrays and no "
            "batch_size, so that moves are accepted or rejected."
        )
    if not np.all(np.isinf(temperatures[:, -1])):
        raise ValueError(
            "The evidence needs the prior on the hottest rung, and the ladder ends at temperature "
            f"{temperatures[:, -1].min():.3g}: write more replicas (about "
            f"{(posterior.replicas_advised or 0) + 3}) or "
            "method=rx.posterior(temperature=(1, np.inf))."
        )
    return log_evidence(posterior.rung_energies, temperatures)


def log_evidence(energies: np.ndarray, temperatures: np.ndarray) -> Evidence:
    """Return the log evidence from energies (chain, draw, rung) on temperatures (chain, rung).

    The value is the mean over chains; its standard error comes from blocks of draws.
    """
    num_chains, num_draws, _ = energies.shape
    per_chain = max(2, -(-_BLOCKS // num_chains))
    if num_draws < 10 * per_chain:
        raise ValueError(
            f"There are {num_draws} draws per chain, too few for the standard error of the "
            f"evidence: at least {10 * per_chain} are needed."
        )
    values, blocks = [], []
    for chain in range(num_chains):
        inverse = 1 / np.asarray(temperatures[chain], float)
        values.append(_chain_evidence(energies[chain], inverse))
        parts = np.array_split(energies[chain], per_chain)
        blocks += [_chain_evidence(part, inverse) for part in parts]
    error = np.std(blocks, ddof=1) / np.sqrt(len(blocks))
    return Evidence(float(np.mean(values)), float(error))


def _chain_evidence(energies: np.ndarray, inverse: np.ndarray) -> float:
    gaps = inverse[:-1] - inverse[1:]
    return sum(
        log_ratio(gap * energies[:, rung].astype(float), gap * energies[:, rung + 1].astype(float))
        for rung, gap in enumerate(gaps)
    )


def log_ratio(cold: np.ndarray, hot: np.ndarray) -> float:
    """Return log Z_cold / Z_hot, given (a - b) U of draws on both rungs.

    Solves the equation of Bennett (1976) for equally many draws on both sides,
    sum_hot f(hot + x) = sum_cold f(-cold - x) with f(t) = 1 / (1 + e^t) and x = log Z_cold / Z_hot,
    by bisection.
    """
    from scipy.special import expit

    low, high = -max(cold.max(), hot.max()) - 1.0, -min(cold.min(), hot.min()) + 1.0
    for _ in range(_ITERATIONS):
        middle = (low + high) / 2
        if expit(-hot - middle).sum() > expit(cold + middle).sum():
            low = middle
        else:
            high = middle
        if high - low < 1e-9 * max(1.0, abs(middle)):
            break
    return (low + high) / 2
