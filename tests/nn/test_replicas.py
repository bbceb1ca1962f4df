"""`rx.nn.vmap` against `jax.vmap`."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common import quick_jit

import replicax as rx
from replicax.nn.replicas import unrolled_vmap

NETWORK = rx.nn.small_cnn(3, widths=(4, 4))
DENSE = rx.nn.mlp(64, 3, hidden=(4,))


def train_one(params, state, images, labels):
    def loss_of(params):
        logits, after = NETWORK.apply(params, state, images, True)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return jnp.mean(losses), after

    return jax.value_and_grad(loss_of, has_aux=True)(params)


def test_unrolled_replicas_are_those_of_jax_vmap() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    params, state = jax.vmap(NETWORK.init)(keys)
    images = jax.random.normal(jax.random.key(1), (5, 8, 8, 1))
    arguments = params, state, images, jnp.arange(5) % 3
    unrolled = quick_jit(unrolled_vmap(train_one, (0, 0, None, None)))(*arguments)
    expected = quick_jit(jax.vmap(train_one, (0, 0, None, None)))(*arguments)
    for one, other in zip(jax.tree.leaves(unrolled), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("backend", "network", "is_unrolled"),
    [("cpu", NETWORK, True), ("cpu", DENSE, False), ("gpu", NETWORK, False)],
)
def test_convolutions_are_unrolled_on_cpus_alone(backend, network, is_unrolled, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    points = jax.vmap(network.init)(jax.random.split(jax.random.key(0), 3))
    mapped = rx.nn.vmap(lambda point, images: network.apply(*point, images, True), (0, None))
    program = str(jax.make_jaxpr(mapped)(points, jnp.ones((5, 8, 8, 1))))
    assert (program.count("name=<lambda>") == 3) is is_unrolled, program


def test_one_axis_stands_for_all_arguments() -> None:
    result = unrolled_vmap(lambda x, tree: x + tree["y"])(jnp.arange(3.0), {"y": jnp.ones(3)})
    np.testing.assert_array_equal(result, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("axes", (1, (0, 1), (0,)))
def test_other_axes_are_refused(axes) -> None:
    with pytest.raises(ValueError, match="0 or None for each of the 2 arguments"):
        unrolled_vmap(lambda x, y: x + y, axes)(jnp.ones((2, 2)), jnp.ones((2, 2)))


def test_arguments_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="lengths: 2, 3"):
        unrolled_vmap(lambda x, y: x + y)(jnp.ones(2), jnp.ones(3))
    with pytest.raises(ValueError, match="lengths: no array"):
        unrolled_vmap(lambda x: x, None)(jnp.ones(2))
