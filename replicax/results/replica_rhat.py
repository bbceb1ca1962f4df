"""R-hat over replicas: whether every replica brings the same draws to the coldest rung.

Where no replica ever changes its mode, each brings draws of its own mode for ever. The mixture that
the coldest rung sees is then that of the starts; R-hat over chains and round trips do not show it.

Draws of one stay on the coldest rung depend on each other, and so do stays between which the
replica was not far away. The unit is therefore a *visit*: all draws between two times at which the
replica was on the hottest rung. Replicas differ where the means of their visits differ by more than
visits of the same replica do, by an analysis of variance of normal scores.
"""

from typing import Any, NamedTuple

import numpy as np

_CHANCE = 1e-3  # of a false alarm, over all components
_VISITS = 3  # of a replica, on average, that are needed to judge
_MOST_STEPS = 2**28  # of all replicas, beyond which following them takes too long


class Visits(NamedTuple):
    """Which visit of which replica every draw belongs to; numbers run over all chains."""

    of_draw: np.ndarray  # visit of each draw, shape (chain * draw,)
    replica: np.ndarray  # chain and replica as one number, shape (visit,)
    chain: np.ndarray  # shape (visit,)


def replica_rhat(
    posterior: Any, components: dict[str, np.ndarray] | None = None
) -> dict[str, float]:
    """Return R-hat over replicas of each component, (chain, draw), by name; of the parameters
    unless others are given.

    1 where chance explains the differences between replicas, and NaN where there were too few
    visits to tell.
    """
    if components is None:
        return replica_rhat(posterior, posterior.components())
    visits = find_visits(posterior)
    if visits is None:
        return dict.fromkeys(components, float("nan"))
    chance = _CHANCE / (2 * max(len(components), 1))
    return {name: rhat_of(values, visits, chance) for name, values in components.items()}


def find_visits(posterior: Any) -> Visits | None:
    """Return the visits to the coldest rung; None where there are too few.

    They end on the hottest rung, or on the hottest that replicas return from often enough.
    """
    steps = posterior.draw_steps
    if posterior.num_replicas < 2 or len(steps) < 4 or len(steps) != posterior.num_draws:
        return None
    if posterior.num_steps * posterior.num_replicas * posterior.num_chains > _MOST_STEPS:
        return None
    rung_of = posterior.rung_of
    for turn in range(posterior.num_replicas - 1, 0, -1):
        visits = _visits(rung_of, steps, turn)
        if len(visits.replica) >= _VISITS * len(np.unique(visits.replica)):
            return visits
    return None


def _visits(rung_of: np.ndarray, steps: np.ndarray, turn: int) -> Visits:
    """Return the visits that end where a replica is on rung `turn` or above."""
    num_chains, _, num_replicas = rung_of.shape
    number = np.zeros((num_chains, len(steps)), np.int64)  # of hot steps before, for the holder
    holder = np.zeros_like(number)
    for replica in range(num_replicas):
        path = rung_of[:, :, replica]
        holds = path[:, steps] == 0
        hot_steps = np.cumsum(path >= turn, axis=1)[:, steps]
        number[holds], holder[holds] = hot_steps[holds], replica
    group = np.arange(num_chains)[:, None] * num_replicas + holder
    num_steps = rung_of.shape[1] + 1
    keys, of_draw = np.unique(group * num_steps + number, return_inverse=True)
    replica = keys // num_steps
    return Visits(of_draw.ravel(), replica, replica // num_replicas)


def rhat_of(values: np.ndarray, visits: Visits, chance: float) -> float:
    """Return R-hat over replicas of (chain, draw): the larger of that of ranks and of folded
    ranks, each 1 unless the differences between replicas have less than this `chance`."""
    from replicax.results.diagnostics import rank_normalised

    values = np.asarray(values, float)
    if not np.all(np.isfinite(values)):
        return float("nan")
    folded = np.abs(values - np.median(values))
    return max(_rhat(rank_normalised(x).ravel(), visits, chance) for x in (values, folded))


def _rhat(scores: np.ndarray, visits: Visits, chance: float) -> float:
    from scipy.special import fdtri

    replicas, group = np.unique(visits.replica, return_inverse=True)
    chain_of = np.zeros(len(replicas), int)
    chain_of[group] = visits.chain
    mean = _means(visits.of_draw, scores)  # of each visit
    count, mean_of = np.bincount(group), _means(group, mean)  # of each replica
    chain_mean = _means(visits.chain, mean)
    num_visits, num_groups, num_chains = len(mean), len(replicas), len(np.unique(visits.chain))
    if num_visits <= num_groups or num_groups <= num_chains:
        return float("nan")
    between = np.sum(count * (mean_of - chain_mean[chain_of]) ** 2) / (num_groups - num_chains)
    within = np.sum((mean - mean_of[group]) ** 2) / (num_visits - num_groups)
    replica_of_draw = group[visits.of_draw]
    spread = np.mean((scores - _means(replica_of_draw, scores)[replica_of_draw]) ** 2)
    if not between > fdtri(num_groups - num_chains, num_visits - num_groups, 1 - chance) * within:
        return 1.0
    squares = np.bincount(chain_of, count**2) / np.bincount(chain_of, count)
    per_replica = (num_visits - squares.sum()) / (num_groups - num_chains)
    excess = (between - within) / per_replica
    return float(np.sqrt(1 + excess / spread)) if spread > 0 else float("inf")


def _means(number: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.bincount(number, values) / np.maximum(np.bincount(number), 1)
