"""1 x 1 convolutions of many replicas, and their gradients, as one batched matrix product.

cuDNN has no grouped kernels for them, and with ten replicas nine in ten products of a dense
convolution of all channels would be with zeros.
"""

import jax.numpy as jnp
from jax import Array, lax

from replicax.nn import canonical
from replicax.nn.conv_spec import ConvSpec


def is_pointwise(spec: ConvSpec) -> bool:
    """Return whether each output combines the channels of one pixel; strides may skip pixels."""
    plain = spec.groups == 1 and set(spec.lhs_dilation) <= {1}
    return plain and set(spec.filter_size) <= {1} and not any(map(any, spec.padding))


def derivative(spec: ConvSpec, wrt: str, first: Array, second: Array) -> Array:
    """Return `spec.derivative(wrt, ...)` of all replicas; their axis comes first."""
    lhs_last = _behind_replicas(canonical.channels_last(spec.dims.lhs_spec))
    out_last = _behind_replicas(canonical.channels_last(spec.dims.out_spec))
    rhs_last = _behind_replicas(canonical.filters_last(spec.dims.rhs_spec))
    options = {"precision": spec.precision, "preferred_element_type": spec.out_dtype}
    pixels = "nxyzabc"[: len(lhs_last) - 2]

    def matrix(filters: Array) -> Array:
        filters = jnp.transpose(filters, rhs_last)
        return filters.reshape(filters.shape[0], *filters.shape[-2:])

    def skip_pixels(images: Array) -> Array:
        steps = (slice(None), slice(None), *(slice(None, None, s) for s in spec.strides))
        images = jnp.transpose(images, lhs_last)
        if set(spec.strides) <= {1}:
            return images
        # Where jax 0.11.2 fuses this slice with the product for GPUs, XLA ends the process.
        return lax.optimization_barrier(images[steps])

    if wrt == "out":
        lhs, rhs = skip_pixels(first), matrix(second)
        out = jnp.einsum(f"r{pixels}i,rio->r{pixels}o", lhs, rhs, **options)
        return jnp.transpose(out, canonical.inverse(out_last))
    dtype = jnp.promote_types(first.dtype, second.dtype)
    first, out = first.astype(dtype), jnp.transpose(second.astype(dtype), out_last)
    if wrt == "lhs":
        lhs = jnp.einsum(f"r{pixels}o,rio->r{pixels}i", out, matrix(first), **options)
        lhs = _fill_skipped(lhs, spec)
        return jnp.transpose(lhs, canonical.inverse(lhs_last)).astype(spec.dtypes[0])
    rhs = jnp.einsum(f"r{pixels}i,r{pixels}o->rio", skip_pixels(first), out, **options)
    rhs = rhs.reshape(len(rhs), *[1] * len(spec.strides), *rhs.shape[1:])
    return jnp.transpose(rhs, canonical.inverse(rhs_last)).astype(spec.dtypes[1])


def _fill_skipped(images: Array, spec: ConvSpec) -> Array:
    """Insert zeros for the pixels that the strides skipped."""
    none = [(0, 0, 0)]
    gaps = [
        (0, size - (stride * (count - 1) + 1), stride - 1)
        for size, count, stride in zip(
            spec.image_size, images.shape[2:-1], spec.strides, strict=True
        )
    ]
    return lax.pad(images, jnp.zeros((), images.dtype), none * 2 + gaps + none)


def _behind_replicas(axes: tuple[int, ...]) -> tuple[int, ...]:
    return (0, *(axis + 1 for axis in axes))
