"""`regression`: the posterior of a network that predicts real numbers.

Targets are standardised, (y - mean) / sd with the moments of the training targets, so that the
network and its noise have the size that initialisations and priors expect; predictions, noise and
scores are in the unit of the targets. With learned noise the parameters are {"network": ...,
"log_noise": ...}, where log_noise is the log of the noise scale of every standardised target; the
Gaussian prior of `weight_decay` applies to it too.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.errors import check_function, choose, explained, is_number, show
from replicax.networks.likelihoods import Gaussian, Student
from replicax.networks.pairs import read_pairs
from replicax.networks.predictor import Predictor
from replicax.networks.task import FITS, Supervised, apply_network, predicting, supervised
from replicax.nn.network import Network
from replicax.run.sources import is_source

NOISES = ("learned", "network")
_KINDS = ("gaussian", "student")


@dataclass(frozen=True)
class _Noise:
    """The noise of the targets: its kind or its scales, in the unit of the standardised targets."""

    kind: str | tuple[float, ...]  # "learned", "network", or the scale of every target
    num_targets: int

    @property
    def num_outputs(self) -> int:
        return self.num_targets * (2 if self.is_of_network else 1)

    @property
    def is_learned(self) -> bool:
        return isinstance(self.kind, str) and self.kind == "learned"

    @property
    def is_of_network(self) -> bool:
        return isinstance(self.kind, str) and self.kind == "network"

    def add(self, params: Any, num_axes: int = 0) -> Any:
        """Return params with those of the noise, which starts as large as the spread of the
        targets."""
        if isinstance(params, dict) and set(params) == {"network", "log_noise"}:
            return params
        leaves = jax.tree.leaves(params)
        lead = np.shape(leaves[0])[:num_axes] if leaves else ()
        return {"network": params, "log_noise": jnp.zeros((*lead, self.num_targets))}

    def network_params(self, params: Any) -> Any:
        if not self.is_learned:
            return params
        if not isinstance(params, dict) or set(params) != {"network", "log_noise"}:
            raise ValueError(
                'With noise="learned" the params include the noise: start from '
                "problem.start_from(network.init)."
            )
        return params["network"]

    def split(self, params: Any, values: Array) -> tuple[Array, Array]:
        """Return means and scales (row, target), given the outputs of the network."""
        mean = values[:, : self.num_targets]
        if self.is_of_network:
            return mean, jnp.exp(values[:, self.num_targets :])
        scale = jnp.exp(params["log_noise"]) if self.is_learned else jnp.asarray(self.kind)
        return mean, jnp.broadcast_to(scale.astype(mean.dtype), mean.shape)


def regression(
    network: Any,
    data: Any,
    *,
    batch_size: int,
    test: Any = None,
    noise: str | float | Sequence[float] = "learned",
    likelihood: str = "gaussian",
    degrees: float = 4.0,
    standardise: bool | tuple[Any, Any] = True,
    **options: Any,
) -> Supervised:
    """Return the posterior of a network that predicts real numbers.

    Start it from `network.init` or from (params, model_state) as usual; `rx.train` adds the
    parameters of the noise.

    Args:
        network: an `rx.nn.Network`, or a function `network(params, inputs)`, with one output for
            each target, (row,) or (row, target).
        data: a pair of arrays (inputs, targets); targets are (row,) or (row, target). Inputs are
            not standardised: scale them to a spread of about 1. Or a source whose mini-batches are
            such pairs, as in `rx.supervised`.
        test: such a pair, on which networks are evaluated.
        noise: a fixed standard deviation (for "student", scale) in the unit of the targets, one
            number or one per target; "learned", a parameter for each target; or "network", where
            the network has one further output per target, the log noise of the standardised target
            for every row.
        likelihood: "gaussian", or "student", on which outliers have less influence.
        degrees: degrees of freedom of "student".
        standardise: whether the network sees targets minus their mean, divided by their standard
            deviation; or (mean, sd) to use instead, which a source needs. Predictions and scores
            are in the unit of the targets in any case.

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
    choose("likelihood", likelihood, _KINDS)
    pairs = read_pairs("data", data, test, "targets", is_stream, is_prepared=True)
    known = pairs.test if is_stream else pairs.rows
    columns = None if known is None else _as_columns("test" if is_stream else "data", known[1])
    num_targets = 1 if columns is None else columns.shape[1]
    centre, spread = _moments(standardise, None if is_stream else columns, num_targets)
    pairs = pairs.converted(functools.partial(_standard, centre, spread))
    unit = {"centre": tuple(centre.tolist()), "spread": tuple(spread.tolist())}
    law = Gaussian(**unit) if likelihood == "gaussian" else Student(degrees, **unit)
    scales = _as_noise(noise, spread, len(centre))
    values = _values(network, scales)

    def loss_fn(params: Any, model_state: Any, batch: Any, key: Array) -> tuple[Array, Any]:
        inputs, targets = batch
        predicted, model_state = values(params, model_state, inputs, True)
        return -jnp.mean(jnp.sum(law.log_density(predicted, targets), axis=-1)), model_state

    problem = supervised(loss_fn, pairs.rows, batch_size=batch_size, **options)
    problem = predicting(problem, pairs, regressor(network, law, scales.kind, pairs.like))
    return replace(problem, adds=scales.add if scales.is_learned else None)


def regressor(
    network: Any, law: Gaussian | Student, noise: str | Sequence[float], like: Any
) -> Predictor:
    """Return the predictor of real numbers; `noise` is "learned", "network", or the scale of every
    standardised target, and `like` a row of the inputs."""
    kind = noise if isinstance(noise, str) else tuple(noise)
    values = _values(network, _Noise(kind, len(law.centre)))

    def outputs(params: Any, model_state: Any, inputs: Any) -> Array:
        return values(params, model_state, inputs, False)[0]

    return Predictor(outputs, law, like, {"noise": kind})


def _values(network: Any, scales: _Noise) -> Callable[..., tuple[Array, Any]]:
    """Build `values(params, model_state, inputs, train)`: mean and scale of the standardised
    targets (row, target, 2), and the state."""
    apply = _as_apply(network)

    def values(params: Any, model_state: Any, inputs: Any, train: bool) -> tuple[Any, Any]:
        out, model_state = apply(scales.network_params(params), model_state, inputs, train)
        out = jnp.asarray(out, jnp.float32)
        out = out[:, None] if out.ndim == 1 else out
        num_rows = len(jax.tree.leaves(inputs)[0])
        if out.shape != (num_rows, scales.num_outputs):
            noise = f'"{scales.kind}"' if isinstance(scales.kind, str) else "a number"
            raise ValueError(
                f"The network has outputs of shape {out.shape} for {num_rows} rows; with "
                f"{scales.num_targets} targets and noise of {noise} it needs "
                f"{scales.num_outputs} outputs for each row."
            )
        return jnp.stack(scales.split(params, out), axis=-1), model_state

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


def _as_noise(noise: Any, spread: np.ndarray, num_targets: int) -> _Noise:
    if isinstance(noise, str) and noise in NOISES:
        return _Noise(noise, num_targets)
    given = noise if isinstance(noise, Sequence | np.ndarray) and len(noise) else [noise]
    numbers = all(is_number(value) and value > 0 for value in given)
    if isinstance(noise, str) or not numbers or len(given) not in (1, num_targets):
        each = "" if num_targets == 1 else f", or one for each of the {num_targets} targets"
        raise ValueError(
            f'noise is {show(noise)}; give its standard deviation{each}, "learned" or "network".'
        )
    scales = np.asarray(given, np.float64) / spread
    return _Noise(tuple(scales.astype(np.float32).tolist()), num_targets)


def _as_columns(name: str, targets: np.ndarray) -> np.ndarray:
    if targets.ndim not in (1, 2) or not targets.size or targets.dtype.kind not in "biuf":
        raise ValueError(
            f"The targets of {name} are {targets.dtype} of shape {targets.shape}; give real "
            "numbers, (row,) or (row, target)."
        )
    return (targets[:, None] if targets.ndim == 1 else targets).astype(np.float64)


def _standard(centre: np.ndarray, spread: np.ndarray, name: str, outcomes: Any) -> np.ndarray:
    """Return standardised targets (row, target); raise unless they are numbers of so many."""
    targets = _as_columns(name, np.asarray(outcomes))
    if targets.shape[1] != len(centre) or not np.isfinite(targets).all():
        raise ValueError(
            f"{name} has targets of shape {np.shape(outcomes)}; give {len(centre)} finite ones for "
            "each row, as many as the data, standardise or the test has."
        )
    return ((targets - centre) / spread).astype(np.float32)


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
