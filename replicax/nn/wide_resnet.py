"""Wide residual networks for small images (Zagoruyko and Komodakis, 2016)."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import at_least, is_whole, show
from replicax.nn.network import Network, Norm, Tree, apply_conv, init_conv, make_norm
from replicax.nn.resnet import WIDTHS, residual, stages


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
    num_in, blocks = WIDTHS[0], []
    for channels, stride in stages((depth - 4) // 6):
        blocks.append(_block(normalise, num_in, channels * width, stride))
        num_in = channels * width
    return residual(blocks, normalise, num_channels, num_in, num_classes, dtype, norm_last=True)


def _block(normalise: Norm, num_in: int, num_out: int, stride: int) -> Network:
    """Return shortcut(x) + convolutions(x); a shortcut that convolves sees the first norm."""

    def init(key: Array) -> tuple[Tree, Tree]:
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

    def apply(params: Tree, state: Tree, x: Array, train: bool) -> tuple[Array, Tree]:
        one, other = zip(params["norms"], state["norms"], strict=True)
        y, first = normalise.apply(*one, x, train)
        shortcut = apply_conv(params["shortcut"], y, stride) if "shortcut" in params else x
        y = apply_conv(params["convs"][0], y, stride)
        y, second = normalise.apply(*other, y, train)
        y = apply_conv(params["convs"][1], y)
        return shortcut + y, {"norms": [first, second]}

    return Network(init, apply)
