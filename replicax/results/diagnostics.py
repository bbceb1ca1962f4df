"""Diagnostics of a run: round trips, R-hat over chains and over replicas, effective sample size,
movement of the ladder.

R-hat over chains and effective sizes are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner
(2021), as in ArviZ. R-hat over replicas tests whether all replicas bring the same draws to the
coldest rung. If no replica ever changes its mode, each always brings draws of its own mode: the
coldest rung then sees the mixture of the starts, and neither R-hat over chains nor round trips
detect it.

Draws of one stay on the coldest rung depend on each other, and so do stays between which the
replica did not move far up. The unit is therefore a *visit*: all draws between two times at which
the replica was on the hottest rung. Replicas differ if the means of their visits differ by more
than visits of the same replica do, by an analysis of variance of normal scores.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from replicax.errors import show
from replicax.results.remedies import hotter, longer, more_replicas, retuning
from replicax.run.carry import round_trips as round_trips

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior


_FAR = 10.0  # standard deviations of the middle of a law
_CHANCE = 1e-3  # probability of a false alarm, over all components
_VISITS = 3  # visits per replica that are needed on average
_MOST_STEPS = 2**28  # steps of all replicas; following more takes too long


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


def sd_error(values: np.ndarray) -> float:
    """Return the standard error of the standard deviation of (chain, draw), as a fraction of it.

    A place of 1 % of the mass that is ten times as wide doubles a standard deviation, and neither
    tail is at the 5 % that tells of it. Values that are far away count as if they were nearer, so
    that laws without a variance have an error, too.
    """
    values = np.asarray(values, float)
    low, middle, high = np.quantile(values, (0.16, 0.5, 0.84))
    width = (high - low) / 2 or values.std() or 1.0
    near = np.clip((values - middle) / width, -_FAR, _FAR)
    square = (near - near.mean()) ** 2
    return float(square.std() / max(square.mean(), 1e-300) / 2 / effective_size(square) ** 0.5)


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
    last = max(length - 3, 0) // 2  # later pairs have too few terms
    end = np.append(np.flatnonzero(pairs[1 : last + 1] < 0) + 1, last)[0]
    sums, rest = np.minimum.accumulate(pairs[:end]), correlation[2 * end]
    time = -1 + 2 * sums.sum() + (rest if pairs[end] >= 0 else max(rest, 0.0))
    return float(num_chains * length / max(time, 1 / np.log10(num_chains * length)))


def _halves(values: np.ndarray) -> np.ndarray:
    values = as_draws(values)
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, values.shape[1] - half :]])


def as_draws(values: ArrayLike) -> np.ndarray:
    """Return an array (chain, draw); raise if it is not one."""
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


def ladder_moved(posterior: "Posterior") -> float:
    """Return the largest relative movement of a rung after burn-in, while draws were kept."""
    name, history = posterior.metadata.resolved.adapts, posterior.history
    kept = history["step"] >= max(posterior.metadata.settled_from, 1)
    if name is None or not kept.any():
        return 0.0
    rungs, first = history[name][:, kept], history[name][:, kept][:, :1]
    stands = rungs == first  # also if both are infinite (the prior)
    return float(np.abs(np.where(stands, 1.0, rungs) / np.where(stands, 1.0, first) - 1).max())


class _Visits(NamedTuple):
    """The visit and the replica of every draw, numbered over all chains."""

    of_draw: np.ndarray  # visit of each draw, shape (chain * draw,)
    replica: np.ndarray  # chain and replica as one number, shape (visit,)
    chain: np.ndarray  # shape (visit,)


def replica_rhat(
    posterior: "Posterior", components: dict[str, np.ndarray] | None = None
) -> dict[str, float]:
    """Return R-hat over replicas of each component (chain, draw), by name; by default of the
    parameters.

    It is 1 if chance explains the differences between replicas, and NaN if there were too few
    visits.
    """
    if components is None:
        return replica_rhat(posterior, posterior.components())
    visits = _find_visits(posterior)
    if visits is None:
        return dict.fromkeys(components, float("nan"))
    chance = _CHANCE / (2 * max(len(components), 1))
    return {name: _rhat_of(values, visits, chance) for name, values in components.items()}


def _find_visits(posterior: "Posterior") -> _Visits | None:
    """Return the visits to the coldest rung, None if there are too few.

    They end on the hottest rung, or on the hottest one from which replicas return often enough.
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


def _visits(rung_of: np.ndarray, steps: np.ndarray, turn: int) -> _Visits:
    """Return the visits that end when a replica is on rung `turn` or above."""
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
    return _Visits(of_draw.ravel(), replica, replica // num_replicas)


def _rhat_of(values: np.ndarray, visits: _Visits, chance: float) -> float:
    """Return R-hat over replicas of (chain, draw): the larger of those of ranks and folded ranks,
    each 1 unless the differences between replicas have a p-value below `chance`."""
    values = np.asarray(values, float)
    if not np.all(np.isfinite(values)):
        return float("nan")
    folded = np.abs(values - np.median(values))
    return max(_replica_rhat(rank_normalised(x).ravel(), visits, chance) for x in (values, folded))


def _replica_rhat(scores: np.ndarray, visits: _Visits, chance: float) -> float:
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


RHAT_GOOD = 1.01  # largest good R-hat over chains
REPLICA_RHAT_GOOD = 1.05  # largest good R-hat over replicas
ENOUGH_DRAWS = 100  # effective, per chain
_MIXES = 1.1  # R-hat of chains that only need more draws
_SWAPS = 0.02  # how often the rule accepts for a pair that passes replicas on
_STICKY = 1 / 20  # fraction of the effective size of the other tail
_MANY_DRAWS = 2_000  # effective, per chain: a tail that is seen so often hides nothing
_WORK = 1_000_000  # values that are checked
_FEW_DRAWS = 4  # nothing can be said of fewer


def checked_components(
    posterior: "Posterior", components: dict[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """Return the components of the parameters that are checked, of those given or of all, and the
    energy.

    All of them, or evenly spaced ones if there are many. None for networks: their weights have many
    equivalent arrangements, between which no chain needs to move.
    """
    optimises = not float(posterior.temperatures[:, 0].max()) > 0  # and draws are no sample
    if posterior.metadata.kind == "train" or optimises or posterior.num_draws < _FEW_DRAWS:
        return {}
    components = posterior.components() if components is None else components
    most = int(np.clip(_WORK // (posterior.num_chains * posterior.num_draws), 8, 100))
    names = list(components)
    chosen = np.unique(np.linspace(0, len(names) - 1, min(most, len(names))).astype(int))
    return {**{names[i]: components[names[i]] for i in chosen}, "energy": posterior.energies}


def find_mixing_problems(posterior: "Posterior") -> list[str | None]:
    """Return the problems of the draws, one sentence each."""
    components = checked_components(posterior, posterior.judged())
    rhats = {name: rhat(values) for name, values in components.items()}
    return [
        _stuck_replicas(posterior, components),
        _no_round_trip(posterior, rhats),
        _chains_differ(posterior, rhats),
        _few_draws(posterior, components),
        sticky_tail(components),
    ]


def exchanges(posterior: "Posterior") -> bool:
    """Return whether the run has a ladder on which replicas move."""
    return posterior.metadata.resolved.schedule != "none" and posterior.num_replicas > 1


def _stuck_replicas(posterior: "Posterior", components: dict[str, np.ndarray]) -> str | None:
    if not exchanges(posterior):
        return None
    name, worst = _largest(replica_rhat(posterior, components))
    if not worst > REPLICA_RHAT_GOOD:
        return None
    return (
        f"R-hat over replicas is {worst:.3f} for {name} (above {REPLICA_RHAT_GOOD}): replicas "
        "bring different draws to the coldest rung, as if each kept its mode, and then the starts "
        f"decide how much mass a mode has. {hotter(posterior)}"
    )


def _no_round_trip(posterior: "Posterior", rhats: dict[str, float]) -> str | None:
    trips = posterior.round_trips
    chains = np.flatnonzero(trips == 0)
    if not exchanges(posterior) or chains.size == 0 or posterior.num_draws < _FEW_DRAWS:
        return None
    _, worst = _largest(rhats)
    if posterior.metadata.kind != "train" and not worst < RHAT_GOOD:
        return None
    fine = f"R-hat looks fine ({worst:.3f}), but chain" if rhats else "Chain"
    passes = posterior.verdict_rate.min() > _SWAPS
    return (
        f"{fine} {chains[0]} made no round trip in {posterior.counted_steps:,} steps: nothing from "
        "the hottest rung reached the target, and modes may be missing. "
        + (longer(posterior, 10.0) if passes else more_replicas(posterior))
    )


def _chains_differ(posterior: "Posterior", rhats: dict[str, float]) -> str | None:
    name, worst = _largest(rhats)
    if posterior.num_chains < 2 or not worst > RHAT_GOOD:
        return None
    return (
        f"R-hat over chains is {worst:.3f} for {name} (above {RHAT_GOOD}): the chains do not agree "
        f"yet. {_of_rhat(posterior, worst)}"
    )


def _of_rhat(posterior: "Posterior", worst: float) -> str:
    """Return how chains come to agree: where they mix, R-hat - 1 falls as 1 / draws."""
    if worst < _MIXES or posterior.metadata.resolved.burn_in == 0:
        return longer(posterior, (worst - 1) / (RHAT_GOOD - 1))
    return retuning(posterior)


def _few_draws(posterior: "Posterior", components: dict[str, np.ndarray]) -> str | None:
    sizes = {}
    for name, values in components.items():
        sizes[name, "bulk"] = -bulk_size(values) / posterior.num_chains
        sizes[name, "tails"] = -tail_size(values) / posterior.num_chains
    (name, part), size = _largest(sizes) if sizes else (("", ""), np.nan)
    if not -size < ENOUGH_DRAWS:
        return None
    return (
        f"The effective size of {name} in its {part} is {-size:.0f} per chain (below "
        f"{ENOUGH_DRAWS}, of {posterior.num_draws} draws): means and quantiles are imprecise. "
        f"{longer(posterior, ENOUGH_DRAWS / max(-size, 1.0))}"
    )


def sticky_tail(components: dict[str, np.ndarray]) -> str | None:
    """Return a sentence about a tail that is entered rarely and left slowly: a narrow region, such
    as the neck of a funnel, whose deeper part may not have been visited."""
    sizes = {}
    for name, values in components.items():
        if name != "energy":
            lower, upper = (size / len(values) for size in tail_sizes(values))
            sizes[name, "lower", lower, upper] = lower / upper
            sizes[name, "upper", upper, lower] = upper / lower
    known = {key: ratio for key, ratio in sizes.items() if ratio < _STICKY}
    known = {key: ratio for key, ratio in known.items() if key[2] < _MANY_DRAWS}
    if not known:
        return None
    name, side, size, other = min(known, key=known.__getitem__)
    return (
        f"The {side} tail of {name} has an effective size of {size:.0f} per chain, the other one "
        f"{other:.0f}: draws enter it rarely and leave it slowly, as with the neck of a funnel "
        "or a small mode, and it may reach farther. Write the model in parameters of one scale "
        "(for a hierarchy, non-centred ones)."
    )


def _largest(values: dict[Any, float]) -> tuple[Any, float]:
    """Return the name of the largest number and the number, NaN if there is none."""
    known = {name: value for name, value in values.items() if not np.isnan(value)}
    if not known:
        return "", float("nan")
    name = max(known, key=known.__getitem__)
    return name, known[name]
