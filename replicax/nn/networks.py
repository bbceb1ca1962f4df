"""The networks: perceptrons, small convolutional ones, and residual ones as in the paper."""

import math
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike

from replicax.errors import at_least, choose, is_whole, show
from replicax.nn.network import (
    ACTIVATIONS,
    Network,
    Norm,
    Tree,
    apply_conv,
    apply_dense,
    in_precision,
    init_conv,
    init_dense,
    make_norm,
)

WIDTHS = (16, 32, 64)  # of the stages of residual networks
_EXPANSION = {"basic": 1, "bottleneck": 4}


def mlp(
    num_inputs: int,
    num_outputs: int,
    *,
    hidden: Sequence[int] = (100, 100),
    activation: str = "relu",
    dtype: DTypeLike = jnp.float32,
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
    dtype: DTypeLike = jnp.float32,
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


def resnet(
    depth: int,
    num_classes: int = 100,
    *,
    num_channels: int = 3,
    block: str | None = None,
    norm: str = "batch",
    activation: str = "relu",
    dtype: DTypeLike = jnp.float32,
) -> Network:
    """Return a residual network of `depth` layers in three stages of 16, 32 and 64 channels, for
    images of `num_channels` channels.

    `block` is "basic" (two 3 x 3 convolutions) or "bottleneck" (1 x 1, 3 x 3, 1 x 1), by default
    "bottleneck" from depth 44 on, as in the authors' code; both have (depth - 2) / 6 blocks per
    stage, so that ResNet56 with bottlenecks has 9. `norm` is "batch" or "frn", `activation` "relu",
    "silu", "gelu" or "tanh". Convolutions run in `dtype` (on CPUs at least float32);
    parameters, statistics and logits are float32.

    With "frn" convolutions have biases and the padding "SAME", and the threshold of the norm comes
    after each, as in the ResNet20-FRN of Izmailov et al. (2021), of which the activation is "silu":

    >>> params, _ = jax.eval_shape(resnet(20, 10, norm="frn").init, jax.random.key(0))
    >>> sum(leaf.size for leaf in jax.tree.leaves(params))
    274042

    >>> params, state = jax.eval_shape(resnet(20).init, jax.random.key(0))
    >>> sum(leaf.size for leaf in jax.tree.leaves(params))
    278324
    """
    at_least("num_classes", num_classes, 1)
    at_least("num_channels", num_channels, 1)
    if not is_whole(depth) or (depth - 2) % 6 or depth < 8:
        raise ValueError(f"depth is {show(depth)}; it must be 6 n + 2, such as 20, 32, 44 or 56.")
    kind = choose("block", block or ("bottleneck" if depth >= 44 else "basic"), _EXPANSION)
    normalise = make_norm(norm, activation)
    blocks = [_block(normalise, *sizes) for sizes in plan_blocks((depth - 2) // 6, kind)]
    width = WIDTHS[-1] * _EXPANSION[kind]

    def init(key: Array) -> tuple[Tree, Tree]:
        first, last, *keys = jax.random.split(key, len(blocks) + 2)
        parts = [block.init(key) for block, key in zip(blocks, keys, strict=True)]
        norm_params, norm_state = normalise.init(WIDTHS[0])
        params = {
            "conv": init_conv(first, 3, num_channels, WIDTHS[0], normalise.bias),
            "norm": norm_params,
            "blocks": [block_params for block_params, _ in parts],
            "dense": init_dense(last, width, num_classes),
        }
        return params, {"norm": norm_state, "blocks": [block_state for _, block_state in parts]}

    def apply(params: Tree, state: Tree, images: Array, train: bool) -> tuple[Array, Tree]:
        x, states = apply_conv(params["conv"], in_precision(images, dtype)), []
        x, norm_state = normalise.apply(params["norm"], state["norm"], x, train)
        for block, *of_block in zip(blocks, params["blocks"], state["blocks"], strict=True):
            x, new = block.apply(*of_block, x, train)
            states.append(new)
        x = jnp.mean(x.astype(jnp.float32), axis=(1, 2))
        return apply_dense(params["dense"], x), {"norm": norm_state, "blocks": states}

    return Network(init, apply)


def plan_blocks(blocks_per_stage: int, kind: str) -> Iterator[tuple[int, tuple, int]]:
    """Yield for each block: channels in, (size, channels out) of each convolution, and stride; a
    stage after the first begins with stride 2."""
    num_in = WIDTHS[0]
    for width in WIDTHS:
        for block in range(blocks_per_stage):
            stride = 2 if block == 0 and width != WIDTHS[0] else 1
            num_out = width * _EXPANSION[kind]
            convs = ((3, width), (3, width))
            if kind != "basic":
                convs = ((1, width), (3, width), (1, num_out))
            yield num_in, convs, stride
            num_in = num_out


def _block(normalise: Norm, num_in: int, convs: tuple, stride: int) -> Network:
    """Return activation(shortcut(x) + convolutions(x)); the first 3 x 3 one has the stride."""
    strided = next(layer for layer, (size, _) in enumerate(convs) if size == 3)
    num_out = convs[-1][1]
    has_shortcut = stride != 1 or num_in != num_out

    def init(key: Array) -> tuple[Tree, Tree]:
        keys = jax.random.split(key, len(convs) + 1)
        channels = [num_in, *(channels for _, channels in convs)]
        params: Tree = {
            "convs": [
                init_conv(
                    keys[layer + 1], size, channels[layer], channels[layer + 1], normalise.bias
                )
                for layer, (size, _) in enumerate(convs)
            ]
        }
        if has_shortcut:
            params["shortcut"] = init_conv(keys[0], 1, num_in, num_out, normalise.bias)
        norms = [normalise.init(n) for n in channels[1:] + [num_out] * has_shortcut]
        params["norms"] = [norm_params for norm_params, _ in norms]
        return params, {"norms": [norm_state for _, norm_state in norms]}

    def apply(params: Tree, state: Tree, x: Array, train: bool) -> tuple[Array, Tree]:
        shortcut, states = x, []
        for layer in range(len(convs)):
            x = apply_conv(params["convs"][layer], x, stride if layer == strided else 1)
            norms = params["norms"][layer], state["norms"][layer]
            x, norm_state = normalise.apply(*norms, x, train, activate=layer < len(convs) - 1)
            states.append(norm_state)
        if has_shortcut:
            shortcut = apply_conv(params["shortcut"], shortcut, stride)
            norms = params["norms"][-1], state["norms"][-1]
            shortcut, norm_state = normalise.apply(*norms, shortcut, train, activate=False)
            states.append(norm_state)
        return normalise.activation(shortcut + x), {"norms": states}

    return Network(init, apply)
