"""Metropolis-adjusted kernels, exact for exact energies: `mala` and `hmc`.

On a rung of temperature tau they preserve exp(-U / tau - V), U the energy and V minus the log prior
of targets that temper the likelihood alone (0 elsewhere), whatever their step size is.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from replicax.algorithm.kernel import Evaluated, Kernel, Observed, PyTree, Replica, Traits, select
from replicax.algorithm.ladder import Ladder, Metric
from replicax.algorithm.randomness import draw_normal
from replicax.algorithm.target import StepEnergy
from replicax.errors import at_least, check_number

_SPREAD = 0.9  # standard deviation of the logarithm of the step size
_LONGEST, _SHORTEST = 1.0, -6.0  # of that logarithm, beside the rung's own


class Drawn(NamedTuple):
    """The randomness of one adjusted move."""

    velocity: PyTree  # standard normal, in the tree of the parameters
    log_uniform: Array  # of the accept step
    length: Array  # standard normal, for the length of the step


def mala(target_acceptance: float = 0.574) -> Kernel:
    """Langevin steps of which each is accepted or rejected (MALA): `hmc` with one leapfrog step.

        theta' = theta - eta C g + sqrt(2 eta C) xi,   g the gradient of U / tau + V

    C is the metric that the run tunes by rung (1 where it does not).
    """
    spec = {"name": "mala", "target_acceptance": target_acceptance}
    return hmc(1, target_acceptance).having(spec=spec)


def hmc(num_leapfrog: int = 8, target_acceptance: float = 0.8) -> Kernel:
    """Hamiltonian Monte Carlo with `num_leapfrog` leapfrog steps of size sqrt(2 eta).

    Every move draws a new velocity and a step size around one that suits the place: large gradients
    make it shorter, so that narrow places are entered and left, and the accept step corrects for
    that. A proposal with an energy that is not finite is rejected. `target_acceptance` is what
    `learning_rate="auto"` tunes the step size of every rung to.
    """
    at_least("num_leapfrog", num_leapfrog, 1)
    check_number(
        "target_acceptance", target_acceptance, lambda x: 0 < x < 1, "it must lie in (0, 1)"
    )

    def step(drawn: Drawn, replica: Replica, evaluate: StepEnergy, rung: Ladder):
        slope, start = 1 / rung.temperature, replica.memory
        along, back_along = _metric(rung.scale, replica.params)

        def gradient(at: Evaluated) -> Any:
            return jax.tree.map(lambda u, v: slope * u + v, at.gradient, at.prior_gradient)

        def log_length(at: Evaluated) -> Array:
            return _log_length(back_along(gradient(at)))

        log_factor = log_length(start) + _SPREAD * drawn.length
        length = jnp.sqrt(2 * rung.learning_rate) * jnp.exp(log_factor)
        orbit = replica.params, drawn.velocity, start
        force = lambda at, by: back_along(gradient(at), by)  # noqa: E731
        params, velocity, end = _leapfrog(orbit, evaluate.split, force, along, length, num_leapfrog)
        moved = _same_types(Replica(params, end), replica)

        change = slope * (end.energy - start.energy) + (end.prior - start.prior)
        change = change + (_energy_of(velocity) - _energy_of(drawn.velocity))
        back = (log_factor - log_length(end)) / _SPREAD  # the length that leads back from there
        change = change + (back**2 - drawn.length**2) / 2
        log_ratio = jnp.where(jnp.isfinite(end.energy), -change, -jnp.inf)
        log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, jnp.minimum(log_ratio, 0.0))
        accepted = drawn.log_uniform < log_ratio
        after = select(accepted, moved, replica)
        acceptance = jnp.exp(log_ratio)
        observed = Observed(
            acceptance - target_acceptance,
            _seen(rung.scale, gradient(after.memory)),
            acceptance,
        )
        return after, after.memory.energy, observed

    spec = {"name": "hmc", "num_leapfrog": num_leapfrog, "target_acceptance": target_acceptance}
    traits = Traits(spec, adjusted=True, gradients=num_leapfrog, first_rate=0.01, prepare=_prepare)
    return Kernel(_init, step, _draw, traits)


def _init(params: PyTree) -> Replica:
    zeros = jax.tree.map(jnp.zeros_like, params)
    dtype = jnp.result_type(jnp.float32, *jax.tree.leaves(params))
    return Replica(params, Evaluated(jnp.zeros((), dtype), zeros, jnp.zeros((), dtype), zeros))


def _prepare(replica: Replica, evaluate: StepEnergy) -> Replica:
    return _same_types(Replica(replica.params, evaluate.split(replica.params)), replica)


def _draw(key: Array, replica: Replica) -> Drawn:
    velocity_key, accept_key, length_key = jax.random.split(key, 3)
    return Drawn(
        draw_normal(velocity_key, replica),
        -jax.random.exponential(accept_key),
        jax.random.normal(length_key),
    )


def _leapfrog(
    start: tuple,
    evaluate: Callable,
    force: Callable,
    along: Callable,
    length: Array,
    num_steps: int,
) -> tuple:
    """Return (params, velocity, Evaluated) after `num_steps` leapfrog steps of a `length`."""

    def kick(velocity: PyTree, at: Evaluated, share: float) -> Any:
        return jax.tree.map(jnp.subtract, velocity, force(at, lambda: share * length))

    def drift(params: PyTree, velocity: PyTree) -> Any:
        return jax.tree.map(jnp.add, params, along(velocity, lambda: length))

    def one_step(_: Any, orbit: tuple) -> tuple:
        params, velocity, at = orbit
        params = drift(params, velocity)
        at = evaluate(params)
        return _same_types((params, kick(velocity, at, 1.0), at), start)

    params, velocity, at = start
    orbit = _same_types((params, kick(velocity, at, 0.5), at), start)
    if num_steps > 1:
        orbit = jax.lax.fori_loop(0, num_steps - 1, one_step, orbit)
    params, velocity, _ = orbit
    params = drift(params, velocity)
    end = evaluate(params)
    return params, kick(velocity, end, 0.5), end


def _log_length(whitened: Any) -> Array:
    """Return the logarithm of the step size that suits a place, by the gradient there.

    Where the density is d-dimensional and narrower by a factor, gradients are larger by it.
    """
    leaves = jax.tree.leaves(whitened)
    size = sum(leaf.size for leaf in leaves)
    square = sum(jnp.sum(jnp.square(leaf)) for leaf in leaves) / size
    log_length = -jnp.log((square + 0.3) / 1.3) / 2
    return jnp.clip(jnp.nan_to_num(log_length, nan=_SHORTEST), _SHORTEST, _LONGEST)


def _metric(scale: Any, params: PyTree) -> tuple[Callable, Callable]:
    """Return the functions that multiply a tree by L and by L', the square root of a metric, and,
    where one is given, by what a function returns."""
    if isinstance(scale, Metric):
        return partial(_times, scale.root), partial(_times, scale.root.T)
    roots = _square_roots(scale, params)

    def multiplied(tree: PyTree, by: Callable[[], Any] | None = None) -> Any:
        if by is None:
            return jax.tree.map(jnp.multiply, roots, tree)
        return jax.tree.map(lambda x, s: by() * s * x, tree, roots)

    return multiplied, multiplied


def _times(matrix: Array, tree: PyTree, by: Callable[[], Any] | None = None) -> Any:
    flat, unravel = ravel_pytree(tree)
    product = matrix @ flat
    return unravel((product if by is None else by() * product).astype(flat.dtype))


def _square_roots(scale: Any, params: PyTree) -> Any:
    if not jax.tree.leaves(scale):
        return jax.tree.map(lambda x: jnp.ones((), x.dtype), params)
    return jax.tree.map(jnp.sqrt, scale)


def _seen(scale: Any, gradient: PyTree) -> Any:
    """Return what the metric is tuned from: the gradient, or the square of each of its parts."""
    if isinstance(scale, Metric):
        return ravel_pytree(gradient)[0]
    return jax.tree.map(jnp.square, gradient)


def _energy_of(velocity: PyTree) -> Array:
    squares = [jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(velocity)]
    return jnp.sum(jnp.stack(squares)) / 2


def _same_types(tree: PyTree, like: PyTree) -> Any:
    return jax.tree.map(lambda x, y: jnp.asarray(x, y.dtype), tree, like)
