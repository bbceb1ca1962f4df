"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), read from the archives of their author."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from replicax.data.archive import read_archive, read_file, read_pickle
from replicax.data.dataset import Dataset
from replicax.data.fetch import default_folder
from replicax.data.fetch import download as fetch
from replicax.errors import check_folder, choose

URL = "https://www.cs.toronto.edu/~kriz/"

# MD5 of archives: from the author's page. SHA-256: from TensorFlow and Julia's MLDatasets. MD5 of
# single files: from torchvision.
CHECKSUMS: dict[str, tuple[str, ...]] = {
    "cifar-10-python.tar.gz": (
        "md5:c58f30108f718f92721af3b95e74349a",
        "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    "cifar-10-binary.tar.gz": (
        "md5:c32a1d4ab5d03f1284b67883e8d87530",
        "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    "cifar-100-python.tar.gz": (
        "md5:eb9058c3a382ffc7106e4002c42a8d85",
        "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
    "cifar-100-binary.tar.gz": (
        "md5:03b5dce01913d631647c71ecec9e9cb8",
        "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    ),
    "cifar-10-batches-py/data_batch_1": ("md5:c99cafc152244af753f735de768cd75f",),
    "cifar-10-batches-py/data_batch_2": ("md5:d4bba439e000b95fd0a9bffe97cbabec",),
    "cifar-10-batches-py/data_batch_3": ("md5:54ebc095f3ab1f0389bbae665268c751",),
    "cifar-10-batches-py/data_batch_4": ("md5:634d18415352ddfa80567beed471001a",),
    "cifar-10-batches-py/data_batch_5": ("md5:482c414d41f54cd18b22e5b47cb7c3cb",),
    "cifar-10-batches-py/test_batch": ("md5:40351d587109b95175f43aff81a1287e",),
    "cifar-10-batches-py/batches.meta": ("md5:5ff9c542aee3614f3951f8cda6e48888",),
    "cifar-100-python/train": ("md5:16019d7e3df5f24257cddd939b257f8d",),
    "cifar-100-python/test": ("md5:f0ef6b0ae62326f3e7ffdfab6717acfc",),
    "cifar-100-python/meta": ("md5:7973b15100ade9c7d40fb424638fde48",),
}

# Of CIFAR-10; the paper's authors use them for CIFAR-100 too.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2023, 0.1994, 0.2010)

_NUM_PIXELS = 3 * 32 * 32
_AGAIN = "Fetch its archive again."
Rows = tuple[np.ndarray, np.ndarray]  # uint8 (image, 3072), int32 (image,)


class Edition(NamedTuple):
    """A published form of a data set: its files, and functions that read them."""

    archive: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    names: str
    read_rows: Callable[[str, bytes], Rows]
    read_names: Callable[[str, bytes], tuple[str, ...]]

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.train, *self.test, self.names)


def load_cifar(
    name: str,
    folder: str | os.PathLike | None = None,
    download: bool = False,
    checksums: Mapping[str, Sequence[str]] = CHECKSUMS,
) -> Dataset:
    """Return "cifar10", or "cifar100" with its hundred fine classes.

    Reads from `folder` (see `default_folder`) the archive of the python edition, that of the
    binary edition, or the unpacked folder of the python edition, whichever is there first. All
    files must have the published checksums. `download` fetches a missing archive.
    """
    editions = EDITIONS[choose("The name of a CIFAR data set", name, EDITIONS)]
    folder = default_folder() if folder is None else check_folder("folder", folder).expanduser()
    if download and _find(editions, folder) is None:
        archive = editions[0].archive
        fetch(URL + archive, checksums[archive][-1], folder)
    edition = _find(editions, folder)
    if edition is None:
        raise FileNotFoundError(
            f"{folder} holds neither {editions[0].archive} nor {editions[1].archive}. Put one of "
            f"them there (from {URL}), name its folder (--data-dir), or download it "
            "(download=True, --download)."
        )
    return _assemble(name, edition, _read_files(edition, folder, checksums))


def _find(editions: Sequence[Edition], folder: Path) -> Edition | None:
    """Return the first edition with an archive, else the python edition if it is unpacked."""
    for edition in editions:
        if (folder / edition.archive).exists():
            return edition
    python = editions[0]
    return python if (folder / python.names).parent.is_dir() else None


def _read_files(
    edition: Edition, folder: Path, checksums: Mapping[str, Sequence[str]]
) -> dict[str, bytes]:
    path = folder / edition.archive
    if path.exists():
        return read_archive(path, checksums[edition.archive], edition.files)
    return {file: read_file(folder / file, checksums[file]) for file in edition.files}


def _assemble(name: str, edition: Edition, files: Mapping[str, bytes]) -> Dataset:
    train_images, train_labels = _read_part(edition, edition.train, files)
    test_images, test_labels = _read_part(edition, edition.test, files)
    class_names = edition.read_names(edition.names, files[edition.names])
    return Dataset(
        name=name,
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
        num_classes=len(class_names),
        mean=MEAN,
        std=STD,
        class_names=class_names,
    ).check()


def _read_part(edition: Edition, part: Sequence[str], files: Mapping[str, bytes]) -> Rows:
    pixels, labels = zip(*(edition.read_rows(file, files[file]) for file in part))
    # A row is the red plane, then green, then blue: (image, channel, height, width).
    images = np.concatenate(pixels).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), np.concatenate(labels)


def _binary_rows(num_labels: int) -> Callable[[str, bytes], Rows]:
    """Return a reader of records: `num_labels` bytes, the finest label last, then the image."""
    size = num_labels + _NUM_PIXELS

    def read(file: str, content: bytes) -> Rows:
        if len(content) == 0 or len(content) % size:
            raise ValueError(
                f"{file} has {len(content):,} bytes, not a whole number of records of {size}: it "
                "is incomplete or another file. Fetch its archive again."
            )
        records = np.frombuffer(content, np.uint8).reshape(-1, size)
        return records[:, num_labels:], records[:, num_labels - 1].astype(np.int32)

    return read


def _pickled_rows(key: bytes) -> Callable[[str, bytes], Rows]:
    """Return a reader of pickled dicts: pixels, a row per image, and a list of labels at `key`."""

    def read(file: str, content: bytes) -> Rows:
        batch = read_pickle(file, content)
        pixels, labels = _entry(file, batch, b"data"), _entry(file, batch, key)
        plain = isinstance(labels, list) and all(
            type(label) is int and 0 <= label < 256 for label in labels
        )
        rows = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8
        if not (plain and rows and pixels.shape == (len(labels), _NUM_PIXELS)):
            raise ValueError(
                f"{file} does not have a row of {_NUM_PIXELS} bytes and an integer label for every "
                "image: it is another file. Fetch its archive again."
            )
        return pixels, np.array(labels, np.int32)

    return read


def _pickled_names(key: bytes) -> Callable[[str, bytes], tuple[str, ...]]:
    def read(file: str, content: bytes) -> tuple[str, ...]:
        names = _entry(file, read_pickle(file, content), key)
        if not isinstance(names, list) or not all(isinstance(name, bytes) for name in names):
            raise ValueError(f"{file} has no list of names: it is another file. {_AGAIN}")
        return tuple(_decoded(file, name) for name in names)

    return read


def _listed_names(file: str, content: bytes) -> tuple[str, ...]:
    """Read one name per line; blank lines do not count."""
    lines = _decoded(file, content).splitlines()
    return tuple(line.strip() for line in lines if line.strip())


def _decoded(file: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueError(
            f"{file} has names that are not text: it is another file. {_AGAIN}"
        ) from None


def _entry(file: str, batch, key: bytes):
    if isinstance(batch, dict) and key in batch:
        return batch[key]
    raise ValueError(
        f"{file} has no entry {key.decode()!r}: it is another file. Fetch its archive again."
    )


def _within(folder: str, *files: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{file}" for file in files)


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

EDITIONS: dict[str, tuple[Edition, Edition]] = {
    "cifar10": (
        Edition(
            "cifar-10-python.tar.gz",
            _within("cifar-10-batches-py", *_BATCHES),
            _within("cifar-10-batches-py", "test_batch"),
            "cifar-10-batches-py/batches.meta",
            _pickled_rows(b"labels"),
            _pickled_names(b"label_names"),
        ),
        Edition(
            "cifar-10-binary.tar.gz",
            _within("cifar-10-batches-bin", *(f"{batch}.bin" for batch in _BATCHES)),
            _within("cifar-10-batches-bin", "test_batch.bin"),
            "cifar-10-batches-bin/batches.meta.txt",
            _binary_rows(num_labels=1),
            _listed_names,
        ),
    ),
    "cifar100": (
        Edition(
            "cifar-100-python.tar.gz",
            _within("cifar-100-python", "train"),
            _within("cifar-100-python", "test"),
            "cifar-100-python/meta",
            _pickled_rows(b"fine_labels"),
            _pickled_names(b"fine_label_names"),
        ),
        Edition(
            "cifar-100-binary.tar.gz",
            _within("cifar-100-binary", "train.bin"),
            _within("cifar-100-binary", "test.bin"),
            "cifar-100-binary/fine_label_names.txt",
            _binary_rows(num_labels=2),
            _listed_names,
        ),
    ),
}
