"""`regression`: the posterior of a network that predicts numbers.

Real targets are standardised, (y - mean) / sd with the moments of the training targets, so that the
network and its noise have the size that initialisations and priors expect; predictions, noise and
scores are in the unit of the targets. Of counts the network predicts the log of the rate, relative
to the mean of the training targets. With learned noise the parameters are {"network": ...,
"log_noise": ...}, where log_noise is the log of the noise scale of every standardised target; the
Gaussian prior of `weight_decay` applies to it too.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.errors import check_function, choose, explained, is_number, show
from replicax.networks.likelihoods import KNOWN, Likelihood
from replicax.networks.outcomes import Numbers, as_columns
from replicax.networks.pairs import mean_loss, read_pairs
from replicax.networks.predictor import Added, Predictor
from replicax.networks.task import FITS, Supervised, apply_network, predicting, supervised
from replicax.nn.network import Network
from replicax.run.sources import is_source

NOISES = ("learned", "network")
_LOG_NOISE = "log_noise"


@dataclass(frozen=True)
class _Noise:
    """The noise of the targets: its kind or its scales, in the unit of the standardised targets."""

    kind: str | tuple[float, ...] | None  # "learned", "network", or scales; None: no noise
    num_targets: int

    @property
    def num_outputs(self) -> int:
        return self.num_targets * (2 if self.kind == "network" else 1)

    @property
    def adds(self) -> Added | None:
        """The parameters of the noise, which begins as large as the spread of the targets."""
        return Added(_LOG_NOISE, self.num_targets) if self.kind == "learned" else None

    def split(self, params: Any) -> tuple[Any, Any]:
        """Return the params of the network, and those of the noise, None if it has none."""
        return (params, None) if self.adds is None else self.adds.split(params)

    def parts(self, values: Array, log_noise: Any) -> list[Array]:
        """Return what is predicted, (row, target), and where there is noise its scales, given the
        outputs of the network and the parameters of the noise."""
        predicted = values[:, : self.num_targets]
        if self.kind is None:
            return [predicted]
        if self.kind == "network":
            return [predicted, jnp.exp(values[:, self.num_targets :])]
        scale = jnp.asarray(self.kind) if log_noise is None else jnp.exp(log_noise)
        return [predicted, jnp.broadcast_to(scale.astype(predicted.dtype), predicted.shape)]


def regression(
    network: Any,
    data: Any,
    *,
    batch_size: int,
    test: Any = None,
    noise: str | float | Sequence[float] | None = None,
    likelihood: str | Likelihood = "gaussian",
    degrees: float = 4.0,
    standardise: bool | tuple[Any, Any] = True,
    sample_weight: Any = None,
    **options: Any,
) -> Supervised:
    """Return the posterior of a network that predicts numbers.

    Start it from `network.init` or from (params, model_state) as usual; `rx.train` adds the
    parameters of the noise.

    Args:
        network: an `rx.nn.Network`, or a function `network(params, inputs)`, with one output for
            each target, (row,) or (row, target).
        data: a pair of arrays (inputs, targets); targets are (row,) or (row, target). Inputs are
            not standardised: scale them to a spread of about 1. Or a source whose mini-batches are
            such pairs, as in `rx.supervised`.
        test: such a pair, on which networks are evaluated; weights as a third array weigh the
            scores.
        noise: a fixed standard deviation (for "student", scale) in the unit of the targets, one
            number or one per target; "learned", a parameter for each target, which is the default;
            or "network", where the network has one further output per target, the log noise of the
            standardised target for every row.
        likelihood: "gaussian"; "student", on which outliers have less influence; "poisson" for
            counts; or an `rx.Likelihood` of your own.
        degrees: degrees of freedom of "student".
        standardise: whether the network sees targets minus their mean, divided by their standard
            deviation; or (mean, sd) to use instead, which a source needs. Predictions and scores
            are in the unit of the targets in any case. Counts and positive targets stay as they
            are, but rates of "poisson" are relative to the mean.
        sample_weight: weights of the rows, as in `rx.classification`.

    Further options are those of `rx.supervised`: `weight_decay`, `prior_in_energy`, `prepare`,
    `num_rows`.

    >>> x = jnp.linspace(-1.0, 1.0, 64)[:, None]
    >>> line = lambda params, inputs: params["slope"] * inputs[:, 0]
    >>> problem = regression(line, (x, 3 * x[:, 0]), batch_size=16, noise=0.5)
    >>> networks = {"slope": jnp.array([1.0, 1.2])}, {}
    >>> predicted = problem.predictor.predict(networks, np.ones(2), x[-1:], by="probabilities")
    >>> predicted.mean.round(2), predicted.sd.round(2)
    (array([1.94]), array([0.53]))
    """
    is_stream = is_source(data, options.get("num_rows"))
    pairs = read_pairs("data", data, test, "targets", is_stream, is_prepared=True)
    known = pairs.test if is_stream else pairs.rows
    columns = None if known is None else as_columns("test" if is_stream else "data", known[1])
    num_targets = 1 if columns is None else columns.shape[1]
    moments = _moments(standardise, None if is_stream else columns, num_targets)
    law = _numbers(likelihood, degrees, *moments)
    scales = _as_noise(noise, law)
    pairs = pairs.converted(law.as_targets).weighted(sample_weight)
    values = _values(network, scales)

    def loss_fn(params: Any, model_state: Any, batch: Any, key: Array) -> tuple[Array, Any]:
        inputs, targets, *weights = batch
        predicted, model_state = values(params, model_state, inputs, True)
        return -mean_loss(law.log_density(predicted, targets), *weights), model_state

    problem = supervised(loss_fn, pairs.rows, batch_size=batch_size, **options)
    return predicting(problem, pairs, regressor(network, law, scales.kind, pairs.like))


def _numbers(
    likelihood: str | Likelihood, degrees: float, centre: np.ndarray, spread: np.ndarray
) -> Numbers:
    """Return the law of targets with these moments."""
    if isinstance(likelihood, Likelihood):
        law = likelihood
    elif choose("likelihood", likelihood, tuple(KNOWN)) == "poisson":
        level = np.where(centre > 0, centre, 1.0)
        law = KNOWN["poisson"](tuple(level.tolist()))
    else:
        law = KNOWN["student"](degrees) if likelihood == "student" else KNOWN["gaussian"]()
    if law.support != "real":
        centre, spread = np.zeros_like(centre), np.ones_like(spread)
    return Numbers(law, tuple(centre.tolist()), tuple(spread.tolist()))


def regressor(network: Any, law: Numbers, noise: Any, like: Any) -> Predictor:
    """Return the predictor of numbers; `noise` is "learned", "network", the scale of every
    standardised target or None, and `like` a row of the inputs."""
    kind = noise if isinstance(noise, str | None) else tuple(noise)
    scales = _Noise(kind, len(law.centre))
    values = _values(network, scales)

    def outputs(params: Any, model_state: Any, inputs: Any) -> Array:
        return values(params, model_state, inputs, False)[0]

    # A folder cannot store the functions of the user's own likelihood.
    about = None if law.law.constants is None else {"noise": kind}
    return Predictor(outputs, law, like, about, adds=scales.adds)


def _values(network: Any, scales: _Noise) -> Callable[..., tuple[Array, Any]]:
    """Build `values(params, model_state, inputs, train)`: what is predicted of the standardised
    targets and the scale of their noise, (row, target, 2), or without noise (row, target, 1); and
    the state."""
    apply = _as_apply(network)

    def values(params: Any, model_state: Any, inputs: Any, train: bool) -> tuple[Any, Any]:
        params, log_noise = scales.split(params)
        out, model_state = apply(params, model_state, inputs, train)
        out = jnp.asarray(out, jnp.float32)
        out = out[:, None] if out.ndim == 1 else out
        num_rows = len(jax.tree.leaves(inputs)[0])
        if out.shape != (num_rows, scales.num_outputs):
            words = {None: "no kind", "learned": '"learned"', "network": '"network"'}
            noise = words.get(scales.kind, "a number")  # type: ignore[arg-type]
            raise ValueError(
                f"The network has outputs of shape {out.shape} for {num_rows} rows; with "
                f"{scales.num_targets} targets and noise of {noise} it needs "
                f"{scales.num_outputs} outputs for each row."
            )
        return jnp.stack(scales.parts(out, log_noise), axis=-1), model_state

    return values


def _as_apply(network: Any) -> Callable[[Any, Any, Any, bool], tuple[Any, Any]]:
    """Return `apply(params, model_state, inputs, train) -> outputs, model_state`."""
    if isinstance(network, Network):
        return functools.partial(apply_network, network)
    if not callable(network) or inspect.isclass(network):
        raise ValueError(
            f"The network is {show(network)}; give an rx.nn.Network, or a function "
            "network(params, inputs)."
        )
    check_function("network", network, "params", "inputs")

    def apply(params: Any, model_state: Any, inputs: Any, train: bool) -> tuple[Any, Any]:
        with explained("The network", FITS):
            return network(params, inputs), model_state

    return apply


def _as_noise(noise: Any, law: Numbers) -> _Noise:
    num_targets = len(law.centre)
    if not law.law.has_noise:
        if noise is None:
            return _Noise(None, num_targets)
        raise ValueError(
            f'noise is {show(noise)}, and the likelihood "{law.law.name}" has no scale of noise: '
            "leave it out."
        )
    if noise is None or (isinstance(noise, str) and noise in NOISES):
        return _Noise(noise or "learned", num_targets)
    given = noise if isinstance(noise, Sequence | np.ndarray) and len(noise) else [noise]
    numbers = all(is_number(value) and value > 0 for value in given)
    if isinstance(noise, str) or not numbers or len(given) not in (1, num_targets):
        each = "" if num_targets == 1 else f", or one for each of the {num_targets} targets"
        raise ValueError(
            f'noise is {show(noise)}; give its standard deviation{each}, "learned" or "network".'
        )
    scales = np.broadcast_to(np.asarray(given, np.float64), num_targets) / law.spread
    return _Noise(tuple(scales.astype(np.float32).tolist()), num_targets)


def _moments(
    standardise: Any, targets: np.ndarray | None, num_targets: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation to standardise every target: those of the targets (sd 1 if
    all are equal), those given, or 0 and 1. Of a source the targets are not known yet."""
    if standardise is True:
        if targets is None:
            raise ValueError(
                "standardise is True, but the targets of a source are not known before they are "
                "read: write standardise=(mean, sd) of the targets, or False."
            )
        # By rounding, the deviation of equal numbers may not be 0.
        differ = np.ptp(targets, axis=0) > 0
        return targets.mean(axis=0), np.where(differ, targets.std(axis=0), 1.0)
    if standardise is False:
        return np.zeros(num_targets), np.ones(num_targets)
    centre, spread = _given_moments(standardise)
    if targets is not None and len(centre) != num_targets:
        raise ValueError(
            f"standardise has {len(centre)} means, and there are {num_targets} targets: give one "
            "each."
        )
    return centre, spread


def _given_moments(standardise: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the pair (mean, sd), each one number or one per target, as arrays."""
    try:
        centre, spread = (np.atleast_1d(np.asarray(part, np.float64)) for part in standardise)
        valid = np.isfinite([centre, spread]).all() and (spread > 0).all() and centre.ndim == 1
    except (TypeError, ValueError):
        valid, centre, spread = False, np.zeros(0), np.zeros(0)
    if not valid or not len(centre):
        raise ValueError(
            f"standardise is {show(standardise)}; write True, False, or (mean, sd) of the targets, "
            "numbers or one for each target."
        )
    return centre, spread
