"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), read from the archives of their author."""

import hashlib
import os
import pickle
import tarfile
from pathlib import Path, PurePosixPath

import numpy as np

from replicax.data.dataset import Dataset
from replicax.errors import check_path, choose

URL = "https://www.cs.toronto.edu/~kriz/"
# From TensorFlow and Julia's MLDatasets.
SHA256 = {
    "cifar-10-python.tar.gz": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    "cifar-100-python.tar.gz": "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
}
# Of CIFAR-10; the paper's authors use them for CIFAR-100 too.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)
_BATCHES = [f"data_batch_{number}" for number in range(1, 6)]
_PARTS = {"cifar10": (_BATCHES, ["test_batch"]), "cifar100": (["train"], ["test"])}
_CLASSES = {"cifar10": 10, "cifar100": 100}
Part = tuple[np.ndarray, np.ndarray]  # uint8 (image, height, width, channel), int32 (image,)


def load_cifar(
    name: str, folder: str | os.PathLike | None = None, download: bool = False
) -> Dataset:
    """Return "cifar10", or "cifar100" with its hundred fine classes.

    Reads from `folder` (see `default_folder`) the archive of the python edition; it must have the
    published checksum. `download` fetches a missing archive.
    """
    choose("The name of a CIFAR data set", name, _PARTS)
    folder = default_folder() if folder is None else check_path("folder", folder)
    path = folder / f"{name.replace('cifar', 'cifar-')}-python.tar.gz"
    if download and not path.exists():
        _download(path)
    if not path.exists():
        raise FileNotFoundError(
            f"{folder} holds no {path.name}. Put it there (from {URL}), name its folder "
            "(--data-dir), or write download=True."
        )
    train, test = _read(_published(path), name)
    return Dataset(name, *train, *test, _CLASSES[name], MEAN, STD).check()


def default_folder() -> Path:
    """Return the environment variable REPLICAX_DATA, or else ~/.cache/replicax."""
    return Path(os.environ.get("REPLICAX_DATA") or "~/.cache/replicax").expanduser()


def _download(path: Path) -> None:
    try:
        import pooch
    except ImportError:
        raise ValueError(
            f"Downloading needs pooch: run `pip install replicax[data]`, or put {URL}{path.name} "
            f"into {path.parent} yourself."
        ) from None
    try:
        pooch.retrieve(
            URL + path.name, f"sha256:{SHA256[path.name]}", fname=path.name, path=path.parent
        )
    # Failures of the network are OSErrors, a wrong checksum is a ValueError.
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{URL}{path.name} could not be downloaded ({error}). Try again later, or put it into "
            f"{path.parent} yourself."
        ) from error


def _published(path: Path) -> dict[str, bytes]:
    """Return the files of an archive by name; raise unless it has the published checksum, by which
    it cannot hold anything but the data set."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != SHA256[path.name]:
            raise ValueError(
                f"{path} ({path.stat().st_size:,} bytes) has the SHA-256 checksum {digest}, not "
                f"{SHA256[path.name]}: it is incomplete, damaged or another file. Delete it and "
                "fetch it again."
            )
        stream.seek(0)
        with tarfile.open(fileobj=stream, mode="r:gz") as archive:
            files = {PurePosixPath(member.name).name: member for member in archive}
            contents = {name: archive.extractfile(member) for name, member in files.items()}
            return {name: file.read() for name, file in contents.items() if file is not None}


def _read(files: dict[str, bytes], name: str) -> tuple[Part, Part]:
    """Return the training part and the test part of pickled dicts."""
    labels = b"labels" if name == "cifar10" else b"fine_labels"

    def read(stems: list[str]) -> Part:
        batches = [pickle.loads(files[stem], encoding="bytes") for stem in stems]
        pixels = np.concatenate([batch[b"data"] for batch in batches])
        return _images(pixels), np.concatenate([batch[labels] for batch in batches])

    train, test = _PARTS[name]
    return read(train), read(test)


def _images(pixels: np.ndarray) -> np.ndarray:
    """Return pixels (image, 3072), the red plane first, then green, then blue, as images."""
    return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
