"""Conversion of labels to class numbers and of images to bytes."""

from typing import Any

import numpy as np

from replicax.errors import show

_WHITE = 255
_ROUNDING = 0.01  # tolerance in shades; float32 represents bytes / 255 far more exactly


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
