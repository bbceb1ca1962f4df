"""Likelihoods of numbers: laws of a target, given what a network predicts for it, as data.

Functions are written like those of `jax.scipy.stats`: first the targets, then what the network
predicts, and last, with `has_noise`, the scale of the noise, which is above 0.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import betainc
from jax.scipy.stats import norm, poisson, t

from replicax.errors import check_flag, check_function, check_number, choose, show

SUPPORTS = ("real", "positive", "counts")


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The law of a target, given the output of a network.

    Args:
        name: the name by which summaries call it.
        log_density: `log_density(targets, value)`, or `(targets, value, scale)` with `has_noise`;
            `value` is the output of the network for each target. Of counts it is the log of the
            probability.
        mean: `mean(value)` or `mean(value, scale)`: the mean of the targets.
        sd: their standard deviation, of the same arguments. Without it, predictions have none.
        cdf: the probability of at most the targets, of the arguments of `log_density`. Coverage,
            calibration and intervals need it; intervals need `sd`, too.
        has_noise: whether the law has a scale, which `noise=` of `rx.regression` describes.
        support: "real"; "positive" numbers; or "counts", whole numbers from 0 on. Only real targets
            are standardised.

    >>> laplace = Likelihood(
    ...     "laplace",
    ...     lambda targets, value, scale: -abs(targets - value) / scale - jnp.log(2 * scale),
    ...     mean=lambda value, scale: value,
    ...     has_noise=True,
    ... )
    """

    name: str
    log_density: Callable[..., Array]
    mean: Callable[..., Array]
    sd: Callable[..., Array] | None = None
    cdf: Callable[..., Array] | None = None
    has_noise: bool = False
    support: str = "real"
    constants: dict[str, Any] | None = field(default=None, repr=False)  # None: the user's law

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f'name is {show(self.name)}; give the likelihood a name: "gamma".')
        check_flag("has_noise", self.has_noise)
        choose("support", self.support, SUPPORTS)
        predicted = ("value", "scale") if self.has_noise else ("value",)
        check_function("log_density", self.log_density, "targets", *predicted)
        check_function("mean", self.mean, *predicted)
        if self.sd is not None:
            check_function("sd", self.sd, *predicted)
        if self.cdf is not None:
            check_function("cdf", self.cdf, "targets", *predicted)


def _value(value: Array, scale: Array) -> Array:
    return value


@functools.cache
def gaussian() -> Likelihood:
    """Return the law of normal noise; the scale is its standard deviation."""
    sd = lambda value, scale: scale  # noqa: E731
    return Likelihood("gaussian", norm.logpdf, _value, sd, norm.cdf, has_noise=True, constants={})


@functools.cache
def student(degrees: float = 4.0) -> Likelihood:
    """Return the law of noise with heavy tails, on which outliers have less influence: Student's t
    of so many degrees of freedom."""
    needed = "give a number above 2, where the variance is finite"
    check_number("degrees", degrees, lambda x: x > 2, needed)

    def cdf(targets: Array, value: Array, scale: Array) -> Array:
        z = (targets - value) / scale
        tail = betainc(degrees / 2, 0.5, degrees / (degrees + z**2)) / 2
        return jnp.where(z > 0, 1 - tail, tail)

    return Likelihood(
        "student",
        lambda targets, value, scale: t.logpdf(targets, degrees, value, scale),
        _value,
        lambda value, scale: scale * (degrees / (degrees - 2)) ** 0.5,
        cdf,
        has_noise=True,
        constants={"degrees": degrees},
    )


@functools.cache
def counts(level: tuple[float, ...] = (1.0,)) -> Likelihood:
    """Return the law of Poisson: the network predicts the log of the rate, relative to a level for
    each target."""
    for each in level:
        check_number("level", each, lambda x: x > 0, "give numbers above 0")

    def rate(value: Array) -> Array:
        return jnp.asarray(level, value.dtype) * jnp.exp(value)

    return Likelihood(
        "poisson",
        lambda targets, value: poisson.logpmf(targets, rate(value)),
        rate,
        lambda value: jnp.sqrt(rate(value)),
        lambda targets, value: poisson.cdf(targets, rate(value)),
        support="counts",
        constants={"level": level},
    )


KNOWN: dict[str, Callable[..., Likelihood]] = {
    "gaussian": gaussian,
    "student": student,
    "poisson": counts,
}
