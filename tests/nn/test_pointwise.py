"""1 x 1 convolutions as matrix products: which may become one, and that they stay the same."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import quick_jit
from conv_cases import assert_close
from jax import lax

from replicax.nn.conv import ConvSpec, _gpu_layout, conv, is_pointwise, layout, pointwise_derivative

DIMS = ("NHWC", "HWIO", "NHWC")
VALID = ((0, 0), (0, 0))
PLAIN = {"window_strides": (1, 1), "padding": VALID}
# What looks like a 1 x 1 convolution and is none that a matrix product could compute.
GUARDED: dict[str, dict[str, Any]] = {
    "padding before": PLAIN | {"padding": ((1, 0), (0, 0))},
    "padding after": PLAIN | {"padding": ((0, 0), (0, 2))},
    "cropping": PLAIN | {"padding": ((0, 0), (-1, 0))},
    "groups": PLAIN | {"feature_group_count": 2},
    "dilated images": PLAIN | {"lhs_dilation": (1, 2)},
}
ALLOWED: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "strided": PLAIN | {"window_strides": (2, 3)},
    "dilated filters": PLAIN | {"rhs_dilation": (2, 2)},
}


def arrays(options: dict[str, Any], dtype: Any = jnp.float32, window: int = 1):
    rng, groups = np.random.default_rng(0), options.get("feature_group_count", 1)
    shapes = (3, 2, 7, 6, 4), (3, window, window, 4 // groups, 6)
    return tuple(jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes)


def spec_of(options: dict[str, Any], window: int = 1) -> ConvSpec:
    images, filters = arrays(options, window=window)
    names = {"window_strides": "strides", "feature_group_count": "groups"}
    renamed = {names.get(name, name): value for name, value in options.items()}
    return ConvSpec.build(images[0], filters[0], **renamed)


def test_which_convolutions_are_products() -> None:
    for name, options in ALLOWED.items():
        assert is_pointwise(spec_of(options)), name
        assert not is_pointwise(spec_of(options, window=3)), name
        assert _gpu_layout(spec_of(options), 3) == "product"
    for name, options in GUARDED.items():
        assert not is_pointwise(spec_of(options)), name
        assert _gpu_layout(spec_of(options), 3) == "grouped", name


def test_layouts_of_other_convolutions_on_gpus() -> None:
    strided = spec_of(PLAIN | {"window_strides": (1, 2)}, window=3)
    assert _gpu_layout(strided, 3) == "dense"
    assert (_gpu_layout(strided, 170), _gpu_layout(strided, 171)) == ("dense", "grouped")
    assert _gpu_layout(spec_of(PLAIN, window=3), 3) == "grouped"


def results(operation: Any, options: dict[str, Any], dtype: Any = jnp.float32) -> Any:
    """Outputs and gradients of all replicas."""
    options = options | {"dimension_numbers": DIMS}

    def loss(images: Any, filters: Any) -> Any:
        out = operation(images, filters, **options)
        return jnp.sum(jnp.sin(out.astype(jnp.float32))), out

    evaluate = jax.value_and_grad(loss, (0, 1), has_aux=True)
    return quick_jit(jax.vmap(evaluate))(*arrays(options, dtype))


@pytest.mark.parametrize("case", [*GUARDED, *ALLOWED])
def test_values_and_gradients_are_those_of_lax(case: str) -> None:
    options = (GUARDED | ALLOWED)[case]
    with layout("product"):
        found = results(conv, options)
    assert_close(found, results(lax.conv_general_dilated, options), 1e-5)


def test_low_precision_may_have_a_wider_output() -> None:
    """The output is as wide as asked for; gradients have the dtype of what they belong to."""
    options = PLAIN | {"window_strides": (2, 1), "preferred_element_type": jnp.float32}
    with layout("product"):
        (_, out), gradients = results(conv, options, jnp.bfloat16)
    assert out.dtype == jnp.float32
    assert [gradient.dtype for gradient in gradients] == [jnp.bfloat16, jnp.bfloat16]
    exact = PLAIN | {"window_strides": (2, 1)}
    (_, wanted), slopes = results(lax.conv_general_dilated, exact)
    np.testing.assert_allclose(out, wanted, atol=0.1)
    for one, other in zip(gradients, slopes):
        np.testing.assert_allclose(np.asarray(one, float), other, atol=0.3)


def test_low_precision_is_summed_in_the_width_asked_for() -> None:
    """Sums of 300 ones, which bfloat16 cannot hold: 256 is its last whole number."""
    images, filters = jnp.ones((2, 1, 1, 1, 300), jnp.bfloat16), jnp.ones((2, 1, 1, 300, 1))
    with layout("product"):
        out = jax.vmap(
            lambda x, f: conv(
                x, f, (1, 1), VALID, dimension_numbers=DIMS, preferred_element_type=jnp.float32
            )
        )(images, filters.astype(jnp.bfloat16) * (1 + 2**-7))
    np.testing.assert_array_equal(out.ravel(), np.float32(300 * (1 + 2**-7)))


def test_wider_outputs_have_gradients_of_the_inputs() -> None:
    """Without replicas, too."""
    options = {"dimension_numbers": DIMS, "preferred_element_type": jnp.float32}
    images, filters = (x[0] for x in arrays(PLAIN, jnp.bfloat16, window=3))
    loss = lambda x, f: jnp.sum(conv(x, f, (1, 1), VALID, **options))  # noqa: E731
    gradients = jax.grad(loss, (0, 1))(images, filters)
    assert [gradient.dtype for gradient in gradients] == [jnp.bfloat16, jnp.bfloat16]


@pytest.mark.parametrize(("wrt", "index"), [("lhs", 0), ("rhs", 1)])
def test_derivatives_have_the_dtypes_of_what_they_belong_to(wrt: str, index: int) -> None:
    images, filters = arrays(PLAIN, jnp.bfloat16)
    spec = ConvSpec.build(images[0], filters[0], (1, 1), VALID)
    out = jnp.ones((3, 2, 7, 6, 6), jnp.float32)  # wider than images and filters
    other = (filters, images)[index]
    found = pointwise_derivative(spec, wrt, other, out)
    assert (found.shape, found.dtype) == ((images, filters)[index].shape, jnp.bfloat16)
