"""A mixture of Gaussian and Student components in the flattened space of the parameters: its
density, and draws from it.

Every mixture of a run has the same number of places for components, of which the first `count` are
in use, so that one compiled program serves all of them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

_MOST = 65  # components of a mixture, the wide one among them
_MOST_NUMBERS = 2**20  # of all the matrices of a mixture
MOST_FREEDOM = 8  # degrees of freedom of a Student component; a Gaussian one has infinitely many


class Mixture(NamedTuple):
    """A mixture; components from `count` on are empty."""

    count: Any  # components in use                                        shape ()
    log_weight: Any  # -inf of those that are empty                        shape (component,)
    log_factor: Any  # of the density: log weight and normalising constant shape (component,)
    mean: Any  #                                                           shape (component, d)
    root: Any  # lower Cholesky factor L of the scale matrix               shape (component, d, d)
    inverse: Any  # L^-1                                                   shape (component, d, d)
    freedom: Any  # degrees of freedom, whole numbers; inf: Gaussian       shape (component,)


class Proposed(NamedTuple):
    """The randomness of n draws from a mixture of any components."""

    uniform: Array  # which component                                      shape (n,)
    normal: Array  #                                                       shape (n, d)
    tail: Array  # standard normal: the squares make chi-squares           shape (n, MOST_FREEDOM)


def most_components(d: int) -> int:
    """Return how many components a mixture in d dimensions has places for."""
    return int(np.clip(_MOST_NUMBERS // d**2, 3, _MOST))


def make_mixture(
    log_weight: np.ndarray, mean: np.ndarray, root: np.ndarray, freedom: Any = np.inf
) -> Mixture:
    """Return a mixture of the given components, without places for others; weights are normalised.

    >>> two = make_mixture(np.zeros(2), np.array([[0.0], [3.0]]), np.ones((2, 1, 1)))
    >>> [round(x, 3) for x in np.exp(log_density(two, jnp.array([[0.0], [1.5]]))).tolist()]
    [0.202, 0.13]
    """
    from scipy.special import gammaln  # takes longer to import than all of the algorithm

    log_weight, mean, root = (np.asarray(x, float) for x in (log_weight, mean, root))
    freedom = np.broadcast_to(np.asarray(freedom, float), log_weight.shape)
    log_weight = log_weight - np.logaddexp.reduce(log_weight)
    d = mean.shape[1]
    inverse = np.linalg.inv(root)
    half = np.where(np.isfinite(freedom), freedom, 1.0) / 2
    student = gammaln(half + d / 2) - gammaln(half) - d / 2 * np.log(2 * np.pi * half)
    constant = np.where(np.isfinite(freedom), student, -d / 2 * np.log(2 * np.pi))
    log_size = np.sum(np.log(np.abs(np.diagonal(root, axis1=1, axis2=2))), axis=1)
    log_factor = log_weight + constant - log_size
    return Mixture(np.int32(len(log_weight)), log_weight, log_factor, mean, root, inverse, freedom)


def no_mixture(d: int, dtype: Any = np.float32) -> Mixture:
    """Return a mixture of no component, with places for them: nothing is proposed."""
    one = make_mixture(np.zeros(1), np.zeros((1, d)), np.eye(d)[None])
    return padded(one, dtype)._replace(count=np.int32(0))


def padded(mixture: Mixture, dtype: Any = np.float32) -> Mixture:
    """Return a mixture with places for as many components as any of its dimension, for a run."""
    d, block = mixture.mean.shape[1], _block(mixture.mean.shape[1])
    places = -(-most_components(d) // block) * block
    more = places - len(mixture.log_weight)
    if more < 0:
        raise ValueError(f"A mixture in {d} dimensions has at most {places} components.")

    def add(leaf: np.ndarray, empty: Any) -> np.ndarray:
        filled = np.broadcast_to(np.asarray(empty, float), (more, *leaf.shape[1:]))
        return np.concatenate([leaf, filled]).astype(dtype)

    return Mixture(
        mixture.count,
        add(mixture.log_weight, -np.inf),
        add(mixture.log_factor, -np.inf),
        add(mixture.mean, 0.0),
        add(mixture.root, np.eye(d)),
        add(mixture.inverse, np.eye(d)),
        add(mixture.freedom, np.inf),
    )


def in_use(mixture: Mixture) -> Mixture:
    """Return the components in use alone, on the host and in double precision."""
    count = int(mixture.count)
    return Mixture(np.int32(count), *(np.asarray(x, float)[:count] for x in mixture[1:]))


def _block(d: int) -> int:
    """Return how many components are evaluated at once: many where one alone is little work."""
    return int(np.clip(64 // d, 1, 16))


def log_density(mixture: Mixture, points: Any) -> Array:
    """Return the log density at points (n, d); only components in use cost anything."""
    points = jnp.asarray(points)
    places, d = mixture.mean.shape
    block = _block(d)
    if places % block:  # of no run: few components, evaluated at once
        block = places

    def add(i: Array, total: Array) -> Array:
        components = mixture.log_factor, mixture.mean, mixture.inverse, mixture.freedom
        factor, mean, inverse, freedom = (
            jax.lax.dynamic_slice_in_dim(leaf, i * block, block) for leaf in components
        )
        parts = _log_parts(factor, mean, inverse, freedom, points)
        return jnp.logaddexp(total, jax.nn.logsumexp(parts, axis=0))

    start = jnp.full(points.shape[:1], -jnp.inf, points.dtype)
    return jax.lax.fori_loop(0, -(-mixture.count // block), add, start)


def _log_parts(
    log_factor: Array, mean: Array, inverse: Array, freedom: Array, points: Array
) -> Array:
    """Return log (weight x density) of each component, (component, n)."""
    # The difference comes first: means may be far from 0 in units of their widths.
    whitened = jnp.einsum("kij,knj->kni", inverse, points[None] - mean[:, None])
    square = jnp.sum(jnp.square(whitened), axis=2)
    is_student = jnp.isfinite(freedom)
    finite = jnp.where(is_student, freedom, 1.0)[:, None]
    student = -(finite + points.shape[1]) / 2 * jnp.log1p(square / finite)
    parts = jnp.where(is_student[:, None], student, -square / 2)
    return (parts + log_factor[:, None]).astype(points.dtype)


def draw_proposed(key: Array, n: int, d: int, dtype: Any = jnp.float32) -> Proposed:
    """Draw the randomness of n points in d dimensions."""
    keys = jax.random.split(key, 3)
    return Proposed(
        jax.random.uniform(keys[0], (n,), dtype),
        jax.random.normal(keys[1], (n, d), dtype),
        jax.random.normal(keys[2], (n, MOST_FREEDOM), dtype),
    )


def propose(mixture: Mixture, drawn: Proposed) -> Array:
    """Return draws from the mixture, (n, d), made of their randomness."""
    share = jnp.cumsum(jnp.exp(mixture.log_weight))
    chosen = jnp.searchsorted(share, drawn.uniform * share[-1], side="right")
    chosen = jnp.minimum(chosen, mixture.count - 1)
    freedom = mixture.freedom[chosen]
    is_student = jnp.isfinite(freedom)
    counted = jnp.arange(MOST_FREEDOM) < jnp.where(is_student, freedom, 1.0)[:, None]
    chi_square = jnp.sum(jnp.where(counted, jnp.square(drawn.tail), 0.0), axis=1)
    stretch = jnp.where(is_student, jnp.sqrt(freedom / chi_square), 1.0)
    stretch = jnp.where(jnp.isfinite(stretch), stretch, 1.0)
    step = jnp.einsum("nij,nj->ni", mixture.root[chosen], drawn.normal)
    return mixture.mean[chosen] + (stretch[:, None] * step).astype(mixture.mean.dtype)
