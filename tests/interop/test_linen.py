"""`from_flax` of Linen modules against the forward passes of Flax Linen."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapter_contract import NUM_CLASSES, AdapterContract, assert_close, compiled, make_images

from replicax import interop
from replicax.nn import Network

linen = pytest.importorskip("flax.linen")


class Model(linen.Module):
    dropout: float = 0.0

    @linen.compact
    def __call__(self, images, train: bool):
        x = linen.Conv(4, (3, 3), strides=2, name="conv")(images)
        x = linen.BatchNorm(use_running_average=not train, momentum=0.9)(x)
        x = jnp.mean(jax.nn.sigmoid(x), axis=(1, 2))
        x = linen.Dropout(self.dropout, deterministic=not train)(x)
        self.sow("intermediates", "seen", x)
        return linen.Dense(NUM_CLASSES)(x)


@functools.cache
def linen_network() -> Network:
    return compiled(interop.from_flax(Model(), inputs=make_images()))


@pytest.mark.slow
class TestLinen(AdapterContract):
    library = "flax"

    def make(self) -> Network:
        return linen_network()


def test_the_forward_pass_is_that_of_linen() -> None:
    network, images = linen_network(), make_images()
    params, state = network.init(jax.random.key(3))
    variables = {"params": params, **state}
    expected, new = Model().apply(variables, images, train=True, mutable=["batch_stats"])
    logits, state = network.apply(params, state, images, True)
    np.testing.assert_allclose(logits, expected, rtol=1e-5)
    assert_close(state, dict(new))
    logits, _ = network.apply(params, state, images, False)
    expected = Model().apply({"params": params, **state}, images, train=False)
    np.testing.assert_allclose(logits, expected, rtol=1e-5)


def test_dropout_draws_anew_in_training() -> None:
    network, images = interop.from_flax(Model(0.5), inputs=(1, 6, 7, 3)), make_images()
    network = compiled(network)
    params, state = network.init(jax.random.key(3))
    first, after = network.apply(params, state, images, True)
    second, _ = network.apply(params, after, images, True)
    again, _ = network.apply(params, state, images, True)
    assert np.array_equal(first, again) and np.abs(first - second).max() > 0.01
    tested = [network.apply(params, state, images, False)[0] for state in (state, after)]
    assert np.array_equal(*(network.apply(params, after, images, False)[0] for _ in range(2)))
    assert tested[0].shape == (len(images), NUM_CLASSES)


def test_the_other_names_of_the_flag() -> None:
    class Plain(linen.Module):
        @linen.compact
        def __call__(self, x, deterministic: bool = True):
            return linen.Dropout(0.5, deterministic=deterministic)(jnp.ones((len(x), 8)))

    network = interop.from_flax(Plain(), inputs=(1, 2))
    params, state = network.init(jax.random.key(0))
    assert not params and set(state) == {"key"}
    images = jnp.zeros((3, 2))
    assert np.all(network.apply(params, state, images, False)[0] == 1)
    assert set(np.unique(network.apply(params, state, images, True)[0])) == {0.0, 2.0}


def test_what_is_missing_is_told() -> None:
    with pytest.raises(ValueError, match=r"from_flax\(module, inputs=...\)"):
        interop.from_flax(Model())
    with pytest.raises(
        ValueError, match="is the class Model; give an instance of the Linen module"
    ):
        interop.from_flax(Model)
    with pytest.raises(ValueError, match="inputs is 'images'"):
        interop.from_flax(Model(), inputs="images")
