"""Labelled images, as bytes in memory."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from replicax.errors import at_least, is_number, is_whole, show


class Dataset(NamedTuple):
    """Labelled images, split into a training and a test part.

    `mean` and `std` are those of the pixels of each channel, from 0 (black) to 1 (white).
    """

    name: str
    train_images: np.ndarray  # uint8 (image, height, width, channel)
    train_labels: np.ndarray  # int32 (image,)
    test_images: np.ndarray
    test_labels: np.ndarray
    num_classes: int
    mean: tuple[float, ...]  # (channel,)
    std: tuple[float, ...]  # (channel,)

    def check(self) -> "Dataset":
        """Return the data set with labels as class numbers, which may be one-hot or integers of any
        width; raise a `ValueError` if it is inconsistent."""
        if not is_whole(self.num_classes) or self.num_classes < 1:
            raise ValueError(
                f"{self.name}: num_classes is {show(self.num_classes)}; it must be a whole number "
                "of at least 1."
            )
        labels = {f"{part}_labels": self._checked(part) for part in ("train", "test")}
        shape, other = (images.shape[1:] for images in (self.train_images, self.test_images))
        if shape != other:
            raise ValueError(
                f"{self.name}: training images have shape {shape}, test images {other}; bring both "
                "to the same height, width and number of channels."
            )
        check_moments(self.name, self.mean, self.std, shape[-1])
        same = all(array is getattr(self, name) for name, array in labels.items())
        return self if same else self._replace(**labels)

    def _checked(self, part: str) -> np.ndarray:
        """Return the labels of a part, whose images are bytes."""
        images, labels = (getattr(self, f"{part}_{kind}") for kind in ("images", "labels"))
        lengths = [len(x) for x in (images, labels) if getattr(x, "ndim", 0)]
        if len(lengths) == 2 and (lengths[0] != lengths[1] or not lengths[0]):
            raise ValueError(
                f"{self.name}: {lengths[0]} {part} images and {lengths[1]} {part} labels; give at "
                "least one image, and one label for each."
            )
        if getattr(images, "dtype", None) != np.uint8 or images.ndim != 4:
            raise ValueError(
                f"{self.name}: {part}_images is {describe(images)}; give an array of uint8 with "
                "axes (image, height, width, channel), its values 0 to 255. For floats from 0 to 1 "
                "that is np.round(255 * images).astype(np.uint8); or pass floating-point images to "
                "rx.classification as a pair (images, labels)."
            )
        return as_labels(f"{self.name}: {part}_labels", labels, self.num_classes)

    def validation_split(self, num_images: int, seed: int = 0) -> "Dataset":
        """Return the training images only, with `num_images` random ones as the test part.

        Use it to choose settings without the test images: train on the rest, and finally, with the
        chosen settings, on the whole data set. The images keep their order.
        """
        is_held = held_out(self.name, "images", len(self.train_labels), num_images, seed)
        return self._replace(
            train_images=self.train_images[~is_held],
            train_labels=self.train_labels[~is_held],
            test_images=self.train_images[is_held],
            test_labels=self.train_labels[is_held],
        )


def check_moments(
    name: str, mean: Sequence[float], std: Sequence[float], num_channels: int
) -> None:
    """Raise unless mean and std can belong to pixels of so many channels, from 0 to 1."""
    is_each = all(
        isinstance(x, Sequence) and all(map(is_number, x)) and len(x) == num_channels
        for x in (mean, std)
    )
    # Written so that NaN fails too.
    if not is_each or not all(0 <= x <= 1 for x in mean) or not all(0 < x <= 1 for x in std):
        raise ValueError(
            f"{name}: mean is {show(mean)} and std {show(std)}; give a number of each for each of "
            f"the {num_channels} channels, of pixels between 0 and 1: divide them by 255 first, "
            "and leave out constant channels."
        )


def held_out(name: str, what: str, num_rows: int, count: int, seed: int) -> np.ndarray:
    """Choose `count` rows at random, not all of them: a mask (row,)."""
    if not is_whole(count) or not 0 < count < num_rows:
        raise ValueError(
            f"{name} has {num_rows} training {what}; num_{what} of the validation is "
            f"{show(count)}, and must be a whole number between 1 and {num_rows - 1}."
        )
    at_least("seed", seed, 0, 2**32 - 1)
    mask = np.zeros(num_rows, bool)
    # NumPy guarantees the numbers of RandomState for ever, unlike those of its newer generators.
    mask[np.random.RandomState(seed).permutation(num_rows)[:count]] = True
    return mask


def as_labels(what: str, labels: Any, num_classes: int) -> np.ndarray:
    """Return labels as class numbers, int32 (row,); `what` names them in errors.

    Integers of any width and one-hot rows (row, class) are accepted.

    >>> as_labels("labels", np.array([[0, 1], [1, 0]]), num_classes=2)
    array([1, 0], dtype=int32)
    """
    array = labels if hasattr(labels, "dtype") else None
    if array is not None and array.ndim == 2 and array.shape[1] == num_classes:
        ones = np.asarray(array) == 1
        if np.all(ones.sum(axis=1) == 1) and np.all(ones | (np.asarray(array) == 0)):
            array = ones.argmax(axis=-1)
    if array is None or array.ndim != 1 or np.dtype(array.dtype).kind not in "iu" or not len(array):
        is_text = array is not None and np.dtype(array.dtype).kind in "USO"
        names = " For names that is np.unique(labels, return_inverse=True)[1]." if is_text else ""
        raise ValueError(
            f"{what} is {describe(labels)}; give an array of whole numbers with one class number "
            f"for each row, or one-hot rows of as many columns as there are classes.{names}"
        )
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= num_classes:
        raise ValueError(
            f"{what} go from {low} to {high}, but {num_classes} classes count from 0 to "
            f"{num_classes - 1}; count classes from 0, or raise num_classes."
        )
    return array if array.dtype == np.int32 else np.asarray(array).astype(np.int32)


def count_classes(what: str, labels: np.ndarray, remedy: str = "") -> int:
    """Return how many classes there are: columns of one-hot labels, or the highest and one. Raise
    if no row has the first class, as where labels count from 1."""
    if labels.ndim == 2:
        return labels.shape[1]
    low, high = int(labels.min()), int(labels.max())
    if low > 0 and labels.dtype.kind in "iu":
        raise ValueError(
            f"{what} go from {low} to {high}, and none is 0: count classes from 0{remedy}."
        )
    return high + 1


def describe(value: Any) -> str:
    """Return a description of an array, and of anything else as `show` does."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"an array of {value.dtype} with shape {value.shape}"
    return show(value)
