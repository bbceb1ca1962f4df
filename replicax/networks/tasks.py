"""Networks and data by name, for the command line and for run folders."""

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from replicax import user_code
from replicax.errors import choose, suggest

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
AUGMENTED = ("cifar10", "cifar100")


@dataclass(frozen=True)
class Task:
    """A network and the data it learns, by name."""

    model: str
    data: str
    data_dir: str | None = None
    download: bool = False
    batch_size: int = 256
    augment: bool = True
    bf16: bool = False
    weight_decay: float = 5e-4
    unit: str = "mean"
    validation: int = 0  # training images to test on instead of the test images
    directory: str = ""  # modules are also imported from here

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def problem(self) -> tuple[Any, Callable]:
        """Return the posterior, and the function that initialises its networks."""
        from replicax.networks.classification import classification

        dataset = self.dataset()
        network = self.network(dataset)
        problem = classification(
            network,
            dataset,
            batch_size=self.batch_size,
            augment=self.augment,
            weight_decay=self.weight_decay,
            unit=self.unit,
        )
        return problem, network.init

    def dataset(self) -> Any:
        dataset = self._whole_dataset()
        return dataset.validation_split(self.validation) if self.validation else dataset

    def _whole_dataset(self) -> Any:
        from replicax import data

        if ":" not in self.data:
            name = choose("--data", self.data, data.NAMES)
            return data.load(name, self.data_dir, self.download)
        dataset = user_code.find_object(self.data, self.directory)
        if callable(dataset) and not isinstance(dataset, data.Dataset):
            dataset = dataset()
        if not isinstance(dataset, data.Dataset):
            raise ValueError(
                f"{self.data} is {type(dataset).__name__}; it must be an rx.data.Dataset, or a "
                "function that returns one."
            )
        return dataset.check()

    def network(self, dataset: Any) -> Any:
        import jax.numpy as jnp

        from replicax import nn

        dtype = jnp.bfloat16 if self.bf16 else jnp.float32
        num_channels = dataset.train_images.shape[-1]
        if ":" in self.model:
            network = user_code.find_object(self.model, self.directory)
            if callable(network) and not isinstance(network, nn.Network):
                network = network(dataset)
            if not isinstance(network, nn.Network):
                raise ValueError(
                    f"{self.model} gives {type(network).__name__}; it must be an rx.nn.Network, or "
                    "a function of the data set that returns one (rx.interop makes them from Flax "
                    "and Equinox)."
                )
            return network
        sizes = {"num_channels": num_channels, "dtype": dtype}
        return _named_network(self.model, dataset, sizes)


def _named_network(model: str, dataset: Any, sizes: dict[str, Any]) -> Any:
    from replicax import nn

    if model == "small":
        return nn.small_cnn(dataset.num_classes, **sizes)
    dense, resnet, wide = (pattern.fullmatch(model) for pattern in (_DENSE, _RESNET, _WIDE))
    if dense is not None:
        hidden = [int(width) for width in dense.group(1).split("-")[1:]]
        given: dict[str, Any] = {"hidden": hidden} if hidden else {}
        num_inputs = math.prod(dataset.train_images.shape[1:])
        return nn.mlp(num_inputs, dataset.num_classes, dtype=sizes["dtype"], **given)
    if resnet is None and wide is None:
        near = suggest(model, ("small", "mlp", "resnet20", "resnet32", "resnet56", "wrn28-10"))
        raise ValueError(f"--model is {model!r}; write {MODELS}.{near}")
    words = (resnet or wide).group(3 if wide else 2).split("-")[1:]  # type: ignore[union-attr]
    options: dict[str, Any] = sizes | {
        "norm": "frn" if "frn" in words else "batch",
        "activation": "silu" if "silu" in words else "relu",
    }
    try:
        if wide is not None:
            return nn.wide_resnet(
                int(wide.group(1)), int(wide.group(2)), dataset.num_classes, **options
            )
        block = next((word for word in words if word in ("basic", "bottleneck")), None)
        depth = int(resnet.group(1))  # type: ignore[union-attr]
        return nn.resnet(depth, dataset.num_classes, block=block, **options)
    except ValueError as error:
        raise ValueError(f"--model is {model!r}: {error}") from None


def absolute(name: str) -> str:
    """Return FILE.PY:NAME with an absolute path, so that it is valid from any directory."""
    place, colon, attribute = name.rpartition(":")
    if colon and place.endswith(".py"):
        return f"{Path(place).expanduser().absolute()}:{attribute}"
    return name
