"""Networks by name against the same written with plain JAX, one layer after the other."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import quick_jit, slow
from jax import lax

from replicax import nn
from replicax.networks.by_name import NamedProblem
from replicax.nn.network import init_conv, init_dense

IMAGES = np.random.default_rng(0).normal(size=(3, 8, 8, 3)).astype(np.float32)


def shaken(params: Any) -> Any:
    """Parameters none of which is 0 or 1, so that each matters."""
    leaves, structure = jax.tree.flatten(params)
    rng = np.random.default_rng(1)
    return structure.unflatten(
        [leaf + 0.3 * rng.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    )


def convolve(params: Any, x: Any, stride: int = 1, pad: Any = "SAME") -> Any:
    weight, bias = (params["weight"], params["bias"]) if isinstance(params, dict) else (params, 0.0)
    numbers = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, weight, (stride, stride), pad, None, None, numbers) + bias


def frn(params: Any, x: Any) -> Any:
    """Equations 1 to 3 of Singh and Krishnan (2020)."""
    nu = jnp.mean(x**2, axis=(1, 2), keepdims=True)
    y = params["scale"] * (x / jnp.sqrt(nu + 1e-6)) + params["shift"]
    return jnp.maximum(y, params["threshold"])


def resnet_frn(params: Any, x: Any, activation: Any) -> Any:
    """The ResNet-FRN of Izmailov et al. (2021), with one block per stage."""
    x = activation(frn(params["norm"], convolve(params["conv"], x)))
    for stage, block in enumerate(params["blocks"]):
        stride = 2 if stage else 1
        y = activation(frn(block["norms"][0], convolve(block["convs"][0], x, stride)))
        y = frn(block["norms"][1], convolve(block["convs"][1], y))
        if stage:
            x = frn(block["norms"][2], convolve(block["shortcut"], x, stride))
        x = activation(x + y)
    return jnp.mean(x, axis=(1, 2)) @ params["dense"]["weight"] + params["dense"]["bias"]


@pytest.mark.parametrize("name", ["silu", slow("relu")])
def test_a_resnet_with_frn_is_that_of_the_literature(name: str) -> None:
    network = nn.resnet(8, 5, norm="frn", activation=name)
    params, state = quick_jit(network.init)(jax.random.key(0))
    params = shaken(params)
    found, _ = quick_jit(lambda p: network.apply(p, state, IMAGES, True))(params)
    wanted = quick_jit(lambda p: resnet_frn(p, IMAGES, getattr(jax.nn, name)))(params)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert np.ptp(wanted) > 0.1


def test_weights_begin_with_the_variance_of_their_fan() -> None:
    """Convolutions 2 / fan of outgoing connections (He et al.), dense layers uniform."""
    filters = quick_jit(lambda key: init_conv(key, 3, 32, 64))(jax.random.key(0))
    assert float(filters.var()) == pytest.approx(2 / (9 * 64), rel=0.05)  # of 18,432 numbers
    assert abs(float(filters.mean())) < 4 * (2 / (9 * 64) / filters.size) ** 0.5
    with_bias = init_conv(jax.random.key(0), 3, 2, 4, bias=True)
    assert not with_bias["bias"].any() and with_bias["weight"].shape == (3, 3, 2, 4)
    dense = quick_jit(lambda key: init_dense(key, 64, 100))(jax.random.key(1))
    bound = 64**-0.5
    for part in (dense["weight"], dense["bias"]):
        assert float(jnp.abs(part).max()) <= bound
    assert float(dense["weight"].std()) == pytest.approx(bound / 3**0.5, rel=0.05)
    assert not np.any(dense["bias"] == dense["weight"][0])


def test_dense_layers() -> None:
    network = nn.mlp(8 * 8 * 3, 4, hidden=(6, 5), activation="tanh")
    params, state = network.init(jax.random.key(0))
    x = IMAGES.reshape(3, -1)
    for place, layer in enumerate(params["layers"]):
        x = x @ layer["weight"] + layer["bias"]
        x = np.tanh(x) if place < 2 else x
    found, same = network.apply(params, state, IMAGES, True)
    np.testing.assert_allclose(found, x, rtol=1e-5)
    assert same == {} and [len(layer["bias"]) for layer in params["layers"]] == [6, 5, 4]
    with pytest.raises(ValueError, match=r"num_inputs is 192: write rx.nn.mlp\(27"):
        network.apply(params, state, IMAGES[:, :3, :3], True)
    with pytest.raises(ValueError, match="hidden is 100"):
        nn.mlp(3, 4, hidden=100)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="activation is 'rel'"):
        nn.mlp(3, 4, activation="rel")


class Shapes:
    """A data set, of which networks need the shapes."""

    num_classes = 10
    train_images = np.zeros((1, 32, 32, 3), np.uint8)


@pytest.mark.parametrize(
    ("model", "same"),
    [
        ("resnet20-frn-silu", lambda: nn.resnet(20, 10, norm="frn", activation="silu")),
        ("resnet20-bottleneck", lambda: nn.resnet(20, 10, block="bottleneck")),
        ("mlp", lambda: nn.mlp(3072, 10)),
        ("mlp-20-30", lambda: nn.mlp(3072, 10, hidden=(20, 30))),
    ],
)
def test_networks_have_names(model: str, same: Any) -> None:
    network = NamedProblem(model, "none").network(Shapes())
    shapes = [jax.eval_shape(made.init, jax.random.key(0)) for made in (network, same())]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("model", ["resnet21", "wrn28-10", "mlp-0", "renset20"])
def test_other_names_are_refused(model: str) -> None:
    with pytest.raises(ValueError, match=f"--model is '{model}'"):
        NamedProblem(model, "none").network(Shapes())


@pytest.mark.parametrize(
    "build",
    [
        lambda dtype: nn.mlp(192, 4, hidden=(5,), dtype=dtype),
        lambda dtype: nn.small_cnn(4, 3, dtype=dtype),
        lambda dtype: nn.resnet(8, 4, dtype=dtype),
    ],
    ids=["mlp", "small_cnn", "resnet"],
)
def test_on_a_cpu_half_precision_is_single_precision(build):
    """bfloat16 sums that XLA fuses for CPUs are infinite in jaxlib 0.11.2."""
    full, half = build(jnp.float32), build(jnp.bfloat16)
    params, state = jax.eval_shape(full.init, jax.random.key(0))

    def precisions(network):
        traced = jax.make_jaxpr(lambda p, s: network.apply(p, s, IMAGES, train=True))(params, state)
        return str(traced).count("bf16")

    assert precisions(full) == precisions(half) == 0
