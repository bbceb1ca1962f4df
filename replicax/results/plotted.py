"""What figures and pages show of a run, as numbers: computed here once, drawn by both."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replicax.results.summary import expected_trips
from replicax.run.carry import num_attempts

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

_MAX_INTERVALS = 50  # intervals over which rates are averaged
_FEW_ATTEMPTS = 10  # swap attempts in such an interval, at least

History = dict[str, np.ndarray]


def spread(count: int, most: int) -> list[int]:
    """Return at most so many of `count` indices, evenly spaced, both ends included.

    >>> spread(10, 4)
    [0, 3, 6, 9]
    """
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


def thinned(length: int, most: int) -> np.ndarray:
    """Return every k-th of so many places, the first included, at most `most` of them."""
    return np.arange(0, length, max(1, -(-length // most)))


def name_of_ladder(posterior: "Posterior") -> str:
    """Return the quantity that makes the ladder, "learning_rate" or "temperature"."""
    temperatures, adapts = posterior.temperatures, posterior.metadata.resolved.adapts
    differ = posterior.num_replicas > 1 and np.any(temperatures != temperatures[0, 0])
    tempered = differ and np.all(temperatures > 0) and adapts != "learning_rate"
    return "temperature" if tempered or adapts == "temperature" else "learning_rate"


class LadderHistory(NamedTuple):
    """A quantity of the rungs over time and at the end, in the unit of the user."""

    steps: np.ndarray  # (point,) none without a history
    values: np.ndarray  # (chain, point, rung)
    end: np.ndarray  # (chain, rung)


def ladder_over_time(posterior: "Posterior", name: str) -> LadderHistory:
    """Return learning rates or temperatures of all rungs, by the name of the quantity."""
    heats = name == "temperature"
    scale = posterior.temperature_scale if heats else posterior.energy_scale
    end = scale * (posterior.temperatures if heats else posterior.learning_rates)
    history = posterior.history
    values = scale * history[name] if len(history["step"]) else end[:, None][:, :0]
    return LadderHistory(history["step"], values, end)


def verdict_rates(
    history: History, counted_from: int, swap_every: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the last step of each interval, and verdict rates (chain, interval, pair), per attempt
    to swap.

    Points of the history are merged into a few intervals to reduce the noise of the rates.
    """
    steps = history["step"]
    spacing = steps[:1].sum()
    few = -(-_FEW_ATTEMPTS * swap_every // max(spacing, 1))
    merged = max(1, -(-len(steps) // _MAX_INTERVALS), min(few, len(steps)))
    ends = np.arange(len(steps) - 1, -1, -merged)[::-1]
    ends = ends[steps[ends] - counted_from >= merged * spacing / 2]  # no very short interval
    attempts = num_attempts(counted_from, steps[ends], swap_every)
    if not np.any(attempts > 0):
        return np.zeros(0), np.zeros((0, 0, 0))
    verdicts = np.diff(history["verdicts"][:, ends], axis=1, prepend=0)
    return steps[ends], verdicts / np.diff(attempts, prepend=0)[:, None]


def rates_over_time(posterior: "Posterior") -> tuple[np.ndarray, np.ndarray]:
    """Return the `verdict_rates` of a run."""
    resolved = posterior.metadata.resolved
    return verdict_rates(posterior.history, resolved.counted_from, resolved.swap_every)


def target_of_rates(posterior: "Posterior") -> float | None:
    """Return the rate to which pairs adapt; None where temperatures adapt to equal rejection."""
    resolved = posterior.metadata.resolved
    adapted = resolved.rule == "deterministic" or resolved.adapts == "learning_rate"
    return posterior.metadata.resolved.target_swap_rate if adapted else None


def attempt_of(posterior: "Posterior") -> str:
    """Return the unit of verdict rates in words: per step, or per attempt to swap."""
    return "per step" if posterior.metadata.resolved.swap_every == 1 else "per attempt"


def turn_of(posterior: "Posterior") -> str:
    """Return the unit of swap rates in words: per window of so many steps, or per turn."""
    return f"per window of {posterior.window} steps" if posterior.window > 1 else "per turn"


class Trips(NamedTuple):
    """Round trips so far, and those that Lemma 1 expects at the measured swap rates."""

    steps: np.ndarray  # (point,)
    so_far: np.ndarray  # (chain, point)
    start: int  # the first step that counts
    expected: list[float] | None  # of each chain at the end; None where the lemma does not apply


def trips_so_far(posterior: "Posterior", ends: list[list[np.ndarray]], num_points: int) -> Trips:
    """Return round trips by step, given the steps at which they end, by chain and replica."""
    num_steps, counted = posterior.num_steps, posterior.counted_steps
    start = num_steps - counted
    steps = np.unique(np.linspace(0, num_steps, num_points).astype(int))
    arrived = [np.sort(np.concatenate(chain)) for chain in ends]
    so_far = [np.searchsorted(x[x > start], steps, side="right") for x in arrived]
    rates = expected_trips(posterior)
    expected = None if rates is None else [rate * counted / 1000 for rate in rates]
    return Trips(steps, np.stack(so_far), start, expected)


def bin_edges(values: np.ndarray) -> np.ndarray:
    """Return the edges of the histogram of draws (chain, draw) that are finite."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.linspace(0, 1, 11)
    num_bins = int(np.clip(2 * np.sqrt(values.shape[1]), 10, 60))
    return np.histogram_bin_edges(finite.astype(float), num_bins)


def density(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the density of the finite values in each bin."""
    finite = values[np.isfinite(values)]
    return np.histogram(finite, edges)[0] / max(finite.size, 1) / np.diff(edges)


class ModeMasses(NamedTuple):
    """The masses of the 25 modes, the heaviest first, and how far they are from the truth."""

    names: list[str]  # (mode,) their coordinates
    sampled: np.ndarray  # (mode,)
    true: np.ndarray  # (mode,)
    outside: tuple[float, float]  # mass outside the modes, sampled and true
    distance: float  # total variation


def modes25_masses(draws: Any) -> ModeMasses:
    """Return the masses of the modes in draws (..., 2) of the 25-mode target."""
    from replicax import targets

    truth = targets.modes25_truth()
    masses = targets.mode_masses(draws)
    order = np.lexsort((np.arange(25), -truth[:25].round(6)))
    names = ["{:.0f}, {:.0f}".format(*targets.MODES[mode]).replace("-", "−") for mode in order]
    outside = float(masses[25]), float(truth[25])
    distance = float(targets.mode_distance(draws, truth))
    return ModeMasses(names, masses[order], truth[order], outside, distance)
