"""Checks whether draws and gradients agree, which evaluate the target again.

Moves follow gradients. Two identities test them, given energies and gradients at some of the draws
and on steps away from them:

- Between two points the energy changes by the integral of its gradient g. It does not if the
density has jumps, as at a change point written with `where`, or walls beyond which it is 0. Moves
that are neither accepted nor rejected do not see them, and all chains agree on another
distribution than the posterior; moves that are adjusted are rejected there.
- E[(theta_i - c) g_i] = 1 for every parameter and every c, by partial integration. With noisy
gradients or steps that are too long, it is the actual temperature of the draws. It needs a density
without jumps, and matters for moves on mini-batches.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from replicax.algorithm.target import Target, takes_key
from replicax.results.problems import certainty, mean_and_error
from replicax.run import trees
from replicax.run.task import Task, as_task

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

_NEAR, _FAR = 1.0, 2.0  # lengths of steps, in deviations of differences of draws, and of draws
_UNEXPLAINED = 0.1  # change of energy over a step, in the unit of the temperature
_ROUNDING = 64  # spacings of the energy's floating-point numbers
_NODES, _GAUSS = np.polynomial.legendre.leggauss(7)
_PLACES = np.concatenate([[0.0], (_NODES + 1) / 2, [1.0]])  # positions along a step
_WEIGHTS = np.concatenate([[0.0], _GAUSS / 2, [0.0]])
_NUM_NEAR, _FEW_FAR, _MOST_FAR = 24, 8, 72  # steps
_FEW_JUMPS, _MOST_JUMPS = 2, 8  # steps with a jump that are needed, and followed
_HALVINGS = 30
_LOW = 3.0  # energy at a wall above that before it: beyond, hardly any mass is near
_PROBE = 0.01  # of a step: how far beyond a jump each parameter is tried alone
_MOST_TRIED, _MOST_VALUES = 200, 2  # parameters, and values of one, that are named
_HEATED, _HEATED_ONE = 0.1, 0.2  # the temperature of all parameters, and of one
_MOST_DRAWS = 1_000  # draws of all chains whose gradients are evaluated
_WORK = 20_000_000  # rows that may be evaluated
_FEW_DRAWS, _MOST_COMPONENTS, _MOST_ROWS = 20, 10_000, 1_000_000


def gradient_problem(posterior: "Posterior") -> str | None:
    """Return a sentence about energies that gradients do not explain, or about draws that are
    hotter or colder than the posterior; None if there is no such problem, or if the target or its
    rows are not available."""
    log_density, num_rows = _log_density(posterior)
    if log_density is None or num_rows > _MOST_ROWS or not _can_evaluate(posterior):
        return None
    resolved, leaves = posterior.metadata.resolved, posterior._leaves(0)
    first = trees.rebuild(posterior.metadata.params, [x[0, 0] for x in leaves], posterior._like)
    unravel = ravel_pytree(first)[1]

    def energy(flat: Array) -> Array:
        return -log_density(unravel(flat))

    num_far = np.clip(_WORK // (len(_PLACES) * num_rows), _FEW_FAR, _MOST_FAR)
    starts, steps = _steps(leaves, num_far)
    ways = (starts[:, None] + _PLACES[:, None] * steps[:, None]).astype(starts.dtype)
    draws = _spaced(leaves, _WORK // max(num_rows, starts.shape[1]))
    if resolved.adjusted or not resolved.tempers_likelihood:
        draws = draws[:, :0]  # their temperature is not tested
    (on_ways, along), (_, gradients) = _evaluate(energy, ways, draws)
    rest = _unexplained(on_ways, along, steps)
    jumps = _find_jumps(energy, ways, on_ways, rest)
    if jumps is not None:
        return _jump_words(posterior, jumps)
    if resolved.adjusted:
        return None
    return _gradient_words(on_ways, rest[:_NUM_NEAR]) or _temperature(draws, gradients)


def _log_density(posterior: "Posterior") -> tuple[Callable[[Any], Array] | None, int]:
    """Return the log density of the coldest rung, a function of the parameters, and the rows that
    it reads; None where it is not known exactly."""
    given, metadata = posterior._target, posterior.metadata
    temperature = float(posterior.temperatures[:, 0].max())
    known = callable(given) or isinstance(given, Task | Target)
    if metadata.kind != "sample" or temperature <= 0 or not known:
        return None, 0
    task: Any = as_task(given)
    target, data = task.target, getattr(task.batches, "data", None)
    if target.whole_energy is not None and data is not None:
        whole, prior = target.whole_energy, target.prior or (lambda params: 0.0)
        return lambda x: -whole(x, data) / temperature - prior(x), task.batches.num_rows
    exact = metadata.batches.kind == "none" and metadata.resolved.rule != "deterministic"
    if exact and not takes_key(target) and target.gradient is None and target.prior is None:
        return lambda x: -target.energy(x, None, None) / temperature, 1
    return None, 0


def _can_evaluate(posterior: "Posterior") -> bool:
    shapes = posterior.metadata.params.shapes
    small = sum(int(np.prod(shape)) for shape in shapes) <= _MOST_COMPONENTS
    enough = posterior.num_draws >= _FEW_DRAWS and posterior.metadata.resolved.keep_draws
    return small and enough and jax.process_count() == 1  # others would wait for the first


def _evaluate(energy: Any, *parts: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return energies (...) and gradients (..., component) of parts (..., component)."""
    points = np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts])
    evaluate = jax.jit(lambda points: jax.lax.map(jax.value_and_grad(energy), points))
    energies, gradients = (np.asarray(values, float) for values in evaluate(points))
    ends = np.cumsum([part[..., 0].size for part in parts])[:-1]
    pieces = zip(np.split(energies, ends), np.split(gradients, ends), parts)
    return [(e.reshape(part.shape[:-1]), g.reshape(part.shape)) for e, g, part in pieces]


def _flat(leaves: list[np.ndarray], chain: Any, draw: Any) -> np.ndarray:
    """Return some of the draws as vectors  (..., component)."""
    parts = [leaf[chain, draw] for leaf in leaves]
    lead = np.broadcast_shapes(np.shape(chain), np.shape(draw))
    return np.concatenate([part.reshape(*lead, -1) for part in parts], axis=-1)


def _steps(leaves: list[np.ndarray], num_far: int) -> tuple[np.ndarray, np.ndarray]:
    """Return draws and steps away from them (step, component): first as long as differences of
    successive draws, then by the spread of all draws, which cross more."""
    rng, count = np.random.default_rng(0), _NUM_NEAR + num_far
    chains, draws = (rng.integers(size, size=count) for size in leaves[0].shape[:2])
    moves = [np.median(np.abs(np.diff(leaf, axis=1)), axis=(0, 1)).ravel() for leaf in leaves]
    near = _NEAR / (0.6745 * np.sqrt(2)) * np.concatenate(moves)
    far = _FAR * np.concatenate([leaf.std(axis=(0, 1)).ravel() for leaf in leaves])
    lengths = np.repeat([near, far], [_NUM_NEAR, num_far], axis=0)
    return _flat(leaves, chains, draws), lengths * rng.standard_normal(lengths.shape)


def _spaced(leaves: list[np.ndarray], most: int) -> np.ndarray:
    """Return at most `most` evenly spaced draws of all chains (chain, draw, component)."""
    num_chains, num_draws = leaves[0].shape[:2]
    count = min(most, _MOST_DRAWS) // num_chains
    draw = np.unique(np.linspace(0, num_draws - 1, min(count, num_draws)).astype(int))
    return _flat(leaves, np.arange(num_chains)[:, None], draw)


def _unexplained(energies: np.ndarray, gradients: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the changes of energy (step, place) that are not integrals of the gradient along a
    step (step,); NaN where energies are not finite."""
    slopes = np.sum(gradients * steps[:, None], axis=2)
    with np.errstate(invalid="ignore"):
        rest = np.abs(energies[:, -1] - energies[:, 0] - slopes @ _WEIGHTS)
    return np.where(np.isfinite(energies).all(axis=1), rest, np.nan)


def _least(energies: np.ndarray) -> float:
    """Return the smallest change that is neither rounding nor too small to matter."""
    largest = np.abs(energies[np.isfinite(energies)]).max(initial=0.0)
    return max(_UNEXPLAINED, _ROUNDING * float(np.spacing(np.float32(largest))))


def _gradient_words(energies: np.ndarray, rest: np.ndarray) -> str | None:
    size = np.nanmedian(rest) if np.isfinite(rest).any() else 0.0
    if not size > _least(energies):  # the median ignores the few steps in which quadrature fails
        return None
    return (
        f"The energy changes by {size:.2g} where its gradient says otherwise: the log likelihood "
        "has jumps (where, floor, an index) or a wrong gradient, and these moves only follow the "
        "gradient. Leave out batch_size, so that moves are accepted or rejected by the "
        "energy, or write the model without jumps (sum over the position of a change point)."
    )


class _Jumps(NamedTuple):
    """Places where the energy jumps."""

    before: np.ndarray  # the last points before them  (jump, component)
    size: np.ndarray  # infinite at walls  (jump,)
    step: np.ndarray  # the ways on which they lie  (jump, component)
    crossed: np.ndarray  # which parameters cross them alone  (jump, component)


def _find_jumps(
    energy: Any, ways: np.ndarray, energies: np.ndarray, rest: np.ndarray
) -> _Jumps | None:
    """Return jumps on ways (step, place, component) with energies (step, place), by bisection;
    None if too few ways have one. Walls count where the energy before them is low."""
    finite, least = np.isfinite(energies), _least(energies)
    size = np.where(finite.any(axis=1) & ~finite.all(axis=1), np.inf, np.nan_to_num(rest))
    torn = np.argsort(-size, kind="stable")[:_MOST_JUMPS]
    torn = torn[size[torn] > least]
    if len(torn) < _FEW_JUMPS:
        return None
    changes = np.diff(finite[torn], axis=1)  # the first place beside a wall, and the other side
    walled, place = changes.any(axis=1), np.argmax(changes, axis=1)
    sides = np.where(walled, [place, place + 1], [[0], [ways.shape[1] - 1]])
    sides = np.where(finite[torn, sides[0]], sides, sides[::-1])
    ends = ways[torn, sides]  # (side, jump, component)
    before, size, rise = _bisect(energy, *ends)
    step = ends[1] - ends[0]
    crossed = _crossed(energy, before, step, size)
    start = ways[torn, np.argmax(finite[torn], axis=1)]
    alone = np.where(crossed, before, start)
    (there, _), (here, _) = _evaluate(energy, alone, start)
    rise = np.where(crossed.any(axis=1), there - here, rise)
    real = (size > least) & (np.isfinite(size) | (rise < _LOW))
    if real.sum() < _FEW_JUMPS:
        return None
    return _Jumps(before[real], size[real], step[real], crossed[real])


def _crossed(energy: Any, before: np.ndarray, step: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return which parameters cross jumps alone (jump, component); none if there are too many."""
    if step.shape[1] > _MOST_TRIED:
        return np.zeros(step.shape, bool)
    probes = before[:, None] + _PROBE * step[:, None] * np.eye(step.shape[1], dtype=step.dtype)
    (around, _), (at, _) = _evaluate(energy, probes, before)
    return ~(np.abs(around - at[:, None]) < size.clip(max=1e30)[:, None] / 2)


def _bisect(energy: Any, one: np.ndarray, other: np.ndarray) -> Any:
    """Return the last points before jumps between two points (jump, component), the change of
    energy there that the gradient does not explain, infinite at walls, and the rise before it."""

    def at(point: Array) -> Any:
        return point, *jax.value_and_grad(energy)(point)

    def gap(one: Any, other: Any) -> Array:
        (start, low, slope), (end, high, other_slope) = one, other
        rest = jnp.abs(high - low - (slope + other_slope) @ (end - start) / 2)
        wall = jnp.isfinite(low) != jnp.isfinite(high)
        return jnp.where(wall, jnp.inf, jnp.where(jnp.isfinite(rest), rest, 0.0))

    def halve(_: Any, ends: Any) -> Any:
        middle = at((ends[0][0] + ends[1][0]) / 2)
        first = gap(ends[0], middle) >= gap(middle, ends[1])
        halves = (ends[0], middle), (middle, ends[1])
        return jax.tree.map(lambda a, b: jnp.where(first, a, b), *halves)

    def follow(ends: Any) -> Any:
        one, other = jax.lax.fori_loop(0, _HALVINGS, halve, (at(ends[0]), at(ends[1])))
        back = one[0] + _PROBE * (ends[0] - one[0])
        return one[0], gap(one, other), one[1] - energy(back)

    return jax.tree.map(np.asarray, jax.jit(partial(jax.lax.map, follow))((one, other)))


def _jump_words(posterior: "Posterior", jumps: _Jumps) -> str:
    """Report jumps, and what to write instead."""
    where, adjusted = _where(posterior, jumps), posterior.metadata.resolved.adjusted
    sees = "which moves do not see, as they follow the gradient alone"
    sees = "and moves across it are rejected" if adjusted else sees
    if np.isinf(jumps.size).all():
        return (
            f"The log density falls to minus infinity at a wall{where}, {sees}. Write the model in "
            "z without walls: x = exp(z) for x > 0, and add z to the log density; x = sigmoid(z) "
            "for 0 < x < 1, and add log(x) + log(1 - x)."
        )
    accept = "; or leave out batch_size, or your kernel, so that moves are accepted or rejected"
    return (
        f"The energy jumps by {np.median(jumps.size):.2g}{where} (where, floor, an index), {sees}. "
        "Write the model without jumps: sum over the position of a change point, or make a step "
        f"smooth with a sigmoid{'' if adjusted else accept}."
    )


def _where(posterior: "Posterior", jumps: _Jumps) -> str:
    """Return in words which parameters cross the jumps, and where most do; empty if unknown."""
    spec, counts = posterior.metadata.params, jumps.crossed.sum(axis=0)
    if not counts.any():
        return ""
    parts = zip(spec.names, spec.shapes, strict=True)
    names = [component for part in parts for component in trees.component_names(*part)]
    first, *others = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    rounding = 1e-3 * np.abs(jumps.step[:, first]).max()
    at = jumps.before[jumps.crossed[:, first], first]
    values = {f"{0.0 if abs(value) < rounding else value:.3g}" for value in at}
    near = f", at {' and '.join(sorted(values))}" if len(values) <= _MOST_VALUES else ""
    return f" in {names[first]}{' and others' if others else ''}{near}"


def _centres(draws: np.ndarray) -> np.ndarray:
    """Return for each chain the mean of the other chains, which is independent of its draws."""
    means = draws.mean(axis=1, keepdims=True)
    return (means.sum(axis=0) - means) / (len(means) - 1) if len(means) > 1 else means


def _temperature(draws: np.ndarray, gradients: np.ndarray) -> str | None:
    """Report draws with E[(theta - c) g] other than 1; draws and gradients are (chain, draw,
    component)."""
    if not gradients.size or not np.isfinite(gradients).all():
        return None
    own = (draws - _centres(draws)) * gradients
    values = np.concatenate([own.mean(axis=2, keepdims=True), own], axis=2)
    mean, error = mean_and_error(values)
    if mean is None:
        return None
    bounds = np.full(mean.shape, _HEATED_ONE)
    bounds[0] = _HEATED
    excess = mean - 1
    beyond = (np.abs(excess) > bounds) & (np.abs(excess) > certainty(draws, mean.size) * error)
    if not beyond.any():
        return None
    worst = int(np.argmax(np.where(beyond, np.abs(excess) / bounds, 0.0)))
    kind, of = ("hot", "wide") if excess[worst] > 0 else ("cold", "narrow")
    return (
        f"The draws are too {kind}: according to gradients over all rows, their temperature is "
        f"{mean[worst]:.2f} and not 1, and they are too {of}. Write a smaller learning_rate, a "
        "larger batch_size, or none: moves are then accepted or rejected by the energy."
    )
