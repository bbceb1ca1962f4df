"""Arrays that grow by a row at a time, in amortised constant time."""

from typing import Any

import numpy as np

_BLOCK = 256  # rows that wait to become an array: an array for each would take longer


class Rows:
    """Rows of one shape and type, which must not be changed after they are added."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self._blocks = [np.zeros((0, *shape), dtype)]
        self._waiting: list[Any] = []

    @property
    def values(self) -> np.ndarray:
        """The rows so far  (row, ...)."""
        self._settle()
        if len(self._blocks) > 1:
            self._blocks = [np.concatenate(self._blocks)]
        return self._blocks[0]

    def append(self, row: Any) -> None:
        """Add a row."""
        self._waiting.append(row)
        if len(self._waiting) == _BLOCK:
            self._settle()

    def _settle(self) -> None:
        if self._waiting:
            self._blocks.append(np.array(self._waiting, self._blocks[0].dtype))
            self._waiting = []

    def check(self, values: np.ndarray) -> None:
        """Raise unless `values` have the shape of these rows."""
        if values.ndim == 0 or values.shape[1:] != self._blocks[0].shape[1:]:
            raise ValueError(f"The saved rows have shape {values.shape}: give a state_dict().")

    def replace(self, values: np.ndarray) -> None:
        """Replace all rows by others, which have passed `check`."""
        self._blocks, self._waiting = [np.array(values, self._blocks[0].dtype)], []
