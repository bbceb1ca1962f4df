"""Draws of the posterior of some rows, from a population of points that is cooled (sequential Monte
Carlo; Del Moral et al., 2006): what finds the modes before sweeps over all rows.

The energy counts with a slope that rises to 1, each time by so much that a third of the weights
stay effective; points are drawn anew by these weights, and all of them take Hamiltonian moves that
are accepted or refused. One small function is compiled, all else is NumPy on the host: a ladder
takes as many gradients, and seconds more to trace and to compile.

Nothing here has to be exact: the density of the starts is not known, and sweeps over all rows
confirm what is found.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm.labels import Ordering, ordered
from replicax.algorithm.target import Target
from replicax.algorithm.tiles import largest_value
from replicax.algorithm.tuning import metric_root
from replicax.run.blas import one_thread
from replicax.run.compiled_once import compiled_once
from replicax.run.search import Counted, Found, energy_of, search
from replicax.run.sweep_state import WITNESSES, State, first_state

POINTS = 128  # of the population
_BYTES = 2**21  # of the largest value of points that are evaluated together
_LEAPFROG = 6  # steps of a move
_FIRST_MOVES, _MOVES, _LAST_MOVES = 9, 3, 9  # before the first stage, after each, at the end
_KEPT_MOVES = 6  # of the last ones, whose ends are draws
_EFFECTIVE = 0.35  # share of the weights that a stage leaves
_WANTED, _LEAST = 0.75, 0.4  # acceptance of moves, and below which there are more of them
_PATIENCE = 4  # times as many
_HOTTEST_ROWS, _COLDEST_ROWS = 1.0, 100.0  # the rows that the first slope may stand for
_FEWEST_SEEN, _GRADIENTS = 3, 8  # populations of which the metric is made, gradients by dimension
_INDEPENDENT = 1 / 8  # of gradients of points that are drawn anew and move a little
_MOST_STAGES = 400
_FIRST_STARTS = 16  # of a run, from which minima are looked for first
_STARTS = 24  # draws of the finder from which its minima are looked for
_MOST_MINIMA = 16
_KEPT = 20 * WITNESSES  # draws
_HALVINGS = 60  # of the way from a start to where the energy is finite


class At(NamedTuple):
    """Points (m, d), with U and V there and their gradients."""

    point: np.ndarray
    energy: np.ndarray
    prior: np.ndarray
    of_energy: np.ndarray
    of_prior: np.ndarray

    def total(self, slope: float) -> np.ndarray:
        """Return slope U + V, infinite where it or its gradient is not finite."""
        total = slope * self.energy + self.prior
        known = np.isfinite(total) & np.isfinite(self.gradient(slope)).all(axis=1)
        return np.where(known, total, np.inf)

    def gradient(self, slope: float) -> np.ndarray:
        return slope * self.of_energy + self.of_prior

    def taken(self, places: np.ndarray) -> "At":
        return At(*(leaf[places] for leaf in self))


class Cooled(NamedTuple):
    """What a population has come to."""

    draws: np.ndarray  # (draw, d)
    evaluations: int  # of gradients
    stages: int
    acceptance: float  # of the last moves


def evaluator(target: Target, unravel: Callable, data: Any, like: Any) -> Callable:
    """Return `evaluate(points (m, d)) -> At`; `like` is a point."""
    energy = lambda x, data: target.energy(unravel(x), data, None)  # noqa: E731
    prior = lambda x: 0.0 if target.prior is None else target.prior(unravel(x))  # noqa: E731

    def one(x: Any, data: Any) -> Any:
        both = jax.value_and_grad(energy)(x, data), jax.value_and_grad(prior)(x)
        return both[0][0], both[1][0], both[0][1], both[1][1]

    at_once = _BYTES // max(largest_value(energy, like, data), 1)
    at_once = 2 ** int(np.log2(np.clip(at_once, 1, POINTS)))

    def all_points(points: Any, data: Any) -> Any:
        return jax.lax.map(lambda x: one(x, data), points, batch_size=at_once)

    compiled = compiled_once(all_points)

    def evaluate(points: np.ndarray) -> At:
        found = compiled(jnp.asarray(points, like.dtype), data)
        return At(points, *(np.asarray(leaf, float) for leaf in found))

    return evaluate


class _Population:
    """Points that move at a slope, in a metric that is renewed from their gradients."""

    def __init__(
        self,
        evaluate: Callable,
        starts: np.ndarray,
        root: np.ndarray,
        rng: np.random.Generator,
    ) -> None:
        self.evaluate, self.rng = evaluate, rng
        self.at = evaluate(starts)
        self.evaluations = len(starts)
        d = starts.shape[1]
        self.root, self.length = root, 0.5 * d**-0.25
        self.first_root = root
        self.seen = [self.at]
        self.acceptance = 0.0

    def renew_metric(self, slope: float) -> None:
        m, d = self.at.point.shape
        self.seen = self.seen[-(_FEWEST_SEEN + _GRADIENTS * d // m) :]
        gradients = np.concatenate([at.gradient(slope) for at in self.seen])
        self.root = metric_root(gradients, self.first_root, _INDEPENDENT)

    def move(self, slope: float) -> None:
        """Take one Hamiltonian move, of steps of a random length for each point."""
        at, (m, d) = self.at, self.at.point.shape
        length = self.length * self.rng.uniform(0.6, 1.1, (m, 1))
        start = velocity = self.rng.standard_normal((m, d))
        push = lambda at, part: part * length * _known(at.gradient(slope)) @ self.root  # noqa: E731
        velocity = velocity - push(at, 0.5)
        for i in range(_LEAPFROG):
            at = self.evaluate(at.point + length * velocity @ self.root.T)
            velocity = velocity - push(at, 0.5 if i == _LEAPFROG - 1 else 1.0)
        self.evaluations += _LEAPFROG * m
        kinetic = np.sum(velocity**2 - start**2, axis=1) / 2
        before, after = self.at.total(slope), at.total(slope)
        with np.errstate(invalid="ignore", over="ignore"):
            log_ratio = np.where(np.isfinite(after), before - after - kinetic, -np.inf)
        chance = np.exp(np.minimum(np.nan_to_num(log_ratio, nan=-np.inf), 0.0))
        accepts = self.rng.random(m) < chance
        self.at = At(*(_chosen(accepts, new, old) for new, old in zip(at, self.at)))
        self.seen.append(self.at)
        self.acceptance = float(chance.mean())
        self.length = min(self.length * np.exp(0.5 * (self.acceptance - _WANTED)), 1.5)

    def cool(self, slope: float) -> float:
        """Draw the points anew for the next slope, and return it."""
        energy = np.where(np.isfinite(self.at.total(slope)), self.at.energy, np.inf)
        following = _next_slope(energy, slope)
        weight = np.exp(-(following - slope) * (energy - energy.min()))
        edges = np.cumsum(weight / weight.sum())
        combs = (np.arange(len(energy)) + self.rng.random()) / len(energy)
        places = np.minimum(np.searchsorted(edges, combs), len(energy) - 1)
        self.at = self.at.taken(places)
        return following


def _known(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, 0.0)


def _chosen(accepts: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    return np.where(accepts.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def _next_slope(energy: np.ndarray, slope: float) -> float:
    """Return the slope, at most 1, up to which the wanted share of the weights stays effective."""

    def share(following: float) -> float:
        weight = np.exp(-(following - slope) * (energy - energy.min()))
        return weight.sum() ** 2 / np.sum(weight**2) / len(energy)

    if share(1.0) >= _EFFECTIVE:
        return 1.0
    low, high = slope, 1.0
    for _ in range(50):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if share(middle) >= _EFFECTIVE else (low, middle)
    return float(low)


def cooled(
    evaluate: Callable,
    starts: np.ndarray,
    found: Found,
    num_rows: int,
    rng: np.random.Generator,
    check: Callable[[], None] = lambda: None,
) -> Cooled:
    """Return draws of a population that begins at `starts` (m, d) and is cooled to slope 1.

    `found` are minima that are known; `check()` is called before each stage.
    """
    minima = found.minima
    starts, lowest = _finite(evaluate, starts, minima)
    d = starts.shape[1]
    covariance = found.covariance
    root = np.eye(d) if covariance is None else np.linalg.cholesky(covariance)
    population = _Population(evaluate, starts, root, rng)
    slope = _first_slope(population.at.energy, lowest, d, num_rows)
    draws: list[np.ndarray] = []
    stages, left = 0, _FIRST_MOVES
    while stages < _MOST_STAGES:
        check()
        draws = []
        for number in range(_PATIENCE * left):
            if number % _MOVES == 0 and (number < left or population.acceptance > _LEAST):
                population.renew_metric(slope)
            population.move(slope)
            draws.append(population.at.point)
            if number >= left - 1 and population.acceptance > _LEAST:
                break
        if slope == 1.0:
            break
        slope = population.cool(slope)
        stages, left = stages + 1, _LAST_MOVES if slope == 1.0 else _MOVES
    return Cooled(
        np.concatenate(draws[-_KEPT_MOVES:]), population.evaluations, stages, population.acceptance
    )


def _first_slope(energy: np.ndarray, lowest: float, d: int, num_rows: int) -> float:
    """Return the slope at which the starts are about as far from the lowest minimum as draws."""
    excess = max(float(np.median(np.where(np.isfinite(energy), energy, np.inf))) - lowest, 1e-30)
    return float(np.clip(d / excess, _HOTTEST_ROWS / num_rows, _COLDEST_ROWS / num_rows))


def _finite(evaluate: Callable, starts: np.ndarray, minima: np.ndarray) -> tuple[np.ndarray, float]:
    """Return starts, moved on straight lines to the nearest minimum, to 0 without one, until the
    energy is finite; and the lowest energy of minima and starts."""
    points, goals, lowest = starts, np.zeros_like(starts), np.inf
    if len(minima):
        at = evaluate(np.resize(minima, starts.shape))
        lowest = np.nanmin(at.energy)
        distance = np.sum((starts[:, None] - minima) ** 2, axis=2)
        goals = minima[np.argmin(distance, axis=1)]
    for _ in range(_HALVINGS):
        at = evaluate(points)
        broken = ~np.isfinite(at.total(1.0))
        if not broken.any():
            break
        points = np.where(broken[:, None], (points + goals) / 2, points)
    lowest = np.min(at.energy, initial=lowest, where=np.isfinite(at.energy))
    return points, float(lowest)


@one_thread()
def find(sampler: Any, starts: np.ndarray, check: Callable[[], None] = lambda: None) -> State:
    """Sample some of the rows from starts (m, d), and return the state of a run of sweeps before
    the first one; `check()` is called now and then."""
    began = time.monotonic()
    target, some, places, rng = sampler.finder.target, sampler.some, sampler.places, sampler.rng(0)
    energy = Counted(energy_of(target, sampler.unravel, 1.0), some, sampler.dtype)
    first = search(energy, starts[:_FIRST_STARTS], places=places)
    if not len(first.minima) and not _all_finite(some):
        raise ValueError(
            "The log likelihood of some of the rows is finite at no start, and the data hold NaN "
            "or inf: leave these rows out."
        )
    check()
    size = len(jax.tree.leaves(some)[0])
    like = jnp.zeros(sampler.d, sampler.dtype)
    evaluate = evaluator(target, sampler.unravel, some, like)
    cold = cooled(evaluate, starts.astype(float), first, size, rng, check)
    draws = cold.draws[np.isfinite(cold.draws).all(axis=1)]
    again = _dispersed(draws, rng).astype(sampler.dtype)
    found = search(energy, again, None, 10**9, places, first)
    if not len(found.minima):
        raise ValueError(
            "The search on some of the rows found no minimum of the energy: is the prior proper, "
            "has the posterior finite mass? Write num_steps=10_000 for a ladder over all rows."
        )
    draws = draws[rng.permutation(len(draws))[:_KEPT]]
    best = np.argsort(found.energies, kind="stable")[:_MOST_MINIMA]
    found = Found(found.minima[best], found.energies[best], found.covariances[best], 0, 0)
    direction = np.zeros(0)
    if places is not None:
        found, direction = found.in_order(places)
        draws = ordered(Ordering(places, direction), draws)[0]
    prior = float(sampler.prior_at(found.minima[:1])[0])
    spent = np.array([size, 2.0 * (energy.calls + cold.evaluations), time.monotonic() - began])
    return first_state(found, draws, sampler.num_chains, prior, direction, spent)


def _all_finite(rows: Any) -> bool:
    floats = [x for x in jax.tree.leaves(rows) if np.issubdtype(x.dtype, np.floating)]
    return all(bool(np.isfinite(leaf).all()) for leaf in floats)


def _dispersed(draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return some draws (start, d): half of them at random, half far from all others."""
    draws = draws[rng.permutation(len(draws))[:2000]]
    x = (draws - draws.mean(axis=0)) / (draws.std(axis=0) + 1e-12)
    chosen = list(range(min(_STARTS // 2, len(x))))
    near = np.min([np.sum((x - x[k]) ** 2, axis=1) for k in chosen], axis=0)
    while len(chosen) < min(_STARTS, len(x)):
        chosen.append(int(np.argmax(near)))
        near = np.minimum(near, np.sum((x - x[chosen[-1]]) ** 2, axis=1))
    return draws[chosen]
