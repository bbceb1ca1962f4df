"""`replicax.nn.canonical` against the derivatives that automatic differentiation writes."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import quick_jit
from conv_cases import CASES, WIDE
from jax import lax

from replicax.nn import canonical
from replicax.nn.conv import _Spec

WANTED = ("out", "lhs", "rhs")
DIMS = {
    "channels last": ("NHWC", "HWIO", "NHWC"),
    "channels first": ("NCHW", "OIHW", "NCHW"),
    "mixed": ("HNCW", "IHOW", "CWNH"),
    "1-D": ("NHC", "HIO", "NHC"),
    "1-D, channels first": ("NCH", "OIH", "NCH"),
}
PLAIN_CASES = [name for name in WIDE if "feature_group_count" not in CASES[name]]
TOLERANCE = {jnp.float32: 1e-5, jnp.bfloat16: 0.03}


QUICK = [
    ("same", "1-D", jnp.float32),
    ("strided", "mixed", jnp.float32),
    ("valid", "channels first", jnp.bfloat16),
    ("dilated", "channels last", jnp.float32),
    ("transposed", "1-D, channels first", jnp.float32),
]
ALL = itertools.product(PLAIN_CASES, DIMS, TOLERANCE)
TRIED = [
    pytest.param(
        *one,
        marks=[] if one in QUICK else pytest.mark.slow,
        id=f"{one[0]}, {one[1]}, {one[2].__name__}",
    )
    for one in ALL
]


def spec_and_arrays(case: str, dims: str, dtype: Any) -> tuple[_Spec, dict[str, jax.Array]]:
    """A convolution of images 7 x 6 (or 7) with 4 channels, and all three arrays of its form."""
    lhs_axes, rhs_axes, _ = names = DIMS[dims]
    sizes = {"N": 2, "C": 4, "I": 4, "O": 5}
    lhs_shape, rhs_shape = (
        tuple({**sizes, **space}[axis] for axis in axes)
        for axes, space in ((lhs_axes, {"H": 7, "W": 6}), (rhs_axes, {"H": 3, "W": 2}))
    )
    numbers = lax.conv_dimension_numbers(lhs_shape, rhs_shape, names)
    num_spatial = len(lhs_shape) - 2
    options = {
        name: value[:num_spatial] for name, value in CASES[case].items() if name != "padding"
    }
    padding, dilation = CASES[case]["padding"], options.get("rhs_dilation", (1,) * num_spatial)
    if isinstance(padding, str):
        space = [lhs_shape[axis] for axis in numbers.lhs_spec[2:]]
        window = [
            1 + by * (rhs_shape[axis] - 1) for axis, by in zip(numbers.rhs_spec[2:], dilation)
        ]
        padding = lax.padtype_to_pads(space, window, options["window_strides"], padding)
    spec = _Spec(
        shapes=(lhs_shape, rhs_shape),
        dtypes=(jnp.dtype(dtype), jnp.dtype(dtype)),
        strides=options["window_strides"],
        padding=tuple((int(low), int(high)) for low, high in padding[:num_spatial]),
        lhs_dilation=options.get("lhs_dilation", (1,) * num_spatial),
        rhs_dilation=dilation,
        dims=numbers,
        groups=1,
        precision=None,
        out_dtype=None,
    )
    lhs_key, rhs_key, out_key = jax.random.split(jax.random.key(0), 3)
    lhs = jax.random.normal(lhs_key, lhs_shape).astype(dtype)
    rhs = jax.random.normal(rhs_key, rhs_shape).astype(dtype)
    out_shape = jax.eval_shape(spec.product, lhs, rhs).shape
    return spec, {
        "lhs": lhs,
        "rhs": rhs,
        "out": jax.random.normal(out_key, out_shape).astype(dtype),
    }


def others(arrays: dict[str, jax.Array], wanted: str) -> list[jax.Array]:
    return [arrays[name] for name in ("lhs", "rhs", "out") if name != wanted]


def all_of(derivative, arrays: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return {wanted: derivative(wanted, *others(arrays, wanted)) for wanted in WANTED}


def assert_same(found: dict[str, jax.Array], true: dict[str, jax.Array], tolerance: float) -> None:
    for name in WANTED:
        one, other = found[name], true[name]
        assert (one.shape, one.dtype) == (other.shape, other.dtype), name
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        bound = tolerance * np.abs(other).max()
        np.testing.assert_allclose(one, other, rtol=0, atol=bound, err_msg=name)


@pytest.mark.parametrize(("case", "dims", "dtype"), TRIED)
def test_all_three_derivatives_are_those_of_lax(case: str, dims: str, dtype: Any) -> None:
    spec, arrays = spec_and_arrays(case, dims, dtype)
    found = quick_jit(lambda arrays: all_of(functools.partial(canonical.derivative, spec), arrays))
    true = quick_jit(lambda arrays: all_of(spec.derivative, arrays))
    assert_same(found(arrays), true(arrays), TOLERANCE[dtype])


@pytest.mark.parametrize("case", ("strided", "transposed"))
def test_a_loop_changes_nothing(case: str) -> None:
    """Where the form matters: XLA compiles convolutions inside a loop in another way."""
    spec, arrays = spec_and_arrays(case, "channels last", jnp.float32)
    derivative = functools.partial(canonical.derivative, spec)
    empty = jax.eval_shape(functools.partial(all_of, derivative), arrays)

    @jax.jit
    def looped(arrays, count):
        def once(_, before):
            # What the loop carries enters, so that no pass can be taken out of it.
            entered = {n: x + 0.0 * before[n].astype(x.dtype) for n, x in arrays.items()}
            return all_of(derivative, entered)

        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), empty)
        return lax.fori_loop(0, count, once, zeros)

    assert "while" in looped.lower(arrays, 3).as_text()
    assert_same(looped(arrays, 3), all_of(spec.derivative, arrays), 1e-5)


@pytest.mark.parametrize("wanted", ("lhs", "rhs"))
def test_a_wider_type_is_kept(wanted: str) -> None:
    """`preferred_element_type` holds for the convolution; gradients have the type of its inputs."""
    spec, arrays = spec_and_arrays("same", "channels last", jnp.bfloat16)
    spec = _Spec(**{**spec.__dict__, "out_dtype": jnp.dtype(jnp.float32)})
    arrays["out"] = arrays["out"].astype(jnp.float32)
    one, other = others(arrays, wanted)
    found = canonical.derivative(spec, wanted, one, other)
    true = spec.derivative(wanted, one, other)
    assert found.dtype == true.dtype
    np.testing.assert_allclose(
        np.asarray(found, np.float64), np.asarray(true, np.float64), atol=0.1
    )
