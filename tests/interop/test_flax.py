"""`from_flax` against the forward passes of Flax NNX."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapter_contract import (
    NUM_CLASSES,
    NUM_REPLICAS,
    AdapterContract,
    assert_close,
    compiled,
    make_images,
    make_replicas,
    select,
)

from replicax import interop
from replicax.networks import swag
from replicax.nn import Network, conv

nnx = pytest.importorskip("flax.nnx")


def flax_model(hook=None, dropout: float = 0.0):
    options = {} if hook is None else {"conv_general_dilated": hook}

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(3, 4, (3, 3), strides=2, rngs=rngs, **options)
            self.norm = nnx.BatchNorm(4, momentum=0.9, rngs=rngs)
            sizes = (4, 4, NUM_CLASSES)
            self.dense = nnx.List(
                [nnx.Linear(a, b, rngs=rngs) for a, b in itertools.pairwise(sizes)]
            )
            self.dropout = nnx.Dropout(dropout, rngs=rngs)

        def __call__(self, images):
            x = self.norm(self.conv(images))
            x = jnp.mean(jax.nn.sigmoid(x), axis=(1, 2))
            for dense in self.dense:
                x = dense(self.dropout(x))
            return x

    return Model


@functools.cache
def flax_network() -> Network:
    return compiled(interop.from_flax(flax_model()))


class TestFlax(AdapterContract):
    library = "flax"

    def make(self) -> Network:
        return flax_network()


def test_the_forward_pass_is_that_of_flax() -> None:
    model, images = flax_model()(nnx.Rngs(jax.random.key(3))), make_images()
    network = flax_network()
    params, state = network.init(jax.random.key(3))
    model.train()
    expected = model(images)
    logits, state = network.apply(params, state, images, True)
    np.testing.assert_allclose(logits, expected, rtol=1e-5)
    np.testing.assert_allclose(state["norm"]["mean"], model.norm.mean[...], rtol=1e-5)
    np.testing.assert_allclose(state["norm"]["var"], model.norm.var[...], rtol=1e-5)
    model.eval()
    logits, _ = network.apply(params, state, images, False)
    np.testing.assert_allclose(logits, model(images), rtol=1e-5)


def test_conv_hook_gives_the_same_numbers() -> None:
    images = make_images()

    def values_and_gradients(hook):
        network = interop.from_flax(flax_model(hook))
        params, state = make_replicas(flax_network())

        def loss(params, state):
            return jnp.sum(jnp.sin(3 * network.apply(params, state, images, True)[0]))

        return jax.jit(jax.vmap(jax.value_and_grad(loss)))(params, state)

    calls = []

    def counted(*args, **options):
        calls.append(args)
        return conv(*args, **options)

    assert_close(values_and_gradients(counted), values_and_gradients(None), 1e-4)
    assert calls


def test_dropout_draws_anew_in_training() -> None:
    network, images = compiled(interop.from_flax(flax_model(dropout=0.5))), make_images()
    params, state = make_replicas(flax_network())
    many = jax.jit(jax.vmap(network.apply, (0, 0, None, None)), static_argnums=3)
    first, after = many(params, state, images, True)
    second, _ = many(params, after, images, True)
    again, _ = many(params, state, images, True)
    assert np.array_equal(first, again) and np.abs(first - second).max() > 0.01
    same = jax.tree.map(lambda x: jnp.stack([x[0]] * NUM_REPLICAS), params)
    replicas, _ = many(same, state, images, True)
    assert np.abs(replicas[0] - replicas[1]).max() > 0.01  # each replica has its own stream
    tested = [many(params, state, images, False)[0] for _ in range(2)]
    assert np.array_equal(*tested)


def test_batch_statistics_can_be_refreshed() -> None:
    network, images = flax_network(), make_images()
    params, state = select(make_replicas(flax_network()))
    refreshed = swag.refresh_statistics(network.apply, params, state, images[None])
    trained, _ = network.apply(params, state, images, True)
    tested, _ = network.apply(params, refreshed, images, False)
    np.testing.assert_allclose(tested, trained, rtol=1e-3, atol=1e-4)
    assert refreshed["dropout"]["rngs"]["key"].dtype == jnp.uint32


def test_a_model_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="needs an nnx.Module"):
        interop.from_flax(lambda rngs: 3)
