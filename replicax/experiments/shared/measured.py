"""Numbers of several seeds: stacked, averaged and formatted."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Measured(NamedTuple):
    """A mean over seeds with their standard deviation."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Any) -> "Measured":
        values = np.asarray(values, float).ravel()
        std = values.std(ddof=1) if values.size > 1 else 0.0
        return cls(float(values.mean()), float(std), values.size)

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.std / np.sqrt(self.n)

    def __str__(self) -> str:
        if self.n == 1:
            return number(self.mean)
        return f"{number(self.mean)} ± {number(self.std)} (n = {self.n})"


def stack(records: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Stack records of the same names along a new leading axis."""
    return {name: np.stack([record[name] for record in records]) for name in records[0]}


def number(value: float, digits: int = 3) -> str:
    """Format a number for people.

    >>> number(0.0123456), number(41.28), number(20000.0), number(7.6e-5)
    ('0.0123', '41.3', '20,000', '7.6e-05')
    """
    if not np.isfinite(value):
        return "–"
    if value == int(value) and abs(value) >= 1:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"
