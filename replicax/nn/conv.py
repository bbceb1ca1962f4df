"""A convolution that stays fast under `jax.vmap` over its weights.

A plain vmapped convolution loses a factor of three on GPUs: its filter gradient becomes a forward
convolution for which cuDNN has no fast kernel. Here the replica axis is folded into the channels
of one grouped convolution, whose gradients are grouped convolutions too. cuDNN lacks grouped
kernels for some: 1 x 1 convolutions become a batched matrix product, and strided ones dense
convolutions with block-diagonal filters, which multiply mostly zeros and are still three to ten
times as fast. On CPUs, where grouped convolutions are slow, each replica gets its own convolution.
Where the weights or the images are the same for all replicas, the axis is folded into the batch or
the output channels.

The convolution and its gradients are the three derivatives of one trilinear form (`ConvSpec`), so
one operation with an argument `wrt` serves all three and has derivatives of any order.
"""

import functools
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap

from replicax.errors import choose

NAMES = ("lhs", "rhs", "out")
LAYOUTS = ("auto", "grouped", "dense", "product", "unrolled")
_MAX_DENSE = 1024  # channels of a block-diagonal convolution: beyond, zeros cost too much
_layout = "auto"  # set by `layout`


def conv(
    lhs: Array,
    rhs: Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: None = None,
) -> Array:
    """Convolve `lhs` with `rhs`: `jax.lax.conv_general_dilated`, fast under `vmap` over `rhs`.

    Arguments are the same. Gradients of any order, `vmap` and `jit` work as usual; forward-mode
    derivatives do not. Fits the `conv_general_dilated` argument of Flax NNX's `nnx.Conv`.

    >>> images, filters = jnp.ones((8, 32, 32, 3)), jnp.ones((10, 3, 3, 3, 16))
    >>> one = lambda rhs: conv(
    ...     images, rhs, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    ... )
    >>> jax.vmap(one)(filters).shape
    (10, 8, 32, 32, 16)
    """
    if out_sharding is not None:
        raise ValueError(
            "replicax.nn.conv does not support out_sharding; use jax.lax.conv_general_dilated."
        )
    if batch_group_count != 1:
        raise ValueError(
            f"batch_group_count is {batch_group_count}; replicax.nn.conv folds replicas into "
            "feature groups and supports batch_group_count=1 only. Use "
            "jax.lax.conv_general_dilated."
        )
    dims = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    lhs, rhs = (
        jnp.transpose(lhs, _images_last(dims.lhs_spec)),
        jnp.transpose(rhs, _filters_last(dims.rhs_spec)),
    )
    dilations = lhs_dilation, rhs_dilation
    options = feature_group_count, precision, preferred_element_type
    spec = ConvSpec.build(lhs, rhs, window_strides, padding, *dilations, *options)
    out = _derivative(spec, "out")(lhs, rhs)
    return jnp.transpose(out, np.argsort(_images_last(dims.out_spec)).tolist())


def _images_last(axes: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that makes images (batch, ..., channel)."""
    batch, channel, *space = axes
    return (batch, *space, channel)


def _filters_last(axes: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that makes filters (..., in, out)."""
    num_out, num_in, *space = axes
    return (*space, num_in, num_out)


@contextmanager
def layout(name: str):
    """Set the layout of replicas for convolutions traced inside this context, on any device.

    "unrolled" is one convolution per replica, "grouped" and "dense" one convolution of all
    channels, "product" a matrix product for 1 x 1 convolutions and "grouped" for others. "auto",
    the default, is "unrolled" on CPUs, and elsewhere "product" for 1 x 1 convolutions, "dense" for
    strided ones and "grouped" for the rest.
    """
    global _layout
    before, _layout = _layout, choose("The layout", name, LAYOUTS)
    try:
        yield
    finally:
        _layout = before


@dataclass(frozen=True)
class ConvSpec:
    """Shapes, dtypes and options of `lax.conv_general_dilated`, of images (batch, ..., channel) and
    filters (..., in, out).

    The convolution and its two gradients are the three derivatives of one trilinear form,

        T(lhs, rhs, out) = <out, conv(lhs, rhs)>,

    with respect to (`wrt`) "out", "lhs" and "rhs".
    """

    shapes: tuple[tuple[int, ...], tuple[int, ...]]  # of lhs and rhs
    dtypes: tuple[Any, Any]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    groups: int
    precision: Any
    out_dtype: Any

    @classmethod
    def build(
        cls,
        lhs: Any,  # anything with a shape and a dtype
        rhs: Any,
        strides: Sequence[int],
        padding: str | Sequence[tuple[int, int]],
        lhs_dilation: Sequence[int] | None = None,
        rhs_dilation: Sequence[int] | None = None,
        groups: int = 1,
        precision: Any = None,
        out_dtype: Any = None,
    ) -> "ConvSpec":
        """Return the description, with the padding as pairs of numbers."""
        num_spatial = len(lhs.shape) - 2
        lhs_dilation = tuple(lhs_dilation or (1,) * num_spatial)
        rhs_dilation = tuple(rhs_dilation or (1,) * num_spatial)
        if isinstance(padding, str):
            if any(factor != 1 for factor in lhs_dilation):
                raise ValueError(
                    "With lhs_dilation give the padding as pairs of numbers, not by name."
                )
            sizes = zip(rhs.shape[:-2], rhs_dilation, strict=True)
            filters = [1 + factor * (size - 1) for size, factor in sizes]
            padding = lax.padtype_to_pads(lhs.shape[1:-1], filters, strides, padding)
        return cls(
            shapes=(lhs.shape, rhs.shape),
            dtypes=(lhs.dtype, rhs.dtype),
            strides=tuple(strides),
            padding=tuple((int(low), int(high)) for low, high in padding),
            lhs_dilation=lhs_dilation,
            rhs_dilation=rhs_dilation,
            groups=groups,
            precision=tuple(precision) if isinstance(precision, list) else precision,
            out_dtype=out_dtype and jnp.dtype(out_dtype),
        )

    @property
    def image_size(self) -> tuple[int, ...]:
        return self.shapes[0][1:-1]

    @property
    def filter_size(self) -> tuple[int, ...]:
        return self.shapes[1][:-2]

    def convolve(self, lhs: Array, rhs: Array) -> Array:
        last = lhs.ndim - 1
        images = (0, last, *range(1, last))
        return lax.conv_general_dilated(
            lhs,
            rhs,
            self.strides,
            self.padding,
            self.lhs_dilation,
            self.rhs_dilation,
            lax.ConvDimensionNumbers(images, (last, last - 1, *range(last - 1)), images),
            self.groups,
            precision=self.precision,
            preferred_element_type=self.out_dtype,
        )

    def derivative(self, wrt: str, first: Array, second: Array) -> Array:
        """Return dT / d(wrt) from the other two arrays, in the order of `NAMES`."""
        if wrt == "out":
            return self.convolve(first, second)
        index = NAMES.index(wrt)
        like = jax.ShapeDtypeStruct(self.shapes[index], self.dtypes[index])
        if wrt == "lhs":
            transpose = jax.linear_transpose(lambda lhs: self.convolve(lhs, first), like)
        else:
            transpose = jax.linear_transpose(lambda rhs: self.convolve(first, rhs), like)
        return transpose(second)[0]

    def fold(self, way: str, num_replicas: int) -> "ConvSpec":
        """Return the convolution of all replicas together.

        `way` says where replicas go, see `_FOLDED`; "dense" is a block-diagonal convolution.
        """
        lhs, rhs = (list(shape) for shape in self.shapes)
        axes = _FOLDED[way]
        if "lhs" in axes:
            lhs[axes["lhs"]] *= num_replicas
        if "rhs" in axes:
            rhs[-1] *= num_replicas
        if way == "dense":
            rhs[-2] *= num_replicas
        groups = self.groups * (num_replicas if way == "grouped" else 1)
        return replace(self, shapes=(tuple(lhs), tuple(rhs)), groups=groups)


# The axis of each array into which replicas are folded: the batch, the output channels, or the
# channels of a convolution of all.
_CHANNELS = {"lhs": -1, "rhs": -1, "out": -1}
_FOLDED = {
    "batch": {"lhs": 0, "out": 0},
    "channels": {"rhs": -1, "out": -1},
    "grouped": _CHANNELS,
    "dense": _CHANNELS,
}


@functools.cache
def _derivative(spec: ConvSpec, wrt: str) -> Callable[[Array, Array], Array]:
    """Return `spec.derivative(wrt, ...)` with its own batching rule and gradients."""
    inputs = [name for name in NAMES if name != wrt]

    @custom_vmap
    def compute(first: Array, second: Array) -> Array:
        if spec.groups != 1 or wrt == "out":
            return spec.derivative(wrt, first, second)
        return lax.platform_dependent(
            first,
            second,
            cpu=functools.partial(canonical_derivative, spec, wrt),
            default=functools.partial(spec.derivative, wrt),
        )

    @compute.def_vmap
    def compute_replicas(num_replicas: int, batched: Sequence[bool], first: Array, second: Array):
        arrays = dict(zip(inputs, (first, second)))
        shared = {name for name, is_batched in zip(inputs, batched) if not is_batched}
        return _derivative_of_replicas(spec, wrt, num_replicas, arrays, shared), True

    @jax.custom_vjp
    def derivative(first: Array, second: Array) -> Array:
        return compute(first, second)

    def forward(first: Array, second: Array):
        return derivative(first, second), (first, second)

    def backward(residuals: tuple[Array, Array], cotangent: Array):
        arrays = dict(zip(inputs, residuals)) | {wrt: cotangent}

        def gradient(name: str) -> Array:
            others = [arrays[other] for other in NAMES if other != name]
            return _derivative(spec, name)(*others).astype(arrays[name].dtype)

        return gradient(inputs[0]), gradient(inputs[1])

    derivative.defvjp(forward, backward)
    return derivative


def _derivative_of_replicas(
    spec: ConvSpec, wrt: str, num_replicas: int, arrays: dict[str, Array], shared: set[str]
) -> Array:
    """The batching rule: the replica axis is the first of all arrays that are not `shared`."""
    if "rhs" in shared:
        return _fold(spec, wrt, num_replicas, arrays, "batch")
    if "lhs" in shared and spec.groups == 1:
        return _fold(spec, wrt, num_replicas, arrays, "channels")
    for name in shared:
        value = arrays[name]
        arrays = arrays | {name: jnp.broadcast_to(value, (num_replicas, *value.shape))}
    compute = functools.partial(_lay_out, spec=spec, wrt=wrt, num_replicas=num_replicas)
    if _layout != "auto":
        return compute(arrays, name=_layout)
    return lax.platform_dependent(
        arrays,
        cpu=functools.partial(compute, name="unrolled"),
        default=functools.partial(compute, name=_gpu_layout(spec, num_replicas)),
    )


def _gpu_layout(spec: ConvSpec, num_replicas: int) -> str:
    if is_pointwise(spec):
        return "product"
    num_channels = num_replicas * max(spec.shapes[1][-2:])
    lacks_kernel = any(stride > 1 for stride in spec.strides)
    return "dense" if lacks_kernel and num_channels <= _MAX_DENSE else "grouped"


def _lay_out(
    arrays: dict[str, Array], name: str, spec: ConvSpec, wrt: str, num_replicas: int
) -> Array:
    if name == "unrolled":
        return _unroll(spec, wrt, num_replicas, arrays)
    if name == "product" and is_pointwise(spec):
        return pointwise_derivative(spec, wrt, *_inputs(arrays, wrt))
    if name == "dense" and spec.groups == 1:
        return _densify(spec, wrt, num_replicas, arrays)
    return _fold(spec, wrt, num_replicas, arrays, "grouped")


def _inputs(arrays: dict[str, Array], wrt: str) -> list[Array]:
    return [arrays[name] for name in NAMES if name != wrt]


def _unroll(spec: ConvSpec, wrt: str, num_replicas: int, arrays: dict[str, Array]) -> Array:
    compute = _derivative(spec, wrt)
    if spec.groups == 1:
        compute = functools.partial(canonical_derivative, spec, wrt)
    first, second = _inputs(arrays, wrt)
    return jnp.stack([compute(first[i], second[i]) for i in range(num_replicas)])


def _densify(spec: ConvSpec, wrt: str, num_replicas: int, arrays: dict[str, Array]) -> Array:
    """Convolve all channels with all; filters between different replicas are zero."""
    merged = {name: _merge(arrays[name], -1) for name in arrays if name != "rhs"}
    if wrt != "rhs":
        diagonal = jnp.eye(num_replicas, dtype=arrays["rhs"].dtype)
        diagonal = diagonal.reshape(num_replicas, num_replicas, *[1] * len(spec.shapes[1]))
        blocks = arrays["rhs"][:, None] * diagonal
        merged["rhs"] = _merge(jax.vmap(functools.partial(_merge, axis=-1))(blocks), -2)
    result = _derivative(spec.fold("dense", num_replicas), wrt)(*_inputs(merged, wrt))
    if wrt != "rhs":
        return _split(result, -1, num_replicas)
    rows = _split(result, -2, num_replicas)
    blocks = jax.vmap(functools.partial(_split, axis=-1, count=num_replicas))(rows)
    index = jnp.arange(num_replicas)
    return blocks[index, index]


def _fold(spec: ConvSpec, wrt: str, num_replicas: int, arrays: dict[str, Array], way: str) -> Array:
    axes = _FOLDED[way]
    folded = {
        name: _merge(value, axes[name]) if name in axes else value for name, value in arrays.items()
    }
    result = _derivative(spec.fold(way, num_replicas), wrt)(*_inputs(folded, wrt))
    return _split(result, axes[wrt], num_replicas)


def _merge(value: Array, axis: int) -> Array:
    """(replica, ..., n, ...) -> (..., replica * n, ...)."""
    axis %= value.ndim - 1
    shape = list(value.shape[1:])
    shape[axis] *= value.shape[0]
    return jnp.moveaxis(value, 0, axis).reshape(shape)


def _split(value: Array, axis: int, count: int) -> Array:
    """(..., count * n, ...) -> (count, ..., n, ...)."""
    axis %= value.ndim
    shape = list(value.shape)
    shape[axis : axis + 1] = [count, shape[axis] // count]
    return jnp.moveaxis(value.reshape(shape), axis, 0)


def canonical_derivative(spec: ConvSpec, wrt: str, first: Array, second: Array) -> Array:
    """Return `spec.derivative(wrt, first, second)` of a convolution without groups, as another one
    of images (batch, ..., channel), for which CPUs have a fast kernel."""
    if wrt == "out":
        return spec.convolve(first, second)
    # Cotangents of a wider `preferred_element_type` meet narrower images and filters.
    dtype = jnp.promote_types(first.dtype, second.dtype)
    first, out = first.astype(dtype), second.astype(dtype)
    padding = tuple(_gradient_padding(spec, wrt, out.shape[1:-1]))
    if wrt == "lhs":
        # The gradient of an image is a convolution of outputs with the reversed filters.
        rhs = lax.rev(jnp.swapaxes(first, -1, -2), range(len(spec.strides)))
        turned = replace(
            spec, strides=spec.lhs_dilation, padding=padding, lhs_dilation=spec.strides
        )
        return turned.convolve(out, rhs).astype(spec.dtypes[0])
    # The gradient of the filters sums over images, which take the place of channels.
    lhs, out = jnp.swapaxes(first, 0, -1), jnp.moveaxis(out, 0, -2)
    turned = replace(spec, strides=spec.rhs_dilation, padding=padding, rhs_dilation=spec.strides)
    return jnp.moveaxis(turned.convolve(lhs, out), 0, -2).astype(spec.dtypes[1])


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


def _dilated(size: int, factor: int) -> int:
    return 0 if size == 0 else factor * (size - 1) + 1


def is_pointwise(spec: ConvSpec) -> bool:
    """Return whether each output combines the channels of one pixel; strides may skip pixels."""
    plain = spec.groups == 1 and set(spec.lhs_dilation) <= {1}
    return plain and set(spec.filter_size) <= {1} and not any(map(any, spec.padding))


def pointwise_derivative(spec: ConvSpec, wrt: str, first: Array, second: Array) -> Array:
    """Return `spec.derivative(wrt, ...)` of all replicas; their axis comes first."""
    options = {"precision": spec.precision, "preferred_element_type": spec.out_dtype}
    pixels = "nxyzabc"[: len(spec.shapes[0]) - 1]

    def matrix(filters: Array) -> Array:
        return filters.reshape(filters.shape[0], *filters.shape[-2:])

    def skip_pixels(images: Array) -> Array:
        if set(spec.strides) <= {1}:
            return images
        steps = (slice(None), slice(None), *(slice(None, None, s) for s in spec.strides))
        # Where jax 0.11.2 fuses this slice with the product for GPUs, XLA ends the process.
        return lax.optimization_barrier(images[steps])

    if wrt == "out":
        lhs, rhs = skip_pixels(first), matrix(second)
        return jnp.einsum(f"r{pixels}i,rio->r{pixels}o", lhs, rhs, **options)
    dtype = jnp.promote_types(first.dtype, second.dtype)
    first, out = first.astype(dtype), second.astype(dtype)
    if wrt == "lhs":
        lhs = jnp.einsum(f"r{pixels}o,rio->r{pixels}i", out, matrix(first), **options)
        return _fill_skipped(lhs, spec).astype(spec.dtypes[0])
    rhs = jnp.einsum(f"r{pixels}i,r{pixels}o->rio", skip_pixels(first), out, **options)
    return rhs.reshape(len(rhs), *spec.shapes[1]).astype(spec.dtypes[1])


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
