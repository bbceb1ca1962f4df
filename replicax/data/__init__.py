"""Image data sets with checksums, and their augmentation on the device."""

import importlib
import os
from typing import TYPE_CHECKING

from replicax.data.cifar import load_cifar as load_cifar
from replicax.data.dataset import Dataset as Dataset
from replicax.data.digits import load_digits as load_digits
from replicax.data.fetch import default_folder as default_folder

if TYPE_CHECKING:
    from replicax.data.augment import augmentation as augmentation
    from replicax.data.augment import normalise as normalise
    from replicax.data.augment import plain as plain
    from replicax.data.augment import random_crop as random_crop
    from replicax.data.augment import random_erase as random_erase
    from replicax.data.augment import random_flip as random_flip

NAMES = ("cifar10", "cifar100", "digits")
_AUGMENT = ("augmentation", "normalise", "plain", "random_crop", "random_erase", "random_flip")


def load(name: str, folder: str | os.PathLike | None = None, download: bool = False) -> Dataset:
    """A data set by its name: "cifar10", "cifar100" or "digits".

    CIFAR is looked for in `folder`, or where the environment variable REPLICAX_DATA says, or in
    ~/.cache/replicax; with `download` it is fetched if it is not there. The digits come with
    scikit-learn.
    """
    # Imported late: it brings JAX along, which reading images does not need.
    from replicax.errors import choose

    choose("The name of a data set", name, NAMES)
    if name == "digits":
        return load_digits()
    return load_cifar(name, folder, download)


def __getattr__(name: str):
    """Import the augmentation when it is first asked for: the images alone need no JAX."""
    if name in _AUGMENT:
        return getattr(importlib.import_module("replicax.data.augment"), name)
    raise AttributeError(f"module 'replicax.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_AUGMENT])
