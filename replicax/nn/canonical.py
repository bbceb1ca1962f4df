"""A convolution and its gradients, each as a convolution with channels last.

Inside a loop XLA compiles a convolution for CPUs to fast code only in this form; gradients written
by automatic differentiation have another form and run five to ten times as long there.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from replicax.nn.conv_spec import ConvSpec


def derivative(spec: ConvSpec, wrt: str, first: Array, second: Array) -> Array:
    """Return `spec.derivative(wrt, first, second)` of a convolution without groups."""
    lhs_last, out_last = channels_last(spec.dims.lhs_spec), channels_last(spec.dims.out_spec)
    rhs_last = filters_last(spec.dims.rhs_spec)
    if wrt == "out":
        lhs, rhs = jnp.transpose(first, lhs_last), jnp.transpose(second, rhs_last)
        out = _convolve(
            spec, lhs, rhs, spec.strides, spec.padding, spec.lhs_dilation, spec.rhs_dilation
        )
        return jnp.transpose(out, inverse(out_last))
    # Cotangents of a wider `preferred_element_type` meet narrower images and filters.
    dtype = jnp.promote_types(first.dtype, second.dtype)
    first, out = first.astype(dtype), jnp.transpose(second.astype(dtype), out_last)
    padding = _gradient_padding(spec, wrt, out.shape[1:-1])
    if wrt == "lhs":
        # The gradient of an image is a convolution of outputs with the reversed filters.
        rhs = jnp.swapaxes(jnp.transpose(first, rhs_last), -1, -2)
        rhs = lax.rev(rhs, range(len(spec.strides)))
        lhs = _convolve(spec, out, rhs, spec.lhs_dilation, padding, spec.strides, spec.rhs_dilation)
        return jnp.transpose(lhs, inverse(lhs_last)).astype(spec.dtypes[0])
    # The gradient of the filters sums over images, which take the place of channels.
    lhs = jnp.swapaxes(jnp.transpose(first, lhs_last), 0, -1)
    out = jnp.moveaxis(out, 0, -2)
    rhs = _convolve(spec, lhs, out, spec.rhs_dilation, padding, spec.lhs_dilation, spec.strides)
    return jnp.transpose(jnp.moveaxis(rhs, 0, -2), inverse(rhs_last)).astype(spec.dtypes[1])


def _gradient_padding(spec: ConvSpec, wrt: str, out_size: tuple[int, ...]) -> list[tuple[int, int]]:
    dilations = zip(spec.strides, spec.lhs_dilation, spec.rhs_dilation)
    sizes = zip(spec.image_size, spec.filter_size, out_size, spec.padding, dilations)
    padding = []
    for image, filters, out, (low, _), (stride, lhs_dilation, rhs_dilation) in sizes:
        reach = rhs_dilation * (filters - 1)
        excess = _dilated(image, lhs_dilation) - _dilated(out, stride)
        before, total = (reach - low, reach + excess) if wrt == "lhs" else (low, reach - excess)
        padding.append((before, total - before))
    return padding


def is_canonical(dims: lax.ConvDimensionNumbers) -> bool:
    """Return whether images are (batch, ..., channel) and filters (..., in, out)."""
    return dims == _canonical_dims(len(dims.lhs_spec))


def _canonical_dims(ndim: int) -> lax.ConvDimensionNumbers:
    last = ndim - 1
    images = (0, last, *range(1, last))
    return lax.ConvDimensionNumbers(images, (last, last - 1, *range(last - 1)), images)


def _convolve(spec: ConvSpec, lhs, rhs, strides, padding, lhs_dilation, rhs_dilation) -> Array:
    dilations = {"lhs_dilation": lhs_dilation, "rhs_dilation": rhs_dilation}
    options = {"strides": strides, "padding": padding, **dilations}
    return replace(spec, dims=_canonical_dims(lhs.ndim), **options).convolve(lhs, rhs)


def _dilated(size: int, factor: int) -> int:
    return 0 if size == 0 else factor * (size - 1) + 1


def channels_last(axes: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that makes images (batch, ..., channel)."""
    batch, channel, *space = axes
    return (batch, *space, channel)


def filters_last(axes: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that makes filters (..., in, out)."""
    num_out, num_in, *space = axes
    return (*space, num_in, num_out)


def inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axes.index(axis) for axis in range(len(axes)))
