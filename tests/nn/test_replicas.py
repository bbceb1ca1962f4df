"""`rx.nn.vmap` against `jax.vmap`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import quick_jit

import replicax as rx
from replicax.nn.replicas import one_by_one

NETWORK = rx.nn.small_cnn(3, widths=(4, 4))


def train_one(params, state, images, labels):
    def loss_of(params):
        logits, after = NETWORK.apply(params, state, images, True)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return -jnp.mean(picked), after

    return jax.value_and_grad(loss_of, has_aux=True)(params)


def test_replicas_are_those_of_jax() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    params, state = jax.vmap(NETWORK.init)(keys)
    images = jax.random.normal(jax.random.key(1), (5, 8, 8, 1))
    given = params, state, images, jnp.arange(5) % 3
    found = quick_jit(one_by_one(train_one, (0, 0, None, None)))(*given)
    wanted = quick_jit(jax.vmap(train_one, (0, 0, None, None)))(*given)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("backend", "is_written_out"), [("cpu", True), ("gpu", False)])
def test_replicas_are_written_out_on_cpus_alone(backend, is_written_out, monkeypatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    program = str(jax.make_jaxpr(rx.nn.vmap(jnp.sin))(jnp.ones((3, 2))))
    assert program.count("squeeze[") == (3 if is_written_out else 0)  # one slice a replica


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
