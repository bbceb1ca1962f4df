"""Residual networks for small images (He et al., 2016), as the paper's section 5.2 uses them."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import at_least, choose, is_whole, show
from replicax.nn.network import (
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

_WIDTHS = (16, 32, 64)
_EXPANSION = {"basic": 1, "bottleneck": 4}


def resnet(
    depth: int,
    num_classes: int = 100,
    *,
    num_channels: int = 3,
    block: str | None = None,
    norm: str = "batch",
    activation: str = "relu",
    dtype: Any = jnp.float32,
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
    plan = plan_blocks((depth - 2) // 6, kind)

    def init(key: Array) -> tuple[Tree, Tree]:
        first, last, *keys = jax.random.split(key, len(plan) + 2)
        params: Tree = {"conv": init_conv(first, 3, num_channels, _WIDTHS[0], normalise.bias)}
        params["norm"], state = normalise.init(_WIDTHS[0])
        blocks = [_init_block(k, normalise, *sizes) for k, sizes in zip(keys, plan, strict=True)]
        params["blocks"] = [block_params for block_params, _ in blocks]
        params["dense"] = init_dense(last, _WIDTHS[-1] * _EXPANSION[kind], num_classes)
        return params, {"norm": state, "blocks": [block_state for _, block_state in blocks]}

    def apply(params: Tree, state: Tree, images: Array, train: bool) -> tuple[Array, Tree]:
        x = apply_conv(params["conv"], in_precision(images, dtype))
        x, norm_state = normalise.apply(params["norm"], state["norm"], x, train)
        states = []
        parts = zip(plan, params["blocks"], state["blocks"], strict=True)
        for (_, convs, stride), block_params, block_state in parts:
            x, new = _apply_block(normalise, block_params, block_state, x, convs, stride, train)
            states.append(new)
        x = jnp.mean(x.astype(jnp.float32), axis=(1, 2))
        return apply_dense(params["dense"], x), {"norm": norm_state, "blocks": states}

    return Network(init, apply)


def plan_blocks(blocks_per_stage: int, kind: str) -> list[tuple[int, tuple, int]]:
    """Return for each block: channels in, (size, channels out) of each convolution, and stride."""
    plan, num_in = [], _WIDTHS[0]
    for width in _WIDTHS:
        num_out = width * _EXPANSION[kind]
        convs = (
            ((3, width), (3, width)) if kind == "basic" else ((1, width), (3, width), (1, num_out))
        )
        for block in range(blocks_per_stage):
            stride = 2 if block == 0 and width != _WIDTHS[0] else 1
            plan.append((num_in, convs, stride))
            num_in = num_out
    return plan


def _init_block(key: Array, normalise: Norm, num_in: int, convs: tuple, stride: int):
    keys = jax.random.split(key, len(convs) + 1)
    params: Tree = {"convs": [], "norms": []}
    state: Tree = {"norms": []}
    channels = num_in
    for conv_key, (size, num_out) in zip(keys[1:], convs, strict=True):
        params["convs"].append(init_conv(conv_key, size, channels, num_out, normalise.bias))
        _append_norm(params, state, normalise, num_out)
        channels = num_out
    if stride != 1 or num_in != channels:
        params["shortcut"] = init_conv(keys[0], 1, num_in, channels, normalise.bias)
        _append_norm(params, state, normalise, channels)
    return params, state


def _append_norm(params: Tree, state: Tree, normalise: Norm, num_channels: int) -> None:
    norm_params, norm_state = normalise.init(num_channels)
    params["norms"].append(norm_params)
    state["norms"].append(norm_state)


def _apply_block(
    normalise: Norm, params: Tree, state: Tree, x: Array, convs: tuple, stride: int, train: bool
) -> tuple[Array, Tree]:
    """Compute activation(shortcut(x) + convolutions(x)); the first 3 x 3 one has the stride."""
    shortcut, states = x, []
    strided = next(layer for layer, (size, _) in enumerate(convs) if size == 3)
    for layer in range(len(convs)):
        x = apply_conv(params["convs"][layer], x, stride if layer == strided else 1)
        norms = params["norms"][layer], state["norms"][layer]
        x, norm_state = normalise.apply(*norms, x, train, activate=layer < len(convs) - 1)
        states.append(norm_state)
    if "shortcut" in params:
        shortcut = apply_conv(params["shortcut"], shortcut, stride)
        norms = params["norms"][-1], state["norms"][-1]
        shortcut, norm_state = normalise.apply(*norms, shortcut, train, activate=False)
        states.append(norm_state)
    return normalise.activation(shortcut + x), {"norms": states}
