"""A convolution that stays fast under `jax.vmap` over its weights.

A plain vmapped convolution loses a factor of three on GPUs: its filter gradient becomes a forward
convolution that no library kernel was made for. Here the replica axis is folded into the channels
of one grouped convolution whose gradients are grouped convolutions too. cuDNN has no grouped
kernels for some: 1 x 1 convolutions become a batched matrix product, and strided ones dense
convolutions with block-diagonal filters, most of whose products are with zeros and which are still
three to ten times as fast. On CPUs, where grouped convolutions are slow, every replica gets a
convolution of its own. Where the weights or the images are the same for all replicas, the axis is
folded into the batch or the output channels.

The convolution and its two gradients are the three derivatives of one trilinear form,

    T(lhs, rhs, out) = <out, conv(lhs, rhs)>,

so one operation, told which of the three is wanted, serves all, with derivatives of any order.
"""

import functools
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from replicax.errors import choose
from replicax.nn import canonical, pointwise

LAYOUTS = ("auto", "grouped", "dense", "product", "unrolled")
_MAX_DENSE = 1024  # channels of a block-diagonal convolution: beyond, zeros cost too much
_NAMES = ("lhs", "rhs", "out")
_layout = "auto"


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
    """`jax.lax.conv_general_dilated`, with the same arguments, for networks of many replicas.

    Gradients of any order, `vmap` and `jit` work as usual; forward-mode derivatives do not. Fits
    the `conv_general_dilated` argument of Flax NNX's `nnx.Conv`.

    >>> images, filters = jnp.ones((8, 32, 32, 3)), jnp.ones((10, 3, 3, 3, 16))
    >>> one = lambda rhs: conv(
    ...     images, rhs, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    ... )
    >>> jax.vmap(one)(filters).shape
    (10, 8, 32, 32, 16)
    """
    if out_sharding is not None:
        raise ValueError(
            "replicax.nn.conv knows no out_sharding; use jax.lax.conv_general_dilated."
        )
    if batch_group_count != 1:
        raise ValueError(
            f"batch_group_count is {batch_group_count}; replicax.nn.conv folds replicas into "
            "feature groups and knows batch_group_count=1 only. Use jax.lax.conv_general_dilated."
        )
    dims = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    num_spatial = lhs.ndim - 2
    lhs_dilation = tuple(lhs_dilation or (1,) * num_spatial)
    rhs_dilation = tuple(rhs_dilation or (1,) * num_spatial)
    if isinstance(padding, str):
        if any(by != 1 for by in lhs_dilation):
            raise ValueError("With lhs_dilation give the padding as pairs of numbers, not by name.")
        space = [lhs.shape[axis] for axis in dims.lhs_spec[2:]]
        sizes = zip(dims.rhs_spec[2:], rhs_dilation, strict=True)
        window = [1 + by * (rhs.shape[axis] - 1) for axis, by in sizes]
        padding = lax.padtype_to_pads(space, window, window_strides, padding)
    spec = _Spec(
        shapes=(lhs.shape, rhs.shape),
        dtypes=(lhs.dtype, rhs.dtype),
        strides=tuple(window_strides),
        padding=tuple((int(low), int(high)) for low, high in padding),
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        dims=dims,
        groups=feature_group_count,
        precision=precision if not isinstance(precision, list) else tuple(precision),
        out_dtype=preferred_element_type and jnp.dtype(preferred_element_type),
    )
    return _derivative(spec, "out")(lhs, rhs)


@contextmanager
def layout(name: str):
    """Choose how replicas are laid out: "grouped", "dense", "product" or "unrolled", whatever the
    device.

    What is traced inside keeps its layout. "auto" is "unrolled" on CPUs, and elsewhere "product"
    for 1 x 1 convolutions, "dense" for strided ones and "grouped" for the rest. "product" is
    "grouped" for windows larger than 1 x 1.
    """
    global _layout
    before, _layout = _layout, choose("The layout", name, LAYOUTS)
    try:
        yield
    finally:
        _layout = before


@dataclass(frozen=True)
class _Spec:
    """All that is static about a convolution."""

    shapes: tuple[tuple[int, ...], tuple[int, ...]]  # of lhs and rhs
    dtypes: tuple[Any, Any]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    dims: Any  # lax.ConvDimensionNumbers
    groups: int
    precision: Any
    out_dtype: Any

    def product(self, lhs: Array, rhs: Array) -> Array:
        return lax.conv_general_dilated(
            lhs,
            rhs,
            self.strides,
            self.padding,
            self.lhs_dilation,
            self.rhs_dilation,
            self.dims,
            self.groups,
            precision=self.precision,
            preferred_element_type=self.out_dtype,
        )

    def derivative(self, wanted: str, one: Array, other: Array) -> Array:
        """dT / d(wanted), from the other two in the order of their names."""
        if wanted == "out":
            return self.product(one, other)
        place = _NAMES.index(wanted)
        like = jax.ShapeDtypeStruct(self.shapes[place], self.dtypes[place])
        if wanted == "lhs":
            (found,) = jax.linear_transpose(lambda lhs: self.product(lhs, one), like)(other)
        else:
            (found,) = jax.linear_transpose(lambda rhs: self.product(one, rhs), like)(other)
        return found

    def axes(self, way: str) -> dict[str, int]:
        """Which axis of which array takes in the replicas."""
        (lhs_batch, lhs_channel), out_channels = self.dims.lhs_spec[:2], self.dims.rhs_spec[0]
        out_batch, out_channel = self.dims.out_spec[:2]
        return {
            "batch": {"lhs": lhs_batch, "out": out_batch},
            "channels": {"rhs": out_channels, "out": out_channel},
            "grouped": {"lhs": lhs_channel, "rhs": out_channels, "out": out_channel},
            "dense": {"lhs": lhs_channel, "rhs": out_channels, "out": out_channel},
        }[way]

    def fastest(self, size: int) -> str:
        """The layout for this many replicas on GPUs."""
        if pointwise.is_pointwise(self):
            return "product"
        num_channels = size * max(self.shapes[1][axis] for axis in self.dims.rhs_spec[:2])
        lacks_kernel = any(stride > 1 for stride in self.strides)
        return "dense" if lacks_kernel and num_channels <= _MAX_DENSE else "grouped"

    def folded(self, way: str, size: int) -> "_Spec":
        """The convolution after `size` replicas were folded into its axes."""
        shapes = [list(shape) for shape in self.shapes]
        for name, axis in self.axes(way).items():
            if name != "out":
                shapes[_NAMES.index(name)][axis] *= size
        if way == "dense":
            shapes[1][self.dims.rhs_spec[1]] *= size
        groups = self.groups * (size if way == "grouped" else 1)
        lhs, rhs = (tuple(shape) for shape in shapes)
        return replace(self, shapes=(lhs, rhs), groups=groups)


@functools.cache
def _derivative(spec: _Spec, wanted: str) -> Callable[[Array, Array], Array]:
    """`spec.derivative(wanted, ...)` with a batching rule and gradients of its own."""
    first, second = given = tuple(name for name in _NAMES if name != wanted)

    @custom_vmap
    def compute(one: Array, other: Array) -> Array:
        if spec.groups != 1 or (wanted == "out" and canonical.is_canonical(spec.dims)):
            return spec.derivative(wanted, one, other)
        return lax.platform_dependent(
            one,
            other,
            cpu=functools.partial(canonical.derivative, spec, wanted),
            default=functools.partial(spec.derivative, wanted),
        )

    @compute.def_vmap
    def many(size: int, batched: Sequence[bool], one: Array, other: Array):
        arrays = {first: (one, batched[0]), second: (other, batched[1])}
        return _of_many(spec, wanted, size, arrays), True

    @jax.custom_vjp
    def derivative(one: Array, other: Array) -> Array:
        return compute(one, other)

    def forward(one: Array, other: Array):
        return derivative(one, other), (one, other)

    def backward(kept: tuple[Array, Array], cotangent: Array):
        held = dict(zip(given, kept)) | {wanted: cotangent}

        def toward(name: str) -> Array:
            others = [held[other] for other in _NAMES if other != name]
            found = _derivative(spec, name)(*others)
            return found.astype(held[name].dtype)

        return toward(first), toward(second)

    derivative.defvjp(forward, backward)
    return derivative


def _of_many(spec: _Spec, wanted: str, size: int, arrays: dict[str, tuple[Array, bool]]) -> Array:
    """The batching rule: fold the replica axis, always the first, and unfold it again."""

    def shared(name: str) -> bool:
        return name in arrays and not arrays[name][1]

    values = {name: value for name, (value, _) in arrays.items()}
    if shared("rhs"):
        return _fold(spec, wanted, size, values, "batch")
    if shared("lhs") and spec.groups == 1:
        return _fold(spec, wanted, size, values, "channels")
    for name, (value, is_batched) in arrays.items():
        if not is_batched:
            values[name] = jnp.broadcast_to(value, (size, *value.shape))
    if _layout != "auto":
        return _lay_out(_layout, spec, wanted, size, values)
    elsewhere = spec.fastest(size)
    return lax.platform_dependent(
        values,
        cpu=lambda values: _lay_out("unrolled", spec, wanted, size, values),
        default=lambda values: _lay_out(elsewhere, spec, wanted, size, values),
    )


def _lay_out(name: str, spec: _Spec, wanted: str, size: int, values: dict[str, Array]) -> Array:
    if name == "unrolled":
        return _unrolled(spec, wanted, size, values)
    if name == "product" and pointwise.is_pointwise(spec):
        one, other = (values[name] for name in _NAMES if name != wanted)
        return pointwise.derivative(spec, wanted, one, other)
    if name == "dense" and spec.groups == 1:
        return _dense(spec, wanted, size, values)
    return _fold(spec, wanted, size, values, "grouped")


def _dense(spec: _Spec, wanted: str, size: int, values: dict[str, Array]) -> Array:
    """One convolution of all channels with all, the filters between replicas being zero."""
    num_out, num_in = spec.dims.rhs_spec[:2]
    if wanted != "rhs":
        here = jnp.eye(size, dtype=values["rhs"].dtype)
        here = here.reshape(size, size, *[1] * len(spec.shapes[1]))
        blocks = jax.vmap(lambda row: _merge(row, num_out))(values["rhs"][:, None] * here)
        others = {**values, "rhs": _merge(blocks, num_in)}
        return _fold(spec, wanted, size, others, "dense", is_folded="rhs")
    compute = _derivative(spec.folded("dense", size), "rhs")
    axes = spec.axes("dense")
    found = compute(_merge(values["lhs"], axes["lhs"]), _merge(values["out"], axes["out"]))
    blocks = jax.vmap(lambda row: _split(row, num_out, size))(_split(found, num_in, size))
    places = jnp.arange(size)
    return blocks[places, places]


def _unrolled(spec: _Spec, wanted: str, size: int, values: dict[str, Array]) -> Array:
    """A convolution for each replica, in the form that CPUs are quick at."""
    one, other = (values[name] for name in _NAMES if name != wanted)
    compute = _derivative(spec, wanted)
    if spec.groups == 1:
        compute = functools.partial(canonical.derivative, spec, wanted)
    return jnp.stack([compute(one[i], other[i]) for i in range(size)])


def _fold(
    spec: _Spec,
    wanted: str,
    size: int,
    values: dict[str, Array],
    way: str,
    is_folded: str = "",
) -> Array:
    axes = spec.axes(way)
    folded = [
        _merge(values[name], axes[name]) if name in axes and name != is_folded else values[name]
        for name in _NAMES
        if name != wanted
    ]
    return _split(_derivative(spec.folded(way, size), wanted)(*folded), axes[wanted], size)


def _merge(value: Array, axis: int) -> Array:
    """(replica, ..., n, ...) -> (..., replica * n, ...)."""
    shape = list(value.shape[1:])
    shape[axis] *= value.shape[0]
    return jnp.moveaxis(value, 0, axis).reshape(shape)


def _split(value: Array, axis: int, size: int) -> Array:
    """(..., replica * n, ...) -> (replica, ..., n, ...)."""
    shape = list(value.shape)
    shape[axis : axis + 1] = [size, shape[axis] // size]
    return jnp.moveaxis(value.reshape(shape), axis, 0)
