"""Kernels whose gradients are cut to a greatest length."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from replicax.algorithm.kernel import Kernel
from replicax.algorithm.ladder import Ladder
from replicax.errors import check_number, show


def clipped(kernel: Kernel, max_norm: float) -> Kernel:
    """Return a kernel whose gradient, of all parameters together, is at most `max_norm` long.

        g <- g min(1, max_norm / |g|)

    The gradient is that of the energy and of its prior; weight decay of the kernel itself and
    noise come after. The law of the kernel is then not exp(-U / tau), where it clips.
    """
    check_number("max_norm", max_norm, lambda x: x > 0, "it must be a number above 0")
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"The kernel in kernels.clipped is {show(kernel)}; give one that is made, such as "
            "rx.kernels.sgld()."
        )
    if kernel.observes:
        raise ValueError(
            'kernels.clipped changes the gradient, and "hmc", "mala" and "langevin" are made for '
            "the gradient as it is: wrap another kernel."
        )

    def step(noise: Any, replica: Any, evaluate: Callable, rung: Ladder):
        def evaluate_clipped(params: Any) -> tuple[Any, Any]:
            energy, gradient = evaluate(params)
            square = sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(gradient))
            scale = jnp.minimum(1.0, max_norm * jax.lax.rsqrt(jnp.maximum(square, 1e-30)))
            return energy, jax.tree.map(lambda g: g * scale.astype(g.dtype), gradient)

        return kernel.step(noise, replica, evaluate_clipped, rung)

    spec = kernel.spec
    if spec is not None:
        spec = {"name": "clipped", "max_norm": max_norm, "kernel": spec}
    caveat = "Its gradients are clipped: leave that out."
    return kernel._replace(step=step, spec=spec, caveat=kernel.caveat or caveat)
