"""`last_layer`: the posterior of the last layer of a trained network, for exact draws.

Features phi(x), the inputs of the last layer, are computed once for all rows. The outputs
phi(x) W + b have the likelihood of classes or of real numbers, and W and b have the prior
N(0, prior_sd^2). The Laplace approximation at the mode m, with the Hessian H of the energy,

    log evidence = -U(m) + P / 2 log(2 pi) - log det H / 2,

chooses prior_sd, and its covariance H^-1 = A A' the coordinates z of theta = m + A z, in which the
posterior is close to N(0, 1) and one replica is enough. Draws have the law of the posterior,
whatever the approximation is like.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from replicax.data import Dataset, count_classes, normalise
from replicax.errors import check_number, choose, is_number, show
from replicax.networks.frozen import freeze
from replicax.networks.laplace import laplace
from replicax.networks.likelihoods import gaussian
from replicax.networks.outcomes import Classes, Numbers, Outcomes
from replicax.networks.pairs import check_pair, like_of
from replicax.networks.predictor import Predictor, as_inputs
from replicax.nn.network import Network
from replicax.run.bayesian import Bayesian, bayesian
from replicax.run.trees import leaf_names

_PIECE = 1024  # rows at once
_MOST_PARAMETERS = 2048  # whose Hessian is factorised
_MOST_DRAWS = 400  # that predict, evenly spaced
_MOST_NUMBERS = 2**24  # outputs of draws in memory
_LINEAR = 1e-3  # relative to the largest output: further off, outputs are no linear function


@dataclass(frozen=True, kw_only=True)
class LastLayer(Bayesian):
    """The posterior of a last layer; `rx.last_layer` returns one.

    Draws are {"weight": (feature, output), "bias": (output,)}, of real numbers for standardised
    targets, whose "log_noise" is a third one where it is learned.
    """

    features: Callable[[Any], Array]  # inputs -> (row, feature)
    predictor: Predictor  # of outputs, given the parameters and features
    like: Any  # shape and dtype of a row of the inputs
    best: dict[str, np.ndarray]  # the mode of the posterior
    prior_sd: float
    log_evidence: float  # by Laplace's approximation
    test: tuple[Array, np.ndarray] | None = None  # features and outcomes

    @property
    def usual_replicas(self) -> int:
        """One: the posterior has one mode."""
        return 1

    def predictions(
        self, run: Any, inputs: Any, *, members: bool = False, by: str = "probabilities"
    ) -> Any:
        """Return the predictions for inputs, averaged over the draws of a run.

        These are log-probabilities (row, class), or mean and standard deviation of real numbers;
        with `members` those of every draw, at most 400. `run` may also be one set of parameters,
        such as `best`.
        """
        params, weights = _points(run)
        features = self.features(as_inputs(inputs, self.like))
        return self.predictor.predict((params, {}), weights, features, members, by)

    def metrics(self, run: Any, test: Any = None, *, by: str = "probabilities") -> Any:
        """Return the metrics of the average over draws, as `Trained.metrics`: on `test`, a pair
        (inputs, outcomes), or on that of the posterior."""
        law: Any = self.predictor.likelihood
        choose("by", by, law.ways)
        if test is not None:
            features, targets = _tested(self.features, law, test)
        elif self.test is not None:
            features, targets = self.test
        else:
            raise ValueError("There is no test: write metrics(run, (inputs, outcomes)).")
        params, weights = _points(run)
        sums, targets = law.empty(jnp.asarray(targets)), jnp.asarray(targets)
        size = max(1, _MOST_NUMBERS // (len(targets) * len(self.best["bias"])))

        @jax.jit
        def average(params: Any, weights: Array) -> Any:
            outputs = jax.vmap(lambda one: self.predictor.outputs(one, {}, features))(params)
            return law.average(outputs, targets, weights)

        for at in range(0, len(weights), size):
            some = jax.tree.map(lambda leaf: leaf[at : at + size], params)  # noqa: B023
            sums = law.merge(sums, average(some, jnp.asarray(weights[at : at + size])))
        return law.metrics(sums, targets, by)


def last_layer(
    network: Any,
    data: Any,
    start: Any = None,
    *,
    layer: str | None = None,
    test: Any = None,
    num_classes: int | None = None,
    noise: str | float = "learned",
    prior_sd: float | None = None,
) -> LastLayer:
    """Return the posterior of the last layer of a trained network, for `rx.sample`.

    The network computes as in testing, once for every row. Up to 2,048 parameters.

    Args:
        network: an `rx.nn.Network`, trained, as from `rx.interop.from_flax`; or a function
            `features(inputs) -> (row, feature)` of any library, which returns the inputs of a last
            layer.
        data: a pair of arrays (inputs, labels) or (inputs, targets); targets that are
            floating-point are real numbers, integers are classes. Or an `rx.data.Dataset`.
        start: of a network its (params, model_state).
        layer: the name of the last layer among the parameters, such as "dense"; found unless given.
        test: such a pair, for `metrics`. A `Dataset` has its own.
        num_classes: the highest label plus one unless given.
        noise: of real numbers: its standard deviation in the unit of the targets, or "learned".
        prior_sd: of weights and biases, for standardised targets; by the evidence unless given.

    >>> import replicax as rx
    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> head = rx.last_layer(lambda x: x, (x, 2 * x[:, 0] + 1), noise=0.1)
    >>> run = rx.sample(head, num_steps=300, seed=0)
    >>> mean, sd = head.predictions(run, np.array([[0.5]]))
    >>> mean.round(1), sd.round(1)
    (array([2.]), array([0.1]))
    """
    if prior_sd is not None:
        check_number("prior_sd", prior_sd, lambda x: x > 0, "it must be a number above 0")
    rows, test, wrapped = _read(data, test)
    law = _law(rows[1], data.num_classes if isinstance(data, Dataset) else num_classes)
    features_of = _in_pieces(_features(network, start, layer, wrapped, rows[0], _count(law)))
    features = features_of(rows[0])
    params, outputs = _head(law, features.shape[1], noise)
    tested = None if test is None else _tested(features_of, law, test)

    def log_likelihood(params: Any, rows: Any) -> Array:
        values = outputs(params, {}, rows[0])
        if isinstance(law, Classes):
            log_probs = jax.nn.log_softmax(values)
            return jnp.take_along_axis(log_probs, rows[1][:, None], axis=1)[:, 0]
        return jnp.sum(law.log_density(values, rows[1]), axis=-1) - np.sum(np.log(law.spread))

    targets = jnp.asarray(law.as_targets("data[1]", rows[1]))
    return _posterior(
        log_likelihood,
        (features, targets),
        params,
        prior_sd,
        features=features_of,
        predictor=Predictor(outputs, law),
        like=like_of(rows[0]),
        test=tested,
    )


def _read(data: Any, test: Any) -> tuple[Any, Any, Callable[[Any], Any]]:
    """Return the pairs (inputs, outcomes) to learn from and of the test, and what becomes of inputs
    before the network sees them."""
    if isinstance(data, Dataset):
        if test is not None:
            raise ValueError("The dataset has its own test: leave it out.")
        images = data.check()
        rows = images.train_images, images.train_labels
        normalised = lambda x: normalise(jnp.asarray(x), images.mean, images.std)  # noqa: E731
        return rows, (images.test_images, images.test_labels), normalised
    kinds = "labels or targets"
    tested = None if test is None else check_pair("test", test, kinds)
    return check_pair("data", data, kinds), tested, lambda inputs: inputs


def _count(law: Outcomes) -> int:
    """Return the number of outputs of the layer."""
    return len(law.centre) if isinstance(law, Numbers) else law.num_outputs


def _posterior(
    log_likelihood: Callable, rows: Any, params: Any, prior_sd: float | None, **known: Any
) -> LastLayer:
    """Return the posterior in coordinates in which it is close to N(0, 1)."""
    flat, unravel = ravel_pytree(params)
    # The scale of the noise has a prior of its own, N(0, 1) for its logarithm.
    is_scaled = ravel_pytree({name: jnp.full(jnp.shape(leaf), name != "log_noise")
                              for name, leaf in params.items()})[0].astype(bool)  # fmt: skip
    fit = laplace(
        lambda flat, rows: -jnp.sum(log_likelihood(unravel(flat), rows)),
        rows,
        np.asarray(flat, float),
        np.asarray(is_scaled),
        prior_sd,
    )
    centre, spread = (jnp.asarray(x, jnp.float32) for x in (fit.mode, fit.spread))
    precision = jnp.asarray(fit.precision, jnp.float32)
    constant = float(np.sum(np.log(fit.precision / (2 * np.pi))) / 2 + fit.log_volume)
    place = lambda z: centre + spread @ z  # noqa: E731

    def log_prior(z: Array) -> Array:
        return constant - jnp.sum(precision * place(z) ** 2) / 2

    posterior = bayesian(
        lambda z, rows: log_likelihood(unravel(place(z)), rows),
        log_prior,
        rows,
        constrain=lambda z: unravel(place(z)),
    )
    parts = {field.name: getattr(posterior, field.name) for field in fields(posterior)}
    parts["start"] = lambda key: jax.random.normal(key, centre.shape)
    best = jax.tree.map(np.asarray, unravel(centre))
    sd = float(np.sqrt(1 / fit.precision[np.asarray(is_scaled)][0]))
    return LastLayer(**parts, best=best, prior_sd=sd, log_evidence=fit.log_evidence, **known)


def _law(outcomes: np.ndarray, num_classes: int | None) -> Outcomes:
    """Return the likelihood of the outcomes: of classes, or of real numbers by their moments."""
    if outcomes.dtype.kind == "f" and num_classes is None:
        columns = outcomes.reshape(len(outcomes), -1).astype(float)
        spread = np.where(np.ptp(columns, axis=0) > 0, columns.std(axis=0), 1.0)
        return Numbers(gaussian(), tuple(columns.mean(axis=0).tolist()), tuple(spread.tolist()))
    if num_classes is None:
        remedy = ", or write num_classes=...; real numbers are floating-point targets"
        num_classes = count_classes("data[1]", outcomes, remedy)
    return Classes(num_classes)


def _tested(features_of: Callable, law: Outcomes, test: Any) -> tuple[Array, np.ndarray]:
    inputs, outcomes = test
    return features_of(inputs), law.as_targets("test[1]", outcomes)


def _head(law: Outcomes, num_features: int, noise: Any) -> tuple[dict[str, Array], Callable]:
    """Return parameters of 0, and `outputs(params, state, features)` for the likelihood."""
    numbers, count = law if isinstance(law, Numbers) else None, _count(law)
    params: dict[str, Array] = {
        "weight": jnp.zeros((num_features, count)),
        "bias": jnp.zeros(count),
    }
    size = (num_features + 1) * count
    if size > _MOST_PARAMETERS:
        raise ValueError(
            f"The last layer has {size:,} parameters, and {_MOST_PARAMETERS:,} can be sampled "
            "here: give fewer features, such as their first principal components; or freeze the "
            'others, rx.freeze(network, start, "dense"), and train with method="sghmc-pt".'
        )
    scale: Any = None
    if numbers is not None and isinstance(noise, str) and noise == "learned":
        params["log_noise"] = jnp.zeros(count)
    elif numbers is not None:
        if not is_number(noise) or not noise > 0:
            raise ValueError(f'noise is {show(noise)}; give its standard deviation, or "learned".')
        scale = jnp.asarray(noise / np.asarray(numbers.spread), jnp.float32)

    def outputs(params: Any, state: Any, features: Any) -> Array:
        values = features @ params["weight"] + params["bias"]
        if numbers is None:
            return values
        noises = jnp.exp(params["log_noise"]) if scale is None else scale
        return jnp.stack([values, jnp.broadcast_to(noises, values.shape)], axis=-1)

    return params, outputs


def _points(run: Any) -> tuple[Any, np.ndarray]:
    """Return parameters, leading axis: draw, and their weights; at most some, evenly spaced."""
    if isinstance(run, dict):
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], run), np.ones(1)
    draws = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), run.draws)
    count = len(draws["bias"])
    kept = np.unique(np.linspace(0, count - 1, min(count, _MOST_DRAWS)).astype(int))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[kept]), draws), np.ones(len(kept))


def _in_pieces(features: Callable[[Any], Any]) -> Callable[[Any], Array]:
    """Return features of any number of rows, computed some at a time."""

    def of_all(inputs: Any) -> Array:
        count, parts = len(jax.tree.leaves(inputs)[0]), []
        for start in range(0, count, _PIECE):
            piece = jax.tree.map(lambda x: x[start : start + _PIECE], inputs)  # noqa: B023
            try:
                part = np.asarray(features(piece), np.float32)
            except (TypeError, RuntimeError) as error:
                raise ValueError(
                    "The features are no array: of a PyTorch module write lambda x: "
                    "trunk(torch.as_tensor(x)).detach().cpu().numpy()."
                ) from error
            if part.ndim != 2 or len(part) != len(jax.tree.leaves(piece)[0]):
                raise ValueError(
                    f"The features have shape {part.shape} for {len(jax.tree.leaves(piece)[0])} "
                    "rows; return (row, feature), the inputs of a last dense layer."
                )
            if not np.isfinite(part).all():
                raise ValueError("Some features are not finite: is the network trained?")
            parts.append(part)
        return jnp.asarray(np.concatenate(parts))

    return of_all


def _features(
    network: Any, start: Any, layer: str | None, wrapped: Callable, inputs: Any, count: int
) -> Callable[[Any], Any]:
    """Return the function of the features: the one that is given, or that of a network."""
    if not isinstance(network, Network):
        if not callable(network) or isinstance(network, type):
            raise ValueError(
                f"The network is {show(network)}; give an rx.nn.Network with its start, or a "
                "function features(inputs)."
            )
        # Functions of other libraries take arrays of NumPy.
        return lambda x: network(jax.tree.map(np.asarray, wrapped(x)))
    if start is None:
        raise ValueError(
            "The start is missing: give the (params, model_state) of the trained network, "
            "rx.last_layer(network, data, start)."
        )
    few = wrapped(jax.tree.map(lambda x: x[:2], inputs))
    for name in [layer] if layer else _layers(start[0], count):
        for is_last in (True, False):  # the axis of outputs in the weight
            parts = _split(network, start, name, count, is_last)
            if parts is not None and _is_linear(parts, few):
                return jax.jit(lambda x, parts=parts: parts(wrapped(x))[0])
    named = f"the layer {layer!r}" if layer else "a last dense layer with a bias"
    raise ValueError(
        f"The {count} outputs of the network are not those of {named}: give the name of its last "
        "layer, layer=..., or in the place of the network a function of the features."
    )


def _layers(params: Any, count: int) -> list[str]:
    """Return names of layers with a weight for so many outputs, the last first."""
    named = list(zip(leaf_names(params), jax.tree.leaves(params), strict=True))
    found = [name.rpartition(".")[0] or name for name, leaf in named
             if np.ndim(leaf) == 2 and count in np.shape(leaf)]  # fmt: skip
    return list(dict.fromkeys(reversed(found)))


def _split(
    network: Network, start: Any, layer: str, count: int, is_last: bool
) -> Callable[[Any], Any] | None:
    """Build `parts(inputs) -> features, outputs, those by the features`; None if the layer has not
    a weight for so many outputs, along its last axis or its first, and at most a bias.

    Features are the derivatives of the first output by the weights that lead to it.
    """
    head, (own, _) = freeze(network, start, layer)
    named = {np.ndim(leaf): name for name, leaf in own.items()}
    weight, bias = named.get(2, ""), named.get(1)
    matrix = own.get(weight)
    if matrix is None or len(own) != len({weight, bias} - {None}):
        return None
    if matrix.shape[1 if is_last else 0] != count or (bias and own[bias].size != count):
        return None
    size = matrix.shape[0 if is_last else 1]
    towards = np.zeros((size, size, count), np.float32)
    towards[np.arange(size), np.arange(size), 0] = 1
    towards = towards if is_last else towards.swapaxes(1, 2)

    def parts(inputs: Any) -> tuple[Array, Array, Array]:
        def of_weight(matrix: Any) -> Array:
            return head.apply({**own, weight: matrix}, {}, inputs, False)[0]

        outputs, push = jax.linearize(of_weight, jnp.asarray(matrix))
        features = jax.vmap(push)(jnp.asarray(towards, matrix.dtype))[..., 0].T
        again = features @ (matrix if is_last else matrix.T)
        return features, outputs, again + (0 if bias is None else own[bias])

    return parts


def _is_linear(parts: Callable, inputs: Any) -> bool:
    """Return whether the outputs of a network follow from the features and the layer."""
    _, outputs, again = (np.asarray(x, float) for x in jax.jit(parts)(inputs))
    room = _LINEAR * np.abs(outputs).max()
    return outputs.shape == again.shape and np.allclose(outputs, again, rtol=0, atol=room)
