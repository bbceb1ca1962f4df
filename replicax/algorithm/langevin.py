"""Langevin dynamics on mini-batches for posteriors whose rows are known: `langevin`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.kernel import Evaluated, Kernel, Observed, PyTree, Replica, Traits
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.target import StepEnergy
from replicax.errors import check_flag

_TURN = 0.1  # weight of the latest gradient in the direction of the largest noise
_LARGEST_STEP = 0.2  # learning rate times curvature and noise, in their steepest directions


class Memory(NamedTuple):
    """Estimates from its gradients that a replica keeps; all in the tree of the parameters."""

    noisiest: Any  # the direction, of length 1, of the largest noise
    steepest: Any  # the direction, of length 1, of the largest curvature


def langevin(subtract_noise: bool = True) -> Kernel:
    """Langevin steps on mini-batches (SGLD) that know the noise of their own gradients.

        theta <- theta - eta C g + sqrt(2 eta C - eta^2 C^2 n) xi,   g the gradient of U / tau + V

    C is the scale of the parameters on the rung. n is the variance of g over mini-batches, by
    parameter, estimated from the two halves of this mini-batch, since it differs from place to
    place: without subtracting it from the injected noise the rung is too hot by eta C n / 2.
    `learning_rate="auto"` keeps eta times the largest curvature and the largest variance of the
    noise in any direction, in the unit of C, at 0.2: the rung would be too hot by at most 10 %,
    most of which is subtracted.
    """

    check_flag("subtract_noise", subtract_noise)

    def init(params: PyTree) -> Replica:
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        even = jax.tree.map(lambda leaf: jnp.full_like(leaf, size**-0.5), params)
        return Replica(params, Memory(even, even))

    def step(noise: Any, replica: Replica, evaluate: StepEnergy, rung: Ladder):
        (at, half), memory = evaluate_halves(evaluate, replica.params), replica.memory
        slope, rate = 1 / rung.temperature, rung.learning_rate
        scale = rung.scale
        if not jax.tree.leaves(scale):
            scale = jax.tree.map(jnp.ones_like, replica.params)
        gradient = jax.tree.map(lambda u, v: slope * u + v, at.gradient, at.prior_gradient)
        half = jax.tree.map(lambda d: slope * d, half)
        whitened = jax.tree.map(lambda d, c: jnp.sqrt(c) * d, half, scale)
        along = _dot(whitened, memory.noisiest)
        steep, steepest = curvature(evaluate, replica.params, memory.steepest, scale, slope)
        size = rate * (steep + along**2)
        # Far from where it will be, a replica must not be thrown farther while steps are tuned.
        rate = jnp.minimum(rate, 2 * _LARGEST_STEP / (steep + 1e-30))

        taken = jax.tree.map(lambda d: jnp.minimum(rate * jnp.square(d) / 2, 1.0), whitened)
        if not subtract_noise:
            taken = jax.tree.map(jnp.zeros_like, taken)

        def move(x: Array, g: Array, c: Array, t: Array, z: Array) -> Array:
            return x - rate * c * g + jnp.sqrt(2 * rate * c * (1 - t)) * z

        params = jax.tree.map(move, replica.params, gradient, scale, taken, noise)
        left = jax.tree.map(lambda u, t: u * jnp.sqrt(t), memory.noisiest, taken)
        observed = Observed(
            step_error=jnp.clip(1 - size / _LARGEST_STEP, -3.0, 1.0) / 2,
            steepness=jax.tree.map(
                lambda d, v: batch_share(evaluate) / slope * jnp.square(d) + jnp.square(v),
                half,
                at.prior_gradient,
            ),
            acceptance=jnp.ones(()),
            heating=rate * along**2 / 2 - _dot(left, left),
        )
        memory = Memory(_turned(memory.noisiest, whitened, along), steepest)
        moved = Replica(params, memory)
        return (
            jax.tree.map(lambda new, old: new.astype(old.dtype), moved, replica),
            at.energy,
            observed,
        )

    spec = {"name": "langevin", "subtract_noise": subtract_noise}
    return Kernel(init, step, traits=Traits(spec, halves_batches=True, first_rate=1e-8))


def batch_share(at: StepEnergy) -> float:
    """Return the rows of the mini-batch as a share of all: that times the variance of its gradient
    is the information of all rows."""
    rows = jax.tree.leaves(at.batch)[0].shape[0]
    return rows / (at.target.num_rows or rows)


def evaluate_halves(at: StepEnergy, params: PyTree) -> tuple[Evaluated, Any]:
    """Return energy and prior of one replica, each with its gradient, and half the difference of
    the gradients of the two halves of the mini-batch; of an odd number of rows the last is left
    out."""
    evaluate = jax.vmap(jax.value_and_grad(at.target.energy), (None, 0, None))
    energies, gradients = evaluate(params, jax.tree.map(_in_halves, at.batch), at.noise)
    prior, prior_gradient = at.target.evaluate_prior(params)
    mean = Evaluated(
        jnp.mean(energies),
        jax.tree.map(lambda g: (g[0] + g[1]) / 2, gradients),
        prior.astype(energies.dtype),
        prior_gradient,
    )
    return mean, jax.tree.map(lambda g: (g[0] - g[1]) / 2, gradients)


def curvature(
    at: StepEnergy, params: PyTree, direction: PyTree, scale: Any, slope: Array
) -> tuple[Array, Any]:
    """Return the curvature of U / tau + V along a direction, in the unit of the scales, and the
    direction after one step of the power iteration; 0 when step sizes are frozen."""

    def gradient(point: PyTree) -> Any:
        energy, prior = jax.grad(at.target.energy), at.target.prior
        of_energy = energy(point, at.batch, at.noise)
        if prior is None:
            return jax.tree.map(lambda u: slope * u, of_energy)
        return jax.tree.map(lambda u, v: slope * u + v, of_energy, jax.grad(prior)(point))

    def measured() -> tuple[Array, Any]:
        root = jax.tree.map(jnp.sqrt, scale)
        tangent = jax.tree.map(lambda u, r, x: (u * r).astype(x.dtype), direction, root, params)
        product = jax.jvp(gradient, (params,), (tangent,))[1]
        product = jax.tree.map(lambda r, p, u: (r * p).astype(u.dtype), root, product, direction)
        length = jnp.sqrt(_dot(product, product) + 1e-30)
        turned = jax.tree.map(lambda p: p / length, product)
        return length, turned

    def skipped() -> tuple[Array, Any]:
        like = jax.eval_shape(measured)
        return jnp.zeros((), like[0].dtype), direction

    return jax.lax.cond(at.tunes, measured, skipped)


def _in_halves(rows: Array) -> Array:
    half = rows.shape[0] // 2
    return rows[: 2 * half].reshape(2, half, *rows.shape[1:])


def _turned(direction: PyTree, gradient: PyTree, along: Array) -> Any:
    """Turn the direction towards that of the gradient (Oja's rule with steps of one size)."""
    square = _dot(gradient, gradient) + 1e-30
    turned = jax.tree.map(lambda u, g: u + _TURN * along / square * g, direction, gradient)
    length = jnp.sqrt(_dot(turned, turned) + 1e-30)
    return jax.tree.map(lambda u: u / length, turned)


def _dot(one: Any, other: Any) -> Array:
    products = jax.tree.map(lambda x, y: jnp.sum(x * y), one, other)
    return jnp.sum(jnp.stack(jax.tree.leaves(products)))
