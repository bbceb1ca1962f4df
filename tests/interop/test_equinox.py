"""`from_equinox` against the forward passes of Equinox."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapter_contract import NUM_CLASSES, AdapterContract, assert_close, compiled, make_images

from replicax import interop
from replicax.nn import Network

eqx = pytest.importorskip("equinox")


class Model(eqx.Module):
    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    dense: eqx.nn.Linear
    shift: jax.Array  # not trained

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.conv = eqx.nn.Conv2d(3, 4, 3, stride=2, key=first)
        self.norm = eqx.nn.BatchNorm(4, axis_name="batch", momentum=0.9, mode="batch")
        self.dense = eqx.nn.Linear(4, NUM_CLASSES, key=second)
        self.shift = jnp.array(2, jnp.int32)

    def __call__(self, image, state):
        x, state = self.norm(self.conv(image), state)
        return self.dense(jnp.mean(jax.nn.sigmoid(x), axis=(1, 2))) + self.shift, state


def make_model(key: jax.Array):
    return eqx.nn.make_with_state(Model)(key)


@functools.cache
def equinox_network() -> Network:
    return compiled(interop.from_equinox(make_model))


class TestEquinox(AdapterContract):
    library = "equinox"

    def make(self) -> Network:
        return equinox_network()


def test_the_forward_pass_is_that_of_equinox() -> None:
    (model, layer_state), images = make_model(jax.random.key(3)), make_images()
    network = equinox_network()
    params, state = network.init(jax.random.key(3))
    first = jnp.moveaxis(images, -1, 1)
    trainer = jax.vmap(model, (0, None), (0, None), axis_name="batch")
    expected, layer_state = trainer(first, layer_state)
    logits, state = network.apply(params, state, images, True)
    np.testing.assert_allclose(logits, expected, rtol=1e-5)
    assert_close([*state["layers"].values()], jax.tree.leaves(layer_state))
    tester = jax.vmap(eqx.nn.inference_mode(model), (0, None), (0, None), axis_name="batch")
    logits, _ = network.apply(params, state, images, False)
    np.testing.assert_allclose(logits, tester(first, layer_state)[0], rtol=1e-5)


def test_state_need_not_be_made_separately() -> None:
    together = compiled(interop.from_equinox(Model))
    params, state = together.init(jax.random.key(3))
    apart = equinox_network()
    images = make_images()
    expected = apart.apply(*apart.init(jax.random.key(3)), images, True)[0]
    np.testing.assert_allclose(together.apply(params, state, images, True)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("channels", ("first", "last"))
def test_without_state(channels: str) -> None:
    images = make_images()
    network = interop.from_equinox(
        lambda key: eqx.nn.Sequential(
            [eqx.nn.Lambda(jnp.ravel), eqx.nn.MLP(6 * 7 * 3, NUM_CLASSES, 8, 1, key=key)]
        ),
        channels,
    )
    params, state = network.init(jax.random.key(0))
    assert len(params) == 4 and not jax.tree.leaves(state)
    model = eqx.nn.MLP(6 * 7 * 3, NUM_CLASSES, 8, 1, key=jax.random.key(0))
    inputs = jnp.moveaxis(images, -1, 1) if channels == "first" else images
    expected = jax.vmap(model)(inputs.reshape(len(images), -1))
    logits, _ = network.apply(params, state, images, True)
    np.testing.assert_allclose(logits, expected, rtol=1e-5)


def test_unknown_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="Did you mean 'first'"):
        interop.from_equinox(make_model, channels="firsts")


class Dropped(eqx.Module):
    dense: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, key):
        self.dense = eqx.nn.Linear(6 * 7 * 3, NUM_CLASSES, key=key)
        self.dropout = eqx.nn.Dropout(0.5)

    def __call__(self, image, key=None):
        return self.dense(self.dropout(image.ravel(), key=key))


def test_dropout_has_a_key_for_each_image_and_step() -> None:
    network, images = compiled(interop.from_equinox(Dropped)), make_images()
    images = jnp.broadcast_to(images[:1], images.shape)
    params, state = network.init(jax.random.key(3))
    first, after = network.apply(params, state, images, True)
    second, _ = network.apply(params, after, images, True)
    again, _ = network.apply(params, state, images, True)
    assert np.array_equal(first, again) and np.abs(first - second).max() > 0.01
    assert np.abs(first[0] - first[1]).max() > 0.01, "each image has a mask of its own"
    tested, same = network.apply(params, after, images, False)
    model = eqx.nn.inference_mode(Dropped(jax.random.key(3)))
    wanted = jax.vmap(model)(jnp.moveaxis(images, -1, 1))
    np.testing.assert_allclose(tested, wanted, rtol=1e-5)
    assert same is not None and np.array_equal(same["key"], after["key"])
