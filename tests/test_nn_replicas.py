"""`rx.nn.vmap` against `jax.vmap`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax.nn.replicas import one_by_one

NETWORK = rx.nn.small_cnn(3, widths=(4, 4))


def train_one(params, state, images, labels):
    def loss_of(params):
        logits, after = NETWORK.apply(params, state, images, True)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return -jnp.mean(picked), after

    return jax.value_and_grad(loss_of, has_aux=True)(params)


@pytest.mark.parametrize("mapping", (rx.nn.vmap, one_by_one))
def test_replicas_are_those_of_jax(mapping) -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    params, state = jax.vmap(NETWORK.init)(keys)
    images = jax.random.normal(jax.random.key(1), (5, 8, 8, 1))
    given = params, state, images, jnp.arange(5) % 3
    found = jax.jit(mapping(train_one, (0, 0, None, None)))(*given)
    wanted = jax.jit(jax.vmap(train_one, (0, 0, None, None)))(*given)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_one_number_of_axes_holds_for_all_arguments() -> None:
    found = one_by_one(lambda x, tree: x + tree["y"])(jnp.arange(3.0), {"y": jnp.ones(3)})
    np.testing.assert_array_equal(found, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("axes", (1, (0, 1), (0,)))
def test_other_axes_are_refused(axes) -> None:
    with pytest.raises(ValueError, match="0 or None for each of the 2 arguments"):
        one_by_one(lambda x, y: x + y, axes)(jnp.ones((2, 2)), jnp.ones((2, 2)))


def test_as_many_rows_in_all_arguments() -> None:
    with pytest.raises(ValueError, match="found: 2, 3"):
        one_by_one(lambda x, y: x + y)(jnp.ones(2), jnp.ones(3))
    with pytest.raises(ValueError, match="found: none"):
        one_by_one(lambda x: x, None)(jnp.ones(2))
