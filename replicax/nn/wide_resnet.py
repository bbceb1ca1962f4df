"""Wide residual networks for small images (Zagoruyko and Komodakis, 2016)."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import at_least, is_whole, show
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


def wide_resnet(
    depth: int,
    width: int,
    num_classes: int = 100,
    *,
    num_channels: int = 3,
    norm: str = "batch",
    activation: str = "relu",
    dtype: Any = jnp.float32,
) -> Network:
    """Return WRN-depth-width: three stages of 16, 32 and 64 times `width` channels.

    Norm and activation come before each convolution; a stage has (depth - 4) / 6 blocks of two
    3 x 3 convolutions. Other options are those of `rx.nn.resnet`.

    >>> params, state = jax.eval_shape(wide_resnet(28, 10, 10).init, jax.random.key(0))
    >>> sum(leaf.size for leaf in jax.tree.leaves(params))
    36479194
    """
    for name, value in (("num_classes", num_classes), ("width", width)):
        at_least(name, value, 1)
    at_least("num_channels", num_channels, 1)
    if not is_whole(depth) or (depth - 4) % 6 or depth < 10:
        raise ValueError(f"depth is {show(depth)}; it must be 6 n + 4, such as 16, 28 or 40.")
    normalise = make_norm(norm, activation)
    plan = _plan_blocks((depth - 4) // 6, width)
    last = plan[-1][1]

    def init(key: Array) -> tuple[Tree, Tree]:
        first_key, last_key, *keys = jax.random.split(key, len(plan) + 2)
        blocks = [_init_block(k, normalise, *sizes) for k, sizes in zip(keys, plan, strict=True)]
        norm_params, norm_state = normalise.init(last)
        params = {
            "conv": init_conv(first_key, 3, num_channels, _WIDTHS[0], normalise.bias),
            "blocks": [block_params for block_params, _ in blocks],
            "norm": norm_params,
            "dense": init_dense(last_key, last, num_classes),
        }
        return params, {"blocks": [block_state for _, block_state in blocks], "norm": norm_state}

    def apply(params: Tree, state: Tree, images: Array, train: bool) -> tuple[Array, Tree]:
        x, states = apply_conv(params["conv"], in_precision(images, dtype)), []
        parts = zip(plan, params["blocks"], state["blocks"], strict=True)
        for (_, _, stride), block_params, block_state in parts:
            x, new = _apply_block(normalise, block_params, block_state, x, stride, train)
            states.append(new)
        x, norm_state = normalise.apply(params["norm"], state["norm"], x, train)
        x = jnp.mean(x.astype(jnp.float32), axis=(1, 2))
        return apply_dense(params["dense"], x), {"blocks": states, "norm": norm_state}

    return Network(init, apply)


def _plan_blocks(blocks_per_stage: int, width: int) -> list[tuple[int, int, int]]:
    """Return channels in, channels out and stride of each block."""
    plan, num_in = [], _WIDTHS[0]
    for channels in _WIDTHS:
        for block in range(blocks_per_stage):
            stride = 2 if block == 0 and channels != _WIDTHS[0] else 1
            plan.append((num_in, channels * width, stride))
            num_in = channels * width
    return plan


def _init_block(key: Array, normalise: Norm, num_in: int, num_out: int, stride: int):
    first, second, third = jax.random.split(key, 3)
    norms = [normalise.init(num_in), normalise.init(num_out)]
    params: Tree = {
        "convs": [
            init_conv(first, 3, num_in, num_out, normalise.bias),
            init_conv(second, 3, num_out, num_out, normalise.bias),
        ],
        "norms": [norm_params for norm_params, _ in norms],
    }
    if stride != 1 or num_in != num_out:
        params["shortcut"] = init_conv(third, 1, num_in, num_out, normalise.bias)
    return params, {"norms": [norm_state for _, norm_state in norms]}


def _apply_block(
    normalise: Norm, params: Tree, state: Tree, x: Array, stride: int, train: bool
) -> tuple[Array, Tree]:
    """Compute shortcut(x) + convolutions(x); a shortcut that convolves sees the first norm."""
    one, other = zip(params["norms"], state["norms"], strict=True)
    y, first = normalise.apply(*one, x, train)
    shortcut = apply_conv(params["shortcut"], y, stride) if "shortcut" in params else x
    y = apply_conv(params["convs"][0], y, stride)
    y, second = normalise.apply(*other, y, train)
    y = apply_conv(params["convs"][1], y)
    return shortcut + y, {"norms": [first, second]}
