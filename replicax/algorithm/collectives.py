"""What devices send each other inside a program for several of them (`spread.py`)."""

import jax
import jax.numpy as jnp
from jax import Array

REPLICA = "replica"  # the axis of devices over which the replicas of a chain are spread
CHAIN = "chain"  # the axis of devices over which chains are spread
DATA = "data"  # the axis of devices that share each replica, and the rows of its mini-batches
_FEW = 2**14  # numbers that are summed rather than gathered


def part(leaf: Array, axis: str, parts: int) -> Array:
    """Return the rows of this device, one of the parts along an axis of devices."""
    length = leaf.shape[0] // parts
    return jax.lax.dynamic_slice_in_dim(leaf, jax.lax.axis_index(axis) * length, length)


def own_rows(leaf: Array, replicas: Array) -> Array:
    """Return the rows of the given replicas; of those on other devices, zeros."""
    place = replicas - jax.lax.axis_index(REPLICA) * leaf.shape[0]
    is_here = (place >= 0) & (place < leaf.shape[0])
    values = leaf[jnp.clip(place, 0, leaf.shape[0] - 1)]
    is_here = is_here.reshape(is_here.shape + (1,) * (values.ndim - is_here.ndim))
    return jnp.where(is_here, values, jnp.zeros_like(values))


def gather(leaf: Array, parts: int) -> Array:
    """Return the rows of all devices. A few numbers are summed instead, each device having
    zeros in the rows of the others: that takes a number of messages in sequence that grows
    with the logarithm of the number of devices, and not with the number."""
    length = leaf.shape[0]
    if leaf.size * parts > _FEW:
        return jax.lax.all_gather(leaf, REPLICA, tiled=True)
    rows = jnp.zeros((length * parts, *leaf.shape[1:]), leaf.dtype)
    first = jax.lax.axis_index(REPLICA) * length
    return sum_bits(jax.lax.dynamic_update_slice_in_dim(rows, leaf, first, 0))


def sum_bits(leaf: Array) -> Array:
    """Sum over devices the bits of values of which all but one are zero; -0.0 stays what it is."""
    if leaf.dtype == bool or not jnp.issubdtype(leaf.dtype, jnp.floating):
        return jax.lax.psum(leaf.astype(jnp.int32), REPLICA).astype(leaf.dtype)
    bits = jax.lax.bitcast_convert_type(leaf, f"uint{8 * leaf.dtype.itemsize}")
    wide = bits.astype(jnp.uint32) if leaf.dtype.itemsize < 4 else bits
    total = jax.lax.psum(wide, REPLICA).astype(bits.dtype)
    return jax.lax.bitcast_convert_type(total, leaf.dtype)
