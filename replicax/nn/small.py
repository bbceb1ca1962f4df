"""Small networks: perceptrons, and convolutional networks for small images."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import at_least, choose, is_whole, show
from replicax.nn.network import (
    ACTIVATIONS,
    Network,
    Tree,
    apply_conv,
    apply_dense,
    in_precision,
    init_conv,
    init_dense,
    make_norm,
)


def mlp(
    num_inputs: int,
    num_outputs: int,
    *,
    hidden: Sequence[int] = (100, 100),
    activation: str = "relu",
    dtype: Any = jnp.float32,
) -> Network:
    """Return a network of dense layers; inputs of any shape are made flat.

    `hidden` has the widths of the layers between, none of them for a linear model. `activation` is
    "relu", "silu", "gelu" or "tanh". Layers run in `dtype` (on CPUs at least float32);
    parameters and outputs are float32.

    >>> params, state = jax.eval_shape(mlp(784, 10).init, jax.random.key(0))
    >>> sum(leaf.size for leaf in jax.tree.leaves(params)), state
    (89610, {})
    """
    at_least("num_inputs", num_inputs, 1)
    at_least("num_outputs", num_outputs, 1)
    if not isinstance(hidden, Sequence) or not all(is_whole(w) and w > 0 for w in hidden):
        raise ValueError(
            f"hidden is {show(hidden)}; give the widths of the layers between, such as (100, 100)."
        )
    activate = ACTIVATIONS[choose("activation", activation, ACTIVATIONS)]
    sizes = [num_inputs, *hidden, num_outputs]

    def init(key: Array) -> tuple[Tree, Tree]:
        keys = jax.random.split(key, len(sizes) - 1)
        layers = zip(keys, sizes[:-1], sizes[1:], strict=True)
        return {"layers": [init_dense(*layer) for layer in layers]}, {}

    def apply(params: Tree, state: Tree, inputs: Array, train: bool) -> tuple[Array, Tree]:
        if math.prod(inputs.shape[1:]) != num_inputs:
            raise ValueError(
                f"The inputs have shape {inputs.shape[1:]} each, and num_inputs is {num_inputs}: "
                f"write rx.nn.mlp({math.prod(inputs.shape[1:])}, ...)."
            )
        x = in_precision(inputs.reshape(len(inputs), -1), dtype)
        *layers, last = params["layers"]
        for layer in layers:
            x = activate(apply_dense(layer, x))
        return apply_dense(last, x).astype(jnp.float32), state

    return Network(init, apply)


def small_cnn(
    num_classes: int,
    num_channels: int = 1,
    *,
    widths: Sequence[int] = (16, 32, 32),
    norm: str = "batch",
    activation: str = "relu",
    dtype: Any = jnp.float32,
) -> Network:
    """Return a network of 3 x 3 convolutions with `widths` channels and a mean over pixels.

    Every convolution but the first halves the image.

    >>> params, state = jax.eval_shape(small_cnn(10).init, jax.random.key(0))
    >>> sum(leaf.size for leaf in jax.tree.leaves(params))
    14458
    """
    at_least("num_classes", num_classes, 1)
    at_least("num_channels", num_channels, 1)
    if (
        not isinstance(widths, Sequence)
        or not widths
        or not all(is_whole(w) and w > 0 for w in widths)
    ):
        raise ValueError(f"widths is {show(widths)}; give the channels of each layer, as (16, 32).")
    normalise = make_norm(norm, activation)

    def init(key: Array) -> tuple[Tree, Tree]:
        last, *keys = jax.random.split(key, len(widths) + 1)
        params: Tree = {"convs": [], "norms": []}
        state: Tree = {"norms": []}
        num_in = num_channels
        for conv_key, width in zip(keys, widths, strict=True):
            norm_params, norm_state = normalise.init(width)
            params["convs"].append(init_conv(conv_key, 3, num_in, width, normalise.bias))
            params["norms"].append(norm_params)
            state["norms"].append(norm_state)
            num_in = width
        return {**params, "dense": init_dense(last, num_in, num_classes)}, state

    def apply(params: Tree, state: Tree, images: Array, train: bool) -> tuple[Array, Tree]:
        x, states = in_precision(images, dtype), []
        layers = zip(params["convs"], params["norms"], state["norms"], strict=True)
        for layer, (filters, norm_params, norm_state) in enumerate(layers):
            x = apply_conv(filters, x, stride=1 if layer == 0 else 2)
            x, norm_state = normalise.apply(norm_params, norm_state, x, train)
            states.append(norm_state)
        x = jnp.mean(x.astype(jnp.float32), axis=(1, 2))
        return apply_dense(params["dense"], x), {"norms": states}

    return Network(init, apply)
