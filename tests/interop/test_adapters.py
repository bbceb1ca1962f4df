"""Users' networks from Flax NNX and Equinox against the forward passes of those libraries."""

import functools
import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from replicax import interop as adapters
from replicax.networks import swag
from replicax.nn import Network, conv
from replicax.run import pytrees as trees

NUM_REPLICAS, NUM_CLASSES = 3, 5


def make_images(num_images: int = 6) -> jax.Array:
    draws = np.random.default_rng(7).normal(1, 2, size=(num_images, 6, 7, 3))
    return jnp.asarray(draws, jnp.float32)


def flax_model(hook=None, dropout: float = 0.0):
    nnx = pytest.importorskip("flax.nnx")
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


def equinox_class():
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

    return Model


def equinox_model():
    return pytest.importorskip("equinox").nn.make_with_state(equinox_class())


def compiled(network: Network) -> Network:
    return Network(network.init, jax.jit(network.apply, static_argnums=3))


@functools.cache
def flax_network() -> Network:
    return compiled(adapters.from_flax(flax_model()))


@functools.cache
def equinox_network() -> Network:
    return compiled(adapters.from_equinox(equinox_model()))


both = pytest.mark.parametrize("make", (flax_network, equinox_network))


def assert_close(found, wanted, tolerance: float = 1e-5) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted)):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@functools.cache
def make_replicas(make):
    """Parameters and state with a leading replica axis; `init` compiles slowly, so one by one."""
    keys = jax.random.split(jax.random.key(0), NUM_REPLICAS)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(make().init, keys))


def one_of(tree, replica: int = 0):
    return jax.tree.map(lambda leaf: leaf[replica], tree)


@both
def test_training_changes_the_state_and_testing_does_not(make) -> None:
    network, images = make(), make_images()
    params, state = one_of(make_replicas(make))
    trained, after = network.apply(params, state, images, True)
    tested, same = network.apply(params, after, images, False)
    assert trained.shape == tested.shape == (len(images), NUM_CLASSES)
    assert_close(same, after, 0)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    old, new = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(s)]) for s in (state, after))
    assert np.abs(old - new).max() > 0.01
    assert np.abs(trained - tested).max() > 1e-4  # batch statistics here, running ones there


@both
def test_replicas_by_vmap_are_those_one_by_one(make) -> None:
    network, images = make(), make_images()
    params, state = make_replicas(make)
    keys = jax.random.split(jax.random.key(0), NUM_REPLICAS)
    shapes = jax.eval_shape(jax.vmap(network.init), keys)
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, (params, state))
    many = jax.jit(jax.vmap(network.apply, (0, 0, None, None)), static_argnums=3)
    for train in (True, False):
        logits, after = many(params, state, images, train)
        for replica in range(NUM_REPLICAS):
            alone = network.apply(*one_of((params, state), replica), images, train)
            assert_close(one_of((logits, after), replica), alone)
        assert np.abs(logits[0] - logits[1]).max() > 0.1
        state = after


@both
def test_gradients_reach_all_parameters(make) -> None:
    network, images = make(), make_images()
    params, state = one_of(make_replicas(make))

    def loss(params):
        logits, after = network.apply(params, state, images, True)
        return jnp.sum(jnp.sin(3 * logits)), after

    slopes, after = jax.jit(jax.grad(loss, has_aux=True))(params)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(slopes)]
    for name, slope in zip(names, jax.tree.leaves(slopes)):
        is_lost = "conv" in name and "bias" in name  # batch norm takes away what it adds
        assert is_lost or float(jnp.abs(slope).max()) > 1e-4, name
    assert_close(after, network.apply(params, state, images, True)[1])


@both
def test_parameters_and_state_are_plain_dicts_of_arrays(make) -> None:
    for tree in one_of(make_replicas(make)):
        assert trees.describe(tree)["structure"] is not None  # a run folder can hold it
        for leaf in jax.tree.leaves(tree):
            assert isinstance(leaf, jax.Array) and leaf.dtype.kind in "fiu"


def test_flax_forward_pass_is_its_own() -> None:
    nnx = pytest.importorskip("flax.nnx")
    model, images = flax_model()(nnx.Rngs(jax.random.key(3))), make_images()
    network = flax_network()
    params, state = network.init(jax.random.key(3))
    model.train()
    wanted = model(images)
    found, state = network.apply(params, state, images, True)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(state["norm"]["mean"], model.norm.mean[...], rtol=1e-5)
    np.testing.assert_allclose(state["norm"]["var"], model.norm.var[...], rtol=1e-5)
    model.eval()
    found, _ = network.apply(params, state, images, False)
    np.testing.assert_allclose(found, model(images), rtol=1e-5)


def test_flax_conv_hook_gives_the_same_numbers() -> None:
    images = make_images()

    def everything(hook):
        network = adapters.from_flax(flax_model(hook))
        params, state = make_replicas(flax_network)

        def loss(params, state):
            return jnp.sum(jnp.sin(3 * network.apply(params, state, images, True)[0]))

        return jax.jit(jax.vmap(jax.value_and_grad(loss)))(params, state)

    calls = []

    def counted(*args, **options):
        calls.append(args)
        return conv(*args, **options)

    assert_close(everything(counted), everything(None), 1e-4)
    assert calls


def test_flax_dropout_draws_anew_in_training() -> None:
    network, images = compiled(adapters.from_flax(flax_model(dropout=0.5))), make_images()
    params, state = make_replicas(flax_network)
    many = jax.jit(jax.vmap(network.apply, (0, 0, None, None)), static_argnums=3)
    first, after = many(params, state, images, True)
    second, _ = many(params, after, images, True)
    again, _ = many(params, state, images, True)
    assert np.array_equal(first, again) and np.abs(first - second).max() > 0.01
    same = jax.tree.map(lambda x: jnp.stack([x[0]] * NUM_REPLICAS), params)
    replicas, _ = many(same, state, images, True)
    assert np.abs(replicas[0] - replicas[1]).max() > 0.01  # each replica has a stream of its own
    tested = [many(params, state, images, False)[0] for _ in range(2)]
    assert np.array_equal(*tested)


def test_flax_batch_statistics_can_be_refreshed() -> None:
    network, images = flax_network(), make_images()
    params, state = one_of(make_replicas(flax_network))
    found = swag.refresh_statistics(network.apply, params, state, [images], momentum=0.1)
    trained, _ = network.apply(params, state, images, True)
    tested, _ = network.apply(params, found, images, False)
    np.testing.assert_allclose(tested, trained, rtol=1e-3, atol=1e-4)
    assert found["dropout"]["rngs"]["key"].dtype == jnp.uint32


def test_equinox_forward_pass_is_its_own() -> None:
    eqx = pytest.importorskip("equinox")
    (model, held), images = equinox_model()(jax.random.key(3)), make_images()
    network = equinox_network()
    params, state = network.init(jax.random.key(3))
    first = jnp.moveaxis(images, -1, 1)
    wanted, held = jax.vmap(model, (0, None), (0, None), axis_name="batch")(first, held)
    found, state = network.apply(params, state, images, True)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert_close([*state["layers"].values()], jax.tree.leaves(held))
    tester = jax.vmap(eqx.nn.inference_mode(model), (0, None), (0, None), axis_name="batch")
    found, _ = network.apply(params, state, images, False)
    np.testing.assert_allclose(found, tester(first, held)[0], rtol=1e-5)


def test_equinox_state_need_not_be_made_apart() -> None:
    together = compiled(adapters.from_equinox(equinox_class()))
    params, state = together.init(jax.random.key(3))
    apart = equinox_network()
    images = make_images()
    wanted = apart.apply(*apart.init(jax.random.key(3)), images, True)[0]
    np.testing.assert_allclose(together.apply(params, state, images, True)[0], wanted, rtol=1e-5)


@pytest.mark.parametrize("channels", ("first", "last"))
def test_equinox_without_state(channels: str) -> None:
    eqx = pytest.importorskip("equinox")
    images = make_images()
    network = adapters.from_equinox(
        lambda key: eqx.nn.Sequential(
            [eqx.nn.Lambda(jnp.ravel), eqx.nn.MLP(6 * 7 * 3, NUM_CLASSES, 8, 1, key=key)]
        ),
        channels,
    )
    params, state = network.init(jax.random.key(0))
    assert len(params) == 4 and not jax.tree.leaves(state)
    model = eqx.nn.MLP(6 * 7 * 3, NUM_CLASSES, 8, 1, key=jax.random.key(0))
    seen = jnp.moveaxis(images, -1, 1) if channels == "first" else images
    wanted = jax.vmap(model)(seen.reshape(len(images), -1))
    found, _ = network.apply(params, state, images, True)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("name", ("flax", "equinox"))
def test_what_is_missing_gets_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [*sys.modules]:
        if module.split(".")[0] == name:
            monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf'pip install "replicax\[{name}\]"'):
        getattr(adapters, f"from_{name}")(lambda key: None)


def test_bad_input_gets_a_sentence() -> None:
    pytest.importorskip("flax")
    pytest.importorskip("equinox")
    with pytest.raises(ValueError, match="needs an nnx.Module"):
        adapters.from_flax(lambda rngs: 3)
    with pytest.raises(ValueError, match="Did you mean 'first'"):
        adapters.from_equinox(equinox_model(), channels="firsts")
    with pytest.raises(ValueError, match="out_sharding"):
        conv(*[jnp.ones((1, 1, 1, 1))] * 2, (1, 1), "SAME", out_sharding=object())
