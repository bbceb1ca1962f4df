"""Bayesian model averages: running sums over networks, and the probabilities that they predict.

Only one network's logits are in memory at a time. Sums are JAX arrays.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import choose, is_concrete, not_negative, show


class Average(NamedTuple):
    """Weighted running sums over networks."""

    logits: Any  # (image, class)
    probabilities: Any  # (image, class)
    weight: Any  # ()

    @classmethod
    def empty(cls, num_images: int, num_classes: int) -> "Average":
        zeros = jnp.zeros((num_images, num_classes))
        return cls(zeros, zeros, jnp.zeros(()))


def add(average: Average, logits: Any, weight: Any = 1.0) -> Average:
    """Return the average with one more network, given its logits (image, class)."""
    _check_average(average)
    logits = _as_logits(logits)
    if is_concrete(weight):
        not_negative("weight", weight.item() if hasattr(weight, "item") else weight)
    if logits.shape != average.logits.shape:
        raise ValueError(
            f"The logits have shape {logits.shape}, those of the average {average.logits.shape}: "
            "give all networks the same images, as (image, class)."
        )
    logits = logits.astype(average.logits.dtype)
    weight = jnp.asarray(weight, average.weight.dtype)
    return Average(
        average.logits + weight * logits,
        average.probabilities + weight * jax.nn.softmax(logits, axis=-1),
        average.weight + weight,
    )


def _check_average(value: Any) -> None:
    if not isinstance(value, Average):
        raise ValueError(
            f"The average is {show(value)}; give one that rx.predict.average or "
            "rx.predict.Average.empty returns."
        )


def _as_logits(logits: Any) -> Array:
    try:
        return jnp.asarray(logits)
    except (TypeError, ValueError):
        raise ValueError(f"The logits are {show(logits)}; give arrays of numbers.") from None


def merge(one: Average, other: Average) -> Average:
    """Return the average over the networks of both, for example of two chains."""
    _check_average(one)
    _check_average(other)
    if one.logits.shape != other.logits.shape:
        raise ValueError(
            f"The averages have shapes {one.logits.shape} and {other.logits.shape}: only averages "
            "over the same images and classes can be merged."
        )
    return jax.tree.map(jnp.add, one, other)


def average(logits: Any, weights: Any = None) -> Average:
    """Return the average of logits (network, image, class) with weights (network,)."""
    logits = _as_logits(logits)
    if logits.ndim != 3 or not logits.size:
        raise ValueError(
            f"The logits have shape {logits.shape}; rx.predict.average takes (network, image, "
            "class). For a single network use jax.nn.log_softmax(logits)."
        )
    weights = jnp.ones(len(logits)) if weights is None else jnp.asarray(weights)
    if weights.shape != logits.shape[:1]:
        raise ValueError(
            f"The weights have shape {weights.shape} for {len(logits)} networks: give one weight "
            "per network."
        )
    if is_concrete(weights) and not bool(jnp.all((weights >= 0) & (weights < jnp.inf))):
        raise ValueError("Some weights are negative or not finite: give weights of 0 or more.")
    empty = Average.empty(*logits.shape[1:])
    return jax.lax.scan(lambda total, one: (add(total, *one), None), empty, (logits, weights))[0]


def log_probabilities(
    average: Average, by: Literal["probabilities", "logits"] = "probabilities"
) -> Array:
    """Return the log-probabilities that the average predicts  (image, class).

    By "probabilities": the log of the mean of the networks' softmaxes, which is the Bayesian model
    average. By "logits": the log-softmax of their mean logits, a (normalised) geometric mean. A
    probability that all networks round to 0 counts as the smallest normal float, so that one image
    cannot make the log-likelihood infinite.
    """
    choose("by", by, ("probabilities", "logits"))
    _check_average(average)
    if is_concrete(average.weight) and not bool(jnp.all(average.weight > 0)):
        raise ValueError(
            "The average has no weight: add at least one network of weight above 0 with "
            "rx.predict.add first."
        )
    weight = average.weight[..., None, None]
    if by == "logits":
        return jax.nn.log_softmax(average.logits / weight, axis=-1)
    probabilities = average.probabilities / weight
    return jnp.log(jnp.maximum(probabilities, jnp.finfo(probabilities.dtype).tiny))
