"""Residual networks: sizes, batch statistics, and the layers against plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common import quick_jit

from replicax import nn
from replicax.nn.network import apply_conv, batch_norm, filter_response_norm

COUNTS = {
    (20, "basic", "batch"): 278_324,  # as the authors' scripts print them, 100 classes
    (32, "basic", "batch"): 472_756,
    (56, "bottleneck", "batch"): 892_660,
    (56, "basic", "batch"): 861_620,
    (20, "basic", "frn"): 279_892,  # 274,042 with 10 classes, as Izmailov et al. (2021)
}


@pytest.mark.parametrize(("depth", "block", "norm"), COUNTS)
def test_parameter_counts(depth: int, block: str, norm: str) -> None:
    network = nn.resnet(depth, block=block, norm=norm)
    params, state = jax.eval_shape(network.init, jax.random.key(0))
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert count == COUNTS[depth, block, norm]
    assert bool(jax.tree.leaves(state)) == (norm == "batch")
    images = jax.ShapeDtypeStruct((2, 32, 32, 3), jnp.float32)
    logits, after = jax.eval_shape(lambda *a: network.apply(*a, True), params, state, images)
    assert logits.shape == (2, 100)
    assert jax.tree.structure(after) == jax.tree.structure(state)


def test_the_default_block_is_the_authors() -> None:
    for depth, block in ((32, "basic"), (56, "bottleneck")):
        default, named = nn.resnet(depth), nn.resnet(depth, block=block)
        shapes = [jax.eval_shape(n.init, jax.random.key(0)) for n in (default, named)]
        assert shapes[0] == shapes[1]
    with pytest.raises(ValueError, match="6 n \\+ 2"):
        nn.resnet(21)
    with pytest.raises(ValueError, match="'batch'"):
        nn.resnet(20, norm="bach")


def images_of(seed: int, size: int = 8, channels: int = 5) -> np.ndarray:
    return (
        np.random.default_rng(seed).normal(1.0, 2.0, (4, size, size, channels)).astype(np.float32)
    )


def test_batch_norm_normalises_and_updates_its_statistics() -> None:
    norm = batch_norm()
    params, state = norm.init(5)
    params = {"scale": jnp.arange(1.0, 6), "shift": jnp.arange(5.0)}
    x = images_of(0)
    out, after = norm.apply(params, state, x, True, activate=False)
    mean, var = x.mean(axis=(0, 1, 2)), x.var(axis=(0, 1, 2))
    expected = (x - mean) / np.sqrt(var + 1e-5) * np.arange(1, 6) + np.arange(5)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
    count = x.size // 5
    np.testing.assert_allclose(after["mean"], 0.1 * mean, rtol=1e-5)
    np.testing.assert_allclose(after["var"], 0.9 + 0.1 * var * count / (count - 1), rtol=1e-5)
    flat, _ = norm.apply(params, state, np.full_like(x, 3.0), True, activate=False)
    np.testing.assert_allclose(flat, np.broadcast_to(np.arange(5.0), x.shape), atol=1e-3)
    tested, same = norm.apply(params, after, x, False, activate=False)
    expected = (x - after["mean"]) / np.sqrt(after["var"] + 1e-5) * np.arange(1, 6) + np.arange(5)
    np.testing.assert_allclose(tested, expected, rtol=1e-4, atol=1e-4)
    assert same is after


@pytest.mark.parametrize("centre", [100.0, 1e4])
def test_batch_statistics_keep_their_digits_where_means_are_large(centre: float) -> None:
    """As E[x^2] - mean^2 in float32 the variance would be wrong by 0.2 % and by a factor of 16."""
    x = (centre + np.random.default_rng(0).normal(size=(16, 8, 8, 4))).astype(np.float32)
    norm = batch_norm(momentum=1.0)
    params, state = norm.init(4)

    def total(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, dict]:
        out, state_after = norm.apply(params, state, x, True, activate=False)
        return jnp.sum(weight * out), state_after

    weight = np.random.default_rng(1).normal(size=x.shape)
    slope_and_state = quick_jit(jax.grad(total, has_aux=True))
    slope, after = slope_and_state(jnp.asarray(x), jnp.asarray(weight, jnp.float32))
    exact = x.astype(float)
    mean, var = exact.mean(axis=(0, 1, 2)), exact.var(axis=(0, 1, 2))
    np.testing.assert_allclose(after["mean"], mean, rtol=1e-6)
    np.testing.assert_allclose(after["var"], var * 1024 / 1023, rtol=1e-5)
    scaled = (exact - mean) / np.sqrt(var + 1e-5)
    centred = weight - weight.mean(axis=(0, 1, 2))
    pull = scaled * (weight * scaled).mean(axis=(0, 1, 2))
    np.testing.assert_allclose(slope, (centred - pull) / np.sqrt(var + 1e-5), atol=2e-3)


def test_filter_response_norm_needs_no_batch() -> None:
    norm = filter_response_norm()
    params, state = norm.init(5)
    params = {**params, "threshold": jnp.full(5, 0.3)}
    x = images_of(1)
    out, _ = norm.apply(params, state, x, True)
    alone, _ = norm.apply(params, state, x[:1], False)
    np.testing.assert_allclose(out[:1], alone, rtol=1e-6)
    square = (x**2).mean(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(out, np.maximum(x / np.sqrt(square + 1e-6), 0.3), rtol=1e-5)


def test_a_strided_convolution_computes_every_other_pixel() -> None:
    x = images_of(2)
    filters = jax.random.normal(jax.random.key(0), (3, 3, 5, 2))
    whole, strided = apply_conv(filters, x), apply_conv(filters, x, stride=2)
    np.testing.assert_allclose(strided, whole[:, ::2, ::2], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_network_learns_and_its_replicas_are_independent() -> None:
    network = nn.resnet(8, num_classes=2)
    keys = jax.random.split(jax.random.key(0), 2)
    params, state = quick_jit(jax.vmap(network.init))(keys)
    x = jnp.asarray(images_of(3, channels=3))
    y = jnp.array([0, 1, 0, 1])

    def loss(params, state):
        logits, state = network.apply(params, state, x, True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), state

    @quick_jit
    def step(params, state, rate):
        (losses, state), gradient = jax.vmap(jax.value_and_grad(loss, has_aux=True))(params, state)
        moved = jax.tree.map(
            lambda p, g: p - rate.reshape(-1, *[1] * (p.ndim - 1)) * g, params, gradient
        )
        return moved, state, losses

    rate = jnp.array([0.0, 0.05])
    first = None
    for _ in range(10):
        params, state, losses = step(params, state, rate)
        first = losses if first is None else first
    assert losses[0] == pytest.approx(float(first[0]), rel=1e-4)  # no rate, no change
    assert (losses[1:] < 0.5 * first[1:]).all()
    alone = [jax.tree.map(lambda leaf: leaf[1], tree) for tree in (params, state)]
    test = lambda p, s: network.apply(p, s, x, False)[0]  # noqa: E731
    together = quick_jit(jax.vmap(test))(params, state)
    np.testing.assert_allclose(
        together[1], network.apply(*alone, x, False)[0], rtol=1e-3, atol=1e-3
    )
