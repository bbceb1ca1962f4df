"""Networks and data sets by their names, for the command line and for run folders.

The command line shows names and defaults in its help: what takes long to import is imported where
it is used.
"""

import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from replicax import user_code
from replicax.errors import check_path, choose, show, suggest
from replicax.run.options import REQUIRED, option

if TYPE_CHECKING:
    from replicax.run.storage.metadata import Predicts


MODELS = (
    "small, mlp (mlp-100-100), resnet20 (resnetN, resnetN-basic, resnetN-frn, resnetN-frn-silu), "
    "or FILE.PY:NAME"
)
# Sizes have few digits: a run folder names a network, too.
_RESNET = re.compile(r"resnet(\d{1,4})((?:-(?:basic|bottleneck|frn|silu))*)")
_DENSE = re.compile(r"mlp((?:-[1-9]\d{0,6}){0,99})")
_NOTE = "task"  # in the note of a run, so that its commands find network and data again

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


@dataclass(frozen=True)
class NamedProblem:
    """A network and its training data, by name."""

    model: str = option(
        REQUIRED,
        f"Network: {MODELS}.",
        show_default="resnet20; digits: small; FILE.npz: mlp",
    )
    data: str = option(
        REQUIRED,
        "Data: cifar10, cifar100, digits, FILE.npz (arrays: inputs, labels or targets, "
        "test_inputs, ...) or FILE.PY:NAME.",
    )
    data_dir: str | None = option(
        None,
        "Folder with the CIFAR archives.",
        metavar="DIR",
        show_default="$REPLICAX_DATA",
    )
    download: bool = option(False, "Download CIFAR if it is missing.")
    batch_size: int = option(256, "Rows per mini-batch.", show_default="256; digits, FILE.npz: 64")
    augment: bool = option(
        True, "Crop, flip and erase training images.", show_default="on for CIFAR"
    )
    bf16: bool = option(False, "Compute convolutions in bfloat16.")
    weight_decay: float = option(5e-4, "Weight decay (Gaussian prior), relative to the mean loss.")
    validation: int = option(0, "Hold out N training rows and use them instead of the test set.")
    noise: Any = option(
        None,
        "Noise of regression targets: a number, one number per target, learned or network.",
        metavar="SD",
        show_default="learned",
    )
    likelihood: str | None = option(
        None,
        "Likelihood of targets: gaussian, student, poisson, or FILE.PY:NAME; of labels: "
        "categorical, ordinal or multilabel.",
        show_default="gaussian; categorical",
    )
    class_weight: Any = option(
        None,
        "Weights of classes: balanced, or a number for each class.",
        metavar="W",
        show_default="equal",
    )

    def to_note(self) -> dict[str, Any]:
        """Return the names as the note of a run."""
        return {_NOTE: asdict(self)}

    @classmethod
    def from_note(cls, note: dict[str, Any]) -> "NamedProblem | None":
        """Return the names that the note of a run contains, or None."""
        stored = note.get(_NOTE)
        if not isinstance(stored, dict):
            return None  # of a run that was started in Python
        if not all(isinstance(stored.get(name), str) for name in ("model", "data")):
            return None
        known = {entry.name: entry.default for entry in fields(cls)}  # 0.2 stores a unit, too
        values: dict[str, Any] = {name: x for name, x in stored.items() if name in known}
        for name, value in values.items():
            usual = known[name] if name not in ("model", "data", "data_dir", "likelihood") else ""
            if name in ("noise", "class_weight"):
                parts = value if isinstance(value, list) else [value]
                is_good = all(isinstance(part, str | int | float | None) for part in parts)
            else:
                is_good = value is None or isinstance(value, type(usual))
            if not is_good:
                return None
        # What was downloaded for the run is there; a folder must not write elsewhere.
        values["download"] = False
        return cls(**values)

    def problem(self) -> tuple[Any, Callable]:
        """Return the posterior, and the function that initialises its networks."""
        from replicax.networks.classification import classification
        from replicax.networks.regression import regression

        dataset = self.dataset()
        network = self.network(dataset)
        options: dict[str, Any] = {"batch_size": self.batch_size, "weight_decay": self.weight_decay}
        has_classes = not _is_table(dataset) or dataset.has_classes
        other, has = ("noise", "labels") if has_classes else ("class_weight", "targets")
        if getattr(self, other) is not None:
            raise ValueError(
                f"{other} is {show(getattr(self, other))}, and {dataset.name} has {has}: leave it "
                "out."
            )
        choices = {name: getattr(self, name) for name in ("noise", "class_weight")}
        choices["likelihood"] = self.law(has_classes)
        options |= {name: value for name, value in choices.items() if value is not None}
        if not _is_table(dataset):
            problem = classification(network, dataset, augment=self.augment, **options)
        elif has_classes:
            problem = classification(network, dataset.train, test=dataset.test,
                                     num_classes=dataset.num_outcomes, **options)  # fmt: skip
        else:
            problem = regression(network, dataset.train, test=dataset.test, **options)
        return problem, network.init

    def law(self, has_classes: bool) -> Any:
        """Return the likelihood: a name, one of the user's own, or None where none was named."""
        from replicax.networks.likelihoods import KNOWN, Likelihood
        from replicax.networks.outcomes import KINDS

        if self.likelihood is None:
            return None
        if ":" not in self.likelihood or has_classes:
            return choose("--likelihood", self.likelihood, KINDS if has_classes else tuple(KNOWN))
        law = user_code.find_object(self.likelihood)
        if not isinstance(law, Likelihood):
            raise ValueError(f"{self.likelihood} is {show(law)}; it must be an rx.Likelihood.")
        return law

    def dataset(self) -> Any:
        """Return the data: an `rx.data.Dataset`, or a `Tabular` of arrays."""
        dataset = self._whole_dataset()
        if self.validation:
            dataset = dataset.validation_split(self.validation)
        return dataset.dataset() if _is_table(dataset) and dataset.has_images else dataset

    def _whole_dataset(self) -> Any:
        from replicax import data
        from replicax.data.table import as_table, read_table

        if self.data.endswith(".npz"):
            return read_table(Path(self.data))
        if ":" not in self.data:
            name = choose("--data", self.data, data.NAMES)
            return data.load(name, self.data_dir, self.download)
        dataset = user_code.find_object(self.data)
        if callable(dataset) and not isinstance(dataset, data.Dataset):
            dataset = dataset()
        if isinstance(dataset, dict):
            return as_table(self.data, dataset)
        if not isinstance(dataset, data.Dataset):
            raise ValueError(
                f"{self.data} is {type(dataset).__name__}; it must be an rx.data.Dataset, a dict "
                "of arrays (inputs, and labels or targets), or a function that returns one."
            )
        return dataset.check()

    def network(self, dataset: Any) -> Any:
        """Return the network for the data."""
        if not _is_table(dataset):
            shape = dataset.train_images.shape[1:]
            return self._network(Sizes(shape, dataset.num_classes), dataset)
        count = dataset.num_outcomes
        if not dataset.has_classes and self.noise == "network":
            count *= 2
        if dataset.has_classes and self.likelihood == "ordinal":
            count = 1
        sizes = Sizes(dataset.train[0].shape[1:], count)
        return self._network(sizes, sizes)

    def network_again(self, predicts: "Predicts") -> Any:
        """Return the network without loading the data, from the sizes stored in a run folder."""
        import numpy as np

        from replicax.data import Dataset
        from replicax.networks.trained import num_outputs, row_of

        sizes = Sizes(row_of(predicts).shape, num_outputs(predicts))
        pixels = predicts.pixels
        if not pixels:
            return self._network(sizes, sizes)
        black = np.zeros((1, *sizes.input_shape), np.uint8), np.zeros(1, np.int32)
        moments = tuple(pixels["mean"]), tuple(pixels["std"])
        return self._network(sizes, Dataset(self.data, *black, *black, sizes.num_outputs, *moments))

    def _network(self, sizes: Sizes, given: Any) -> Any:
        """Return the network for these sizes; a user function is called with `given`."""
        import jax.numpy as jnp

        from replicax import nn

        if ":" not in self.model:
            return named_network(self.model, sizes, jnp.bfloat16 if self.bf16 else jnp.float32)
        network = user_code.find_object(self.model)
        if callable(network) and not isinstance(network, nn.Network):
            network = network(given)
        if not isinstance(network, nn.Network):
            raise ValueError(
                f"{self.model} gives {type(network).__name__}; it must be an rx.nn.Network, or "
                "a function of the data set that returns one (rx.interop makes them from Flax "
                "and Equinox)."
            )
        return network


def named_network(model: str, sizes: Sizes, dtype: Any) -> Any:
    """Return the `rx.nn.Network` of this name, for inputs and outputs of these sizes."""
    from replicax import nn

    shape, num_outputs = sizes
    dense, resnet = _DENSE.fullmatch(model), _RESNET.fullmatch(model)
    if dense is not None:
        hidden = [int(width) for width in dense.group(1).split("-")[1:]]
        layers: dict[str, Any] = {"hidden": hidden} if hidden else {}
        return nn.mlp(math.prod(shape), num_outputs, dtype=dtype, **layers)
    if model != "small" and resnet is None:
        near = suggest(model, ("small", "mlp", "resnet20", "resnet32", "resnet56"))
        raise ValueError(f"--model is {show(model)}; write {MODELS}.{near}")
    if len(shape) != 3:
        raise ValueError(
            f"--model is {show(model)}, which takes images (height, width, channel), and the "
            f"inputs have shape {shape} each: write mlp."
        )
    options: dict[str, Any] = {"num_channels": shape[-1], "dtype": dtype}
    if model == "small":
        return nn.small_cnn(num_outputs, **options)
    assert resnet is not None
    words = resnet.group(2).split("-")[1:]
    options |= {
        "norm": "frn" if "frn" in words else "batch",
        "activation": "silu" if "silu" in words else "relu",
    }
    try:
        block = next((word for word in words if word in ("basic", "bottleneck")), None)
        return nn.resnet(int(resnet.group(1)), num_outputs, block=block, **options)
    except ValueError as error:
        raise ValueError(f"--model is {show(model)}: {error}") from None


def absolute(name: str) -> str:
    """Return FILE.PY:NAME or FILE.npz with an absolute path, valid from any directory."""
    if name.endswith(".npz"):
        return str(check_path("--data", name).absolute())
    place, colon, attribute = name.rpartition(":")
    if colon and place.endswith(".py"):
        return f"{check_path('FILE.PY', place).absolute()}:{attribute}"
    return name


def _is_table(data: Any) -> bool:
    from replicax.data.table import Tabular

    return isinstance(data, Tabular)
