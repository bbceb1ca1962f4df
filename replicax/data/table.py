"""User arrays with one row per example: inputs, and labels or targets."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from replicax.data.conversions import count_classes, describe
from replicax.data.dataset import Dataset, held_out
from replicax.errors import suggest

_OUTCOMES = ("labels", "targets")
_NAMES = ("inputs", *_OUTCOMES, "test_inputs", *(f"test_{name}" for name in _OUTCOMES))


class Table(NamedTuple):
    """Inputs with their class numbers or real-valued targets."""

    name: str
    train: tuple[np.ndarray, np.ndarray]  # inputs, outcomes
    test: tuple[np.ndarray, np.ndarray] | None
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

    def validation_split(self, num_rows: int, seed: int = 0) -> "Table":
        """Return the training rows only, with `num_rows` random ones as the test."""
        is_held_out = held_out(self.name, "rows", len(self.train[1]), num_rows, seed)
        inputs, outcomes = self.train
        return self._replace(
            train=(inputs[~is_held_out], outcomes[~is_held_out]),
            test=(inputs[is_held_out], outcomes[is_held_out]),
        )

    def dataset(self) -> Dataset:
        """Return uint8 images as a data set, with the mean and spread of their pixels."""
        if self.test is None:
            raise ValueError(
                f"{self.name} has images and no test: add test_inputs and test_labels, or hold out "
                "some with --validation N."
            )
        shades = self.train[0].reshape(-1, self.train[0].shape[-1]) / 255
        moments = tuple(shades.mean(axis=0).tolist()), tuple(shades.std(axis=0).tolist())
        return Dataset(self.name, *self.train, *self.test, self.num_outcomes, *moments).check()


def read_table(path: Path) -> Table:
    """Return the arrays of a .npz file, by their names."""
    if not path.is_file():
        others = [other.name for other in path.parent.glob("*.npz")]
        raise ValueError(f"There is no file {path}.{suggest(path.name, others)}")
    try:
        with np.load(path, allow_pickle=False) as content:
            arrays = dict(content)
    except (EOFError, TypeError, ValueError, zipfile.BadZipFile):
        raise ValueError(
            f"{path} is not a .npz file of numbers; write one with np.savez."
        ) from None
    return as_table(path.name, arrays)


def as_table(name: str, arrays: Mapping[str, Any]) -> Table:
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
    train = _pair(name, "inputs", kinds[0], arrays)
    if kinds[0] == "labels" and train[1].dtype.kind in "iu":
        count_classes(f"{name}: labels", train[1])
    is_tested = any(f"test_{part}" in arrays for part in ("inputs", *_OUTCOMES))
    test = _pair(name, "test_inputs", f"test_{kinds[0]}", arrays) if is_tested else None
    return Table(name, train, test, has_classes=kinds[0] == "labels")


def _pair(name: str, first: str, second: str, arrays: Mapping[str, Any]) -> Any:
    """Return inputs and outcomes; raise unless both are there and have equally many rows."""
    for part in (first, second):
        if part not in arrays:
            raise ValueError(f"{name} has no {part}: it holds {', '.join(arrays)}.")
    pair = np.asarray(arrays[first]), np.asarray(arrays[second])
    shapes = [part.shape[:1] for part in pair]
    if shapes[0] != shapes[1] or shapes[0] in ((), (0,)):
        raise ValueError(
            f"{name}: {first} is {describe(pair[0])} and {second} {describe(pair[1])}; give "
            "equally many rows of both, and at least one."
        )
    if second.endswith("labels") and pair[1].dtype.kind not in "iuf":
        raise ValueError(f"{name}: {second} is {describe(pair[1])}; give whole numbers from 0 on.")
    return pair
