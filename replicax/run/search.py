"""The search before a run: minima of the energy from dispersed starts, with the curvature there.

They are the first mixture that proposes points, and half of the replicas start there. L-BFGS comes
first, then damped Newton steps, which parameters of very different scales need. An end that is not
a minimum, such as one in the neck of a funnel, where the energy goes on falling, is left out.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from replicax.algorithm.fitting import with_wide
from replicax.algorithm.labels import (
    Ordering,
    aligned,
    best_direction,
    components_in_order,
    first_direction,
)
from replicax.algorithm.mixture import Mixture, make_mixture, most_components
from replicax.algorithm.target import Target
from replicax.run.compiled_once import compiled_once

_MOST_HESSIAN = 100  # dimensions up to which every descent ends with Newton steps
_MOST_CALLS = 300  # of the gradient, from one start
_NEWTON_STEPS = 25
_FEWEST_STARTS = 8
_MOST_OTHERS = 8  # further starts for each that is given
_MOST_INNER = 128  # starts within those that are given,
_INNER_SHARE = 0.25  # and of the evaluations that are spent before them
_TOGETHER = 4  # energies evaluated together, for the cost of one with its gradient
_SHRUNK = 6  # halvings of the distance of a start from the middle, at most
_OPPOSITE = (0.0, 0.5, 1.0, 2.0)  # times as far from the middle as a minimum on the other side
_WIDENED = 8  # doublings of the temperature of draws around a minimum, at most
_EXCESS = 1.0  # of log density that is not explained
_SCREENED = 64  # points of which the least explained one is followed
_HITS = 6  # starts that lead to a minimum, for each minimum and one more, before no other is sought
_MOST_WITH_MASS = 64  # minima, those among them that are images of others
_NEAR = 0.2  # distance of equal parameters of two minima, in standard deviations
_IN_VAIN = 4  # starts that lead to no minimum, one after another, before the search gives up
_ARRIVED = 0.1  # energy above a known minimum, and square distance by dimension from it
_SETTLED = 0.1  # energy that the next Newton step may still gain, for each dimension
_BEYOND = 1e30  # stands for an energy that is not finite
_LIGHTEST = -15.0  # log weight, by Laplace, below which a minimum has no mass
_TYPICAL = 4.0  # standard deviations of the squared distance of a draw from its minimum
_SHORT = 0.1  # steps of differences, in standard deviations
_FLAT = 1e-5  # curvature, in units of its diagonal, below which a direction is open


End = tuple[np.ndarray, float, np.ndarray]  # where a descent ended, its energy and covariance


class Found(NamedTuple):
    """What a search found."""

    minima: np.ndarray  # (minimum, d)
    energies: np.ndarray  # (minimum,)
    covariances: np.ndarray  # inverse Hessians, (minimum, d, d)
    evaluations: int  # of the gradient; a Hessian is d of them
    rejected: int  # ends that are no minima

    def mixture(self) -> Mixture | None:
        """Return a mixture of Gaussians at the minima, weighted by Laplace's approximation, None
        where there are none."""
        if not len(self.minima):
            return None
        d = self.minima.shape[1]
        log_weight = -self.energies + np.linalg.slogdet(self.covariances)[1] / 2
        log_weight = log_weight - np.logaddexp.reduce(log_weight)
        best = np.argsort(-log_weight, kind="stable")[: most_components(d) - 1]
        best = best[log_weight[best] > _LIGHTEST]
        # The approximation may be poor: no minimum that was found is left with nearly nothing.
        log_weight = np.logaddexp(log_weight[best], np.log(0.02 / len(best)))
        mean, cov = self.minima[best], self.covariances[best]
        shares = np.exp(log_weight - np.logaddexp.reduce(log_weight))
        middle = shares @ mean
        whole = np.einsum("k,kij->ij", shares, cov) + np.einsum(
            "k,ki,kj->ij", shares, mean - middle, mean - middle
        )
        parts = make_mixture(log_weight, mean, np.linalg.cholesky(cov))
        return with_wide(parts, middle, whole)

    def in_order(self, places: np.ndarray) -> tuple["Found", np.ndarray]:
        """Return the minima with their labels in order, and the direction of the order: the one
        that is best for draws from Gaussians there."""
        ordering = Ordering(places, first_direction(places))
        if not len(self.minima):
            return self, ordering.direction
        roots = np.linalg.cholesky(self.covariances)
        d = self.minima.shape[1]
        normal = np.random.default_rng(0).standard_normal((4 * d, d))
        drawn = self.minima[:, None] + np.einsum("kij,nj->kni", roots, normal)
        direction = best_direction(ordering, drawn.reshape(-1, d))
        minima, roots = components_in_order(Ordering(places, direction), self.minima, roots)
        covariances = roots @ roots.swapaxes(1, 2)
        return self._replace(minima=minima, covariances=covariances), direction

    @property
    def covariance(self) -> np.ndarray | None:
        """The covariance at the deepest minimum, None where there is none."""
        return self.covariances[np.argmin(self.energies)] if len(self.minima) else None


class Counted:
    """Energy and gradient in double precision, finite everywhere, and how often they were asked."""

    def __init__(self, energy: Callable, data: Any, dtype: jnp.dtype) -> None:
        self.data, self.dtype, self.calls = data, dtype, 0
        self._evaluate = compiled_once(jax.value_and_grad(energy))
        self._hessian: Callable | None = compiled_once(jax.hessian(energy))

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        self.calls += 1
        value, gradient = self._evaluate(np.asarray(x, self.dtype), self.data)
        value, gradient = float(value), np.asarray(gradient, float)
        if np.isfinite(value) and np.all(np.isfinite(gradient)):
            return value, gradient
        return _BEYOND, np.zeros(len(x))

    def hessian(self, x: np.ndarray, sd: np.ndarray) -> np.ndarray:
        """Return the second derivatives; `sd` are rough standard deviations of the parameters."""
        if self._hessian is not None:
            try:
                hessian = np.asarray(self._hessian(np.asarray(x, self.dtype), self.data), float)
                self.calls += len(x)
                return (hessian + hessian.T) / 2
            except (TypeError, ValueError, NotImplementedError, RuntimeError):
                # Solvers of differential equations have no forward derivative.
                self._hessian = None
        return self.differences(x, sd)

    def differences(self, x: np.ndarray, sd: np.ndarray) -> np.ndarray:
        """Return the second derivatives as differences of gradients."""
        for _ in range(2):  # the second time with steps that the curvature tells
            ways = np.diag(_SHORT * sd)
            rows = [(self(x + way)[1] - self(x - way)[1]) / 2 for way in ways]
            hessian = np.stack(rows) / (_SHORT * sd)[:, None]
            hessian = (hessian + hessian.T) / 2
            curved = 1 / np.sqrt(np.maximum(np.abs(np.diag(hessian)), 1e-30))
            if np.all(np.abs(np.log(curved / sd)) < np.log(5)):
                break
            sd = curved
        return hessian


def energy_of(target: Target, unravel: Callable, slope: float) -> Callable:
    """Return `energy(point, data)`, slope U + V of a flattened point."""

    def energy(point: Any, data: Any) -> Any:
        params = unravel(point)
        prior = 0.0 if target.prior is None else target.prior(params)
        return slope * target.energy(params, data, None) + prior

    return energy


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # such ends are rejected
def search(
    energy: Callable,
    starts: np.ndarray,
    data: Any = None,
    budget: int = 0,
    places: np.ndarray | None = None,
    known: Found | None = None,
    more: np.ndarray | None = None,
    evaluate: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Found:
    """Minimise `energy(point, data)` from the first of `starts` (start, d), and from others while
    fewer than `budget` evaluations are spent; return the distinct minima, those `known` from before
    among them: starts as near to one as its draws are not followed.

    In many dimensions dispersed starts are all far from their middle, from where descents lead past
    narrow modes: others begin further inside, opposite of what was found, and where the known
    minima explain the energies, `evaluate(points)`, least. Where most starts lead to minima of
    their own, there may be others: `more` starts of the same law are followed, and some that take
    each coordinate from one of all. Minima that differ by a permutation of exchangeable labels, at
    `places`, are one. Where none are declared, permutations that lead from one to another are
    applied to all.
    """
    counted = energy
    if not isinstance(counted, Counted):
        counted = Counted(energy, data, jnp.asarray(starts).dtype)
    minima = [] if known is None else list(zip(*known[:3]))
    hits = [1] * len(minima)
    rejected = 0
    starts = np.asarray(starts, float)
    every = starts if more is None else np.concatenate([starts, np.asarray(more, float)])
    inner = _Inner(every, minima, evaluate, counted, int(_INNER_SHARE * budget))
    for number, (start, kind) in enumerate(_with_others(starts, every, inner)):
        if number >= _FEWEST_STARTS and counted.calls >= budget:
            break
        if kind == "other" and _are_all(minima, hits):
            break
        counts = int(kind != "inner")  # of those that are dispersed alone it is known how many
        end = _typical_of(start, minima) if known is not None else None
        if end is None:
            end = _descend(counted, _pulled(counted, start), minima, places)
        if isinstance(end, int):
            hits[end] += counts
        elif end is not None:
            minima.append(end)
            hits.append(counts)
        elif (rejected := rejected + 1) == _IN_VAIN and not minima:
            break
    if places is None:
        _add_images(counted, minima)
    return _as_found(minima, starts.shape[1], counted.calls, rejected)


def _as_found(minima: list[End], d: int, calls: int, rejected: int) -> Found:
    points, energies, covariances = zip(*minima) if minima else ((), (), ())
    points, covariances = np.reshape(points, (-1, d)), np.reshape(covariances, (-1, d, d))
    return Found(points, np.array(energies, float), covariances, calls, rejected)


def _typical_of(start: np.ndarray, minima: list[End]) -> int | None:
    """Return the number of the nearest minimum among whose draws a start may be, None if none."""
    square = [(start - x) @ np.linalg.solve(cov, start - x) for x, _, cov in minima]
    d = len(start)
    if not square or min(square) > d + _TYPICAL * np.sqrt(2 * d):
        return None
    return int(np.argmin(square))


def _with_others(
    starts: np.ndarray, every: np.ndarray, inner: "_Inner"
) -> Iterator[tuple[np.ndarray, str]]:
    """Yield the starts (start, d), "inner" points, and "other" ones: the rest of every start, and
    points between all."""
    yield from ((start, "given") for start in starts)
    rng, (count, d) = np.random.default_rng(0), every.shape
    if count == 1:
        return
    yield from ((point, "inner") for point in inner)
    yield from ((start, "other") for start in every[len(starts) :])
    for _ in range(_MOST_OTHERS * count):
        yield every[rng.integers(count, size=d), np.arange(d)], "other"


class _Inner:
    """Points from which descents find what those from dispersed starts pass: nearer to the middle
    of these, opposite of a minimum, or further from it than its draws."""

    def __init__(
        self,
        starts: np.ndarray,
        minima: list[End],
        evaluate: Callable | None,
        counted: "Counted",
        budget: int,
    ) -> None:
        self.starts, self.minima, self.evaluate = starts, minima, evaluate
        self.counted, self.rng, self.budget = counted, np.random.default_rng(1), budget

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield points to follow, those that are explained least among them, while the evaluations
        last."""
        for number in range(_MOST_INNER):
            if self.counted.calls >= self.budget:
                return
            yield self.unexplained() if number % 2 else self.points(1)[0]

    def points(self, count: int) -> np.ndarray:
        """Return so many points (count, d). What was found on one side of the middle has its
        balance on the other."""
        rng, middle = self.rng, self.starts.mean(axis=0)
        away = self.starts[rng.integers(len(self.starts), size=count)] - middle
        points = middle + away / 2.0 ** rng.integers(1, _SHRUNK + 1, size=(count, 1))
        known = _with_mass(self.minima)
        if not known.size:
            return points
        at, _, cov = self.minima[rng.choice(known)]
        points = points - rng.choice(_OPPOSITE, size=(count, 1)) * (at - middle)
        wide = rng.standard_normal(points.shape) @ np.linalg.cholesky(cov).T
        wide = at + 2.0 ** (rng.integers(1, _WIDENED + 1, size=(count, 1)) / 2) * wide
        return np.where(rng.random((count, 1)) < 0.3, wide, points)

    def unexplained(self) -> np.ndarray:
        """Return of many points the one with most density beyond that of Gaussians at the minima
        with mass."""
        known = _with_mass(self.minima)
        if self.evaluate is None or not known.size:
            return self.points(1)[0]
        points = self.points(_SCREENED)
        self.counted.calls += _SCREENED // _TOGETHER
        explained = np.full(_SCREENED, -np.inf)
        for x, energy, cov in (self.minima[number] for number in known):
            steps = np.linalg.solve(np.linalg.cholesky(cov), (points - x).T)
            explained = np.logaddexp(explained, -energy - np.sum(steps**2, axis=0) / 2)
        excess = -np.asarray(self.evaluate(points), float) - explained
        excess = np.where(np.isfinite(excess), excess, -np.inf)
        return points[np.argmax(excess) if excess.max() > _EXCESS else 0]


def _same(end: End, minima: list[End], places: np.ndarray | None) -> int | None:
    """Return the number of the minimum that an end is, None if it is a new one. Of two of different
    widths the narrow one may be within the wide one."""
    for number, (at, _, cov) in enumerate(minima):
        apart = are_apart(end[0], at, cov, places) or are_apart(at, end[0], end[2], places)
        if not apart:
            return number
    return None


def _are_all(minima: list[End], hits: list[int]) -> bool:
    """Return whether minima with mass were found so often that hardly another one is left."""
    found = np.array(hits)[_with_mass(minima)]
    return bool(found.sum() >= _HITS * (len(found) + 1)) or not minima


def _with_mass(minima: list[End]) -> np.ndarray:
    """Return the numbers of those that have mass, by Laplace's approximation."""
    log_weight = np.array([np.linalg.slogdet(cov)[1] / 2 - energy for _, energy, cov in minima])
    return np.flatnonzero(log_weight > log_weight.max(initial=-np.inf) + _LIGHTEST)


def _add_images(counted: "Counted", minima: list[End]) -> None:
    """Add what permutations of the parameters, such as those of labels, make of minima, if they
    lead from one of these to another and leave the energy as it is."""
    known = [minima[number] for number in _with_mass(minima)]
    ways = {way for one in known for other in known if (way := _permutation(one, other))}
    for x, energy, cov in known:  # those that are added among them
        for way in map(list, sorted(ways)):
            image = x[way], energy, cov[np.ix_(way, way)]
            is_new = all(are_apart(image[0], at, of) for at, _, of in minima)
            if is_new and len(known) < _MOST_WITH_MASS and _equal(counted(image[0])[0], energy):
                minima.append(image)
                known.append(image)


def _permutation(one: End, other: End) -> tuple[int, ...] | None:
    """Return the permutation of parameters that leads from one minimum to another."""
    x, y = one[0], other[0]
    sd_x, sd_y = np.sqrt(np.diag(one[2])), np.sqrt(np.diag(other[2]))
    way = np.zeros(len(x), int)
    way[np.argsort(y)] = np.argsort(x)
    near = np.abs(x[way] - y) < _NEAR * sd_y
    alike = near & (np.abs(np.log(sd_x[way] / sd_y)) < _NEAR)
    is_one = x is not y and _equal(one[1], other[1]) and np.all(alike)
    return tuple(way.tolist()) if is_one else None


def _equal(energy: float, other: float) -> bool:
    return abs(energy - other) <= max(0.05, 2e-6 * abs(other))


def are_apart(
    one: np.ndarray,
    other: np.ndarray,
    cov: np.ndarray,
    places: np.ndarray | None = None,
    bound: float = 2.0,
) -> bool:
    """Return whether the mean square distance by dimension is above a bound, in units of `cov`."""
    step = (one if places is None else aligned(places, one, other, cov)) - other
    return bool(step @ np.linalg.solve(cov, step) > bound * len(one))


def _pulled(counted: Counted, start: np.ndarray) -> np.ndarray:
    """Return the start, pulled towards 0 until the energy is finite."""
    x = start
    for _ in range(60):
        if counted(x)[0] < _BEYOND:
            return x
        x = x / 2
    return start


def _descend(
    counted: Counted, start: np.ndarray, minima: list[End], places: np.ndarray | None
) -> End | int | None:
    """Return the minimum reached from a start, its energy and covariance, or its number if it is
    among those that are known; None if it is none."""
    options = {"maxiter": 300, "maxfun": _MOST_CALLS, "maxcor": 30}
    ended = minimize(counted, start, jac=True, method="L-BFGS-B", options=options)
    x = np.asarray(ended.x)
    for number, (at, energy, cov) in enumerate(minima):  # no second derivatives are needed
        if abs(ended.fun - energy) < _ARRIVED and not are_apart(x, at, cov, places, _ARRIVED):
            return number
    inverse = ended.hess_inv.todense()
    sd = np.sqrt(np.maximum(np.diag(inverse), 1e-30))
    end = _newton(counted, x, sd) if len(x) <= _MOST_HESSIAN else _at_once(counted, x, sd, inverse)
    known = None if end is None else _same(end, minima, places)
    return end if known is None else known


def _at_once(counted: Counted, x: np.ndarray, sd: np.ndarray, inverse: np.ndarray) -> End | None:
    """Return an end of L-BFGS if it is a minimum, with second derivatives, which tell its mass; if
    they are not those of a minimum, with its own inverse Hessian, a diagonal plus low rank."""
    energy, gradient = counted(x)
    gain = gradient @ inverse @ gradient / 2
    if not (energy < _BEYOND and np.all(np.isfinite(inverse)) and gain < _SETTLED * len(x)):
        return None
    exact = _settled(x, energy, gradient, counted.differences(x, sd))
    return exact or (x, energy, (inverse + inverse.T) / 2)


def _newton(counted: Counted, x: np.ndarray, sd: np.ndarray) -> End | None:
    """Take damped Newton steps (Levenberg) until they gain nothing."""
    energy, gradient = counted(x)
    damping = 1e-3
    hessian = counted.hessian(x, sd)
    for _ in range(_NEWTON_STEPS):
        if energy >= _BEYOND or not np.all(np.isfinite(hessian)):
            return None
        scale, value, vector = hessian_scale(hessian)
        whitened = vector.T @ (scale * gradient)
        step = -scale * (vector @ (whitened / (np.maximum(np.abs(value), 1e-6) + damping)))
        ahead, slope = counted(x + step)
        gain = energy - ahead
        if gain > -1e-6 * (1 + abs(energy)):  # as much as rounding hides
            x, energy, gradient, damping = x + step, ahead, slope, damping / 10
            hessian = counted.hessian(x, sd)
            if gain < 1e-3:
                break
        else:
            damping *= 10
            if damping > 1e4:
                break
    return _settled(x, energy, gradient, hessian)


def _settled(x: np.ndarray, energy: float, gradient: np.ndarray, hessian: np.ndarray) -> End | None:
    """Return the end if it is a minimum: curved upwards everywhere, and nothing left to gain."""
    if not np.all(np.isfinite(hessian)):
        return None
    scale, value, vector = hessian_scale(hessian)
    if value[0] < _FLAT:
        return None
    whitened = vector.T @ (scale * gradient)
    if np.sum(whitened**2 / value) / 2 > _SETTLED * len(x):
        return None
    root = scale[:, None] * (vector / np.sqrt(value))
    return x, energy, root @ root.T


def hessian_scale(hessian: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scales, eigenvalues and eigenvectors of the Hessian whose diagonal they make 1."""
    diagonal = np.abs(np.diag(hessian))
    scale = 1 / np.sqrt(np.maximum(diagonal, 1e-12 * max(diagonal.max(), 1e-300)))
    value, vector = np.linalg.eigh(hessian * scale[:, None] * scale)
    return scale, value, vector
