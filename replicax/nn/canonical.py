"""A convolution and its gradients, each as a convolution with channels last.

Inside a loop XLA compiles a convolution for CPUs to fast code only if it comes in this form; the
gradients that automatic differentiation writes do not, and run five to ten times as long there.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax


def derivative(spec: Any, wanted: str, one: Array, other: Array) -> Array:
    """dT / d(wanted) for T = <out, conv(lhs, rhs)>, as `conv._Spec.derivative`; no groups."""
    (lhs_shape, rhs_shape), dims = spec.shapes, spec.dims
    lhs_last, out_last = channels_last(dims.lhs_spec), channels_last(dims.out_spec)
    rhs_last = filters_last(dims.rhs_spec)
    lhs_size = [lhs_shape[axis] for axis in lhs_last[1:-1]]
    window = [rhs_shape[axis] for axis in rhs_last[:-2]]
    by_axis = list(
        zip(lhs_size, window, spec.padding, spec.strides, spec.lhs_dilation, spec.rhs_dilation)
    )
    options = {"precision": spec.precision, "preferred_element_type": spec.out_dtype}
    if wanted == "out":
        lhs, rhs = jnp.transpose(one, lhs_last), jnp.transpose(other, rhs_last)
        found = _convolve(
            lhs, rhs, spec.strides, spec.padding, spec.lhs_dilation, spec.rhs_dilation, options
        )
        return jnp.transpose(found, inverse(out_last))
    # Cotangents of a wider `preferred_element_type` meet images and filters as they are.
    wide = jnp.promote_types(one.dtype, other.dtype)
    one, other = one.astype(wide), other.astype(wide)
    out = jnp.transpose(other, out_last)
    out_size = out.shape[1:-1]
    if wanted == "lhs":
        # Every output sends back what it took, through the window turned around.
        rhs = jnp.swapaxes(jnp.transpose(one, rhs_last), -1, -2)
        rhs = lax.rev(rhs, range(len(window)))
        padding = []
        for (size, width, (low, _), stride, apart, wide), seen in zip(by_axis, out_size):
            reach = wide * (width - 1)
            total = _dilated(size, apart) + reach - _dilated(seen, stride)
            padding.append((reach - low, total - (reach - low)))
        found = _convolve(
            out, rhs, spec.lhs_dilation, padding, spec.strides, spec.rhs_dilation, options
        )
        return jnp.transpose(found, inverse(lhs_last)).astype(spec.dtypes[0])
    # The filter's gradient: images are summed over, so they take the place of channels.
    lhs = jnp.swapaxes(jnp.transpose(one, lhs_last), 0, -1)
    out = jnp.moveaxis(out, 0, -2)
    padding = []
    for (size, width, (low, _), stride, apart, wide), seen in zip(by_axis, out_size):
        total = _dilated(seen, stride) + wide * (width - 1) - _dilated(size, apart)
        padding.append((low, total - low))
    found = _convolve(
        lhs, out, spec.rhs_dilation, padding, spec.lhs_dilation, spec.strides, options
    )
    found = jnp.moveaxis(found, 0, -2)
    return jnp.transpose(found, inverse(rhs_last)).astype(spec.dtypes[1])


def is_canonical(dims: lax.ConvDimensionNumbers) -> bool:
    """Whether images have their channels last, and filters theirs."""
    return dims == _dims(len(dims.lhs_spec))


def _dims(ndim: int) -> lax.ConvDimensionNumbers:
    last, space, window = ndim - 1, range(1, ndim - 1), range(ndim - 2)
    images = (0, last, *space)
    return lax.ConvDimensionNumbers(images, (last, last - 1, *window), images)


def _convolve(lhs, rhs, strides, padding, lhs_dilation, rhs_dilation, options: dict) -> Array:
    dims = _dims(lhs.ndim)
    return lax.conv_general_dilated(
        lhs, rhs, strides, padding, lhs_dilation, rhs_dilation, dims, **options
    )


def _dilated(size: int, by: int) -> int:
    return 0 if size == 0 else by * (size - 1) + 1


def channels_last(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The order of axes that makes images (batch, ..., channel)."""
    batch, channel, *space = axes
    return (batch, *space, channel)


def filters_last(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The order of axes that makes filters (..., in, out)."""
    num_out, num_in, *window = axes
    return (*window, num_in, num_out)


def inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axes.index(axis) for axis in range(len(axes)))
