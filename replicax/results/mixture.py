"""The learned mixture of a run: where its components lie, among the draws."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replicax.algorithm import fitting
from replicax.algorithm.mixture import Mixture

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

_MOST_DRAWS = 2_000  # that are shared out among the components
_POINTS = 400  # of a component, by which it is told where parameters are constrained
_ROUND = 60  # points of an ellipse
_RADIUS = 2.0  # of an ellipse, in standard deviations


class Learned(NamedTuple):
    """The components, heaviest first, and draws in the order of labels that they have.

    Parameters are those that the user knows; where they are constrained, a component has the mean
    and the covariance of constrained points of it.
    """

    names: list[str]  # (d,)
    weight: np.ndarray  # (component,)
    mean: np.ndarray  # (component, d)
    covariance: np.ndarray  # of a heavy-tailed component its scale  (component, d, d)
    share: np.ndarray  # of the draws, NaN without any  (component,)
    draws: np.ndarray  # some of all chains  (draw, d)


def of_run(posterior: "Posterior") -> Learned | None:
    """Return the mixture of a run, None if it has none."""
    jumps, final = posterior.jumps, posterior._records.final
    if jumps is None or not jumps["components"]:
        return None
    mixture = Mixture(*(final[f"mixture.{name}"] for name in Mixture._fields))
    mixture = fitting.in_use(mixture)
    draws = _draws(posterior)
    share = np.full(len(mixture.mean), np.nan)
    if len(draws):
        parts = fitting.log_parts(mixture, draws)
        parts = np.exp(parts - parts.max(axis=0))
        share = np.mean(parts / parts.sum(axis=0), axis=1)
    weight, mean = np.exp(mixture.log_weight), mixture.mean
    covariance = mixture.root @ mixture.root.swapaxes(1, 2)
    names, shown = posterior.shown(np.concatenate([mean, draws]))
    if posterior._constrains:
        noise = np.random.default_rng(0).standard_normal((_POINTS, mean.shape[1]))
        at = mean[:, None] + np.einsum("kij,nj->kni", mixture.root, noise)
        at = posterior.shown(at.reshape(-1, mean.shape[1]))[1].reshape(len(mean), _POINTS, -1)
        mean = at.mean(axis=1)
        covariance = np.stack([np.atleast_2d(np.cov(points.T)) for points in at])
    by_weight = np.argsort(-weight, kind="stable")
    ranked = [column[by_weight] for column in (weight, mean, covariance, share)]
    return Learned(names, ranked[0], ranked[1], ranked[2], ranked[3], shown[len(weight) :])


def _draws(posterior: "Posterior") -> np.ndarray:
    """Return some draws of all chains, flattened, their labels in order  (draw, d)."""
    d = posterior.metadata.params.num_elements
    if not posterior.num_draws or not posterior.metadata.resolved.keep_draws:
        return np.zeros((0, d))
    every = -(-posterior.num_draws * posterior.num_chains // _MOST_DRAWS)
    leaves = posterior._in_order([leaf[:, ::every] for leaf in posterior._leaves(0)])
    count = leaves[0].shape[0] * leaves[0].shape[1]
    flat = np.concatenate([leaf.reshape(count, -1) for leaf in leaves], axis=1)
    return flat[np.all(np.isfinite(flat), axis=1)].astype(float)


class Missed(NamedTuple):
    """What the mixture does not cover: places where a step is not expected to accept a jump."""

    mass: float  # share of the draws there
    error: float  # its standard error
    longest: int  # stay, in steps


def missed(posterior: "Posterior") -> Missed | None:
    """Return what the mixture of a run misses, None if there is no mixture.

    The coldest replica comes to such places, and leaves them, by the ladder alone. Stays there are
    few and may be long; the number of them in a run being Poisson's, the share of the draws that
    stays of lengths L make up has the standard error sqrt(sum L^2) / draws. A replica that comes
    again and again is seen by the spread between chains, of which others have no such replica.
    """
    weights, jumps = posterior.jump_weights, posterior.jumps
    if weights is None or jumps is None:
        return None
    at_draws, at_proposals = weights[..., 0].astype(float), weights[..., 1].astype(float)
    is_missed = jumps["proposals"] * acceptance_at(at_draws, at_proposals) < 1
    edges = np.diff(np.pad(is_missed, ((0, 0), (1, 1))).astype(int), axis=1)
    stays = np.argwhere(edges < 0)[:, 1] - np.argwhere(edges > 0)[:, 1]
    resolved = posterior.metadata.resolved
    steps = stays.max(initial=0) * resolved.thin / resolved.draws_per_step
    error = np.sqrt(np.sum(stays.astype(float) ** 2)) / is_missed.size
    if len(is_missed) > 2:
        error = max(error, np.std(is_missed.mean(axis=1), ddof=1) / np.sqrt(len(is_missed)))
    return Missed(float(is_missed.mean()), float(error), int(np.ceil(steps)))


def acceptance_at(at_draws: np.ndarray, at_proposals: np.ndarray) -> np.ndarray:
    """Return the probability that a proposal is accepted at each draw, by log weights of any shape:
    the mean of min(1, exp(proposal - draw)).

    >>> acceptance_at(np.log([1.0, 4.0]), np.log([2.0, 2.0])).tolist()
    [1.0, 0.5]
    """
    known = np.sort(at_proposals[np.isfinite(at_proposals)], axis=None)
    log_sums = np.append(-np.inf, np.logaddexp.accumulate(known) if known.size else [])
    below = np.searchsorted(known, at_draws)
    with np.errstate(invalid="ignore"):
        accepted = known.size - below + np.exp(log_sums[below] - at_draws)
    # A draw without a weight is left for any proposal that has one.
    return np.where(np.isfinite(at_draws), accepted, known.size) / at_proposals.size


def telling(learned: Learned) -> list[int]:
    """Return the two parameters, or the only one, in which components lie furthest apart in units
    of their widths."""
    within = np.einsum("k,kii->i", learned.weight, learned.covariance)
    middle = learned.weight @ learned.mean
    between = learned.weight @ (learned.mean - middle) ** 2
    return sorted(np.argsort(-between / within, kind="stable")[:2].tolist())


def outlines(learned: Learned, pair: list[int]) -> list[np.ndarray]:
    """Return the outline of each component at two standard deviations, (point, 2): an ellipse, or
    where there is one parameter alone a line."""
    angle = np.linspace(0, 2 * np.pi, _ROUND + 1)
    circle = _RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=1)[:, : len(pair)]
    among = learned.covariance[:, pair][:, :, pair]
    tiny = 1e-12 * np.trace(among, axis1=1, axis2=2)[:, None, None] * np.eye(len(pair))
    roots = np.linalg.cholesky(among + tiny)
    found = learned.mean[:, None, pair] + np.einsum("kij,pj->kpi", roots, circle)
    return [at if len(pair) > 1 else np.pad(at, ((0, 0), (0, 1))) for at in found]


def component_rows(posterior: "Posterior") -> list[dict[str, Any]]:
    """Return the components as plain data: weight, share of the draws, and mean and standard
    deviation of the most telling parameters."""
    learned = of_run(posterior)
    if learned is None:
        return []
    std = np.sqrt(np.einsum("kii->ki", learned.covariance))
    return [
        {
            "weight": float(learned.weight[k]),
            "share": float(learned.share[k]),
            "at": {
                learned.names[i]: (float(learned.mean[k, i]), float(std[k, i]))
                for i in telling(learned)
            },
        }
        for k in range(len(learned.weight))
    ]
