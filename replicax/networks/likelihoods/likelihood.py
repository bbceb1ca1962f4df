"""`Likelihood`, the interface of the evaluation of networks: scores, running sums, predictions."""

from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from jax import Array


class Score(NamedTuple):
    """A score of networks, and how it is shown."""

    name: str  # name of a column of the epochs, or of a metric
    head: str  # heading in tables
    title: str = ""  # title of its figure; empty: no figure
    unit: str = ""
    factor: float = 1.0
    digits: int = 4


class Likelihood(Protocol):
    """The distribution of targets, given the outputs of a network (row, ...).

    Networks are averaged by running sums, a NamedTuple of arrays with the field `weight`, so that
    only one network's outputs are in memory at a time.
    """

    ways: ClassVar[tuple[str, ...]]  # kinds of averages; the first is the Bayesian model average
    scores: ClassVar[tuple[Score, ...]]  # scores of every network, columns of `epochs`
    columns: ClassVar[tuple[Score, ...]]  # scores and metrics in the summary

    def to_json(self) -> dict[str, Any]:
        """Return the likelihood as plain data, for `from_json`."""
        ...

    def check(self, shape: tuple[int, ...] | None, num_rows: int) -> None:
        """Raise unless a network's outputs for `num_rows` rows may have this shape."""
        ...

    def empty(self, targets: Any) -> Any:
        """Return sums over no networks."""
        ...

    def average(self, outputs: Array, targets: Any, weights: Array) -> Any:
        """Return sums over networks, given their outputs (network, row, ...)."""
        ...

    def merge(self, one: Any, other: Any) -> Any:
        """Return the sums over the networks of both."""
        ...

    def score(self, outputs: Array, targets: Any) -> dict[str, Array]:
        """Return the scores of one network, on the device."""
        ...

    def score_average(self, sums: Any, targets: Any, by: str) -> dict[str, Array]:
        """Return the scores of an average, on the device."""
        ...

    def predictive(self, sums: Any, targets: Any, by: str) -> Any:
        """Return the predictions of an average for the rows of its sums."""
        ...

    def metrics(self, sums: Any, targets: Any, by: str) -> Any:
        """Return all metrics of an average, a NamedTuple of numbers."""
        ...

    def combine(self, outputs: Array, weights: Array, by: str) -> Any:
        """Return the predictions of the average of networks, given their outputs (network, row,
        ...)."""
        ...

    def members(self, outputs: Array) -> Any:
        """Return the predictions of every network, leading axis: network."""
        ...

    def finished(self, predicted: Any) -> Any:
        """Return the result of `combine` or `members` as NumPy arrays in the unit of the user."""
        ...

    def restored(self, targets: Any) -> np.ndarray:
        """Return targets of the test in the unit of the user."""
        ...

    def figures(self, sums: Any, targets: Any) -> dict[str, Any]:
        """Return figures of the calibration of an average, by name."""
        ...
