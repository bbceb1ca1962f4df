"""A network and its data set by name, for the command line and for run folders."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from replicax import user_code
from replicax.data.table import Table, as_table, read_table
from replicax.errors import choose, show
from replicax.networks.named import AUGMENTED as AUGMENTED
from replicax.networks.named import DEFAULTS as DEFAULTS
from replicax.networks.named import Sizes, named_network
from replicax.networks.named import absolute as absolute


@dataclass(frozen=True)
class Task:
    """A network and its training data, by name."""

    model: str
    data: str
    data_dir: str | None = None
    download: bool = False
    batch_size: int = 256
    augment: bool = True
    bf16: bool = False
    weight_decay: float = 5e-4
    validation: int = 0  # training images to test on instead of the test images
    directory: str = ""  # modules are also imported from here
    noise: Any = None  # noise of regression targets, as in `rx.regression`
    likelihood: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def stored(cls, content: dict[str, Any]) -> "Task":
        """Return the task of a run folder; those of version 0.2 say the unit of energies, too."""
        return cls(**{name: value for name, value in content.items() if name != "unit"})

    def problem(self) -> tuple[Any, Callable]:
        """Return the posterior, and the function that initialises its networks."""
        from replicax.networks.classification import classification
        from replicax.networks.regression import regression

        dataset = self.dataset()
        network = self.network(dataset)
        options: Any = {"batch_size": self.batch_size, "weight_decay": self.weight_decay}
        choices = {"noise": self.noise, "likelihood": self.likelihood}
        choices = {name: value for name, value in choices.items() if value is not None}
        if not isinstance(dataset, Table):
            _refuse(choices, dataset.name)
            problem = classification(network, dataset, augment=self.augment, **options)
        elif dataset.has_classes:
            _refuse(choices, dataset.name)
            problem = classification(network, dataset.train, test=dataset.test,
                                     num_classes=dataset.num_outcomes, **options)  # fmt: skip
        else:
            problem = regression(network, dataset.train, test=dataset.test, **choices, **options)
        return problem, network.init

    def dataset(self) -> Any:
        """Return the data: an `rx.data.Dataset`, or a `Table` of arrays."""
        dataset = self._whole_dataset()
        if self.validation:
            dataset = dataset.validation_split(self.validation)
        return dataset.dataset() if isinstance(dataset, Table) and dataset.has_images else dataset

    def _whole_dataset(self) -> Any:
        from replicax import data

        if self.data.endswith(".npz"):
            return read_table(Path(self.data))
        if ":" not in self.data:
            name = choose("--data", self.data, data.NAMES)
            return data.load(name, self.data_dir, self.download)
        dataset = user_code.find_object(self.data, self.directory)
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
        if not isinstance(dataset, Table):
            shape = dataset.train_images.shape[1:]
            return self._network(Sizes(shape, dataset.num_classes), dataset)
        per_target = 2 if self.noise == "network" and not dataset.has_classes else 1
        sizes = Sizes(dataset.train[0].shape[1:], per_target * dataset.num_outcomes)
        return self._network(sizes, sizes)

    def network_again(self, predicts: dict[str, Any]) -> Any:
        """Return the network without loading the data, from the sizes stored in a run folder."""
        from replicax.data import Dataset
        from replicax.networks.restored import num_outputs, row_of

        sizes = Sizes(row_of(predicts).shape, num_outputs(predicts))
        if not predicts.get("pixels"):
            return self._network(sizes, sizes)
        black = np.zeros((1, *sizes.input_shape), np.uint8), np.zeros(1, np.int32)
        pixels = predicts["pixels"]
        moments = tuple(pixels["mean"]), tuple(pixels["std"])
        return self._network(sizes, Dataset(self.data, *black, *black, sizes.num_outputs, *moments))

    def _network(self, sizes: Sizes, given: Any) -> Any:
        """Return the network for these sizes; a user function is called with `given`."""
        import jax.numpy as jnp

        from replicax import nn

        if ":" not in self.model:
            return named_network(self.model, sizes, jnp.bfloat16 if self.bf16 else jnp.float32)
        network = user_code.find_object(self.model, self.directory)
        if callable(network) and not isinstance(network, nn.Network):
            network = network(given)
        if not isinstance(network, nn.Network):
            raise ValueError(
                f"{self.model} gives {type(network).__name__}; it must be an rx.nn.Network, or "
                "a function of the data set that returns one (rx.interop makes them from Flax "
                "and Equinox)."
            )
        return network


def _refuse(options: dict[str, Any], name: str) -> None:
    """Raise if an option of regressions is given."""
    for option, value in options.items():
        raise ValueError(f"{option} is {show(value)}, and {name} has labels: leave it out.")
