"""Fits of mixtures to draws, and the choice among them by what a mixture is for: how soon its
proposals are accepted, from wherever the chain may be.

All of it is NumPy in double precision, on the host, between chunks of the loop: nothing is
compiled, and the same draws give the same mixture.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from replicax.algorithm.mixture import MOST_FREEDOM, Mixture, in_use, make_mixture, most_components

FEWEST_JUDGED = 50  # draws that judge a mixture
_MOST_JUDGED = 400  # draws, and proposals of each mixture, that judge it
_FEWEST_FITTED, _MOST_FITTED = 3_000, 20_000  # draws of a fit: between them twice d^2
_LARGEST = 64  # components of a fit, the wide one left out
_WIDE_SHARE = 0.05  # of the wide component
_HEAVY = 4.0  # degrees of freedom of heavy-tailed components and of the wide one
_GAIN = 1.02  # by which a new mixture must be better than the old one
_SATISFIED = 0.8  # acceptance of an old mixture beside which no new ones are sought
_LEAST_LOG_WEIGHT = -7.0  # of a component that an earlier round found


class Chosen(NamedTuple):
    """A mixture, and how soon its proposals are accepted."""

    mixture: Mixture | None
    acceptance: float  # harmonic mean over draws
    name: str
    evaluations: int = 0  # of the energy, spent on the choice


def log_parts(mixture: Mixture, points: np.ndarray) -> np.ndarray:
    """Return log (weight x density) of each component at points (n, d), (component, n)."""
    _, _, log_factor, mean, _, inverse, freedom = in_use(mixture)
    square = _squares(points, mean, inverse)
    return log_factor[:, None] + _log_kernel(square, freedom, points.shape[1])


def _squares(points: np.ndarray, mean: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    rows = [np.sum(((points - m) @ a.T) ** 2, axis=1) for m, a in zip(mean, inverse)]
    return np.stack(rows)


def _log_kernel(square: np.ndarray, freedom: np.ndarray, d: int) -> np.ndarray:
    is_student = np.isfinite(freedom)[:, None]
    finite = np.where(is_student, freedom[:, None], 1.0)
    return np.where(is_student, -(finite + d) / 2 * np.log1p(square / finite), -square / 2)


def nearest(mixture: Mixture, points: np.ndarray) -> np.ndarray:
    """Return the number of the component nearest to each of points (n, d), in its own scale; wide
    ones are left out where there are others."""
    mixture = in_use(mixture)
    square = _squares(points.astype(float), mixture.mean, mixture.inverse)
    if np.isinf(mixture.freedom).any():
        square = np.where(np.isinf(mixture.freedom)[:, None], square, np.inf)
    return np.argmin(square, axis=0)


def log_density(mixture: Mixture, points: np.ndarray) -> np.ndarray:
    """Return the log density at points (n, d)."""
    return np.asarray(logsumexp(log_parts(mixture, points), axis=0))


def draw(mixture: Mixture, rng: np.random.Generator, n: int) -> np.ndarray:
    """Return n draws, (n, d)."""
    _, log_weight, _, mean, root, _, freedom = in_use(mixture)
    share = np.exp(log_weight)
    chosen = rng.choice(len(share), size=n, p=share / share.sum())
    normal, tail = rng.standard_normal((n, mean.shape[1])), rng.standard_normal((n, MOST_FREEDOM))
    counted = np.arange(MOST_FREEDOM) < freedom[chosen, None]
    stretch = np.sqrt(freedom[chosen] / np.sum(np.where(counted, tail**2, 0.0), axis=1))
    stretch = np.where(np.isfinite(stretch), stretch, 1.0)
    return mean[chosen] + stretch[:, None] * np.einsum("nij,nj->ni", root[chosen], normal)


def fit(
    points: np.ndarray,
    size: int,
    rng: np.random.Generator,
    freedom: float = np.inf,
    towards: np.ndarray | None = None,
    num_steps: int = 30,
) -> Mixture:
    """Fit `size` components by expectation maximisation from k-means++ centres; points (n, d) count
    as often as they occur.

    `towards` is a covariance to which that of a single component is shrunk, the more the fewer
    draws there are.
    """
    d = points.shape[1]
    shift, scale = points.mean(axis=0), points.std(axis=0) + 1e-12 * (1 + np.abs(points).max())
    x = (points - shift) / scale
    centres = _centres(x, size, rng)
    distance = np.stack([np.sum((x - centre) ** 2, axis=1) for centre in centres])
    share = (np.arange(size)[:, None] == np.argmin(distance, axis=0)).astype(float)
    stretched, before = share, -np.inf
    like = None if towards is None else towards / scale / scale[:, None]
    for _ in range(num_steps):
        log_weight, mean, root = _maximised(x, share, stretched, like)
        mixture = make_mixture(log_weight, mean, root, freedom)
        square = _squares(x, mean, mixture.inverse)
        parts = mixture.log_factor[:, None] + _log_kernel(square, mixture.freedom, d)
        largest = parts.max(axis=0)
        share = np.exp(parts - largest)
        norm = share.sum(axis=0)
        total = largest + np.log(norm)
        share = stretched = share / norm
        if np.isfinite(freedom):
            stretched = share * (freedom + d) / (freedom + square)
        now = float(np.mean(total))
        if now - before < 1e-3:
            break
        before = now
    return make_mixture(log_weight, mean * scale + shift, root * scale[:, None], freedom)


def _centres(x: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Return points far from each other: k-means++."""
    centres = [x[rng.integers(len(x))]]
    near = np.sum((x - centres[0]) ** 2, axis=1)
    while len(centres) < size:
        centres.append(x[rng.choice(len(x), p=(near + 1e-12) / np.sum(near + 1e-12))])
        near = np.minimum(near, np.sum((x - centres[-1]) ** 2, axis=1))
    return np.stack(centres)


def _maximised(
    x: np.ndarray, share: np.ndarray, stretched: np.ndarray, towards: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log weights, means and Cholesky factors, given each component's share of the points.

    Components of few points borrow from the scatter within all of them.
    """
    n, d = x.shape
    mass = share.sum(axis=1) + 1e-6
    mean = (stretched @ x) / (stretched.sum(axis=1) + 1e-12)[:, None]
    scatter = np.stack([((x - m) * s[:, None]).T @ (x - m) for m, s in zip(mean, stretched)])
    within = scatter.sum(axis=0) / n + 1e-9 * np.eye(d)
    weight = d + 1.0
    if towards is not None and len(share) == 1:
        within, weight = towards, d**2
    cov = (scatter + weight * within) / (mass + weight)[:, None, None]
    return np.log(mass / mass.sum()), mean, _roots(cov)


def _roots(covariances: np.ndarray) -> np.ndarray:
    """Return Cholesky factors, of the nearest matrices that have one."""
    try:
        return np.linalg.cholesky(covariances)
    except np.linalg.LinAlgError:
        value, vector = np.linalg.eigh((covariances + covariances.swapaxes(1, 2)) / 2)
        value = np.maximum(value, 1e-9 * np.maximum(value[:, -1:], 1e-30))
        return np.linalg.cholesky((vector * value[:, None]) @ vector.swapaxes(1, 2))


def with_wide(mixture: Mixture, mean: np.ndarray, cov: np.ndarray) -> Mixture:
    """Return the mixture as a proposal: components somewhat wider, and a heavy-tailed one over all
    of them with a small share.

    A factor that did not fall with d would cost everything in many dimensions.
    """
    d = mixture.mean.shape[1]
    widened = np.sqrt(1 + 1.5 / d) * mixture.root
    root = np.sqrt(1 + 6 / d) * _roots(cov[None])
    return make_mixture(
        np.append(mixture.log_weight + np.log1p(-_WIDE_SHARE), np.log(_WIDE_SHARE)),
        np.concatenate([mixture.mean, mean[None]]),
        np.concatenate([widened, root]),
        np.append(mixture.freedom, _HEAVY),
    )


def joined(old: Mixture, new: Mixture, points: np.ndarray) -> Mixture:
    """Return the components of both, with weights fitted to points: what an earlier round found is
    not forgotten. Where they are too many, the smallest are left out."""
    old, new = in_use(old), in_use(new)
    mean, root, freedom = (
        np.concatenate([getattr(old, name), getattr(new, name)])
        for name in ("mean", "root", "freedom")
    )
    both = make_mixture(np.zeros(len(mean)), mean, root, freedom)
    parts = log_parts(both, points)
    density = np.exp(parts - parts.max(axis=0))
    share = np.ones(len(mean))
    for _ in range(30):
        share = share * (density @ (1 / (share @ density))) / len(points)
    log_weight = np.log(share + 1e-30)
    log_weight = np.maximum(log_weight, _LEAST_LOG_WEIGHT)
    keep = np.sort(np.argsort(-log_weight, kind="stable")[: most_components(mean.shape[1])])
    return make_mixture(log_weight[keep], mean[keep], root[keep], freedom[keep])


def harmonic_acceptance(state_weight: np.ndarray, proposal_weight: np.ndarray, n: int) -> float:
    """Return the harmonic mean, over states, of the probability that a proposal is accepted there.

    Weights are -E - log q. The mean would hardly see a small mode that no proposal reaches. No
    state counts for less than one acceptance in n.
    """
    return float(1 / np.mean(1 / (acceptances(state_weight, proposal_weight) + 1 / n)))


def acceptances(state_weight: np.ndarray, proposal_weight: np.ndarray) -> np.ndarray:
    """Return the probability that a proposal is accepted at each state."""
    log_ratio = np.minimum(proposal_weight - state_weight[:, None], 0.0)
    return np.mean(np.exp(np.where(np.isnan(log_ratio), -np.inf, log_ratio)), axis=1)


def choose(
    old: Mixture | None,
    draws: np.ndarray,
    energies: np.ndarray,
    evaluate: Callable[[np.ndarray], np.ndarray],
    rng: np.random.Generator,
    n: int,
    towards: np.ndarray | None = None,
) -> Chosen:
    """Return the best of the old mixture, of new ones, and of both joined.

    `draws` (chain, draw, d) with `energies` (chain, draw) are those of one round, with their
    repeats. New mixtures are fitted to the first two thirds and all are judged on the rest: on the
    draws of its own fit a mixture flatters itself. Places where the old one held the chain before
    are judged, too: it may not come back. `evaluate(points)` returns E at 400 points.
    """
    d, cut = draws.shape[-1], draws.shape[1] * 2 // 3
    fitted = _some(rng, draws[:, :cut].reshape(-1, d), _num_fitted(d))
    judged = rng.permutation(draws[:, cut:].shape[0] * draws[:, cut:].shape[1])[:_MOST_JUDGED]
    states = draws[:, cut:].reshape(-1, d)[judged]
    state_energy = energies[:, cut:].reshape(-1)[judged]
    seen = 0

    def weigh(mixture: Mixture) -> np.ndarray:
        """Return the weights of proposals of a mixture."""
        nonlocal seen
        # As the loop has them: rounded, which matters where means are large.
        proposals = draw(mixture, rng, _MOST_JUDGED).astype(draws.dtype)
        energy = np.asarray(evaluate(proposals), float)
        seen += len(proposals)
        weight = -energy - log_density(mixture, proposals)
        return np.where(np.isfinite(weight), weight, -np.inf)

    def judge(mixture: Mixture, weight: np.ndarray | None = None) -> float:
        weight = weigh(mixture) if weight is None else weight
        return harmonic_acceptance(-state_energy - log_density(mixture, states), weight, n)

    best = Chosen(None, 0.0, "old")
    if old is not None:
        weight = weigh(old)
        early, early_energy = draws[:, :cut].reshape(-1, d), energies[:, :cut].reshape(-1)
        some = rng.permutation(len(early))[: 2 * len(states)]  # as many for each of the round
        early_weight = -early_energy[some] - log_density(old, early[some])
        held = some[n * acceptances(early_weight, weight) < 1]
        states = np.concatenate([states, early[held]])
        state_energy = np.append(state_energy, early_energy[held])
        best = Chosen(old, judge(old, weight), "old")

    def consider(name: str, mixture: Mixture) -> bool:
        """Judge a mixture and its union with the old one; return whether one is the best so far."""
        nonlocal best
        before = best
        both = [] if old is None else [(f"old + {name}", joined(old, mixture, fitted))]
        for name_of, one in [(name, mixture), *both]:
            acceptance = judge(one)
            if acceptance > _GAIN * best.acceptance:
                best = Chosen(one, acceptance, name_of)
        return best is not before

    if len(states) >= FEWEST_JUDGED and best.acceptance < _SATISFIED:
        _consider_sizes(fitted, rng, towards, consider)
    return best._replace(evaluations=seen)


def _num_fitted(d: int) -> int:
    return int(np.clip(2 * d**2, _FEWEST_FITTED, _MOST_FITTED))


def _some(rng: np.random.Generator, points: np.ndarray, most: int) -> np.ndarray:
    return points[rng.permutation(len(points))[:most]].astype(float)


def _consider_sizes(
    points: np.ndarray,
    rng: np.random.Generator,
    towards: np.ndarray | None,
    consider: Callable[[str, Mixture], bool],
) -> None:
    """Fit mixtures of 1, 2, 4, ... components, as many as the draws allow and as it helps; and
    heavy-tailed ones of the best number."""
    d = points.shape[1]
    distinct = len(np.unique(points, axis=0))
    if distinct < max(2 * d, 20):
        return
    mean, cov = points.mean(axis=0), np.cov(points.T).reshape(d, d)
    largest = min(_LARGEST, most_components(d) - 1)
    size, best_size, misses = 1, 1, 0
    while size <= largest and (size == 1 or distinct > 3 * d * size) and misses < 2:
        if consider(f"{size}", with_wide(fit(points, size, rng, towards=towards), mean, cov)):
            best_size, misses = size, 0
        elif size > 4:
            misses += 1
        size *= 2
    heavy = fit(points, best_size, rng, freedom=_HEAVY, towards=towards)
    consider(f"{best_size}, heavy-tailed", with_wide(heavy, mean, cov))


def effective(log_weight: np.ndarray) -> float:
    """Return how many equal weights would be as precise as these.

    >>> round(effective(np.log([1.0, 1.0, 1e-9])), 6)
    2.0
    """
    known = log_weight[np.isfinite(log_weight)]
    if not known.size:
        return 0.0
    total, square = (float(np.logaddexp.reduce(power * known)) for power in (1, 2))
    return float(np.exp(2 * total - square))


def refit(
    old: Mixture,
    points: np.ndarray,
    energies: np.ndarray,
    drawn_from: Mixture,
    rng: np.random.Generator,
    towards: np.ndarray | None = None,
) -> Chosen:
    """Return the best of the old mixture and new ones, as `choose` does, without a new evaluation:
    of points (n, d) drawn from a mixture, their weights tell what they stand for.

    New mixtures are fitted to draws from one half of the points, and judged on the other. Where a
    few weights have all the mass, all are raised to a power below 1, which stands for a density
    between that of the proposals and the posterior.
    """
    d = points.shape[1]
    density = log_density(drawn_from, points)
    weight = -energies - density
    weight = np.where(np.isfinite(weight), weight, -np.inf)
    order, power = rng.permutation(len(points)), 1.0
    for_fit, for_judging = order[::2], order[1::2]
    enough = min(max(4 * d, FEWEST_JUDGED), len(for_fit) / 4)
    while (
        power > 1e-3
        and min(effective(power * weight[half]) for half in (for_fit, for_judging)) < enough
    ):
        power *= 0.7
    weight = power * weight
    size = int(min(effective(weight[for_fit]), _num_fitted(d)))
    if size < 2:
        return Chosen(old, 0.0, "old", 0)
    share = np.exp(weight[for_fit] - weight[for_fit].max())
    fitted = points[for_fit[rng.choice(len(for_fit), size=size, p=share / share.sum())]]
    judging, log_target = points[for_judging], (density + weight)[for_judging]
    log_sum = float(np.logaddexp.reduce(weight[for_judging]))
    mass, log_mean = np.exp(weight[for_judging] - log_sum), log_sum - np.log(len(judging))

    def judge(mixture: Mixture) -> float:
        """Return the harmonic mean, over the posterior, of how soon a proposal is accepted: at best
        in 1 / (density of the posterior / density of the proposals)."""
        log_ratio = log_target - log_mean - log_density(mixture, judging)
        held = np.exp(np.clip(np.where(mass > 0, log_ratio, 0.0), 0.0, 700.0))
        return float(1 / np.sum(mass * held))

    best = Chosen(old, judge(old), "old", 0)

    def consider(name: str, mixture: Mixture) -> bool:
        nonlocal best
        before = best
        for name_of, one in [(name, mixture), (f"old + {name}", joined(old, mixture, fitted))]:
            acceptance = judge(one)
            if acceptance > _GAIN * best.acceptance:
                best = Chosen(one, acceptance, name_of)
        return best is not before

    _consider_sizes(fitted, rng, towards, consider)
    return best


def harmonic_from_proposals(log_weight: np.ndarray) -> float:
    """Return the harmonic mean, over the posterior, of how soon a proposal is accepted, at best, by
    the weights of the proposals alone.

    >>> round(harmonic_from_proposals(np.zeros(4)), 6)
    1.0
    """
    known = log_weight[np.isfinite(log_weight)]
    if not known.size:
        return 0.0
    log_sum = logsumexp(known)
    ratio = np.exp(known - log_sum) * len(log_weight)
    return float(1 / np.sum(np.exp(known - log_sum) * np.maximum(ratio, 1.0)))


def merged(one: Mixture, other: Mixture, share: float) -> Mixture:
    """Return the mixture that draws from `other` with a probability, else from `one`."""
    one, other = in_use(one), in_use(other)
    log_weight = np.append(one.log_weight + np.log1p(-share), other.log_weight + np.log(share))
    mean, root, freedom = (
        np.concatenate([getattr(one, name), getattr(other, name)])
        for name in ("mean", "root", "freedom")
    )
    return make_mixture(log_weight, mean, root, freedom)
