"""What networks predict, classes or numbers: sums over networks, predictions and scores.

Networks are averaged by running sums, a NamedTuple of arrays with the field `weight`, so that only
one network's outputs are in memory at a time. `Numbers` has the methods of `Classes`.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.scipy.special import logsumexp

from replicax.data import as_labels
from replicax.errors import choose
from replicax.networks import predict
from replicax.networks.likelihoods import KNOWN, SUPPORTS, Likelihood, gaussian
from replicax.networks.predict import Average, Metrics, mean_over_rows, proportion_interval
from replicax.run.storage.files import Damaged

Targets = Array | np.ndarray  # (row,) or (row, label) class numbers, or (row, target) numbers
CATEGORICAL, ORDINAL, MULTILABEL = KINDS = ("categorical", "ordinal", "multilabel")
_MOST_CLASSES = 2**24
_LEVELS = np.linspace(0.05, 0.95, 19)  # levels of intervals for the calibration error
_GOLDEN = (5**0.5 - 1) / 2  # its multiples fill the unit interval evenly
_CLOSE, _MOST_STEPS = 1e-5, 60  # of standard deviations, and steps, to find a quantile


class Score(NamedTuple):
    """A score of networks, and how it is shown."""

    name: str  # name of a column of the epochs, or of a metric
    head: str  # heading in tables
    title: str = ""  # title of its figure
    unit: str = ""
    factor: float = 1.0
    digits: int = 4


@dataclass(frozen=True)
class Classes:
    """Classes, averaged by probabilities or by logits; see `rx.predict`.

    Outputs are logits (network, row, class); of several labels for each row, which are 0 or 1,
    (network, row, label, 2).
    """

    num_classes: int | None = None  # None: as many as there are logits
    kind: str = CATEGORICAL
    num_labels: int | None = None  # of a row; None: it has one class

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

    @property
    def num_outputs(self) -> int:
        """The number of outputs of a network."""
        assert self.num_classes is not None, "known of all but losses of the user's own"
        return 1 if self.kind == ORDINAL else self.num_labels or self.num_classes

    @property
    def chance(self) -> float:
        """The NLL of equal probabilities."""
        return float(np.log(self.num_classes or 1)) * (self.num_labels or 1)

    def to_json(self) -> dict[str, Any]:
        """Return what they are as plain data, for `from_json`."""
        labels = {} if self.num_labels is None else {"num_labels": self.num_labels}
        return {"kind": self.kind, "num_classes": self.num_classes, **labels}

    def as_targets(self, name: str, outcomes: Any) -> np.ndarray:
        """Return class numbers, int32 (row,) or (row, label); raise unless these are some."""
        if self.num_labels is None:
            assert self.num_classes is not None, "a test knows its classes"
            return as_labels(name, outcomes, self.num_classes)
        labels = np.asarray(outcomes)
        is_wide = labels.ndim == 2 and labels.shape[1] == self.num_labels
        if not is_wide or not np.isin(labels, (0, 1)).all():
            raise ValueError(
                f"{name} has labels of shape {labels.shape} between {labels.min():g} and "
                f"{labels.max():g}; of several labels give 0 or 1 for each, (row, "
                f"{self.num_labels})."
            )
        return labels.astype(np.int32)

    def check(self, shape: tuple[int, ...] | None, num_rows: int) -> None:
        """Raise unless a network's outputs for `num_rows` rows may have this shape."""
        parts = (num_rows,) if self.num_labels is None else (num_rows, self.num_labels)
        wanted = "classes" if self.num_classes is None else self.num_classes
        is_good = shape is not None and len(shape) == len(parts) + 1 and shape[:-1] == parts
        if shape is None or not is_good or shape[-1] != (self.num_classes or shape[-1]):
            raise ValueError(
                f"The logits of the test have shape {shape} for {num_rows} inputs; num_classes is "
                f"{wanted}, so that they need shape ({', '.join(map(str, (*parts, wanted)))})."
            )

        if shape[-1] < 2:
            raise ValueError(
                "The logits have one output, and one class has probability 1 for every input: give "
                "two outputs for two classes, jnp.stack([0 * logit, logit], -1), or write "
                "rx.classification, or rx.regression for numbers."
            )

    def empty(self, targets: Targets) -> Average:
        """Return sums over no networks."""
        assert self.num_classes is not None, "a test knows its classes"
        zeros = jnp.zeros((*targets.shape, self.num_classes))
        return Average(zeros, zeros, jnp.zeros(()))

    def average(self, outputs: Array, targets: Targets, weights: Array) -> Average:
        """Return sums over networks, given their outputs (network, row, ...)."""
        return predict.average(outputs, weights)

    def merge(self, one: Average, other: Average) -> Average:
        """Return the sums over the networks of both."""
        return predict.merge(one, other)

    def score(self, outputs: Array, targets: Targets, rows: Any = None) -> dict[str, Array]:
        """Return the scores of one network, on the device; `rows` are weights (row,)."""
        nll = optax.softmax_cross_entropy_with_integer_labels(outputs, targets)
        right = jnp.argmax(outputs, axis=-1) == targets
        nll = mean_over_rows(nll, rows) * (self.num_labels or 1)
        return {"nll": nll, "accuracy": mean_over_rows(right, rows)}

    def score_average(
        self, sums: Average, targets: Targets, by: str, rows: Any = None
    ) -> dict[str, Array]:
        """Return the scores of an average, on the device."""
        return self.score(predict.log_probabilities(sums, by), targets, rows)  # type: ignore[arg-type]

    def predictive(self, sums: Average, targets: Targets, by: str) -> np.ndarray:
        """Return the predictions of an average for the rows of its sums."""
        return np.asarray(predict.log_probabilities(sums, by))  # type: ignore[arg-type]

    def metrics(self, sums: Average, targets: Targets, by: str, rows: Any = None) -> Metrics:
        """Return all metrics of an average, a NamedTuple of numbers."""
        return predict.evaluate(self.predictive(sums, targets, by), targets, rows)

    def combine(
        self, outputs: Array, weights: Array, by: str, interval: float | None = None
    ) -> Array:
        """Return the predictions of the average of networks, given their outputs."""
        average = predict.average(outputs, weights)
        return predict.log_probabilities(average, by)  # type: ignore[arg-type]

    def check_interval(self) -> None:
        """Raise unless there are intervals."""
        raise ValueError("Classes have probabilities, and no interval: leave it out.")

    def members(self, outputs: Array) -> Array:
        """Return the predictions of every network, leading axis: network."""
        return jax.nn.log_softmax(outputs, axis=-1)

    def finished(self, predicted: Any) -> np.ndarray:
        """Return the result of `combine` or `members` as NumPy arrays in the unit of the user."""
        return np.asarray(predicted)

    def in_user_unit(self, targets: Targets) -> np.ndarray:
        """Return targets of the test in the unit of the user."""
        return np.asarray(targets)


def two_logits(values: Array, each: bool = False) -> Array:
    """Return the logits of two classes, of which the first is 0, where there is one for each row,
    or for `each` column  (row, 2) or (row, label, 2)."""
    shape = getattr(values, "shape", ())
    if each or len(shape) == 1:
        return jnp.stack([jnp.zeros_like(values), values], axis=-1)
    if len(shape) == 2 and shape[1] == 1:
        return jnp.concatenate([jnp.zeros_like(values), values], axis=-1)
    return values


class Prediction(NamedTuple):
    """Mean and standard deviation of a predictive distribution, in the unit of the targets."""

    mean: Any  # (row,) or (row, target)
    sd: Any


class Interval(NamedTuple):
    """A `Prediction` with the ends of a central interval."""

    mean: Any  # (row,) or (row, target)
    sd: Any
    low: Any
    high: Any


class NumberSums(NamedTuple):
    """Weighted running sums over networks, of deviations from the targets so that no digits are
    lost."""

    deviation: Any  # (row, target) of the means from the targets
    square: Any  # (row, target) mean squares of deviation and scale
    log_density: Any  # (row,) log of the sum of densities of the targets
    below: Any  # (row, target) probabilities below the targets
    weight: Any  # ()


class NumberMetrics(NamedTuple):
    """Metrics of a predictive distribution of numbers."""

    nll: float  # of the mixture: mean over rows, nats
    nll_sum: float
    rmse: float  # of the predictive mean
    sd: float  # root mean square of the predictive standard deviation
    coverage_50: float  # fraction of targets in the central interval of 50 %
    coverage_90: float
    calibration_error: float  # mean |coverage - level| over levels of 5, 10, ... 95 %


@dataclass(frozen=True)
class Numbers:
    """Numbers, averaged as a mixture of their laws.

    Outputs are (network, row, target, 1), what networks predict of standardised targets, or with
    noise (network, row, target, 2), the second being its scale.
    """

    law: Likelihood
    centre: tuple[float, ...] = (0.0,)  # of every target, by which they are standardised
    spread: tuple[float, ...] = (1.0,)
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

    def to_json(self) -> dict[str, Any]:
        unit = {"centre": self.centre, "spread": self.spread}
        if self.law.constants is not None:
            return {"kind": self.law.name, **self.law.constants, **unit}
        return {"kind": "custom", "name": self.law.name, "support": self.law.support, **unit}

    def as_targets(self, name: str, outcomes: Any) -> np.ndarray:
        """Return standardised targets (row, target); raise unless the law has such numbers."""
        targets, support = as_columns(name, outcomes), self.law.support
        if targets.shape[1] != len(self.centre) or not np.isfinite(targets).all():
            raise ValueError(
                f"{name} has targets of shape {np.shape(outcomes)}; give {len(self.centre)} finite "
                "ones for each row, as many as the data, standardise or the test has."
            )
        is_other = {
            "real": np.zeros_like(targets, bool),
            "positive": targets <= 0,
            "counts": (targets < 0) | (targets != np.round(targets)),
        }[support]
        if is_other.any():
            needed = "numbers above 0" if support == "positive" else "whole numbers from 0 on"
            raise ValueError(
                f"{name} has the target {targets[is_other][0]:g}, and the likelihood "
                f'"{self.law.name}" is one of {needed}: give those, or another likelihood.'
            )
        return ((targets - self.centre) / self.spread).astype(np.float32)

    def log_density(self, outputs: Array, targets: Targets) -> Array:
        """Return the log density of every standardised target  (..., target)."""
        return self.law.log_density(targets, *_parts(outputs))

    def probability_below(self, outputs: Array, targets: Targets) -> Array:
        """Return the probability below every target  (..., row, target).

        Where targets are counts it is at a place of its own in the step of each, as if counts were
        spread evenly over the interval below them: uniform where the law is right.
        """
        if self.law.support != "counts":
            return self._cdf(outputs, targets)
        row, target = np.indices(targets.shape)
        place = ((row + 0.5) * _GOLDEN + (target + 0.5) * _GOLDEN**2) % 1
        before = self._cdf(outputs, targets - 1)
        return before + place * (self._cdf(outputs, targets) - before)

    def _cdf(self, outputs: Array, targets: Any) -> Array:
        """Return the probability of at most the targets, NaN if it is not known."""
        cdf, parts = self.law.cdf, _parts(outputs)
        if cdf is None:
            return jnp.full(jnp.broadcast_shapes(parts[0].shape, targets.shape), jnp.nan)
        if self.law.support == "real":
            return cdf(targets, *parts)
        return jnp.where(targets < 0, 0.0, cdf(jnp.maximum(targets, 0), *parts))

    def _moments(self, outputs: Array) -> tuple[Array, Array]:
        """Return mean and variance of every target for each network  (network, row, target)."""
        parts, sd = _parts(outputs), self.law.sd
        mean = self.law.mean(*parts)
        return mean, jnp.full_like(mean, jnp.nan) if sd is None else sd(*parts) ** 2

    def check(self, shape: tuple[int, ...] | None, num_rows: int) -> None:
        if shape is None or len(shape) != 3 or shape[0] != num_rows:
            raise ValueError(
                f"The outputs of the regression have shape {shape} for {num_rows} inputs; they "
                "need (row, target, ...)."
            )

    def empty(self, targets: Targets) -> NumberSums:
        zeros = jnp.zeros(targets.shape)
        return NumberSums(
            zeros, zeros, jnp.full(len(targets), -jnp.inf, zeros.dtype), zeros, jnp.zeros(())
        )

    def average(self, outputs: Array, targets: Targets, weights: Array) -> NumberSums:
        mean, variance = self._moments(outputs)
        deviation = mean - targets
        densities = jnp.sum(self.log_density(outputs, targets), axis=-1)  # (network, row)
        return NumberSums(
            jnp.tensordot(weights, deviation, 1),
            jnp.tensordot(weights, deviation**2 + variance, 1),
            logsumexp(densities, axis=0, b=weights[:, None]),
            jnp.tensordot(weights, self.probability_below(outputs, targets), 1),
            jnp.sum(weights),
        )

    def merge(self, one: NumberSums, other: NumberSums) -> NumberSums:
        added = NumberSums(*(a + b for a, b in zip(one, other, strict=True)))
        return added._replace(log_density=jnp.logaddexp(one.log_density, other.log_density))

    def score(self, outputs: Array, targets: Targets, rows: Any = None) -> dict[str, Array]:
        density = mean_over_rows(jnp.sum(self.log_density(outputs, targets), axis=-1), rows)
        deviation = self.law.mean(*_parts(outputs)) - targets
        return {"nll": self._log_volume - density, "rmse": self._rmse(deviation, rows)}

    def _rmse(self, deviation: Array, rows: Any) -> Array:
        return jnp.sqrt(mean_over_rows((jnp.asarray(self.spread) * deviation) ** 2, rows))

    def score_average(
        self, sums: NumberSums, targets: Targets, by: str, rows: Any = None
    ) -> dict[str, Array]:
        density = mean_over_rows(sums.log_density - jnp.log(sums.weight), rows)
        rmse = self._rmse(sums.deviation / sums.weight, rows)
        return {"nll": self._log_volume - density, "rmse": rmse}

    def predictive(self, sums: NumberSums, targets: Targets, by: str) -> Prediction:
        deviation, variance = _deviation_and_variance(sums)
        return self.finished(Prediction(np.asarray(targets) + deviation, np.sqrt(variance)))

    def metrics(
        self, sums: NumberSums, targets: Targets, by: str, rows: Any = None
    ) -> NumberMetrics:
        if not float(sums.weight):
            raise ValueError("No network has been averaged yet, so there is nothing to evaluate.")
        weight = float(sums.weight)
        losses = self._log_volume + np.log(weight) - np.asarray(sums.log_density, float)
        below = np.asarray(sums.below, float) / weight
        deviation, variance = _deviation_and_variance(sums)
        half, most = coverage(below, (0.5, 0.9), rows)
        nll = float(mean_over_rows(losses, rows))
        return NumberMetrics(
            nll=nll,
            nll_sum=len(losses) * nll,
            rmse=float(np.sqrt(mean_over_rows(np.square(self.spread * deviation), rows))),
            sd=float(np.sqrt(mean_over_rows(np.square(self.spread) * variance, rows))),
            coverage_50=float(half),
            coverage_90=float(most),
            calibration_error=float(np.mean(np.abs(coverage(below, _LEVELS, rows) - _LEVELS))),
        )

    def combine(
        self, outputs: Array, weights: Array, by: str, interval: float | None = None
    ) -> Prediction | Interval:
        """Return the predictions of the average of networks, with the ends of the central interval
        of this level if it is given."""
        weights = weights / jnp.sum(weights)
        mean, variance = self._moments(outputs)
        middle = jnp.tensordot(weights, mean, 1)
        sd = jnp.sqrt(jnp.tensordot(weights, (mean - middle) ** 2 + variance, 1))
        if interval is None:
            return Prediction(middle, sd)
        ends = ((1 - interval) / 2, (1 + interval) / 2)
        found = (self._quantile(outputs, weights, middle, sd, end) for end in ends)
        return Interval(middle, sd, *found)

    def _quantile(self, outputs: Array, weights: Array, mean: Array, sd: Array, p: float) -> Array:
        """Return a quantile of the mixture  (row, target); of counts the lowest with at least this
        share.

        It is between bounds by Cantelli's inequality, which are drawn together by steps of Newton,
        and halved where these lead out of them or where there is no density.
        """
        of_counts, is_real = self.law.support == "counts", self.law.support == "real"
        low, high = mean - sd * ((1 - p) / p) ** 0.5, mean + sd * (p / (1 - p)) ** 0.5
        if not is_real:
            low, high = jnp.maximum(low, 0.0) - of_counts, jnp.maximum(high, 0.0)
        if of_counts:
            low, high = jnp.floor(low), jnp.ceil(high)

        def is_apart(state: Any) -> Array:
            count, low, high, at, before = state
            far = high - low > 1.5 if of_counts else jnp.abs(at - before) > _CLOSE * sd
            return (count < _MOST_STEPS) & jnp.any(far)

        def closer(state: Any) -> Any:
            count, low, high, at, _ = state
            excess = jnp.tensordot(weights, self._cdf(outputs, at), 1) - p
            low, high = jnp.where(excess < 0, at, low), jnp.where(excess < 0, high, at)
            middle = (low + high) / 2
            if of_counts:
                return count + 1, low, high, jnp.floor(middle), at
            density = jnp.tensordot(weights, jnp.exp(self.log_density(outputs, at)), 1)
            newton = at - excess / density
            is_good = (newton > low) & (newton < high)
            return count + 1, low, high, jnp.where(is_good, newton, middle), at

        first = jnp.floor((low + high) / 2) if of_counts else mean
        state = (0, low, high, first, jnp.full_like(first, jnp.inf))
        _, low, high, at, _ = jax.lax.while_loop(is_apart, closer, state)
        return high if of_counts else at

    def check_interval(self) -> None:
        if self.law.cdf is None or self.law.sd is None:
            raise ValueError(
                f'The likelihood "{self.law.name}" has no cdf or no sd, and so no intervals: give '
                "rx.Likelihood both."
            )

    def members(self, outputs: Array) -> Prediction:
        mean, variance = self._moments(outputs)
        return Prediction(mean, jnp.sqrt(variance))

    def finished(self, predicted: Any) -> Any:
        mean, sd, *ends = (np.asarray(part, float) for part in predicted)
        sd = _shaped(np.asarray(self.spread) * sd)
        return type(predicted)(self.in_user_unit(mean), sd, *map(self.in_user_unit, ends))

    def in_user_unit(self, targets: Targets) -> np.ndarray:
        return _shaped(np.asarray(self.spread) * np.asarray(targets, float) + self.centre)


Outcomes = Classes | Numbers


def from_json(content: dict[str, Any]) -> Outcomes:
    """Return the outcomes that their `to_json` described; of a law of the user's own only what
    needs no function of it."""
    values = {key: x for key, x in content.items() if key != "kind"}
    values = {key: tuple(x) if isinstance(x, list) else x for key, x in values.items()}
    try:
        made = _made(content["kind"], values)
    except (LookupError, TypeError, ValueError):
        made = None
    if made is None:
        raise Damaged("The likelihood of the run is none of replicax: its run.json is damaged.")
    return made


def _made(kind: str, values: dict[str, Any]) -> Outcomes | None:
    """Return outcomes of this kind, None if there are none of such values."""
    if kind in KINDS:
        counted = [values.get(name) for name in ("num_classes", "num_labels")]
        is_one = all(x is None or x in range(1, _MOST_CLASSES) for x in counted)
        is_one = is_one and (kind == MULTILABEL) == (counted[1] is not None)
        return Classes(kind=kind, **values) if is_one else None
    unit = {name: values.pop(name) for name in ("centre", "spread")}
    is_one = np.shape(unit["centre"]) == np.shape(unit["spread"]) != ()
    if not is_one or not np.all(np.isfinite([unit["centre"], unit["spread"]])):
        return None
    if kind != "custom":
        return Numbers(KNOWN[kind](**values), **unit)
    name, support = values["name"], choose("support", values["support"], SUPPORTS)
    unknown = replace(gaussian(), name=name, support=support, constants=None)
    return Numbers(unknown, **unit)


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


def coverage(below: Any, levels: Any, rows: Any = None) -> np.ndarray:
    """Return the fraction of targets in the central intervals of some levels, given the predicted
    probability below each target; NaN if it is not known. `rows` are weights (row,).

    >>> coverage([0.5, 0.04, 0.8], [0.5, 0.9]).round(2)
    array([0.33, 0.67])
    """
    off_centre = 2 * np.abs(np.asarray(below, float) - 0.5)
    if np.isnan(off_centre).any():
        return np.full(np.size(levels), np.nan)
    return np.array([mean_over_rows(off_centre <= level, rows) for level in np.ravel(levels)])


def as_columns(name: str, targets: Any) -> np.ndarray:
    """Return targets as columns (row, target), float64; raise unless they are numbers."""
    targets = np.asarray(targets)
    if targets.ndim not in (1, 2) or not targets.size or targets.dtype.kind not in "biuf":
        raise ValueError(
            f"The targets of {name} are {targets.dtype} of shape {targets.shape}; give real "
            "numbers, (row,) or (row, target)."
        )
    return (targets[:, None] if targets.ndim == 1 else targets).astype(np.float64)


def _parts(outputs: Array) -> list[Array]:
    """Return what a network predicts, and the scale of the noise if there is one."""
    return [outputs[..., number] for number in range(outputs.shape[-1])]


def _deviation_and_variance(sums: NumberSums) -> tuple[np.ndarray, np.ndarray]:
    """Return the deviation of the mean from the targets, and the variance, both (row, target)."""
    deviation = np.asarray(sums.deviation, float) / float(sums.weight)
    variance = np.asarray(sums.square, float) / float(sums.weight) - deviation**2
    return deviation, np.maximum(variance, 0.0)


def _shaped(values: np.ndarray) -> np.ndarray:
    """Return values (..., target), without the last axis for a single target."""
    return values[..., 0] if values.shape[-1] == 1 else values
