"""`replicax.nn.conv` against `jax.lax.conv_general_dilated`, however replicas are mapped."""

import itertools

import jax
import jax.numpy as jnp
import pytest
from common import quick_jit, slow
from conv_cases import CASES, POINTWISE, WIDE, assert_close
from jax import lax

from replicax.nn.conv import conv, layout

NUM_REPLICAS = 3
DIMS = ("NHWC", "HWIO", "NHWC")
MAPPED = {"both": (0, 0), "images": (0, None), "filters": (None, 0)}


def arrays(groups: int = 1, dtype=jnp.float32, window: int = 3) -> tuple[jax.Array, jax.Array]:
    left, right = jax.random.split(jax.random.key(0))
    images = jax.random.normal(left, (NUM_REPLICAS, 2, 7, 6, 4), dtype)
    filters = (NUM_REPLICAS, window, window, 4 // groups, 6)
    return images, jax.random.normal(right, filters, dtype)


def nonlinear_loss(operation, options):
    """Return a scalar function whose gradients depend on every output."""

    def loss(images, filters):
        out = operation(images, filters, dimension_numbers=DIMS, **options)
        return jnp.sum(jnp.sin(out.astype(jnp.float32)))

    return loss


def values_and_gradients(operation, options, axes, images, filters):
    """Return losses, vmap of grad and grad of vmap, compiled."""
    loss = nonlinear_loss(operation, options)
    of_each = jax.vmap(jax.value_and_grad(loss, (0, 1)), axes)
    of_all = jax.grad(lambda *both: jnp.sum(jax.vmap(loss, axes)(*both)), (0, 1))
    return quick_jit(lambda *both: (of_each(*both), of_all(*both)))(images, filters)


QUICK = {  # every case, every layout and every way of mapping
    *itertools.product(WIDE, ["grouped"], ["both"]),
    *itertools.product(POINTWISE, ["product"], ["both"]),
    ("same", "dense", "both"),
    ("groups", "dense", "both"),
    ("valid", "dense", "images"),
    ("pointwise", "unrolled", "images"),
    ("groups", "grouped", "filters"),
    ("same", "unrolled", "filters"),
    ("pointwise, strided", "product", "filters"),
}
CELLS = [
    *itertools.product(WIDE, ("grouped", "dense", "unrolled"), MAPPED),
    *itertools.product(POINTWISE, ("product", "unrolled"), MAPPED),
]


@pytest.mark.parametrize(
    ("case", "name", "mapped"), [cell if cell in QUICK else slow(*cell) for cell in CELLS]
)
def test_values_and_gradients_are_those_of_lax(case: str, name: str, mapped: str) -> None:
    options, axes = CASES[case], MAPPED[mapped]
    window = 1 if case in POINTWISE else 3
    images, filters = arrays(options.get("feature_group_count", 1), window=window)
    arguments = [x if axis == 0 else x[0] for x, axis in zip((images, filters), axes)]
    with layout(name):
        results = values_and_gradients(conv, options, axes, *arguments)
    expected = values_and_gradients(lax.conv_general_dilated, options, axes, *arguments)
    assert_close(results, expected, 1e-5)


@pytest.mark.parametrize(
    ("name", "window"),
    [
        slow("grouped", 3),
        slow("dense", 3),
        ("product", 1),
        ("unrolled", 3),
    ],
)
def test_low_precision_stays_low(name: str, window: int) -> None:
    images, filters = arrays(dtype=jnp.bfloat16, window=window)
    with layout(name):
        results = values_and_gradients(conv, CASES["same"], (0, 0), images, filters)
    expected = values_and_gradients(
        lax.conv_general_dilated, CASES["same"], (0, 0), images, filters
    )
    assert_close(results, expected, 0.03)


@pytest.mark.parametrize(
    ("name", "window"),
    [("grouped", 3), slow("dense", 3), ("product", 1), slow("unrolled", 3), ("auto", 3)],
)
def test_chains_of_replicas_fold_twice(name: str, window: int) -> None:
    images, filters = (jnp.stack([x, x[::-1]]) for x in arrays(window=window))

    def gradients(operation):
        loss = nonlinear_loss(operation, CASES["strided" if window > 1 else "pointwise, strided"])
        return quick_jit(jax.vmap(jax.vmap(jax.grad(loss, (0, 1)))))(images, filters)

    with layout(name):
        results = gradients(conv)
    assert_close(results, gradients(lax.conv_general_dilated), 1e-5)


def test_gradients_of_gradients() -> None:
    images, filters = (x[0] for x in arrays())

    def second_derivative(operation):
        loss = nonlinear_loss(operation, CASES["same"])
        slope = lambda filters: jnp.sum(jnp.cos(jax.grad(loss, 1)(images, filters)))  # noqa: E731
        return jax.grad(slope)(filters)

    assert_close(second_derivative(conv), second_derivative(lax.conv_general_dilated), 1e-4)


@pytest.mark.parametrize(
    ("name", "count"), [("grouped", 1), ("dense", 1), ("unrolled", NUM_REPLICAS)]
)
def test_a_layout_is_what_it_says(name: str, count: int) -> None:
    images, filters = arrays()
    with layout(name):
        program = jax.make_jaxpr(
            jax.vmap(lambda x, f: conv(x, f, (1, 1), "SAME", dimension_numbers=DIMS))
        )(images, filters)
    assert str(program).count("conv_general_dilated[") == count
    assert (f"feature_group_count={NUM_REPLICAS}" in str(program)) == (name == "grouped")


def test_pointwise_convolutions_become_one_matrix_product() -> None:
    images, filters = arrays(window=1)
    with layout("product"):
        program = jax.make_jaxpr(
            jax.vmap(lambda x, f: conv(x, f, (2, 1), "VALID", dimension_numbers=DIMS))
        )(images, filters)
    assert "conv_general_dilated" not in str(program)
    assert str(program).count("dot_general[") == 1
    # Without the barrier XLA ends the process when it compiles many replicas for GPUs.
    assert str(program).count("optimization_barrier") == 1


def test_shared_images_give_one_wide_convolution() -> None:
    images, filters = arrays()
    program = jax.make_jaxpr(
        jax.vmap(lambda f: conv(images[0], f, (1, 1), "SAME", dimension_numbers=DIMS))
    )(filters)
    assert str(program).count("conv_general_dilated[") == 1
    assert "feature_group_count=1" in str(program)


@pytest.mark.parametrize(("name", "window"), [("grouped", 3), ("product", 1)])
def test_other_axes_orders_are_folded_too(name: str, window: int) -> None:
    images, filters = arrays(window=window)
    images, filters = jnp.moveaxis(images, -1, 2), jnp.transpose(filters, (0, 4, 3, 1, 2))
    axes = {"dimension_numbers": ("NCHW", "OIHW", "NCHW")}

    def gradients(operation):
        loss = lambda x, f: jnp.sum(jnp.sin(operation(x, f, (2, 1), "SAME", **axes)))  # noqa: E731
        return jax.vmap(jax.grad(loss, (0, 1)))(images, filters)

    with layout(name):
        results = gradients(conv)
    assert_close(results, gradients(lax.conv_general_dilated), 1e-5)


def test_bad_arguments_are_refused() -> None:
    images, filters = (x[0] for x in arrays())
    with pytest.raises(ValueError, match="batch_group_count=1 only"):
        conv(images, filters, (1, 1), "SAME", dimension_numbers=DIMS, batch_group_count=2)
    with pytest.raises(ValueError, match="padding as pairs"):
        conv(images, filters, (1, 1), "SAME", lhs_dilation=(2, 2), dimension_numbers=DIMS)
    with pytest.raises(ValueError, match="out_sharding"):
        conv(images, filters, (1, 1), "SAME", dimension_numbers=DIMS, out_sharding=object())
    with pytest.raises(ValueError, match="'grouped'"), layout("group"):
        pass


@pytest.mark.parametrize("stride", [1, 2])
def test_chains_and_their_replicas_fold_into_one_convolution(stride: int) -> None:
    def loss(filters: jax.Array, images: jax.Array) -> jax.Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        return jnp.sum(conv(images, filters, (stride,) * 2, "SAME", dimension_numbers=numbers) ** 2)

    shapes = (
        jnp.zeros((4, 1, 3, 3, 2, 2)),
        jnp.zeros((4, 1, 5, 8, 8, 2)),
    )  # of four chains
    with layout("grouped"):
        text = jax.jit(jax.vmap(jax.vmap(jax.grad(loss)))).lower(*shapes).as_text()
    assert text.count("stablehlo.convolution(") == 2  # forward, and of the filters
    assert text.count("feature_group_count = 4") == text.count("batch_group_count = 4") == 1
