"""Arrays that grow by a row at a time, in amortised constant time."""

from typing import Any

import numpy as np


class Rows:
    """Rows of one shape and type."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self._array, self._length = np.zeros((64, *shape), dtype), 0

    @property
    def values(self) -> np.ndarray:
        """The rows so far  (row, ...)."""
        return self._array[: self._length]

    def append(self, row: Any) -> None:
        """Add a row."""
        if self._length == len(self._array):
            self._array = np.concatenate([self._array, np.zeros_like(self._array)])
        self._array[self._length] = row
        self._length += 1

    def replace(self, values: np.ndarray) -> None:
        """Put other rows in the place of those so far."""
        if values.shape[1:] != self._array.shape[1:]:
            raise ValueError(f"The saved rows have shape {values.shape}: give a state_dict().")
        self._array, self._length = np.array(values, self._array.dtype), len(values)
        if not len(values):
            self._array = np.zeros((64, *values.shape[1:]), self._array.dtype)
