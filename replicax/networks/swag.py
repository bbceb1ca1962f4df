"""SWAG: a Gaussian fitted to the path of SGD (Maddox et al., 2019).

Networks met along a path are collected into moments; new networks are drawn from

    N(mean, scale / 2 (diag(square - mean^2) + D^T D / (K - 1))),

where the K rows of D are the latest deviations from the mean as it was when they were met.

>>> moments = start({"w": jnp.zeros(2)}, rank=5)
>>> for step in range(100):
...     moments = collect(moments, {"w": jnp.array([3.0, (-1.0) ** step])})
>>> moments.mean["w"], moments.square["w"]
(Array([3., 0.], dtype=float32), Array([9., 1.], dtype=float32))
>>> draw(moments, jax.random.key(0))["w"].shape
(2,)

All is written for one path; `jax.vmap` makes many.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from replicax.errors import is_concrete

_MIN_VARIANCE = 1e-30  # rounding can make the difference of two large squares negative


class Moments(NamedTuple):
    """Moments of the networks collected so far; trees like the parameters."""

    count: Array  # () networks met
    mean: Any
    square: Any  # mean of the squared parameters
    deviations: Any  # leading axis: slot of a ring; slot n % rank holds network n's


def start(params: Any, rank: int = 20) -> Moments:
    """Moments of no networks yet, shaped like `params`, with room for `rank` deviations.

    Sums are float32 even where parameters are of lower precision.
    """
    if rank < 2:
        raise ValueError(f"rank is {rank}; a covariance needs at least 2 deviations. 20 is common.")
    for leaf in jax.tree.leaves(params):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise ValueError(
                f"The parameters hold an array of {jnp.result_type(leaf)}: give only those of "
                "floating point, and keep the rest in the network's state."
            )

    def zeros(*lead: int) -> Any:
        wide = lambda leaf: jnp.promote_types(jnp.result_type(leaf), jnp.float32)  # noqa: E731
        return jax.tree.map(lambda leaf: jnp.zeros((*lead, *jnp.shape(leaf)), wide(leaf)), params)

    return Moments(jnp.zeros((), jnp.int32), zeros(), zeros(), zeros(rank))


def collect(moments: Moments, params: Any) -> Moments:
    """The moments with one more network.

        mean <- mean + (params - mean) / n,   square <- square + (params^2 - square) / n,

    and `params - mean`, with the new mean, takes the place of the oldest deviation.
    """
    shapes = [[jnp.shape(leaf) for leaf in jax.tree.leaves(x)] for x in (moments.mean, params)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            "The parameters have other shapes than those that the moments were started with: "
            "start with the parameters of one network, and use jax.vmap for several."
        )
    gain = 1 / (moments.count + 1)
    move = lambda old, new: old + gain.astype(old.dtype) * (new - old)  # noqa: E731
    mean = jax.tree.map(move, moments.mean, params)
    square = jax.tree.map(lambda old, new: move(old, jnp.square(new.astype(old.dtype))),
                          moments.square, params)  # fmt: skip
    slot = moments.count % _rank(moments)
    deviations = jax.tree.map(
        lambda ring, new, middle: ring.at[slot].set(new - middle), moments.deviations, params, mean
    )
    return Moments(moments.count + 1, mean, square, deviations)


def draw(moments: Moments, key: Array, scale: float | Array = 1.0) -> Any:
    """Parameters of a new network,

        mean + sqrt(scale / 2) std z_1 + sqrt(scale / (2 (K - 1))) D^T z_2,

    with std^2 = max(square - mean^2, 1e-30), K the number of deviations held, and standard normal
    z_1 (one per parameter) and z_2 (one per deviation, the same for all arrays).
    """
    if is_concrete(moments.count) and not bool(jnp.all(moments.count > 0)):
        raise ValueError(
            "The moments are of no networks: rx.swag.collect at least one before drawing."
        )
    rank = _rank(moments)
    held = jnp.minimum(moments.count, rank)
    low_key, *keys = jax.random.split(key, 1 + len(jax.tree.leaves(moments.mean)))
    # Slots not yet filled hold zeros, so that their normals do not matter.
    low = jax.random.normal(low_key, (rank,)) * jnp.sqrt(scale / (2 * jnp.maximum(held - 1, 1)))

    def one(key: Array, mean: Array, square: Array, ring: Array) -> Array:
        std = jnp.sqrt(jnp.maximum(square - mean**2, _MIN_VARIANCE) * scale / 2)
        noise = jax.random.normal(key, mean.shape, mean.dtype)
        return mean + (std * noise + jnp.tensordot(low, ring, 1)).astype(mean.dtype)

    keys = jax.tree.unflatten(jax.tree.structure(moments.mean), keys)
    return jax.tree.map(one, keys, moments.mean, moments.square, moments.deviations)


def refresh_statistics(
    apply: Callable[..., tuple[Array, Any]],
    params: Any,
    state: Any,
    batches: Array | Iterable[Array],
    momentum: float = 0.1,
) -> Any:
    """The state with batch statistics of `params`, which those of other parameters do not fit.

    `apply` is that of a `replicax.nn.Network` whose state, where it is floating point, consists of
    exponential averages, running <- (1 - momentum) running + momentum batch. (Flax and Equinox
    call 1 - momentum the momentum.) Each batch is applied in training to averages of zero, which
    leaves momentum times the statistics of that batch alone; the result is their mean over
    batches, equally weighted, whatever `state` held before. What is not floating point, counters
    and random keys, goes on from batch to batch.

    `batches` are images, as an array (batch, image, ...), which `jit` and `vmap` may hold, or as
    any iterable of arrays (image, ...).
    """
    if not 0 < momentum <= 1:
        raise ValueError(f"momentum is {momentum}; it must be above 0 and at most 1.")
    sums = _only_averages(jnp.zeros_like, state)
    if isinstance(batches, Array):
        count = len(batches)
        add = lambda sums, images: (_add_batch(apply, params, sums, images), None)  # noqa: E731
        sums = lax.scan(add, sums, batches)[0] if count else sums
    else:
        count = 0
        for images in batches:
            sums, count = _add_batch(apply, params, sums, images), count + 1
    if not count:
        raise ValueError("There are no batches to take statistics of: give at least one.")
    return _only_averages(lambda total: total / (momentum * count), sums)


@functools.partial(jax.jit, static_argnums=0)
def _add_batch(apply: Callable[..., tuple[Array, Any]], params: Any, sums: Any, images: Array):
    """Sums, over batches, of what one batch does to averages of zero."""
    seen = apply(params, _only_averages(jnp.zeros_like, sums), images, True)[1]
    return jax.tree.map(lambda new, old: old + new if _is_average(old) else new, seen, sums)


def _only_averages(change: Callable[[Array], Array], state: Any) -> Any:
    return jax.tree.map(lambda leaf: change(leaf) if _is_average(leaf) else leaf, state)


def _is_average(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _rank(moments: Moments) -> int:
    return jax.tree.leaves(moments.deviations)[0].shape[0]
