"""`Target`: a posterior with a known answer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import replicax as rx


@dataclass(frozen=True)
class Target:
    """A density, how replicax is given it, and what is judged.

    Judged are `functions`, named scalars of the parameters, and the masses of modes. Where labels
    may be exchanged, functions are those of ordered labels, and `mode` tells the orders apart.
    """

    name: str
    title: str
    start: Callable[[jax.Array], Any]  # dispersed
    functions: Callable[[Any], dict[str, jax.Array]]
    bare: Callable[[Any], jax.Array] | None = None  # an energy without rows, or
    log_likelihood: Callable[[Any, Any], jax.Array] | None = None  # of each row,
    log_prior: Callable[[Any], jax.Array] | None = None
    data: Any = None  # and the rows
    batch_size: int | None = None
    mode: Callable[[Any], jax.Array] | None = None  # its index
    masses: tuple[float, ...] | None = None  # where symmetry says them
    exact: Callable[[np.random.Generator, int], Any] | None = None  # independent draws (draw, ...)
    truth: Any = None  # parameters that made the data; the reference starts there
    log_evidence: Callable[[], float] | None = None  # log of the integral of exp(-potential)
    by_nuts: bool = False  # the reference is a long run of NumPyro's NUTS
    noisy: rx.Target | None = None  # the same energy with noise on it and on its gradient
    num_steps: int | None = 30_000  # None: until it is done
    num_replicas: int = 8

    @property
    def for_replicax(self) -> Any:
        """What `rx.sample` takes."""
        if self.bare is not None:
            return self.bare
        assert self.log_likelihood is not None and self.log_prior is not None
        return rx.bayesian(
            self.log_likelihood, self.log_prior, self.data, batch_size=self.batch_size
        )

    def log_fit(self, params: Any) -> jax.Array:
        """Return what tempering scales: the log likelihood of all rows, or the log density."""
        if self.bare is not None:
            return -self.bare(params)
        assert self.log_likelihood is not None
        return jnp.sum(self.log_likelihood(params, self.data))

    def potential(self, params: Any) -> jax.Array:
        """Return minus the log density given all rows, up to a constant."""
        prior = 0.0 if self.log_prior is None else self.log_prior(params)
        return -(self.log_fit(params) + prior)

    def gradient_estimator(self) -> Callable[[jax.Array, jax.Array], jax.Array]:
        """Return the function (vector, key) -> a noisy gradient of the potential.

        The noise is that of a mini-batch, or of `noisy`; where there is neither, there is none.
        """
        _, unravel = ravel_pytree(self.start(jax.random.key(0)))
        if self.noisy is not None:
            gradient, draw = self.noisy.gradient, self.noisy.draw
            return lambda x, key: ravel_pytree(gradient(unravel(x), None, draw(key)))[0]
        log_likelihood, batch_size = self.log_likelihood, self.batch_size
        if log_likelihood is None or batch_size is None:
            return lambda x, key: jax.grad(lambda x: self.potential(unravel(x)))(x)
        num_rows = jax.tree.leaves(self.data)[0].shape[0]

        def potential(x, rows):
            fit = jnp.sum(log_likelihood(unravel(x), rows)) * num_rows / batch_size
            return -fit - self.log_prior(unravel(x))

        def gradient_of_batch(x, key):
            chosen = jax.random.randint(key, (batch_size,), 0, num_rows)
            return jax.grad(potential)(x, jax.tree.map(lambda leaf: leaf[chosen], self.data))

        return gradient_of_batch

    def evaluate(self, draws: Any) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """Return the judged functions and the mode of draws with any leading axes."""
        like = jax.eval_shape(self.start, jax.random.key(0))
        lead = np.shape(jax.tree.leaves(draws)[0])[: -jax.tree.leaves(like)[0].ndim or None]
        flat = jax.tree.map(lambda leaf, one: jnp.reshape(leaf, (-1, *one.shape)), draws, like)
        shape = lambda leaf: np.asarray(leaf).reshape(lead)  # noqa: E731
        values = jax.tree.map(shape, jax.jit(jax.vmap(self.functions))(flat))
        if self.mode is None:
            return values, None
        return values, shape(jax.jit(jax.vmap(self.mode))(flat))


def normal(x: Any, mean: Any = 0.0, sd: Any = 1.0) -> jax.Array:
    """Return the log density of a normal law."""
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - 0.5 * jnp.log(2 * jnp.pi)
