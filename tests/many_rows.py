"""Rows of a logistic regression for tests of sums over rows."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from common import rng_of

D = 3


def of_rows(point: Any, rows: Any) -> Any:
    """A logistic regression."""
    x, y = rows
    z = x @ point
    return y * z - jax.nn.softplus(z)


def data_of(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = rng_of(num_rows)
    x = rng.normal(size=(num_rows, D)).astype(np.float32)
    return x, (rng.random(num_rows) < 1 / (1 + np.exp(-x.sum(axis=1)))).astype(np.float32)


def points_near(centre: np.ndarray, count: int, width: float) -> np.ndarray:
    return (centre + width * rng_of(1).normal(size=(count, D))).astype(np.float32)


class Uneven:
    """A source of blocks of any sizes, empty ones too."""

    def __init__(self, data: Any) -> None:
        self.data, self.cuts = data, [0, 10, 10, 75, 150, 151, len(data[1])]

    def __iter__(self) -> Iterator[Any]:
        for begin, end in zip(self.cuts, self.cuts[1:]):
            yield tuple(part[begin:end] for part in self.data)
