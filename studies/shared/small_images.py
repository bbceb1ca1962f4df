"""Small images: 20 classes of CIFAR-100 at 16 x 16 pixels, with which residual networks train in
minutes; made from the archive of the data set, and kept beside it."""

from pathlib import Path

import numpy as np

import replicax as rx
from replicax.data import Dataset
from replicax.data.cifar import default_folder

FILE = "small-images.npz"
EVERY, PER_CLASS, BLOCK = 5, 250, 2  # every fifth class, training images of each, pixels averaged


def small_images(folder: Path | None = None) -> Dataset:
    """Return 5,000 training and 2,000 test images of 20 classes; `folder` has them, or the archive
    of CIFAR-100, from which they are made once."""
    folder = default_folder() if folder is None else folder
    path = folder / FILE
    if not path.exists():
        reduced = reduce(rx.data.load("cifar100", folder))
        names = ("train_images", "train_labels", "test_images", "test_labels")
        unfinished = path.with_suffix(".tmp.npz")
        np.savez_compressed(unfinished, **{name: getattr(reduced, name) for name in names})
        unfinished.replace(path)
    with np.load(path) as arrays:
        return _as_dataset(dict(arrays))


def reduce(whole: Dataset) -> Dataset:
    """Return the first `PER_CLASS` training images, and all test images, of every fifth class, with
    means over blocks of pixels."""
    classes = np.arange(0, whole.num_classes, EVERY)
    firsts = [np.flatnonzero(whole.train_labels == one)[:PER_CLASS] for one in classes]
    train, test = np.sort(np.concatenate(firsts)), np.isin(whole.test_labels, classes)
    return _as_dataset(
        {
            "train_images": _smaller(whole.train_images[train]),
            "train_labels": whole.train_labels[train] // EVERY,
            "test_images": _smaller(whole.test_images[test]),
            "test_labels": whole.test_labels[test] // EVERY,
        }
    )


def _smaller(images: np.ndarray) -> np.ndarray:
    count, height, width, channels = images.shape
    blocks = images.reshape(count, height // BLOCK, BLOCK, width // BLOCK, BLOCK, channels)
    return np.rint(blocks.mean(axis=(2, 4))).astype(np.uint8)


def _as_dataset(arrays: dict[str, np.ndarray]) -> Dataset:
    pixels = arrays["train_images"] / 255
    mean, std = (tuple(map(float, of(axis=(0, 1, 2)))) for of in (pixels.mean, pixels.std))
    train = arrays["train_images"], arrays["train_labels"]
    test = arrays["test_images"], arrays["test_labels"]
    return Dataset("small images", *train, *test, int(train[1].max()) + 1, mean, std).check()
