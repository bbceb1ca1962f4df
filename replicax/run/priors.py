"""Priors with bounds, scales and angles, for `rx.bayesian` in place of a log prior.

Each is a function of standard normal numbers, which is what replicas move: without limits, of one
scale, and drawn from in a line. A quantity with the quantile function F^-1 is F^-1(Phi(z)).

>>> import jax, jax.numpy as jnp, replicax as rx
>>> posterior = rx.bayesian(
...     lambda values, rows: -((rows - values["mean"]) ** 2) / 2,
...     {"mean": rx.priors.uniform(-10.0, 10.0)},
...     jnp.array([0.9, 1.1, 1.6]),
... )
>>> shown = posterior.constrain(posterior.start(jax.random.key(0)))  # a draw from the prior
>>> bool(-10 < shown["mean"] < 10)
True
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats import norm

from replicax.algorithm.labels import label_places
from replicax.errors import show

_HELD = "standard"  # the name of the numbers that replicas move
_LEAST, _MOST = 1e-37, 1 - 2.0**-24  # probabilities that have a finite quantile in float32


class Prior(NamedTuple):
    """The law of a quantity: a function of standard normal numbers."""

    value: Callable[[Array], Array]
    shape: tuple[int, ...] = ()  # of the quantity
    num_normals: int | None = None  # on a last axis of their own, for each of its numbers

    @property
    def held_shape(self) -> tuple[int, ...]:
        """The shape of the standard normal numbers."""
        return self.shape if self.num_normals is None else (*self.shape, self.num_normals)


def normal(mean: Any = 0.0, std: Any = 1.0, shape: Any = None) -> Prior:
    """Normal law; as all arguments here, mean and std may be arrays."""
    _check_above("std", std)
    return Prior(lambda z: mean + std * z, _shape(shape, mean, std))


def log_normal(median: Any = 1.0, log_std: Any = 1.0, shape: Any = None) -> Prior:
    """A quantity whose logarithm has a normal law."""
    _check_above("median", median)
    _check_above("log_std", log_std)
    return Prior(lambda z: median * jnp.exp(log_std * z), _shape(shape, median, log_std))


def half_normal(std: Any = 1.0, shape: Any = None) -> Prior:
    """The size of a normal quantity around 0."""
    _check_above("std", std)
    return Prior(lambda z: -std * ndtri(jnp.maximum(ndtr(-z), _LEAST) / 2), _shape(shape, std))


def uniform(low: Any = 0.0, high: Any = 1.0, shape: Any = None) -> Prior:
    """All values between two bounds are equally likely."""
    _check_below("low", low, "high", high)
    return Prior(lambda z: low + (high - low) * ndtr(z), _shape(shape, low, high))


def log_uniform(low: Any, high: Any, shape: Any = None) -> Prior:
    """All orders of magnitude between two bounds are equally likely."""
    _check_above("low", low)
    _check_below("low", low, "high", high)
    ratio = np.log(np.asarray(high, float) / np.asarray(low, float))
    return Prior(lambda z: low * jnp.exp(ratio * ndtr(z)), _shape(shape, low, high))


def angle(low: Any = 0.0, period: Any = 2 * math.pi, shape: Any = None) -> Prior:
    """A periodic quantity, all values of a period from `low` equally likely: the direction of two
    normal numbers, so that nothing is special about its ends."""
    _check_above("period", period)

    def value(pair: Array) -> Array:
        turns = jnp.arctan2(pair[..., 1], pair[..., 0]) / (2 * math.pi)
        return low + period * jnp.where(turns < 0, turns + 1, turns)

    return Prior(value, _shape(shape, low, period), num_normals=2)


def disk(shape: Any = ()) -> Prior:
    """Points (x, y), on a last axis, uniform in the disk of radius 1: such as sqrt(e) (cos w, sin
    w) of an orbit whose eccentricity e and angle w are uniform."""

    def value(pair: Array) -> Array:
        square = jnp.sum(pair**2, axis=-1, keepdims=True)
        # sqrt((1 - exp(-r^2 / 2)) / r^2), without a division by 0.
        ratio = -jnp.expm1(-square / 2) / jnp.maximum(square, 1e-12)
        return pair * jnp.sqrt(jnp.where(square < 1e-12, 0.5, ratio))

    return Prior(value, _shape(shape), num_normals=2)


def quantile(function: Callable[[Array], Array], shape: Any = ()) -> Prior:
    """The law with this quantile function, of probabilities between 0 and 1."""
    if not callable(function):
        raise ValueError(f"quantile has {show(function)}; give a function of a probability.")
    return Prior(lambda z: function(jnp.clip(ndtr(z), _LEAST, _MOST)), _shape(shape))


class Priors:
    """A tree of independent priors, as the prior of a posterior of standard normal numbers."""

    def __init__(self, declared: Any, exchangeable: Any) -> None:
        leaves, self.structure = jax.tree.flatten(declared, is_leaf=_is_law)
        self.leaves = [_as_prior(leaf) for leaf in leaves]
        if not leaves:
            raise ValueError("The prior is empty: give a tree of rx.priors, or log_prior(params).")
        self.exchangeable = None if exchangeable is None else {_HELD: exchangeable}
        self.blocks = self._blocks()

    def start(self, key: Array) -> Any:
        """Return numbers drawn from the prior."""
        keys = jax.random.split(key, len(self.leaves))
        pairs = zip(keys, self.leaves, strict=True)
        return self._held([jax.random.normal(key, prior.held_shape) for key, prior in pairs])

    def values(self, params: Any) -> Any:
        """Return the quantities, in the tree that was declared."""
        held = self.structure.flatten_up_to(params[_HELD])
        pairs = zip(self.leaves, held, strict=True)
        return self.structure.unflatten([prior.value(z) for prior, z in pairs])

    def log_density(self, params: Any) -> Array:
        return sum(jnp.sum(norm.logpdf(z)) for z in jax.tree.leaves(params))  # type: ignore

    def redraw(self, key: Array, params: Any, choice_key: Array) -> tuple[Any, float]:
        """Return numbers of which a block, or all, are drawn anew: an entry of the tree, or in it
        one of the labels that can be exchanged."""
        count = 1 + max(int(block.max()) for block in self.blocks)
        last = count if count > 1 else 0  # which stands for all
        chosen = jax.random.randint(choice_key, (), 0, last + 1)
        new, old = (self.structure.flatten_up_to(x[_HELD]) for x in (self.start(key), params))
        parts = zip(self.blocks, new, old, strict=True)
        mixed = [jnp.where((b == chosen) | (chosen == last), x, y) for b, x, y in parts]
        return self._held(mixed), 0.0

    def _blocks(self) -> list[np.ndarray]:
        """Return the number of the block of each standard normal number, array by array."""
        held = [np.zeros(prior.held_shape) for prior in self.leaves]
        tree = self._held(held)
        tops = [path[1] if len(path) > 1 else None
                for path, _ in jax.tree_util.tree_leaves_with_path(tree)]  # fmt: skip
        numbers = {top: i for i, top in enumerate(dict.fromkeys(tops))}
        flat = np.concatenate([np.full(z.size, numbers[top]) for z, top in zip(held, tops)])
        places = label_places(self.exchangeable, tree)
        if places is not None:
            flat[places] = flat.max() + 1 + np.arange(len(places))[:, None]
        flat = np.unique(flat, return_inverse=True)[1]
        parts = np.split(flat, np.cumsum([z.size for z in held])[:-1])
        return [part.reshape(z.shape) for part, z in zip(parts, held)]

    def _held(self, leaves: list[Any]) -> Any:
        return {_HELD: self.structure.unflatten(leaves)}


def _is_law(node: Any) -> bool:
    return isinstance(node, Prior) or hasattr(node, "icdf")


def _as_prior(leaf: Any) -> Prior:
    """Return a prior as it is, or that of a distribution with a quantile function, as those of
    NumPyro and TensorFlow Probability."""
    if isinstance(leaf, Prior):
        return leaf
    if hasattr(leaf, "icdf") and hasattr(leaf, "batch_shape") and not tuple(leaf.event_shape):
        return quantile(leaf.icdf, tuple(leaf.batch_shape))
    raise ValueError(
        f"log_prior holds {show(leaf)}; give log_prior(params), or rx.priors, such as "
        "rx.priors.uniform(0.0, 1.0), or distributions of numbers with an icdf; for others use "
        "rx.interop.from_numpyro."
    )


def _shape(shape: Any, *arguments: Any) -> tuple[int, ...]:
    """Return the shape that was given, or that of the arguments."""
    sizes = list(map(np.shape, arguments))
    if shape is None:
        return np.broadcast_shapes(*sizes)
    found = (int(shape),) if np.ndim(shape) == 0 else tuple(map(int, shape))
    try:
        fits = np.broadcast_shapes(found, *sizes) == found
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"shape is {show(shape)}, and the arguments of the prior do not fit it.")
    return found


def _check_above(name: str, value: Any) -> None:
    if not np.all(np.asarray(value) > 0):
        raise ValueError(f"{name} is {show(value)}; it must be above 0.")


def _check_below(low_name: str, low: Any, high_name: str, high: Any) -> None:
    if not np.all(np.asarray(low) < np.asarray(high)):
        raise ValueError(f"{low_name} is {show(low)}; it must be below {high_name}, {show(high)}.")
