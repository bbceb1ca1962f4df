"""Tests for networks of any library, and helpers for the tests of each."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from replicax import interop
from replicax.nn import Network
from replicax.run import trees

NUM_REPLICAS, NUM_CLASSES = 3, 5


def make_images(num_images: int = 6) -> jax.Array:
    draws = np.random.default_rng(7).normal(1, 2, size=(num_images, 6, 7, 3))
    return jnp.asarray(draws, jnp.float32)


def compiled(network: Network) -> Network:
    return Network(network.init, jax.jit(network.apply, static_argnums=3))


def assert_close(actual, expected, tolerance: float = 1e-5) -> None:
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected)):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@functools.cache
def make_replicas(network: Network):
    """Parameters and state with a leading replica axis; `init` compiles slowly, so in a loop."""
    keys = jax.random.split(jax.random.key(0), NUM_REPLICAS)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(network.init, keys))


def select(tree, replica: int = 0):
    return jax.tree.map(lambda leaf: leaf[replica], tree)


class AdapterContract:
    """Tests of `interop.from_<library>`; a subclass names the library and makes a network."""

    library: str

    def make(self) -> Network:
        raise NotImplementedError

    def test_training_changes_the_state_and_testing_does_not(self) -> None:
        network, images = self.make(), make_images()
        params, state = select(make_replicas(network))
        trained, after = network.apply(params, state, images, True)
        tested, same = network.apply(params, after, images, False)
        assert trained.shape == tested.shape == (len(images), NUM_CLASSES)
        assert_close(same, after, 0)
        assert jax.tree.structure(after) == jax.tree.structure(state)
        old, new = (
            np.concatenate([np.ravel(x) for x in jax.tree.leaves(s)]) for s in (state, after)
        )
        assert np.abs(old - new).max() > 0.01
        assert np.abs(trained - tested).max() > 1e-4  # batch or running statistics

    def test_vmap_over_replicas_is_a_loop(self) -> None:
        network, images = self.make(), make_images()
        params, state = make_replicas(network)
        keys = jax.random.split(jax.random.key(0), NUM_REPLICAS)
        shapes = jax.eval_shape(jax.vmap(network.init), keys)
        assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, (params, state))
        many = jax.jit(jax.vmap(network.apply, (0, 0, None, None)), static_argnums=3)
        for train in (True, False):
            logits, after = many(params, state, images, train)
            for replica in range(NUM_REPLICAS):
                alone = network.apply(*select((params, state), replica), images, train)
                assert_close(select((logits, after), replica), alone)
            assert np.abs(logits[0] - logits[1]).max() > 0.1
            state = after

    def test_gradients_reach_all_parameters(self) -> None:
        network, images = self.make(), make_images()
        params, state = select(make_replicas(network))

        def loss(params):
            logits, after = network.apply(params, state, images, True)
            return jnp.sum(jnp.sin(3 * logits)), after

        gradient, after = jax.jit(jax.grad(loss, has_aux=True))(params)
        names = [
            jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(gradient)
        ]
        for name, slope in zip(names, jax.tree.leaves(gradient)):
            is_lost = "conv" in name and "bias" in name  # batch norm subtracts the bias
            assert is_lost or float(jnp.abs(slope).max()) > 1e-4, name
        assert_close(after, network.apply(params, state, images, True)[1])

    def test_parameters_and_state_are_plain_dicts_of_arrays(self) -> None:
        for tree in select(make_replicas(self.make())):
            assert trees.describe(tree).structure is not None  # a run folder can store it
            for leaf in jax.tree.leaves(tree):
                assert isinstance(leaf, jax.Array) and leaf.dtype.kind in "fiu"

    def test_a_missing_library_gives_the_remedy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in [*sys.modules]:
            if module.split(".")[0] == self.library:
                monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.setitem(sys.modules, self.library, None)
        with pytest.raises(ImportError, match=rf'pip install "replicax\[{self.library}\]"'):
            getattr(interop, f"from_{self.library}")(lambda key: None)
