"""Image data sets with checksums, and augmentation on the device."""

import os

from replicax.data.augment import augmentation as augmentation
from replicax.data.augment import normalise as normalise
from replicax.data.cifar import default_folder as default_folder
from replicax.data.cifar import load_cifar as load_cifar
from replicax.data.dataset import Dataset as Dataset
from replicax.data.dataset import as_labels as as_labels
from replicax.data.dataset import count_classes as count_classes
from replicax.data.table import load_digits as load_digits
from replicax.errors import choose

NAMES = ("cifar10", "cifar100", "digits")


def load(name: str, folder: str | os.PathLike | None = None, download: bool = False) -> Dataset:
    """Return the data set called `name`: "cifar10", "cifar100" or "digits".

    CIFAR is read from `folder`, by default the environment variable REPLICAX_DATA or
    ~/.cache/replicax; `download` fetches it if it is missing. The digits come with scikit-learn.
    """
    choose("The name of a data set", name, NAMES)
    if name == "digits":
        return load_digits()
    return load_cifar(name, folder, download)
