"""Tables as data sets: those of the user, and the handwritten digits of scikit-learn, which need no
download.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from replicax.data.dataset import Dataset, count_classes, describe, held_out
from replicax.errors import TooLarge, check_memory_for, suggest

NUM_TEST = 500
_WHITE = 16  # the digits are counts of inked pixels in blocks of 4 x 4
_OUTCOMES = ("labels", "targets")
_PARTS = ("inputs", *_OUTCOMES, "weights")
_NAMES = (*_PARTS, *(f"test_{name}" for name in _PARTS))


def load_digits() -> Dataset:
    """Return 1,797 digits of 8 x 8 pixels in a fixed split: 1,297 for training, 500 for testing.

    Both parts have the ten digits in nearly the same proportions.
    """
    try:
        from sklearn.datasets import load_digits as load_from_sklearn
    except ImportError:
        raise ValueError(
            "The digits come with scikit-learn: run `pip install replicax[data]`."
        ) from None
    counts, labels = load_from_sklearn(return_X_y=True)
    pixels = np.round(np.asarray(counts) * (255 / _WHITE)).astype(np.uint8)
    images, labels = pixels.reshape(-1, 8, 8, 1), np.asarray(labels, np.int32)
    is_test = stratified(labels, NUM_TEST)
    train_images = images[~is_test]
    shades = train_images / 255
    return Dataset(
        name="digits",
        train_images=train_images,
        train_labels=labels[~is_test],
        test_images=images[is_test],
        test_labels=labels[is_test],
        num_classes=10,
        mean=(float(shades.mean()),),
        std=(float(shades.std()),),
    ).check()


def stratified(labels: np.ndarray, num_chosen: int, seed: int = 0) -> np.ndarray:
    """Choose rows at random in proportion to class sizes: a mask (row,), `num_chosen` True."""
    classes, sizes = np.unique(labels, return_counts=True)
    shares = sizes * num_chosen / len(labels)
    quotas = np.floor(shares).astype(int)
    # The remainder goes to the classes that lost most by rounding down.
    remainder = num_chosen - quotas.sum()
    quotas[np.argsort(quotas - shares, kind="stable")[:remainder]] += 1
    # NumPy guarantees the numbers of RandomState for ever, unlike those of its newer generators.
    random = np.random.RandomState(seed)
    mask = np.zeros(len(labels), bool)
    for number, quota in zip(classes, quotas):
        mask[random.permutation(np.flatnonzero(labels == number))[:quota]] = True
    return mask


class Tabular(NamedTuple):
    """Inputs with their class numbers or real-valued targets, and perhaps weights of the rows."""

    name: str
    train: tuple[Any, ...]  # inputs, outcomes, and weights if there are some
    test: tuple[Any, ...] | None
    has_classes: bool  # whether outcomes are labels, and not targets

    @property
    def num_outcomes(self) -> int:
        """Number of classes or targets."""
        outcomes = self.train[1]
        if outcomes.ndim == 2:
            return outcomes.shape[1]
        return int(outcomes.max()) + 1 if self.has_classes else 1

    @property
    def has_images(self) -> bool:
        """Whether inputs are images of bytes, which a `Dataset` normalises."""
        return self.has_classes and self.train[0].dtype == np.uint8 and self.train[0].ndim == 4

    def validation_split(self, num_rows: int, seed: int = 0) -> "Tabular":
        """Return the training rows only, with `num_rows` random ones as the test."""
        is_held_out = held_out(self.name, "rows", len(self.train[1]), num_rows, seed)
        return self._replace(
            train=tuple(part[~is_held_out] for part in self.train),
            test=tuple(part[is_held_out] for part in self.train),
        )

    def dataset(self) -> Dataset:
        """Return uint8 images as a data set, with the mean and spread of their pixels."""
        if self.test is None:
            raise ValueError(
                f"{self.name} has images and no test: add test_inputs and test_labels, or hold out "
                "some with --validation N."
            )
        (images, labels, *weights), tested = self.train, (self.test[0], self.test[1])
        if weights:
            raise ValueError(
                f"{self.name} has images of bytes and weights: give the images as floating-point "
                "numbers, or in Python sample_weight=... of rx.classification."
            )
        shades = images.reshape(-1, images.shape[-1]) / 255
        moments = tuple(shades.mean(axis=0).tolist()), tuple(shades.std(axis=0).tolist())
        return Dataset(self.name, images, labels, *tested, self.num_outcomes, *moments).check()


def read_table(path: Path) -> Tabular:
    """Return the arrays of a .npz file, by their names."""
    if not path.is_file():
        others = [other.name for other in path.parent.glob("*.npz")]
        raise ValueError(f"There is no file {path}.{suggest(path.name, others)}")
    try:
        check_size(path)
        with np.load(path, allow_pickle=False) as content:
            arrays = dict(content)
    except TooLarge:
        raise
    except (EOFError, TypeError, ValueError, zipfile.BadZipFile):
        raise ValueError(
            f"{path} is not a .npz file of numbers; write one with np.savez."
        ) from None
    return as_table(path.name, arrays)


def check_size(path: Path) -> None:
    """Raise if the arrays of a .npz file would not fit into the memory: zeros take hardly any room
    in a file."""
    with zipfile.ZipFile(path) as archive:
        num_bytes = sum(entry.file_size for entry in archive.infolist())
    check_memory_for(str(path), num_bytes)


def as_table(name: str, arrays: Mapping[str, Any]) -> Tabular:
    """Return the table of arrays by name: inputs, labels or targets, and for a test test_inputs
    etc."""
    for found in arrays:
        if found not in _NAMES:
            near = suggest(str(found), _NAMES)
            raise ValueError(f"{name} holds {found!r}; its arrays are {', '.join(_NAMES)}.{near}")
    kinds = [kind for kind in _OUTCOMES if kind in arrays]
    if "inputs" not in arrays or len(kinds) != 1:
        raise ValueError(
            f"{name} holds {', '.join(arrays) or 'nothing'}; it needs inputs, and either labels "
            "(whole numbers, of classes) or targets (real numbers)."
        )
    train = _rows(name, "", kinds[0], arrays)
    if kinds[0] == "labels" and train[1].dtype.kind in "iu":
        count_classes(f"{name}: labels", train[1])
    is_tested = any(f"test_{part}" in arrays for part in _PARTS)
    test = _rows(name, "test_", kinds[0], arrays) if is_tested else None
    return Tabular(name, train, test, has_classes=kinds[0] == "labels")


def _rows(name: str, prefix: str, outcomes: str, arrays: Mapping[str, Any]) -> Any:
    """Return inputs, outcomes and weights, if there are some; raise unless the first two are there
    and all have equally many rows."""
    first, second, third = (prefix + part for part in ("inputs", outcomes, "weights"))
    weights = [np.asarray(arrays[third])] if third in arrays else []
    for part in (first, second):
        if part not in arrays:
            raise ValueError(f"{name} has no {part}: it holds {', '.join(arrays)}.")
    pair = np.asarray(arrays[first]), np.asarray(arrays[second])
    shapes = [part.shape[:1] for part in (*pair, *weights)]
    if len(set(shapes)) > 1 or shapes[0] in ((), (0,)):
        raise ValueError(
            f"{name}: {first} is {describe(pair[0])} and {second} {describe(pair[1])}"
            f"{''.join(f', {third} {describe(some)}' for some in weights)}; give "
            "equally many rows of all, and at least one."
        )
    is_whole = pair[1].dtype.kind in "iu" or (
        pair[1].dtype.kind == "f" and np.array_equal(pair[1], np.round(pair[1]))
    )
    if second.endswith("labels") and not is_whole:
        raise ValueError(f"{name}: {second} is {describe(pair[1])}; give whole numbers from 0 on.")
    if second.endswith("labels") and pair[1].min() < 0:
        raise ValueError(
            f"{name}: {second} go from {pair[1].min()} to {pair[1].max()}; number the classes from "
            "0 on, and leave out rows without a label."
        )
    return *pair, *weights
