"""Likelihoods: the distributions of targets, given the outputs of a network (row, ...).

Networks are averaged by running sums, a NamedTuple of arrays with the field `weight`, so that only
one network's outputs are in memory at a time. All likelihoods have the methods of `Categorical`.
"""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.scipy.special import betainc, logsumexp
from jax.scipy.stats import norm, t

from replicax.errors import check_number
from replicax.networks import predict
from replicax.networks.predict import Average, Metrics, proportion_interval
from replicax.run.storage.files import Damaged

Targets = Array | np.ndarray  # (row,) class numbers, or (row, target) standardised numbers
_MOST_CLASSES = 2**24
_LEVELS = np.linspace(0.05, 0.95, 19)  # levels of intervals for the calibration error


class Score(NamedTuple):
    """A score of networks, and how it is shown."""

    name: str  # name of a column of the epochs, or of a metric
    head: str  # heading in tables
    title: str = ""  # title of its figure
    unit: str = ""
    factor: float = 1.0
    digits: int = 4


def from_json(content: dict[str, Any]) -> "Likelihood":
    """Return the likelihood that its `to_json` described."""
    kinds = {"categorical": Categorical, "gaussian": Gaussian, "student": Student}
    values = {key: x for key, x in content.items() if key != "kind"}
    values = {key: tuple(x) if isinstance(x, list) else x for key, x in values.items()}
    try:
        law = kinds[content["kind"]](**values)
        if isinstance(law, Categorical):
            is_one = law.num_classes is None or law.num_classes in range(1, _MOST_CLASSES)
        else:
            is_one = np.shape(law.centre) == np.shape(law.spread) != () and np.all(
                np.isfinite([law.centre, law.spread])
            )
    except (LookupError, TypeError, ValueError):
        is_one = False
    if not is_one:
        raise Damaged("The likelihood of the run is none of replicax: its run.json is damaged.")
    return law


@dataclass(frozen=True)
class Categorical:
    """Classes, averaged by probabilities or by logits; see `rx.predict`."""

    num_classes: int | None = None  # None: as many as there are logits

    # Kinds of averages, of which the first is the Bayesian model average; scores of every network,
    # which are columns of `epochs`; and what the summary shows.
    ways: ClassVar[tuple[str, ...]] = ("probabilities", "logits")
    scores: ClassVar[tuple[Score, ...]] = (
        Score("accuracy", "accuracy %", "Accuracy", ", %", factor=100.0, digits=2),
        Score("nll", "NLL", "Negative log-likelihood"),
    )
    columns: ClassVar[tuple[Score, ...]] = (
        *scores,
        Score("brier", "Brier"),
        Score("calibration_error", "calibration error"),
    )

    def to_json(self) -> dict[str, Any]:
        """Return the likelihood as plain data, for `from_json`."""
        return {"kind": "categorical", "num_classes": self.num_classes}

    def check(self, shape: tuple[int, ...] | None, num_rows: int) -> None:
        """Raise unless a network's outputs for `num_rows` rows may have this shape."""
        wanted = "classes" if self.num_classes is None else self.num_classes
        if shape is None or len(shape) != 2 or shape != (num_rows, self.num_classes or shape[1]):
            raise ValueError(
                f"The logits of the test have shape {shape} for {num_rows} inputs; num_classes is "
                f"{wanted}, so that they need shape ({num_rows}, {wanted})."
            )
        if shape[1] < 2:
            raise ValueError(
                "The logits have one output, and one class has probability 1 for every input: give "
                "two outputs for two classes, jnp.stack([0 * logit, logit], -1), or write "
                "rx.regression for real numbers."
            )

    def empty(self, targets: Targets) -> Average:
        """Return sums over no networks."""
        assert self.num_classes is not None, "a test knows its classes"
        return Average.empty(len(targets), self.num_classes)

    def average(self, outputs: Array, targets: Targets, weights: Array) -> Average:
        """Return sums over networks, given their outputs (network, row, ...)."""
        return predict.average(outputs, weights)

    def merge(self, one: Average, other: Average) -> Average:
        """Return the sums over the networks of both."""
        return predict.merge(one, other)

    def score(self, outputs: Array, targets: Targets) -> dict[str, Array]:
        """Return the scores of one network, on the device."""
        nll = optax.softmax_cross_entropy_with_integer_labels(outputs, targets)
        right = jnp.argmax(outputs, axis=1) == targets
        return {"nll": jnp.mean(nll), "accuracy": jnp.mean(right)}

    def score_average(self, sums: Average, targets: Targets, by: str) -> dict[str, Array]:
        """Return the scores of an average, on the device."""
        return self.score(predict.log_probabilities(sums, by), targets)  # type: ignore[arg-type]

    def predictive(self, sums: Average, targets: Targets, by: str) -> np.ndarray:
        """Return the predictions of an average for the rows of its sums."""
        return np.asarray(predict.log_probabilities(sums, by))  # type: ignore[arg-type]

    def metrics(self, sums: Average, targets: Targets, by: str) -> Metrics:
        """Return all metrics of an average, a NamedTuple of numbers."""
        return predict.evaluate(self.predictive(sums, targets, by), targets)

    def combine(self, outputs: Array, weights: Array, by: str) -> Array:
        """Return the predictions of the average of networks, given their outputs."""
        average = predict.average(outputs, weights)
        return predict.log_probabilities(average, by)  # type: ignore[arg-type]

    def members(self, outputs: Array) -> Array:
        """Return the predictions of every network, leading axis: network."""
        return jax.nn.log_softmax(outputs, axis=-1)

    def finished(self, predicted: Any) -> np.ndarray:
        """Return the result of `combine` or `members` as NumPy arrays in the unit of the user."""
        return np.asarray(predicted)

    def in_user_unit(self, targets: Targets) -> np.ndarray:
        """Return targets of the test in the unit of the user."""
        return np.asarray(targets)


class Prediction(NamedTuple):
    """Mean and standard deviation of a predictive distribution, in the unit of the targets."""

    mean: Any  # (row,) or (row, target)
    sd: Any


class RegressionSums(NamedTuple):
    """Weighted running sums over networks, of deviations from the targets so that no digits are
    lost."""

    deviation: Any  # (row, target) of the means from the targets
    square: Any  # (row, target) mean squares of deviation and scale
    log_density: Any  # (row,) log of the sum of densities of the targets
    below: Any  # (row, target) probabilities below the targets
    weight: Any  # ()


class RegressionMetrics(NamedTuple):
    """Metrics of a predictive distribution of real numbers."""

    nll: float  # of the mixture: mean over rows, nats
    nll_sum: float
    rmse: float  # of the predictive mean
    sd: float  # root mean square of the predictive standard deviation
    coverage_50: float  # fraction of targets in the central interval of 50 %
    coverage_90: float
    calibration_error: float  # mean |coverage - level| over levels of 5, 10, ... 95 %


class _LocationScale:
    """The parts that Gaussian and Student share."""

    centre: tuple[float, ...]  # mean of every target
    spread: tuple[float, ...]
    ways: ClassVar[tuple[str, ...]] = ("probabilities",)
    scores: ClassVar[tuple[Score, ...]] = (
        Score("rmse", "RMSE", "Root mean square error"),
        Score("nll", "NLL", "Negative log-likelihood"),
    )
    columns: ClassVar[tuple[Score, ...]] = (
        *scores,
        Score("coverage_50", "in 50 %", factor=100.0, digits=1),
        Score("coverage_90", "in 90 %", factor=100.0, digits=1),
        Score("calibration_error", "calibration error"),
    )

    @property
    def _log_volume(self) -> float:
        """The log of the unit of targets, by which densities are divided."""
        return float(np.sum(np.log(self.spread)))

    def log_density(self, outputs: Array, targets: Targets) -> Array:
        """Return the log density of every standardised target  (..., target)."""
        raise NotImplementedError

    def probability_below(self, outputs: Array, targets: Targets) -> Array:
        raise NotImplementedError

    def variance(self, scale: Array) -> Array:
        raise NotImplementedError

    def check(self, shape: tuple[int, ...] | None, num_rows: int) -> None:
        if shape is None or len(shape) != 3 or shape[0] != num_rows or shape[2] != 2:
            raise ValueError(
                f"The outputs of the regression have shape {shape} for {num_rows} inputs; they "
                "need (row, target, 2): mean and scale of every target."
            )

    def empty(self, targets: Targets) -> RegressionSums:
        zeros = jnp.zeros(targets.shape)
        return RegressionSums(
            zeros, zeros, jnp.full(len(targets), -jnp.inf, zeros.dtype), zeros, jnp.zeros(())
        )

    def average(self, outputs: Array, targets: Targets, weights: Array) -> RegressionSums:
        mean, scale = outputs[..., 0], outputs[..., 1]
        deviation = mean - targets
        densities = jnp.sum(self.log_density(outputs, targets), axis=-1)  # (network, row)
        return RegressionSums(
            jnp.tensordot(weights, deviation, 1),
            jnp.tensordot(weights, deviation**2 + self.variance(scale), 1),
            logsumexp(densities, axis=0, b=weights[:, None]),
            jnp.tensordot(weights, self.probability_below(outputs, targets), 1),
            jnp.sum(weights),
        )

    def merge(self, one: RegressionSums, other: RegressionSums) -> RegressionSums:
        added = RegressionSums(*(a + b for a, b in zip(one, other, strict=True)))
        return added._replace(log_density=jnp.logaddexp(one.log_density, other.log_density))

    def score(self, outputs: Array, targets: Targets) -> dict[str, Array]:
        nll = self._log_volume - jnp.mean(jnp.sum(self.log_density(outputs, targets), axis=-1))
        return {"nll": nll, "rmse": self._rmse(outputs[..., 0] - targets)}

    def _rmse(self, deviation: Array) -> Array:
        return jnp.sqrt(jnp.mean((jnp.asarray(self.spread) * deviation) ** 2))

    def score_average(self, sums: RegressionSums, targets: Targets, by: str) -> dict[str, Array]:
        nll = self._log_volume - jnp.mean(sums.log_density - jnp.log(sums.weight))
        return {"nll": nll, "rmse": self._rmse(sums.deviation / sums.weight)}

    def predictive(self, sums: RegressionSums, targets: Targets, by: str) -> Prediction:
        deviation, variance = _moments(sums)
        return self.finished(Prediction(np.asarray(targets) + deviation, np.sqrt(variance)))

    def metrics(self, sums: RegressionSums, targets: Targets, by: str) -> RegressionMetrics:
        if not float(sums.weight):
            raise ValueError("No network has been averaged yet, so there is nothing to evaluate.")
        weight = np.log(float(sums.weight))
        losses = self._log_volume + weight - np.asarray(sums.log_density, float)
        below = np.asarray(sums.below, float) / sums.weight
        deviation, variance = _moments(sums)
        half, most = coverage(below, (0.5, 0.9))
        return RegressionMetrics(
            nll=float(losses.mean()),
            nll_sum=float(losses.sum()),
            rmse=float(np.sqrt(np.mean((np.asarray(self.spread) * deviation) ** 2))),
            sd=float(np.sqrt(np.mean(np.square(self.spread) * variance))),
            coverage_50=float(half),
            coverage_90=float(most),
            calibration_error=float(np.mean(np.abs(coverage(below, _LEVELS) - _LEVELS))),
        )

    def combine(self, outputs: Array, weights: Array, by: str) -> Prediction:
        mean, scale, weights = outputs[..., 0], outputs[..., 1], weights / jnp.sum(weights)
        middle = jnp.tensordot(weights, mean, 1)
        spread = jnp.tensordot(weights, (mean - middle) ** 2 + self.variance(scale), 1)
        return Prediction(middle, jnp.sqrt(spread))

    def members(self, outputs: Array) -> Prediction:
        return Prediction(outputs[..., 0], jnp.sqrt(self.variance(outputs[..., 1])))

    def finished(self, predicted: Prediction) -> Prediction:
        mean, sd = (np.asarray(part, float) for part in predicted)
        return Prediction(self.in_user_unit(mean), _shaped(np.asarray(self.spread) * sd))

    def in_user_unit(self, targets: Targets) -> np.ndarray:
        return _shaped(np.asarray(self.spread) * np.asarray(targets, float) + self.centre)


@dataclass(frozen=True)
class Gaussian(_LocationScale):
    """Normal noise; the scale is its standard deviation."""

    centre: tuple[float, ...] = (0.0,)
    spread: tuple[float, ...] = (1.0,)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "gaussian", **asdict(self)}

    def log_density(self, outputs: Array, targets: Targets) -> Array:
        return norm.logpdf(targets, outputs[..., 0], outputs[..., 1])

    def probability_below(self, outputs: Array, targets: Targets) -> Array:
        return norm.cdf(targets, outputs[..., 0], outputs[..., 1])

    def variance(self, scale: Array) -> Array:
        return scale**2


@dataclass(frozen=True)
class Student(_LocationScale):
    """Noise with heavy tails: Student's t, on which outliers have less influence."""

    degrees: float = 4.0  # of freedom
    centre: tuple[float, ...] = (0.0,)
    spread: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        needed = "give a number above 2, where the variance is finite"
        check_number("degrees", self.degrees, lambda x: x > 2, needed)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "student", **asdict(self)}

    def log_density(self, outputs: Array, targets: Targets) -> Array:
        return t.logpdf(targets, self.degrees, outputs[..., 0], outputs[..., 1])

    def probability_below(self, outputs: Array, targets: Targets) -> Array:
        z = (targets - outputs[..., 0]) / outputs[..., 1]
        tail = betainc(self.degrees / 2, 0.5, self.degrees / (self.degrees + z**2)) / 2
        return jnp.where(z > 0, 1 - tail, tail)

    def variance(self, scale: Array) -> Array:
        return scale**2 * (self.degrees / (self.degrees - 2))


Likelihood = Categorical | Gaussian | Student


class Coverage(NamedTuple):
    """How many targets are in central intervals, and where they are in their distributions."""

    levels: np.ndarray  # (level,) of the intervals, from 0 to 1
    inside: np.ndarray  # (level,) share of the targets
    interval: np.ndarray  # (level, 2) 95 % interval of that share
    counts: np.ndarray  # (10,) targets in each tenth of the predicted probability below them


def coverage_by_level(below: Any, num_levels: int) -> Coverage:
    """Return the coverage of a prediction, given the predicted probability below each target."""
    levels, below = np.linspace(0, 1, num_levels), np.ravel(below)
    inside = coverage(below, levels)
    interval = proportion_interval(inside * below.size, below.size)
    return Coverage(levels, inside, interval, np.histogram(below, 10, (0, 1))[0])


def coverage(below: Any, levels: Any) -> np.ndarray:
    """Return the fraction of targets in the central intervals of some levels, given the predicted
    probability below each target.

    >>> coverage([0.5, 0.04, 0.8], [0.5, 0.9]).round(2)
    array([0.33, 0.67])
    """
    off_centre = 2 * np.abs(np.ravel(below) - 0.5)
    return np.array([np.mean(off_centre <= level) for level in np.ravel(levels)])


def _moments(sums: RegressionSums) -> tuple[np.ndarray, np.ndarray]:
    """Return the deviation of the mean from the targets, and the variance, both (row, target)."""
    deviation = np.asarray(sums.deviation, float) / sums.weight
    variance = np.asarray(sums.square, float) / sums.weight - deviation**2
    return deviation, np.maximum(variance, 0.0)


def _shaped(values: np.ndarray) -> np.ndarray:
    """Return values (..., target), without the last axis for a single target."""
    return values[..., 0] if values.shape[-1] == 1 else values
