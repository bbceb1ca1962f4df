"""Networks and data sets by their names on the command line, with their default settings.

It imports neither NumPy nor JAX: the help of the commands shows these names.
"""

import math
import re
from pathlib import Path
from typing import Any, NamedTuple

from replicax.errors import suggest

MODELS = (
    "small, mlp (mlp-100-100), resnet20 (resnetN, resnetN-basic, resnetN-frn, resnetN-frn-silu), "
    "wrn28-10 (wrnN-K, wrnN-K-frn-silu), or FILE.PY:NAME"
)
_RESNET = re.compile(r"resnet(\d+)((?:-(?:basic|bottleneck|frn|silu))*)")
_WIDE = re.compile(r"wrn(\d+)-(\d+)((?:-(?:frn|silu))*)")
_DENSE = re.compile(r"mlp((?:-[1-9]\d*)*)")

# Defaults of a training: the paper's settings, and others for small data.
_PAPER = {"model": "resnet20", "num_replicas": 10, "epochs": 500, "batch_size": 256}
DEFAULTS: dict[str, dict[str, Any]] = {
    "cifar10": _PAPER,
    "cifar100": _PAPER,
    "digits": {
        "model": "small",
        "num_replicas": 4,
        "epochs": 120,
        "batch_size": 64,
        "burn_in": 40,
        "learning_rate": (0.02, 0.3),
        "target_swap_rate": 0.1,
    },
}
DEFAULTS[".npz"] = {**DEFAULTS["digits"], "model": "mlp", "learning_rate": (0.002, 0.02)}
AUGMENTED = ("cifar10", "cifar100")


class Sizes(NamedTuple):
    """The sizes of inputs and outputs that a network has to fit."""

    input_shape: tuple[int, ...]  # of one input
    num_outputs: int


def named_network(model: str, sizes: Sizes, dtype: Any) -> Any:
    """Return the `rx.nn.Network` of this name, for inputs and outputs of these sizes."""
    from replicax import nn

    shape, num_outputs = sizes
    dense, resnet, wide = (pattern.fullmatch(model) for pattern in (_DENSE, _RESNET, _WIDE))
    if dense is not None:
        hidden = [int(width) for width in dense.group(1).split("-")[1:]]
        layers: dict[str, Any] = {"hidden": hidden} if hidden else {}
        return nn.mlp(math.prod(shape), num_outputs, dtype=dtype, **layers)
    if model != "small" and resnet is None and wide is None:
        near = suggest(model, ("small", "mlp", "resnet20", "resnet32", "resnet56", "wrn28-10"))
        raise ValueError(f"--model is {model!r}; write {MODELS}.{near}")
    if len(shape) != 3:
        raise ValueError(
            f"--model is {model!r}, which takes images (height, width, channel), and the inputs "
            f"have shape {shape} each: write mlp."
        )
    options: dict[str, Any] = {"num_channels": shape[-1], "dtype": dtype}
    if model == "small":
        return nn.small_cnn(num_outputs, **options)
    words = (resnet or wide).group(3 if wide else 2).split("-")[1:]  # type: ignore[union-attr]
    options |= {
        "norm": "frn" if "frn" in words else "batch",
        "activation": "silu" if "silu" in words else "relu",
    }
    try:
        if wide is not None:
            return nn.wide_resnet(int(wide.group(1)), int(wide.group(2)), num_outputs, **options)
        block = next((word for word in words if word in ("basic", "bottleneck")), None)
        depth = int(resnet.group(1))  # type: ignore[union-attr]
        return nn.resnet(depth, num_outputs, block=block, **options)
    except ValueError as error:
        raise ValueError(f"--model is {model!r}: {error}") from None


def absolute(name: str) -> str:
    """Return FILE.PY:NAME or FILE.npz with an absolute path, valid from any directory."""
    if name.endswith(".npz"):
        return str(Path(name).expanduser().absolute())
    place, colon, attribute = name.rpartition(":")
    if colon and place.endswith(".py"):
        return f"{Path(place).expanduser().absolute()}:{attribute}"
    return name
