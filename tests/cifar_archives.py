"""Tiny CIFAR archives in the published formats."""

import hashlib
import io
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

from replicax.data import cifar

NUM_CLASSES = {"cifar10": 10, "cifar100": 100}
FOLDERS = {
    "cifar-10-python.tar.gz": "cifar-10-batches-py",
    "cifar-100-python.tar.gz": "cifar-100-python",
}
ARCHIVES = {
    "cifar10": "cifar-10-python.tar.gz",
    "cifar100": "cifar-100-python.tar.gz",
}


def python2(value) -> bytes:
    """Pickle a value in protocol 2 as Python 2 and its NumPy did, opcode by opcode."""
    if isinstance(value, bytes):
        short = len(value) < 256
        return (
            b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<i", len(value))
        ) + value
    if isinstance(value, int):
        return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(python2, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(python2(x) for item in value.items() for x in item) + b"u"
    assert isinstance(value, np.ndarray) and value.dtype == np.uint8
    shape = b"(" + b"".join(map(python2, value.shape)) + b"t"
    kind = b"cnumpy\ndtype\n" + python2(b"u1") + b"K\x00K\x01\x87R"
    kind += b"(K\x03" + python2(b"|") + b"NNN" + python2(-1) + python2(-1) + b"K\x00tb"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + python2(b"b")
    return empty + b"\x87R(K\x01" + shape + kind + b"\x89" + python2(value.tobytes()) + b"tb"


def pickled(value) -> bytes:
    return b"\x80\x02" + python2(value) + b"."


def rows_of(images: np.ndarray) -> np.ndarray:
    """Images as published: a row is the red plane, line by line, then green, then blue."""
    rows = np.zeros((len(images), 3072), np.uint8)
    for channel in range(3):
        for line in range(32):
            start = 1024 * channel + 32 * line
            rows[:, start : start + 32] = images[:, line, :, channel]
    return rows


def parts(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Images and labels of the five training batches (one for CIFAR-100) and of the test part."""
    random = np.random.RandomState(NUM_CLASSES[name])
    counts = (3, 2, 1, 2, 2, 4) if name == "cifar10" else (7, 4)
    return [
        (
            random.randint(0, 256, (n, 32, 32, 3)).astype(np.uint8),
            random.randint(0, NUM_CLASSES[name], n),
        )
        for n in counts
    ]


def names_of(name: str) -> list[bytes]:
    return [b"class_%d" % number for number in range(NUM_CLASSES[name])]


def files_of(name: str) -> dict[str, bytes]:
    """The files of a tiny data set, as published."""
    fine, stems = name == "cifar100", ["train", "test"]
    if not fine:
        stems = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    files = {}
    for stem, (images, labels) in zip(stems, parts(name), strict=True):
        rows, labels = rows_of(images), [int(label) for label in labels]
        coarse = [label // 5 for label in labels]
        kinds = {b"fine_labels": labels, b"coarse_labels": coarse} if fine else {b"labels": labels}
        files[stem] = pickled({b"batch_label": b"a batch", **kinds, b"data": rows})
    meta = {b"fine_label_names" if fine else b"label_names": names_of(name), b"num_vis": 3072}
    return {**files, "meta" if fine else "batches.meta": pickled(meta), "readme.html": b"hello"}


def write_archive(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        top = tarfile.TarInfo(FOLDERS[path.name])
        top.type = tarfile.DIRTYPE
        tar.addfile(top)
        for file, content in files.items():
            member = tarfile.TarInfo(f"{top.name}/{file}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def write_cifar(folder: Path, name: str, **changed: bytes) -> Path:
    """Write an archive, with some files changed, and return its path."""
    path = folder / ARCHIVES[name]
    write_archive(path, {**files_of(name), **changed})
    return path


def publish(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let the file at `path` have the published checksum."""
    monkeypatch.setitem(cifar.SHA256, path.name, hashlib.sha256(path.read_bytes()).hexdigest())


def assert_is(dataset, name: str) -> None:
    """Assert that the data set has the pixels and labels of `parts(name)`."""
    *train, test = parts(name)
    actual = (dataset.train_images, dataset.train_labels, dataset.test_images, dataset.test_labels)
    expected = (*(np.concatenate(column) for column in zip(*train)), *test)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    assert dataset.train_images.dtype == np.uint8 and dataset.train_labels.dtype == np.int32
    assert dataset.train_images.flags.c_contiguous
    assert (dataset.name, dataset.num_classes) == (name, NUM_CLASSES[name])
