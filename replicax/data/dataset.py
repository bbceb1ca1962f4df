"""Labelled images, as bytes in memory."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from replicax.data.conversions import as_bytes, as_labels
from replicax.errors import at_least, is_number, is_whole, show

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

    def subset(self, num_train: int, num_test: int | None = None, seed: int = 0) -> "Dataset":
        """Return a random subset of each part, in the original order.

        A smaller subset is contained in a larger one with the same seed. Without `num_test` the
        test part stays whole.
        """
        train = _choose_rows(self.name, "train", len(self.train_labels), num_train, seed)
        num_all = len(self.test_labels)
        test = _choose_rows(
            self.name, "test", num_all, num_all if num_test is None else num_test, seed
        )
        return self._replace(
            train_images=self.train_images[train],
            train_labels=self.train_labels[train],
            test_images=self.test_images[test],
            test_labels=self.test_labels[test],
        )

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


def _check_pixel_moments(name: str, mean, std, images: np.ndarray) -> None:
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
    mask = np.zeros(num_rows, bool)
    mask[_choose_rows(name, "train", num_rows, count, seed)] = True
    return mask


def _choose_rows(name: str, part: str, num_rows: int, count: int, seed: int) -> np.ndarray:
    if not is_whole(count) or not 0 < count <= num_rows:
        raise ValueError(
            f"{name} has {num_rows} {part} images; num_{part} is {show(count)}, and must be "
            f"a whole number between 1 and {num_rows}."
        )
    at_least("seed", seed, 0, 2**32 - 1)
    # NumPy guarantees the numbers of RandomState for ever, unlike those of its newer generators.
    return np.sort(np.random.RandomState(seed).permutation(num_rows)[:count])
