"""A network as two pure functions, and the layers of the networks here.

Parameters are dicts of arrays. Batch statistics are a separate dict, the state: they belong to a
replica like its parameters, but have no gradient. All functions are written for one replica.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from replicax.errors import choose
from replicax.nn.conv import conv

_DIMS = ("NHWC", "HWIO", "NHWC")
Tree = dict[str, Any]


class Network(NamedTuple):
    """`init(key) -> params, state` and `apply(params, state, images, train) -> logits, state`."""

    init: Callable[[Array], tuple[Tree, Tree]]
    apply: Callable[..., tuple[Array, Tree]]


class Norm(NamedTuple):
    """A normalisation and the activation that follows it.

    `apply(params, state, x, train, activate) -> x, state`; `bias`: whether the convolution before
    it has one.
    """

    init: Callable[[int], tuple[Tree, Tree]]
    apply: Callable[..., tuple[Array, Tree]]
    activation: Callable[[Array], Array]
    bias: bool = False


def in_precision(x: Array, dtype: DTypeLike) -> Array:
    """Return inputs in the precision of a network's layers: `dtype`, on CPUs at least float32.

    CPUs gain nothing from half precision, and the sums of bfloat16 layers that XLA fuses for them
    in jaxlib 0.11.2 are infinite or 1e38.
    """
    half_on_cpu = jnp.dtype(dtype).itemsize < 4 and jax.default_backend() == "cpu"
    return x.astype(jnp.float32 if half_on_cpu else dtype)


def he_normal(key: Array, shape: tuple[int, ...], fan: int) -> Array:
    """Draw Gaussian weights of variance 2 / fan (He et al., 2015)."""
    return jnp.sqrt(2.0 / fan) * jax.random.normal(key, shape)


def init_conv(key: Array, size: int, num_in: int, num_out: int, bias: bool = False) -> Any:
    """Draw filters (height, width, in, out), with the fan of outgoing connections; with a `bias`,
    they are the weight of a dict."""
    filters = he_normal(key, (size, size, num_in, num_out), fan=size * size * num_out)
    return {"weight": filters, "bias": jnp.zeros(num_out)} if bias else filters


def apply_conv(params: Any, x: Array, stride: int = 1) -> Array:
    """Convolve `x` in its own precision, padded so that stride 1 keeps the size.

    With a bias the padding is "SAME", as in the networks that have them: at stride 2 it pads an
    even image at its end alone.
    """
    has_bias = isinstance(params, dict)
    filters = params["weight"] if has_bias else params
    pad = (filters.shape[0] - 1) // 2
    padding = "SAME" if has_bias else ((pad, pad), (pad, pad))
    x = conv(x, filters.astype(x.dtype), (stride, stride), padding, dimension_numbers=_DIMS)
    return x + params["bias"].astype(x.dtype) if has_bias else x


def init_dense(key: Array, num_in: int, num_out: int) -> Tree:
    """Draw weights and biases uniform in +- 1 / sqrt(in)."""
    bound = num_in**-0.5
    weight_key, bias_key = jax.random.split(key)
    return {
        "weight": jax.random.uniform(weight_key, (num_in, num_out), minval=-bound, maxval=bound),
        "bias": jax.random.uniform(bias_key, (num_out,), minval=-bound, maxval=bound),
    }


def apply_dense(params: Tree, x: Array) -> Array:
    return x @ params["weight"].astype(x.dtype) + params["bias"].astype(x.dtype)


def batch_norm(
    activation: Callable[[Array], Array] = jax.nn.relu, momentum: float = 0.1, eps: float = 1e-5
) -> Norm:
    """Return batch normalisation; its state holds running means and (unbiased) variances.

        running <- (1 - momentum) running + momentum batch

    Statistics are computed in float32, whatever the precision of the images, in one pass over
    them: from the first pixel, so that they keep their digits where means are large.
    """

    def init(num_channels: int) -> tuple[Tree, Tree]:
        params = {"scale": jnp.ones(num_channels), "shift": jnp.zeros(num_channels)}
        return params, {"mean": jnp.zeros(num_channels), "var": jnp.ones(num_channels)}

    def apply(params: Tree, state: Tree, x: Array, train: bool, activate: bool = True):
        if train:
            count = x.size // x.shape[-1]
            wide = x.astype(jnp.float32)
            first = jax.lax.stop_gradient(wide[0, 0, 0])
            mean = jnp.mean(wide - first, axis=(0, 1, 2))
            var = jnp.maximum(jnp.mean((wide - first) ** 2, axis=(0, 1, 2)) - mean**2, 0.0)
            mean = first + mean
            batch = {"mean": mean, "var": var * (count / max(count - 1, 1))}
            state = jax.tree.map(lambda old, new: old + momentum * (new - old), state, batch)
        else:
            mean, var = state["mean"], state["var"]
        scale = params["scale"] * jax.lax.rsqrt(var + eps)
        shift = params["shift"] - mean * scale
        x = x * scale.astype(x.dtype) + shift.astype(x.dtype)
        return (activation(x) if activate else x), state

    return Norm(init, apply, activation)


def filter_response_norm(
    activation: Callable[[Array], Array] = jax.nn.relu, eps: float = 1e-6
) -> Norm:
    """Return filter response normalisation with its thresholded unit (Singh and Krishnan, 2020).

        x <- max(scale x / sqrt(mean over space of x^2 + eps) + shift, threshold)

    Each image is normalised by itself: the state is empty, and train and test are the same. The
    threshold is there also where no activation follows, as in the networks of Izmailov et al.
    (2021), "What are Bayesian neural network posteriors really like?".
    """

    def init(num_channels: int) -> tuple[Tree, Tree]:
        zeros = jnp.zeros(num_channels)
        return {"scale": jnp.ones(num_channels), "shift": zeros, "threshold": zeros}, {}

    def apply(params: Tree, state: Tree, x: Array, train: bool, activate: bool = True):
        square = jnp.mean(x.astype(jnp.float32) ** 2, axis=(1, 2), keepdims=True)
        x = x * jax.lax.rsqrt(square + eps).astype(x.dtype)
        x = x * params["scale"].astype(x.dtype) + params["shift"].astype(x.dtype)
        x = jnp.maximum(x, params["threshold"].astype(x.dtype))
        return (activation(x) if activate else x), state

    return Norm(init, apply, activation, bias=True)


NORMS: dict[str, Callable[..., Norm]] = {"batch": batch_norm, "frn": filter_response_norm}
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
    "tanh": jnp.tanh,
}


def make_norm(norm: str, activation: str) -> Norm:
    """Return the normalisation and the activation of these names."""
    chosen = NORMS[choose("norm", norm, NORMS)]
    return chosen(ACTIVATIONS[choose("activation", activation, ACTIVATIONS)])
