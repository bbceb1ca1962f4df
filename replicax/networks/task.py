"""A network and its data as a posterior.

With N rows of data and a mean loss L(theta), the posterior at temperature T is

    exp(-N (L(theta) + weight_decay |theta|^2 / 2) / T).

Energies are mean losses, as is usual in deep learning, and those of all rows where the likelihood
is tempered (`tempered.py`). Learning rates refer to the mean loss and temperatures to the
posterior, in either unit.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.target import Target
from replicax.data import as_labels
from replicax.errors import (
    at_least,
    check_flag,
    check_function,
    explained,
    not_negative,
    show,
)
from replicax.networks.outcomes import Classes, Outcomes, two_logits
from replicax.networks.pairs import Pairs, like_of
from replicax.networks.predictor import Predictor
from replicax.nn.network import Network
from replicax.run.batches import EpochBatches, as_epochs
from replicax.run.initial import PerReplica
from replicax.run.sources import SourceBatches, as_source, is_source
from replicax.run.task import Task, Unit
from replicax.run.trees import leaf_names

FITS = "Do the start, the network and the data fit together?"
_RANDOM = ("random_bits", "rng_bit_generator", "rng_uniform")  # primitives of JAX
Decay = float | dict[str, float]  # by patterns of names


class Test(NamedTuple):
    """Test data, and the function `logits(params, model_state, inputs)` to evaluate networks on
    them."""

    __test__ = False  # so that pytest does not take it for a test
    logits: Callable[[Any, Any, Any], Array]
    inputs: Any  # leading axis: image
    labels: Any  # (image,)
    num_classes: int


class Tested(NamedTuple):
    """What networks are evaluated on, whatever the likelihood."""

    outputs: Callable[[Any, Any, Any], Array]  # (params, model_state, inputs) -> (row, ...)
    inputs: Any  # leading axis: row
    targets: Array  # (row,) class numbers, or (row, target) standardised numbers
    likelihood: Outcomes
    weights: Any = None  # (row,) by which scores are averaged


@dataclass(frozen=True)
class Supervised(Task):
    """Networks: a target, its mini-batches and its test; `supervised`, `classification` and
    `regression` return one."""

    batches: EpochBatches | SourceBatches
    test: Tested | None = None
    predictor: Predictor | None = None  # predicts any inputs
    validation: Tested | None = None  # rows that are held out of the training, see `validation.py`

    def __repr__(self) -> str:
        tested = "no test" if self.test is None else f"{len(self.test.targets):,} rows to test"
        return (
            f"Supervised({self.num_rows:,} rows in batches of {self.batches.batch_size}, {tested})"
        )

    @property
    def num_rows(self) -> int:
        return self.batches.num_rows

    @property
    def steps_per_epoch(self) -> int:
        return self.batches.steps_per_epoch

    @property
    def unit(self) -> Unit:
        """Energies are mean losses, and where the likelihood is tempered those of all rows."""
        return Unit(float(self.num_rows if self.target.tempers_likelihood else 1), self.num_rows)

    @property
    def tested_on(self) -> Any:
        test = self.test
        parts = () if test is None else (test.inputs, test.targets, test.weights)
        return tuple(part for part in parts if part is not None) or None

    def describe(self, network: Any = None) -> dict[str, Any]:
        """Return the likelihood of the test as plain data, None without a test; and the predictor
        as plain data, None if it cannot be stored. With the shapes of a `network`, the latter has
        outputs by which the network can be recognised."""
        return {
            "likelihood": None if self.test is None else self.test.likelihood.to_json(),
            "predicts": None if self.predictor is None else self.predictor.describe(network),
        }

    def is_random(self, like: Any) -> bool:
        """Return whether the loss draws random numbers, as dropout does; `like` has the shapes of
        one network, (params, model_state)."""
        key = jax.random.key(0)
        batch = self.batches.first(key)
        loss = lambda *point: self.target.energy(*point, batch, self.target.draw(key))  # noqa: E731
        program = str(jax.make_jaxpr(loss)(*like))
        return any(name in program for name in _RANDOM)

    def start_from(self, start: Any) -> Any:
        """Return a start of networks with the further parameters of this problem added, such as the
        noise of a regression."""
        adds = None if self.predictor is None else self.predictor.adds
        if adds is None:
            return start
        if isinstance(start, PerReplica):
            params, *others = start.tree
            return start._replace(tree=(adds.add(params, 1 + bool(start.by_chain)), *others))
        if callable(start) and not isinstance(start, tuple | list):
            return lambda key: self.start_from(start(key))
        if isinstance(start, tuple | list) and len(start) == 2:
            return adds.add(start[0]), start[1]
        return start


def supervised(
    loss_fn: Callable[[Any, Any, Any, Array], tuple[Array, Any]],
    data: Any,
    *,
    batch_size: int,
    num_rows: int | None = None,
    weight_decay: Decay = 0.0,
    prior_in_energy: bool = False,
    prepare: Callable[[Array, Any], Any] | None = None,
    test: Any = None,
    logits: Callable[[Any, Any, Any], Array] | None = None,
) -> Supervised:
    """Return the posterior of a network of any JAX library, given its loss.

    Args:
        loss_fn: `loss_fn(params, model_state, batch, key) -> loss, model_state`, the loss being a
            mean over the batch. The model state (batch statistics, ...) belongs to the replica and
            stays with it; without one, return the {} that was passed.
        data: arrays with one row per example, used in a new order each epoch; or a source, any
            object whose `iter()` yields an epoch of mini-batches, trees of arrays with `batch_size`
            rows.
        num_rows: number of rows of a source; by default its number of batches times `batch_size`.
            An epoch has `num_rows // batch_size` steps.
        weight_decay: the Gaussian prior, relative to the mean loss; always part of the gradient. A
            number; or a dict by patterns of names, of which the first match counts, as in {"*bias":
            0.0, "*": 5e-4}. Names are those of `params`, such as "blocks.0.convs.1".
        prior_in_energy: whether the energies that decide swaps include the prior.
        prepare: `prepare(key, batch)` maps rows to the batch of the loss, once for all replicas.
        test: an `rx.Test` on which `rx.train` evaluates networks; without one, networks are trained
            and kept, but not evaluated.
        logits: `logits(params, model_state, inputs)`, for `trained.predict` without a test.

    >>> x = jnp.linspace(-1.0, 1.0, 64)
    >>> def loss_fn(params, model_state, batch, key):
    ...     x, y = batch
    ...     return jnp.mean((params[0] + params[1] * x - y) ** 2), model_state
    >>> problem = supervised(loss_fn, (x, 3 * x), batch_size=16)
    >>> problem.steps_per_epoch
    4
    """
    check_function("loss_fn", loss_fn, "params", "model_state", "batch", "key")
    has_decay = check_weight_decay(weight_decay)
    check_flag("prior_in_energy", prior_in_energy)
    tested = None if test is None else _as_tested(test)
    predictor = None
    if logits is not None:
        check_function("logits", logits, "params", "model_state", "inputs")
        predictor = Predictor(logits, Classes())
    if tested is not None:
        predictor = Predictor(tested.outputs, tested.likelihood, like_of(tested.inputs))
    if is_source(data, num_rows):
        batches = as_source(data, batch_size, num_rows, prepare)
    else:
        batches = as_epochs(data, batch_size, prepare)

    def prior(params: Any) -> Array:
        return jnp.asarray(0.5 * decayed_square(weight_decay, params))

    def energy(params: Any, model_state: Any, batch: Any, key: Array) -> tuple[Array, Any]:
        with explained("loss_fn", FITS):
            returned = loss_fn(params, model_state, batch, key)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise ValueError(
                "The loss must return (loss, model_state); without state, return the model_state "
                "that was passed."
            )
        loss, model_state = returned
        return (loss + prior(params) if prior_in_energy else loss), model_state

    apart = has_decay and not prior_in_energy
    target = Target(energy, has_state=True, prior=prior if apart else None)
    return Supervised(target, batches, tested, predictor)


def _as_tested(test: Any) -> Tested:
    """Return a test with its labels as class numbers; raise unless they fit the inputs."""
    if not isinstance(test, Test):
        raise ValueError(
            f"test is {show(test)}; give rx.Test(logits, inputs, labels, num_classes)."
        )
    check_function("logits", test.logits, "params", "model_state", "inputs")
    at_least("num_classes", test.num_classes, 1)
    labels = as_labels("test.labels", test.labels, test.num_classes)
    if any(len(leaf) != len(labels) for leaf in jax.tree.leaves(test.inputs)):
        raise ValueError("The inputs and labels of the test differ in length; give one of each.")
    logits = test.logits
    if test.num_classes == 2:
        logits = lambda *given: two_logits(test.logits(*given))  # noqa: E731
    return Tested(logits, test.inputs, jnp.asarray(labels), Classes(test.num_classes))


def check_problem(problem: Any) -> Supervised:
    """Return the problem; raise unless it is one."""
    if not isinstance(problem, Supervised):
        raise ValueError(
            f"The problem is {show(problem)}; create one with rx.classification(network, dataset) "
            "or rx.supervised(loss_fn, data, ...)."
        )
    return problem


def predicting(problem: Supervised, pairs: Pairs, predictor: Predictor) -> Supervised:
    """Return the problem of these pairs with their test, and the predictor of any inputs."""
    batches, tested = problem.batches, None
    if isinstance(batches, SourceBatches):
        batches = replace(batches, check=pairs.check)
    if pairs.test is not None:
        tested = tested_by(predictor, *pairs.test)
    predictor = replace(predictor, seen=pairs.seen)
    return replace(problem, batches=batches, test=tested, predictor=predictor)


def tested_by(predictor: Predictor, inputs: Any, targets: Any, weights: Any = None) -> Tested:
    """Return the test of networks on rows with these targets; weights of single labels are
    averaged over those of a row."""
    if weights is not None:
        weights = jnp.mean(jnp.reshape(jnp.asarray(weights), (len(weights), -1)), axis=1)
    return Tested(predictor.outputs, inputs, jnp.asarray(targets), predictor.likelihood, weights)


def apply_network(
    network: Network, params: Any, model_state: Any, inputs: Any, train: bool
) -> tuple[Any, Any]:
    """Return the outputs of a network for a batch of rows, and its state; raise if they are not
    two."""
    with explained("The network", FITS):
        returned = network.apply(params, model_state, inputs, train)
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise ValueError("network.apply must return (outputs, state) for a batch of rows.")
    return returned[0], returned[1]


def check_weight_decay(weight_decay: Decay) -> bool:
    """Return whether there is any weight decay; raise unless it is a number, or a dict of them."""
    if not isinstance(weight_decay, dict):
        not_negative("weight_decay", weight_decay)
        return float(weight_decay) > 0
    for pattern, value in weight_decay.items():
        if not isinstance(pattern, str):
            raise ValueError(
                f"weight_decay has the entry {show(pattern)}; its entries are patterns of "
                'names, such as {"*bias": 0.0, "*": 5e-4}.'
            )
        not_negative(f"weight_decay[{pattern!r}]", value)
    # Without a pattern for the rest it is looked at in any case: who writes {"*bias": 0.0}
    # wants something for the others.
    return "*" not in weight_decay or any(value > 0 for value in weight_decay.values())


def decayed_square(weight_decay: Decay, params: Any) -> Array:
    """Return the sum over parameters of their weight decay times their square."""
    squares = [jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)]
    if not isinstance(weight_decay, dict):
        return jnp.asarray(weight_decay * sum(squares))
    names = leaf_names(params)
    fits = [[fnmatchcase(name, pattern) for pattern in weight_decay] for name in names]
    for pattern, used in zip(weight_decay, map(any, zip(*fits))):
        if pattern != "*" and not used:
            raise ValueError(
                f"weight_decay has the pattern {pattern!r}, which fits no parameter; they are "
                f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}."
            )
    for name, those in zip(names, fits):
        if not any(those):
            raise ValueError(
                f"weight_decay has no pattern that fits the parameter {name}: add one for the "
                'rest, "*".'
            )
    decays = list(weight_decay.values())
    first = (decays[those.index(True)] for those in fits)
    return sum((decay * square for decay, square in zip(first, squares)), jnp.zeros(()))
