"""The static description of a convolution."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

NAMES = ("lhs", "rhs", "out")


@dataclass(frozen=True)
class ConvSpec:
    """Shapes, dtypes and options of `lax.conv_general_dilated`.

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
    dims: lax.ConvDimensionNumbers
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
        dimension_numbers: Any = None,
        groups: int = 1,
        precision: Any = None,
        out_dtype: Any = None,
    ) -> "ConvSpec":
        """Return the description, with the padding as pairs of numbers."""
        dims = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
        num_spatial = len(lhs.shape) - 2
        lhs_dilation = tuple(lhs_dilation or (1,) * num_spatial)
        rhs_dilation = tuple(rhs_dilation or (1,) * num_spatial)
        if isinstance(padding, str):
            if any(factor != 1 for factor in lhs_dilation):
                raise ValueError(
                    "With lhs_dilation give the padding as pairs of numbers, not by name."
                )
            image = [lhs.shape[axis] for axis in dims.lhs_spec[2:]]
            sizes = zip(dims.rhs_spec[2:], rhs_dilation, strict=True)
            filters = [1 + factor * (rhs.shape[axis] - 1) for axis, factor in sizes]
            padding = lax.padtype_to_pads(image, filters, strides, padding)
        return cls(
            shapes=(lhs.shape, rhs.shape),
            dtypes=(lhs.dtype, rhs.dtype),
            strides=tuple(strides),
            padding=tuple((int(low), int(high)) for low, high in padding),
            lhs_dilation=lhs_dilation,
            rhs_dilation=rhs_dilation,
            dims=dims,
            groups=groups,
            precision=tuple(precision) if isinstance(precision, list) else precision,
            out_dtype=out_dtype and jnp.dtype(out_dtype),
        )

    @property
    def image_size(self) -> list[int]:
        return [self.shapes[0][axis] for axis in self.dims.lhs_spec[2:]]

    @property
    def filter_size(self) -> list[int]:
        return [self.shapes[1][axis] for axis in self.dims.rhs_spec[2:]]

    def convolve(self, lhs: Array, rhs: Array) -> Array:
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

    def folded_axes(self, way: str) -> dict[str, int]:
        """Return the axis of each array into which replicas are folded."""
        (lhs_batch, lhs_channel), filter_out = self.dims.lhs_spec[:2], self.dims.rhs_spec[0]
        out_batch, out_channel = self.dims.out_spec[:2]
        if way == "batch":
            return {"lhs": lhs_batch, "out": out_batch}
        if way == "channels":
            return {"rhs": filter_out, "out": out_channel}
        return {"lhs": lhs_channel, "rhs": filter_out, "out": out_channel}

    def fold(self, way: str, num_replicas: int) -> "ConvSpec":
        """Return the convolution of all replicas together.

        `way` says where replicas go: into the "batch", the output "channels", or the channels of a
        "grouped" or "dense" (block-diagonal) convolution.
        """
        lhs, rhs = (list(shape) for shape in self.shapes)
        axes = self.folded_axes(way)
        if "lhs" in axes:
            lhs[axes["lhs"]] *= num_replicas
        if "rhs" in axes:
            rhs[axes["rhs"]] *= num_replicas
        if way == "dense":
            rhs[self.dims.rhs_spec[1]] *= num_replicas
        groups = self.groups * (num_replicas if way == "grouped" else 1)
        return replace(self, shapes=(tuple(lhs), tuple(rhs)), groups=groups)
