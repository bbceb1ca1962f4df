"""1 x 1 convolutions of many replicas, and their gradients, as one batched matrix product.

Libraries have no grouped kernels for them, and a convolution of all channels with all multiplies
mostly zeros: nine parts in ten for ten replicas. A matrix product per replica does nothing in
vain, and one call makes them all.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from replicax.nn import canonical


def is_pointwise(spec: Any) -> bool:
    """Whether every output is a combination of the channels of one pixel. Strides may leave out
    pixels."""
    window = [spec.shapes[1][axis] for axis in spec.dims.rhs_spec[2:]]
    plain = spec.groups == 1 and set(spec.lhs_dilation) <= {1}
    return plain and set(window) <= {1} and not any(map(any, spec.padding))


def derivative(spec: Any, wanted: str, one: Array, other: Array) -> Array:
    """dT / d(wanted) for T = <out, conv(lhs, rhs)>, as `conv._Spec.derivative`, of all replicas:
    their axis comes first."""
    lhs_last = _behind_replicas(canonical.channels_last(spec.dims.lhs_spec))
    out_last = _behind_replicas(canonical.channels_last(spec.dims.out_spec))
    rhs_last = _behind_replicas(canonical.filters_last(spec.dims.rhs_spec))
    options = {"precision": spec.precision, "preferred_element_type": spec.out_dtype}
    pixels = "nxyzabc"[: len(lhs_last) - 2]

    def matrix(filters: Array) -> Array:
        filters = jnp.transpose(filters, rhs_last)
        return filters.reshape(filters.shape[0], *filters.shape[-2:])

    def seen(images: Array) -> Array:
        """Pixels that the strides do not leave out."""
        steps = (slice(None), slice(None), *(slice(None, None, s) for s in spec.strides))
        images = jnp.transpose(images, lhs_last)
        if set(spec.strides) <= {1}:
            return images
        # Where jax 0.11.2 fuses this slice with the product for GPUs, XLA ends the process.
        return lax.optimization_barrier(images[steps])

    if wanted == "out":
        found = jnp.einsum(f"r{pixels}i,rio->r{pixels}o", seen(one), matrix(other), **options)
        return jnp.transpose(found, canonical.inverse(out_last))
    wide = jnp.promote_types(one.dtype, other.dtype)
    one, other = one.astype(wide), other.astype(wide)
    out = jnp.transpose(other, out_last)
    if wanted == "lhs":
        found = jnp.einsum(f"r{pixels}o,rio->r{pixels}i", out, matrix(one), **options)
        found = _spread(found, spec, [spec.shapes[0][axis - 1] for axis in lhs_last[2:-1]])
        return jnp.transpose(found, canonical.inverse(lhs_last)).astype(spec.dtypes[0])
    found = jnp.einsum(f"r{pixels}i,r{pixels}o->rio", seen(one), out, **options)
    found = found.reshape(len(found), *[1] * len(spec.strides), *found.shape[1:])
    return jnp.transpose(found, canonical.inverse(rhs_last)).astype(spec.dtypes[1])


def _spread(found: Array, spec: Any, sizes: list[int]) -> Array:
    """Put zeros where the strides left pixels out."""
    edges = [(0, 0, 0)]
    gaps = [
        (0, size - (s * (few - 1) + 1), s - 1)
        for size, few, s in zip(sizes, found.shape[2:-1], spec.strides, strict=True)
    ]
    return lax.pad(found, jnp.zeros((), found.dtype), edges * 2 + gaps + edges)


def _behind_replicas(axes: tuple[int, ...]) -> tuple[int, ...]:
    return (0, *(axis + 1 for axis in axes))
