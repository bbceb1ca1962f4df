"""SWAG against NumPy: moments, the covariance of draws, batch statistics made anew."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from replicax import interop
from replicax.networks import swag
from replicax.nn import Network, resnet
from replicax.nn.network import apply_conv, batch_norm

RANK = 4


def make_path(num_networks: int, seed: int = 0) -> np.ndarray:
    """Three correlated parameters away from zero  (network, 3)."""
    rng = np.random.default_rng(seed)
    mix = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -2.0], [0.0, 0.0, 0.5]])
    return (rng.normal(size=(num_networks, 3)) @ mix + [1.0, -2.0, 0.5]).astype(np.float32)


def as_params(row):
    return {"bias": row[..., 0], "dense": [row[..., 1:]]}


def as_rows(params) -> np.ndarray:
    return np.concatenate([params["bias"][..., None], params["dense"][0]], axis=-1)


def follow(path: np.ndarray, rank: int = RANK) -> swag.Moments:
    moments = swag.start(as_params(path[0]), rank)
    for row in path:
        moments = swag.collect(moments, as_params(jnp.asarray(row)))
    return moments


def deviations_by_hand(path: np.ndarray, rank: int) -> np.ndarray:
    """The latest deviations, each from the mean up to and including its network."""
    return np.stack([path[n] - path[: n + 1].mean(0) for n in range(len(path))])[-rank:]


@pytest.mark.parametrize("num_networks", (1, 3, 4, 11))
def test_moments_are_those_of_numpy(num_networks: int) -> None:
    path = make_path(num_networks)
    moments = follow(path)
    assert int(moments.count) == num_networks
    np.testing.assert_allclose(as_rows(moments.mean), path.mean(0), rtol=1e-5)
    np.testing.assert_allclose(as_rows(swag.variance(moments)), path.var(0), rtol=1e-4, atol=1e-9)
    wanted = deviations_by_hand(path, RANK)
    wanted = np.concatenate([wanted, np.zeros((RANK - len(wanted), 3))])
    slots = np.argsort([*(n % RANK for n in range(num_networks)[-RANK:])], kind="stable")
    wanted[: len(slots)] = wanted[slots]
    np.testing.assert_allclose(as_rows(moments.deviations), wanted, atol=1e-5)


def covariance_by_hand(path: np.ndarray, scale: float, rank: int) -> np.ndarray:
    rows = deviations_by_hand(path, rank)
    return scale / 2 * (np.diag(path.var(0)) + rows.T @ rows / (len(rows) - 1))


@pytest.mark.parametrize(("num_networks", "scale"), [(3, 1.0), (30, 1.0), (30, 0.25)])
def test_draws_have_the_mean_and_covariance_of_the_formula(num_networks: int, scale) -> None:
    path = make_path(num_networks)
    keys = jax.random.split(jax.random.key(0), 40_000)
    draws = as_rows(jax.jit(jax.vmap(swag.draw, (None, 0, None)))(follow(path), keys, scale))
    covariance = covariance_by_hand(path, scale, RANK)
    std = np.sqrt(np.diag(covariance))
    assert np.abs((draws.mean(0) - path.mean(0)) / std).max() < 5 / np.sqrt(len(draws))
    # A correlation's error has a standard deviation of at most sqrt(2 / draws), 0.007.
    error = (np.cov(draws.T) - covariance) / np.outer(std, std)
    assert np.abs(error).max() < 0.04
    assert np.abs((covariance - np.diag(np.diag(covariance))) / np.outer(std, std)).max() > 0.15


def test_one_network_is_drawn_as_it_is() -> None:
    path = make_path(1)
    found = as_rows(swag.draw(follow(path), jax.random.key(0)))
    np.testing.assert_allclose(found, path[0], rtol=1e-4)


def test_several_chains_by_vmap_along_a_scan() -> None:
    paths = jnp.stack([make_path(9, seed) for seed in range(3)], axis=1)  # (network, chain, 3)
    first = as_params(paths[0])
    moments = jax.vmap(lambda params: swag.start(params, RANK))(first)

    def step(moments, rows):
        return jax.vmap(swag.collect)(moments, as_params(rows)), None

    moments = jax.jit(lambda moments: lax.scan(step, moments, paths)[0])(moments)
    keys = jax.random.split(jax.random.key(0), 3)
    draws = jax.vmap(swag.draw)(moments, keys)
    for chain in range(3):
        alone = follow(np.asarray(paths[:, chain]))
        here = jax.tree.map(lambda leaf, chain=chain: leaf[chain], moments)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), here, alone)
        one = swag.draw(alone, keys[chain])
        np.testing.assert_allclose(as_rows(draws)[chain], as_rows(one), rtol=1e-4)


def test_low_precision_is_summed_in_float32() -> None:
    params = {"w": jnp.full(3, 1 + 2**-7, jnp.bfloat16)}
    moments = swag.start(params)
    for _ in range(20):
        moments = swag.collect(moments, params)
    assert {leaf.dtype for leaf in jax.tree.leaves(moments[1:])} == {jnp.dtype("float32")}
    np.testing.assert_allclose(moments.mean["w"], 1 + 2**-7, rtol=1e-6)


def test_a_path_much_narrower_than_its_parameters_keeps_its_variance() -> None:
    path = np.random.default_rng(3).normal(1.0, 1e-4, (40, 300)).astype(np.float32)
    moments = swag.start(jnp.zeros(300), RANK)
    collect = jax.jit(swag.collect)
    for row in path:
        moments = collect(moments, row)
    exact = path.astype(np.float64).var(0)
    np.testing.assert_allclose(swag.variance(moments), exact, rtol=0.01)
    keys = jax.random.split(jax.random.key(0), 500)
    draws = np.asarray(jax.vmap(swag.draw, (None, 0))(moments, keys), np.float64)
    deviations = np.asarray(moments.deviations, np.float64)
    drawn = (exact + (deviations**2).sum(0) / (RANK - 1)) / 2
    assert 0.95 < np.mean(draws.var(0) / drawn) < 1.05


def make_small_network() -> Network:
    """Two 1 x 1 convolutions with batch norm, which NumPy can follow."""
    norm = batch_norm()

    def init(key):
        keys = jax.random.split(key, 2)
        params, state = {}, {}
        for name, part, sizes in zip(("one", "two"), keys, ((3, 5), (5, 4))):
            norm_params, state[name] = norm.init(sizes[1])
            params[name] = {"filters": jax.random.normal(part, (1, 1, *sizes)), "norm": norm_params}
        return params, state

    def apply(params, state, images, train):
        after = {}
        for name in ("one", "two"):
            images = apply_conv(params[name]["filters"], images)
            images, after[name] = norm.apply(params[name]["norm"], state[name], images, train)
        return images.mean((1, 2)), after

    return Network(init, apply)


def statistics_by_hand(params, batches: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    found = {name: {"mean": [], "var": []} for name in ("one", "two")}
    for x in batches.astype(np.float64):
        for name in ("one", "two"):
            x = x @ np.asarray(params[name]["filters"], np.float64)[0, 0]
            found[name]["mean"].append(x.mean((0, 1, 2)))
            found[name]["var"].append(x.var((0, 1, 2), ddof=1))
            x = np.maximum((x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + 1e-5), 0)
    return {name: {k: np.mean(v, 0) for k, v in both.items()} for name, both in found.items()}


def make_batches(num_batches: int = 4) -> np.ndarray:
    rng = np.random.default_rng(0)
    shape = (num_batches, 6, 8, 8, 3)
    return (2 + rng.normal(size=shape) * rng.uniform(1, 2, size=(num_batches, 1, 1, 1, 3))).astype(
        np.float32
    )


@pytest.mark.parametrize("way", ("array", "jit"))
def test_statistics_are_those_of_the_batches(way: str) -> None:
    network, batches = make_small_network(), make_batches()
    params, state = network.init(jax.random.key(0))
    state = jax.tree.map(lambda leaf: leaf + 17.0, state)  # whatever was there must go

    def refresh(batches):
        return swag.refresh_statistics(network.apply, params, state, batches)

    found = (jax.jit(refresh) if way == "jit" else refresh)(jnp.asarray(batches))
    wanted = statistics_by_hand(params, batches)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5), found, wanted)


@pytest.mark.slow
def test_statistics_of_a_residual_network() -> None:
    network, images = resnet(8, num_classes=10), jnp.asarray(make_batches(1))
    apply = jax.jit(network.apply, static_argnums=3)
    params, state = jax.jit(network.init)(jax.random.key(1))
    stale, _ = apply(params, state, images[0], False)
    trained, once = apply(params, state, images[0], True)
    found = swag.refresh_statistics(network.apply, params, state, images)
    filtered = np.asarray(apply_conv(params["conv"], images[0]), np.float64)
    norm = found["norm"]
    np.testing.assert_allclose(norm["mean"], filtered.mean((0, 1, 2)), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(norm["var"], filtered.var((0, 1, 2), ddof=1), rtol=1e-3)
    undone = jax.tree.map(lambda old, new: (new - 0.9 * old) / 0.1, state, once)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), found, undone)
    # With the statistics of one batch, test differs from training by n / (n - 1) only, n >= 24.
    tested, _ = apply(params, found, images[0], False)
    assert np.abs(tested - trained).max() < 0.1 * np.abs(trained).max()
    assert np.abs(stale - trained).max() > 0.5 * np.abs(trained).max()


def test_statistics_for_several_replicas_and_another_momentum() -> None:
    norm, batches = batch_norm(momentum=0.3), jnp.asarray(make_batches())

    def apply(params, state, images, train):
        after = norm.apply(params, state["norm"], images * params["scale"], train)[1]
        return images, {"norm": after, "count": state["count"] + 1}

    params, state = norm.init(3)
    several = jax.tree.map(lambda leaf: jnp.stack([leaf + 1, leaf + 2]), params)
    state = {"norm": state, "count": jnp.zeros((), jnp.int32)}
    found = jax.vmap(lambda params: swag.refresh_statistics(apply, params, state, batches))(several)
    assert found["count"].tolist() == [4, 4]  # not an average: it counts on
    mean = np.asarray(batches).mean((0, 1, 2, 3))
    np.testing.assert_allclose(found["norm"]["mean"], [2 * mean, 3 * mean], rtol=1e-4)


def average(momentum: float, running, batch):
    return (1 - momentum) * running + momentum * batch


def apply_mixed(params, state, images, train):
    """Averages of several momenta and sizes, and numbers that are none."""
    mean = jnp.mean(images, axis=(0, 1, 2))
    after = {
        "slow": average(0.001, state["slow"], mean),
        "quick": average(1.0, state["quick"], mean),
        "large": average(0.01, state["large"], 1e6 * mean),
        "tiny": average(0.01, state["tiny"], 1e-6 * mean),
        "constant": state["constant"],
        "count": state["count"] + 1,
    }
    return images, after


def test_every_average_has_a_momentum_of_its_own() -> None:
    batches = jnp.asarray(make_batches())
    state = {name: jnp.full(3, 5.0) for name in ("slow", "quick", "large", "tiny", "constant")}
    state["count"] = jnp.array(7)
    refreshed = swag.refresh_statistics(apply_mixed, {}, state, batches)
    mean = np.asarray(batches).mean((0, 1, 2, 3))
    for name, scale in {"slow": 1.0, "quick": 1.0, "large": 1e6, "tiny": 1e-6}.items():
        np.testing.assert_allclose(refreshed[name], scale * mean, rtol=2e-3, err_msg=name)
    assert refreshed["constant"].tolist() == [5.0] * 3
    assert int(refreshed["count"]) == 11, "measuring the momentum does not count"


def flax_norm(momentum: float | None) -> Network:
    nnx = pytest.importorskip("flax.nnx")
    options = {} if momentum is None else {"momentum": momentum}

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.norm = nnx.BatchNorm(3, rngs=rngs, **options)

        def __call__(self, images):
            return self.norm(images)

    return interop.from_flax(Model)


def equinox_norm(momentum: float | None) -> Network:
    eqx = pytest.importorskip("equinox")
    options = {} if momentum is None else {"momentum": momentum}

    class Model(eqx.Module):
        norm: eqx.nn.BatchNorm

        def __init__(self):
            self.norm = eqx.nn.BatchNorm(3, axis_name="batch", mode="batch", **options)

        def __call__(self, image, state):
            return self.norm(image, state)

    return interop.from_equinox(lambda key: eqx.nn.make_with_state(Model)())


@pytest.mark.parametrize("momentum", [None, 0.9], ids=["default", "0.9"])
@pytest.mark.parametrize("make", [flax_norm, equinox_norm])
def test_statistics_have_the_momentum_of_the_library(make, momentum: float | None) -> None:
    """By default 0.99 in both, which is 0.01 in our convention."""
    network, batches = make(momentum), make_batches()
    params, state = network.init(jax.random.key(0))
    refreshed = swag.refresh_statistics(network.apply, params, state, batches)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(refreshed) if np.shape(leaf) == (3,)]
    means = batches.mean((0, 1, 2, 3))
    variances = batches.var((1, 2, 3)).mean(0)
    assert len(leaves) == 2
    for expected in (means, variances):
        assert any(np.allclose(leaf, expected, rtol=1e-3) for leaf in leaves)


def test_networks_without_statistics_keep_their_state() -> None:
    found = swag.refresh_statistics(
        lambda params, state, images, train: (images, state), {}, {}, make_batches(1)
    )
    assert found == {}
