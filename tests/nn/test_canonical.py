"""The derivatives of `replicax.nn.conv` on CPUs against automatic differentiation."""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import quick_jit, slow
from conv_cases import CASES, WIDE, assert_close
from jax import lax

from replicax.nn.conv import NAMES, ConvSpec, canonical_derivative

DIMS = {"2-D": ("NHWC", "HWIO"), "1-D": ("NHC", "HIO")}
PLAIN_CASES = [name for name in WIDE if "feature_group_count" not in CASES[name]]
TOLERANCE = {jnp.float32: 1e-5, jnp.bfloat16: 0.03}
QUICK = [
    ("same", "1-D", jnp.float32),
    ("strided", "2-D", jnp.float32),
    ("valid", "2-D", jnp.bfloat16),
    ("dilated", "2-D", jnp.float32),
    ("transposed", "1-D", jnp.float32),
]
ALL = [
    pytest.param(
        *case,
        marks=[] if case in QUICK else pytest.mark.slow,
        id=f"{case[0]}, {case[1]}, {case[2].__name__}",
    )
    for case in itertools.product(PLAIN_CASES, DIMS, TOLERANCE)
]


def spec_and_arrays(case: str, dims: str, dtype: Any) -> tuple[ConvSpec, dict[str, jax.Array]]:
    """A convolution of images 7 x 6 (or 7) with 4 channels, and random lhs, rhs and out."""
    lhs_axes, rhs_axes = DIMS[dims]
    sizes = {"N": 2, "C": 4, "I": 4, "O": 5}
    lhs_size, rhs_size = {**sizes, "H": 7, "W": 6}, {**sizes, "H": 3, "W": 2}
    keys = jax.random.split(jax.random.key(0), 3)
    lhs, rhs = (
        jax.random.normal(key, [size[axis] for axis in axes]).astype(dtype)
        for key, axes, size in ((keys[0], lhs_axes, lhs_size), (keys[1], rhs_axes, rhs_size))
    )
    num_spatial = lhs.ndim - 2
    options = {
        {"window_strides": "strides"}.get(name, name): value
        if isinstance(value, str)
        else value[:num_spatial]
        for name, value in CASES[case].items()
    }
    spec = ConvSpec.build(lhs, rhs, **options)
    out_shape = jax.eval_shape(spec.convolve, lhs, rhs).shape
    out = jax.random.normal(keys[2], out_shape).astype(dtype)
    return spec, {"lhs": lhs, "rhs": rhs, "out": out}


def inputs(arrays: dict[str, jax.Array], wrt: str) -> list[jax.Array]:
    return [arrays[name] for name in NAMES if name != wrt]


def all_derivatives(derivative, arrays: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return {wrt: derivative(wrt, *inputs(arrays, wrt)) for wrt in NAMES}


@pytest.mark.parametrize(("case", "dims", "dtype"), ALL)
def test_all_three_derivatives_are_those_of_lax(case: str, dims: str, dtype: Any) -> None:
    spec, arrays = spec_and_arrays(case, dims, dtype)
    derivative = functools.partial(canonical_derivative, spec)
    results = quick_jit(lambda arrays: all_derivatives(derivative, arrays))(arrays)
    expected = quick_jit(lambda arrays: all_derivatives(spec.derivative, arrays))(arrays)
    assert_close(results, expected, TOLERANCE[dtype])


@pytest.mark.parametrize("case", [slow("strided"), "transposed"])
def test_a_loop_changes_nothing(case: str) -> None:
    """XLA compiles convolutions inside a loop differently."""
    spec, arrays = spec_and_arrays(case, "2-D", jnp.float32)
    derivative = functools.partial(canonical_derivative, spec)
    empty = jax.eval_shape(functools.partial(all_derivatives, derivative), arrays)

    @jax.jit
    def looped(arrays, count):
        def once(_, before):
            # Inputs depend on the loop carry, so that XLA cannot hoist the work out of the loop.
            inputs = {n: x + 0.0 * before[n].astype(x.dtype) for n, x in arrays.items()}
            return all_derivatives(derivative, inputs)

        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), empty)
        return lax.fori_loop(0, count, once, zeros)

    assert "while" in looped.lower(arrays, 3).as_text()
    assert_close(looped(arrays, 3), all_derivatives(spec.derivative, arrays), 1e-5)


@pytest.mark.parametrize("wrt", ("lhs", "rhs"))
def test_gradients_of_a_wider_output_have_the_dtype_of_the_inputs(wrt: str) -> None:
    spec, arrays = spec_and_arrays("same", "2-D", jnp.bfloat16)
    spec = dataclasses.replace(spec, out_dtype=jnp.dtype(jnp.float32))
    arrays["out"] = arrays["out"].astype(jnp.float32)
    first, second = inputs(arrays, wrt)
    result = canonical_derivative(spec, wrt, first, second)
    expected = spec.derivative(wrt, first, second)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(
        np.asarray(result, np.float64), np.asarray(expected, np.float64), atol=0.1
    )
