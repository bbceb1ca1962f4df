"""Random numbers: the draws of one step, and a generator that is fast on CPUs.

JAX lowers Threefry on CPUs to a rolled loop over whole arrays, which XLA can neither fuse nor
keep in registers. Here its twenty rounds are unrolled (Salmon et al., SC 2011), which is three to
five times as fast. On other platforms JAX's own generator is used. Same seed, same numbers,
everywhere.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.random import define_prng_impl, threefry_prng_impl
from jax.lax import optimization_barrier

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


class Randomness(NamedTuple):
    """The draws of one step; None for those that the settings do not need."""

    move: Any  # drawn by the kernel                    leading axis: replica
    gradient: Any  # the target's key or noise          leading axis: replica
    energy: Any  # the target's key or noise            leading axis: replica
    log_uniform: Any  #                                 shape (pair,)
    schedule: Any  # drawn by the schedule
    attempts: "Attempts | None"  #                      leading axis: attempt
    fresh: Any  # key of further mini-batches           shape ()
    batch: Any  # row numbers of the mini-batch         shape (row,)
    jump: Any = None  # key of the jumps                shape ()
    redraw: Any = None  # key of draws from the prior   shape ()


class Attempts(NamedTuple):
    """The draws of a sequential schedule for each of its attempts."""

    order: Array  # colder and hotter rung              shape (attempt, 2)
    log_uniform: Array  #                               shape (attempt,)
    energy: Any  # the target's key or noise            leading axes: attempt, 2
    batch: Array  # key of a further mini-batch         shape (attempt,)


def draw_block(draw: Callable[[Array], Randomness], steps: Array) -> Randomness:
    """Draw the randomness of many steps at once, leading axis: step.

    Computed with the step axis last, which XLA turns into long vector loops, and then moved to
    the front; the barrier keeps XLA from undoing this. With the step axis first, a step of the 25
    modes takes a quarter longer.
    """
    block = optimization_barrier(jax.vmap(draw, out_axes=-1)(steps))
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), block)


def log_uniform(key: Array, count: int) -> Array:
    """Draw log u for u uniform in (0, 1), never -inf."""
    return -jax.random.exponential(key, (count,))


def draw_normal(key: Array, replica: Any) -> Any:
    """Draw a standard normal for every parameter of a replica."""
    leaves, structure = jax.tree.flatten(replica.params)
    keys = [key] if len(leaves) == 1 else jax.random.split(key, len(leaves))
    draws = [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    return structure.unflatten(draws)


def make_key(seed: int) -> Array:
    """Return a typed key whose draws equal those of `jax.random.key(seed)`."""
    if jax.default_backend() != "cpu":
        return jax.random.key(seed, impl="threefry2x32")
    return jax.random.key(seed, impl=_unrolled())


def ordinary(key: Array) -> Array:
    """Return the key as one of JAX's default type, for user code."""
    return jax.random.wrap_key_data(jax.random.key_data(key), impl="threefry2x32")


@functools.partial(jax.jit, inline=True)  # traced once for each shape, not at each draw
def threefry(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """Return Threefry-2x32 with twenty rounds of a counter of two words."""
    words = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    high, low = high + words[0], low + words[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            high = high + low
            low = (low << np.uint32(rotation)) | (low >> np.uint32(32 - rotation))
            low = low ^ high
        high = high + words[(group + 1) % 3]
        low = low + words[(group + 2) % 3] + np.uint32(group + 1)
    return high, low


def _counters(shape: tuple[int, ...]) -> tuple[Array, Array]:
    size = math.prod(shape)
    if size >= 2**32:
        raise ValueError(f"A draw of shape {shape} is larger than one key can serve.")
    low = jax.lax.iota(jnp.uint32, size).reshape(shape)
    return jnp.zeros(shape, jnp.uint32), low


# The barriers keep XLA from computing a derived key again wherever it is used: with keys derived
# from derived keys that multiplies, and XLA of jax 0.11 compiled for minutes.
def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return optimization_barrier(jnp.stack(threefry(key, *_counters(shape)), axis=-1))


def _fold_in(key: Array, data: Any) -> Array:
    words = threefry(key, jnp.uint32(0), data.astype(jnp.uint32))
    return optimization_barrier(jnp.stack(words))


def _random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    high, low = threefry(key, *_counters(shape))
    if bit_width == 64:
        return (high.astype(jnp.uint64) << np.uint64(32)) | low.astype(jnp.uint64)
    return (high ^ low).astype(f"uint{bit_width}")


@functools.cache
def _unrolled():
    return define_prng_impl(
        key_shape=(2,),
        seed=threefry_prng_impl.seed,
        split=_split,
        random_bits=_random_bits,
        fold_in=_fold_in,
        name="replicax_threefry2x32",
        tag="rx",
    )


def seed_keys(seed: int, num_chains: int) -> tuple[Array, Array]:
    """Return a key for each chain, and one for the starts."""
    return _split_seed(make_key(seed), num_chains)


@functools.partial(jax.jit, static_argnums=1)  # whole, which is quicker than its parts
def _split_seed(key: Array, num_chains: int) -> tuple[Array, Array]:
    run_key, start_key = jax.random.split(key)
    chains = jnp.arange(num_chains)
    return jax.vmap(lambda chain: jax.random.fold_in(run_key, chain))(chains), start_key
