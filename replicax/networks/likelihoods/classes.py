"""Classes: the outputs of a network are logits (row, class), the targets class numbers (row,)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from replicax.networks import predict
from replicax.networks.likelihoods.likelihood import Score
from replicax.networks.predict import Average, Metrics

_SCORES = (
    Score("accuracy", "accuracy %", "Accuracy", ", %", factor=100.0, digits=2),
    Score("nll", "NLL", "Negative log-likelihood"),
)
_FURTHER = (Score("brier", "Brier"), Score("calibration_error", "calibration error"))


@dataclass(frozen=True)
class Categorical:
    """Classes, averaged by probabilities or by logits; see `rx.predict`."""

    num_classes: int | None = None  # None: as many as there are logits

    ways: ClassVar[tuple[str, ...]] = ("probabilities", "logits")
    scores: ClassVar[tuple[Score, ...]] = _SCORES
    columns: ClassVar[tuple[Score, ...]] = _SCORES + _FURTHER

    def to_json(self) -> dict[str, Any]:
        return {"kind": "categorical", "num_classes": self.num_classes}

    def check(self, shape: tuple[int, ...] | None, num_rows: int) -> None:
        wanted = "classes" if self.num_classes is None else self.num_classes
        if shape is None or len(shape) != 2 or shape != (num_rows, self.num_classes or shape[1]):
            raise ValueError(
                f"The logits of the test have shape {shape} for {num_rows} inputs; num_classes is "
                f"{wanted}, so that they need shape ({num_rows}, {wanted})."
            )

    def empty(self, targets: Any) -> Average:
        assert self.num_classes is not None, "a test knows its classes"
        return Average.empty(len(targets), self.num_classes)

    def average(self, outputs: Array, targets: Any, weights: Array) -> Average:
        return predict.average(outputs, weights)

    def merge(self, one: Average, other: Average) -> Average:
        return predict.merge(one, other)

    def score(self, outputs: Array, targets: Any) -> dict[str, Array]:
        nll = optax.softmax_cross_entropy_with_integer_labels(outputs, targets)
        right = jnp.argmax(outputs, axis=1) == targets
        return {"nll": jnp.mean(nll), "accuracy": jnp.mean(right)}

    def score_average(self, sums: Average, targets: Any, by: str) -> dict[str, Array]:
        return self.score(predict.log_probabilities(sums, by), targets)  # type: ignore[arg-type]

    def predictive(self, sums: Average, targets: Any, by: str) -> np.ndarray:
        return np.asarray(predict.log_probabilities(sums, by))  # type: ignore[arg-type]

    def metrics(self, sums: Average, targets: Any, by: str) -> Metrics:
        return predict.evaluate(self.predictive(sums, targets, by), targets)

    def combine(self, outputs: Array, weights: Array, by: str) -> Array:
        average = predict.average(outputs, weights)
        return predict.log_probabilities(average, by)  # type: ignore[arg-type]

    def members(self, outputs: Array) -> Array:
        return jax.nn.log_softmax(outputs, axis=-1)

    def finished(self, predicted: Any) -> np.ndarray:
        return np.asarray(predicted)

    def restored(self, targets: Any) -> np.ndarray:
        return np.asarray(targets)

    def figures(self, sums: Average, targets: Any) -> dict[str, Any]:
        figures = {}
        for by in self.ways:
            bins = predict.reliability(self.predictive(sums, targets, by), targets)
            name = "reliability" if by == self.ways[0] else f"reliability-{by}"
            title = f"Average of {float(sums.weight):g} networks by {by}"
            figures[name] = predict.plot_reliability(bins, title)
        return figures
