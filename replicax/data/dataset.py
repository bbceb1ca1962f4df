"""Labelled images, as bytes in memory."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from replicax.errors import at_least, is_number, is_whole, show

_WHITE = 255
_ROUNDING = 0.01  # tolerance in shades; float32 represents bytes / 255 far more exactly
_SOME = 1000  # images whose pixels are compared with the mean and std that are given
_FAR = 2.0  # standard deviations by which means may differ; they themselves, by its square


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
    class_names: tuple[str, ...] = ()  # (class,), or empty

    def check(self) -> "Dataset":
        """Return the data set with labels as class numbers and images as bytes; raise a
        `ValueError` if it is inconsistent.

        Labels may be one-hot or integers of any width; floating-point images are accepted if their
        values are bytes, or bytes divided by 255.
        """
        if not is_whole(self.num_classes) or self.num_classes < 1:
            raise ValueError(
                f"{self.name}: num_classes is {show(self.num_classes)}; it must be a whole number "
                "of at least 1."
            )
        parts = {
            f"{part}_{kind}": array
            for part in ("train", "test")
            for kind, array in zip(("images", "labels"), self._checked(part), strict=True)
        }
        shape, other = (parts[f"{part}_images"].shape[1:] for part in ("train", "test"))
        if shape != other:
            raise ValueError(
                f"{self.name}: training images have shape {shape}, test images {other}; bring both "
                "to the same height, width and number of channels."
            )
        _check_pixel_moments(self.name, self.mean, self.std, parts["train_images"])
        if self.class_names and len(self.class_names) != self.num_classes:
            raise ValueError(
                f"{self.name}: {len(self.class_names)} class names for {self.num_classes} classes; "
                "name every class, or leave class_names empty."
            )
        same = all(array is getattr(self, name) for name, array in parts.items())
        return self if same else self._replace(**parts)

    def _checked(self, part: str) -> tuple[np.ndarray, np.ndarray]:
        """Return images and labels of a part."""
        given, labels = (getattr(self, f"{part}_{kind}") for kind in ("images", "labels"))
        lengths = [len(x) for x in (given, labels) if getattr(x, "ndim", 0)]
        if len(lengths) == 2 and (lengths[0] != lengths[1] or not lengths[0]):
            raise ValueError(
                f"{self.name}: {lengths[0]} {part} images and {lengths[1]} {part} labels; give at "
                "least one image, and one label for each."
            )
        images = as_bytes(f"{self.name}: {part}_images", given)
        return images, as_labels(f"{self.name}: {part}_labels", labels, self.num_classes)

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


def _check_pixel_moments(
    name: str, mean: Sequence[float], std: Sequence[float], images: np.ndarray
) -> None:
    """Raise unless mean and std can belong to pixels; warn if they are far from those of the
    pixels."""
    num_channels = images.shape[-1]
    if not all(isinstance(x, Sequence) and all(map(is_number, x)) for x in (mean, std)):
        raise ValueError(
            f"{name}: mean is {show(mean)} and std {show(std)}; give a tuple of numbers each, one "
            "per channel."
        )
    if len(mean) != num_channels or len(std) != num_channels:
        raise ValueError(
            f"{name}: mean has {len(mean)} and std {len(std)} entries for {num_channels} "
            "channels; give one of each per channel."
        )
    # Written so that NaN fails too.
    if not (all(0 <= value <= 1 for value in mean) and all(0 < value <= 1 for value in std)):
        raise ValueError(
            f"{name}: mean {mean} and std {std} do not belong to pixels between 0 and 1; divide "
            "the pixels by 255 first, and leave out constant channels."
        )
    some = np.asarray(images[:: 1 + len(images) // _SOME]).reshape(-1, num_channels) / 255
    centre, spread = some.mean(axis=0), some.std(axis=0)
    ratio = spread / np.asarray(std)
    is_far = (np.abs(centre - mean) > _FAR * np.asarray(std)) | (ratio > _FAR**2)
    varies = spread > 1 / 255 / len(some)  # images that are all the same have no spread
    if np.any(varies & (is_far | (ratio < 1 / _FAR**2))):
        warnings.warn(
            f"{name}: its pixels, from 0 (black) to 1 (white), have mean {_rounded(centre)} and "
            f"standard deviation {_rounded(spread)}, and mean={_rounded(mean)} and "
            f"std={_rounded(std)} are given, by which they are normalised: are images bytes from 0 "
            "to 255?",
            stacklevel=4,
        )


def _rounded(values: Any) -> tuple[float, ...]:
    return tuple(float(f"{value:.2g}") for value in values)


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
    if array is not None and array.ndim == 2 and _is_one_hot(np.asarray(array), num_classes):
        array = np.asarray(array).argmax(axis=-1)
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


def _is_one_hot(array: np.ndarray, num_classes: int) -> bool:
    if array.shape[1] != num_classes or array.dtype.kind not in "biuf":
        return False
    return bool(np.all((array == 0) | (array == 1)) and np.all(array.sum(axis=1) == 1))


def as_bytes(what: str, images: Any) -> Any:
    """Return images as uint8 (image, height, width, channel); `what` names them in errors.

    Integers from 0 to 255, and those divided by 255, are accepted in any dtype; other values are
    refused rather than rounded.
    """
    if getattr(images, "dtype", None) == np.uint8 and images.ndim == 4:
        return images
    if hasattr(images, "dtype") and images.ndim == 4 and np.dtype(images.dtype).kind in "iuf":
        array = np.asarray(images)
        if array.size and array.min() >= 0 and array.max() <= _WHITE:
            factor = _WHITE if array.dtype.kind == "f" and array.max() <= 1 else 1
            rounded = np.round(factor * array)
            if np.abs(factor * array - rounded).max() <= _ROUNDING:
                return rounded.astype(np.uint8)
    raise ValueError(
        f"{what} is {describe(images)}{_range(images)}; give an array of uint8 with axes (image, "
        "height, width, channel), its values 0 to 255. For floats from 0 to 1 that is "
        "np.round(255 * images).astype(np.uint8); or pass floating-point images to "
        "rx.classification as a pair (images, labels)."
    )


def _range(images: Any) -> str:
    """Return the range of the values of images in words, if they are numbers."""
    if not hasattr(images, "dtype") or np.dtype(images.dtype).kind not in "iuf" or not images.size:
        return ""
    low, high = float(np.min(images)), float(np.max(images))
    shades = " in steps other than 1 / 255" if low >= 0 and high <= 1 else ""
    return f" and values from {low:.4g} to {high:.4g}{shades}"


def describe(value: Any) -> str:
    """Return a description of an array, and of anything else as `show` does."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"an array of {value.dtype} with shape {value.shape}"
    return show(value)
