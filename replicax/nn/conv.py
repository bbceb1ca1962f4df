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
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import custom_vmap

from replicax.errors import choose
from replicax.nn import canonical, pointwise
from replicax.nn.conv_spec import NAMES, ConvSpec

LAYOUTS = ("auto", "grouped", "dense", "product", "unrolled")
_MAX_DENSE = 1024  # channels of a block-diagonal convolution: beyond, zeros cost too much
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
    dilations = lhs_dilation, rhs_dilation
    options = dimension_numbers, feature_group_count, precision, preferred_element_type
    spec = ConvSpec.build(lhs, rhs, window_strides, padding, *dilations, *options)
    return _derivative(spec, "out")(lhs, rhs)


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


@functools.cache
def _derivative(spec: ConvSpec, wrt: str) -> Callable[[Array, Array], Array]:
    """Return `spec.derivative(wrt, ...)` with its own batching rule and gradients."""
    inputs = [name for name in NAMES if name != wrt]

    @custom_vmap
    def compute(first: Array, second: Array) -> Array:
        if spec.groups != 1 or (wrt == "out" and canonical.is_canonical(spec.dims)):
            return spec.derivative(wrt, first, second)
        return lax.platform_dependent(
            first,
            second,
            cpu=functools.partial(canonical.derivative, spec, wrt),
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
    if pointwise.is_pointwise(spec):
        return "product"
    num_channels = num_replicas * max(spec.shapes[1][axis] for axis in spec.dims.rhs_spec[:2])
    lacks_kernel = any(stride > 1 for stride in spec.strides)
    return "dense" if lacks_kernel and num_channels <= _MAX_DENSE else "grouped"


def _lay_out(
    arrays: dict[str, Array], name: str, spec: ConvSpec, wrt: str, num_replicas: int
) -> Array:
    if name == "unrolled":
        return _unroll(spec, wrt, num_replicas, arrays)
    if name == "product" and pointwise.is_pointwise(spec):
        return pointwise.derivative(spec, wrt, *_inputs(arrays, wrt))
    if name == "dense" and spec.groups == 1:
        return _densify(spec, wrt, num_replicas, arrays)
    return _fold(spec, wrt, num_replicas, arrays, "grouped")


def _inputs(arrays: dict[str, Array], wrt: str) -> list[Array]:
    return [arrays[name] for name in NAMES if name != wrt]


def _unroll(spec: ConvSpec, wrt: str, num_replicas: int, arrays: dict[str, Array]) -> Array:
    compute = _derivative(spec, wrt)
    if spec.groups == 1:
        compute = functools.partial(canonical.derivative, spec, wrt)
    first, second = _inputs(arrays, wrt)
    return jnp.stack([compute(first[i], second[i]) for i in range(num_replicas)])


def _densify(spec: ConvSpec, wrt: str, num_replicas: int, arrays: dict[str, Array]) -> Array:
    """Convolve all channels with all; filters between different replicas are zero."""
    filter_out, filter_in = spec.dims.rhs_spec[:2]
    axes = spec.folded_axes("dense")
    merged = {name: _merge(arrays[name], axes[name]) for name in arrays if name != "rhs"}
    if wrt != "rhs":
        diagonal = jnp.eye(num_replicas, dtype=arrays["rhs"].dtype)
        diagonal = diagonal.reshape(num_replicas, num_replicas, *[1] * len(spec.shapes[1]))
        blocks = arrays["rhs"][:, None] * diagonal
        rows = jax.vmap(functools.partial(_merge, axis=filter_out))(blocks)
        merged["rhs"] = _merge(rows, filter_in)
    result = _derivative(spec.fold("dense", num_replicas), wrt)(*_inputs(merged, wrt))
    if wrt != "rhs":
        return _split(result, axes[wrt], num_replicas)
    rows = _split(result, filter_in, num_replicas)
    blocks = jax.vmap(functools.partial(_split, axis=filter_out, count=num_replicas))(rows)
    index = jnp.arange(num_replicas)
    return blocks[index, index]


def _fold(spec: ConvSpec, wrt: str, num_replicas: int, arrays: dict[str, Array], way: str) -> Array:
    axes = spec.folded_axes(way)
    folded = {
        name: _merge(value, axes[name]) if name in axes else value for name, value in arrays.items()
    }
    result = _derivative(spec.fold(way, num_replicas), wrt)(*_inputs(folded, wrt))
    return _split(result, axes[wrt], num_replicas)


def _merge(value: Array, axis: int) -> Array:
    """(replica, ..., n, ...) -> (..., replica * n, ...)."""
    shape = list(value.shape[1:])
    shape[axis] *= value.shape[0]
    return jnp.moveaxis(value, 0, axis).reshape(shape)


def _split(value: Array, axis: int, count: int) -> Array:
    """(..., count * n, ...) -> (count, ..., n, ...)."""
    shape = list(value.shape)
    shape[axis : axis + 1] = [count, shape[axis] // count]
    return jnp.moveaxis(value.reshape(shape), axis, 0)
