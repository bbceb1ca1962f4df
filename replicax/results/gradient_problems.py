"""Checks whether draws and gradients agree, for runs whose moves only follow gradients.

Moves on mini-batches are neither accepted nor rejected. Two identities test them, given gradients
over all rows at some of the draws:

- Between two points the energy changes by the integral of its gradient g. It does not if the log
likelihood has jumps, as at a change point written with `where`: moves do not see the jumps, and all
chains agree on another distribution than the posterior.
- E[(theta_i - c) g_i] = 1 for every parameter and every c, by partial integration. With noisy
gradients or steps that are too long, it is the actual temperature of the draws.
"""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from replicax.results.energy_problems import certainty, mean_and_error
from replicax.run import plain

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

_LENGTH = 1.0  # length of steps, in standard deviations of the difference of two draws
_UNEXPLAINED = 0.1  # median change of energy over steps, in the unit of the temperature
_ROUNDING = 64  # spacings of the energy's floating-point numbers
_NODES, _GAUSS = np.polynomial.legendre.leggauss(7)
_PLACES = np.concatenate([[0.0], (_NODES + 1) / 2, [1.0]])  # positions along a step
_WEIGHTS = np.concatenate([[0.0], _GAUSS / 2, [0.0]])
_NUM_STEPS = 24
_HEATED, _HEATED_ONE = 0.1, 0.2  # the temperature of all parameters, and of one
_MOST_DRAWS = 1_000  # draws of all chains whose gradients are evaluated
_WORK = 20_000_000  # rows that may be evaluated
_FEW_DRAWS, _MOST_COMPONENTS, _MOST_ROWS = 20, 10_000, 1_000_000


def gradient_problem(posterior: "Posterior") -> str | None:
    """Return a sentence about energies that gradients do not explain, or about draws that are
    hotter or colder than the posterior; None if there is no such problem, or if the target or its
    rows are not available."""
    target: Any = getattr(posterior._target, "target", None)
    batches: Any = getattr(posterior._target, "batches", None)
    whole_energy = getattr(target, "whole_energy", None)
    temperature = float(posterior.temperatures[:, 0].max())
    if temperature <= 0 or whole_energy is None or batches is None:
        return None
    if not _can_evaluate(posterior) or batches.num_rows > _MOST_ROWS:
        return None
    leaves = posterior._leaves(0)
    first = plain.rebuild(posterior.metadata.params, [x[0, 0] for x in leaves], posterior._like)
    unravel = ravel_pytree(first)[1]

    def energy(flat: Array) -> Array:
        params = unravel(flat)
        prior = 0.0 if target.prior is None else target.prior(params)
        return whole_energy(params, batches.data) / temperature + prior

    starts, steps = _steps(leaves)
    draws = _spaced(leaves, _WORK // max(batches.num_rows, starts.shape[1]))
    ways = starts[:, None] + _PLACES[:, None] * steps[:, None]  # (step, place, component)
    (on_ways, along), (_, gradients) = _evaluate(energy, ways.astype(starts.dtype), draws)
    sentence = _unexplained(on_ways, along, steps)
    return sentence or _temperature(draws, gradients)  # jumps leave the temperature unknown


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


def _steps(leaves: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return draws and steps away from them  (step, component)."""
    rng, (num_chains, num_draws) = np.random.default_rng(0), leaves[0].shape[:2]
    starts = _flat(
        leaves, rng.integers(num_chains, size=_NUM_STEPS), rng.integers(num_draws, size=_NUM_STEPS)
    )
    ways = [np.median(np.abs(np.diff(leaf, axis=1)), axis=(0, 1)).ravel() for leaf in leaves]
    spread = np.concatenate(ways) / (0.6745 * np.sqrt(2))
    return starts, _LENGTH * spread * rng.standard_normal(starts.shape)


def _spaced(leaves: list[np.ndarray], most: int) -> np.ndarray:
    """Return at most `most` evenly spaced draws of all chains (chain, draw, component)."""
    num_chains, num_draws = leaves[0].shape[:2]
    count = min(most, _MOST_DRAWS) // num_chains
    draw = np.unique(np.linspace(0, num_draws - 1, min(count, num_draws)).astype(int))
    return _flat(leaves, np.arange(num_chains)[:, None], draw)


def _unexplained(energies: np.ndarray, gradients: np.ndarray, steps: np.ndarray) -> str | None:
    """Report a change of energy (step, place) that is not the integral of the gradient along a
    step."""
    slopes = np.sum(gradients * steps[:, None], axis=2)
    rest = energies[:, -1] - energies[:, 0] - slopes @ _WEIGHTS
    rest = rest[np.isfinite(rest)]
    if not rest.size:
        return None
    size = np.median(np.abs(rest))  # the median ignores the few steps in which quadrature fails
    rounding = np.spacing(np.float32(np.nanmax(np.abs(energies))))
    if not size > max(_UNEXPLAINED, _ROUNDING * float(rounding)):
        return None
    return (
        f"The energy changes by {size:.2g} where its gradient says otherwise: the log likelihood "
        "has jumps (where, floor, an index) or a wrong gradient, and moves on mini-batches only "
        "follow the gradient. Leave out batch_size, so that moves are accepted or rejected by the "
        "energy, or write the model without jumps (sum over the position of a change point)."
    )


def _centres(draws: np.ndarray) -> np.ndarray:
    """Return for each chain the mean of the other chains, which is independent of its draws."""
    means = draws.mean(axis=1, keepdims=True)
    return (means.sum(axis=0) - means) / (len(means) - 1) if len(means) > 1 else means


def _temperature(draws: np.ndarray, gradients: np.ndarray) -> str | None:
    """Report draws with E[(theta - c) g] other than 1; draws and gradients are (chain, draw,
    component)."""
    own = (draws - _centres(draws)) * gradients
    values = np.concatenate([own.mean(axis=2, keepdims=True), own], axis=2)
    mean, error = mean_and_error(values)
    if mean is None or not np.all(np.isfinite(mean)):
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
