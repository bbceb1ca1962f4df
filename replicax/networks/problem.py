"""A network and its data as a posterior: the one place where losses, priors, learning rates and
temperatures get their unit.

With N rows of data and a mean loss L(theta), the posterior at temperature T is

    exp(-N (L(theta) + weight_decay |theta|^2 / 2) / T).

In the unit "mean" energies are mean losses, as deep learning has them; in "total" they are N times
as large, as statistics has them. Learning rates are given per mean loss and temperatures per total
in either case, and `Supervised` turns them into the unit of the energies: the path is the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from replicax.algorithm.target import Target
from replicax.algorithm.tracing import explained
from replicax.data import Dataset, augmentation, plain
from replicax.errors import at_least, check_flag, check_function, choose, show
from replicax.networks.weight_decay import Decay, check_weight_decay, decayed_square
from replicax.nn.network import Network
from replicax.run.batches import EpochBatches, as_epochs
from replicax.run.source_batches import SourceBatches, as_source, is_source

UNITS = ("mean", "total")
_FITS = "Do the start, the network and the data belong together?"


class Test(NamedTuple):
    """Unseen data, and `logits(params, model_state, inputs)` to test networks on them."""

    __test__ = False  # for pytest, which takes the name for its own
    logits: Callable[[Any, Any, Any], Array]
    inputs: Any  # leading axis: image
    labels: Array  # (image,)
    num_classes: int


def check_test(test: Any) -> None:
    """Raise unless inputs and labels of a test fit each other."""
    if not isinstance(test, Test):
        raise ValueError(
            f"test is {show(test)}; give rx.Test(logits, inputs, labels, num_classes)."
        )
    check_function("logits", test.logits, "params", "model_state", "inputs")
    at_least("num_classes", test.num_classes, 1)
    labels = np.asarray(test.labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size:
        raise ValueError(
            f"The labels of the test are {labels.dtype} of shape {labels.shape}; give one whole "
            "number for each input, of one-hot labels labels.argmax(-1)."
        )
    if labels.min() < 0 or labels.max() >= test.num_classes:
        raise ValueError(
            f"The labels of the test go from {labels.min()} to {labels.max()}; with "
            f"num_classes={test.num_classes} they must count from 0 to {test.num_classes - 1}."
        )
    if any(len(leaf) != len(labels) for leaf in jax.tree.leaves(test.inputs)):
        raise ValueError("The inputs and labels of the test differ in length; give one of each.")


@dataclass(frozen=True)
class Supervised:
    """A target, its mini-batches and its test; `supervised` and `classification` return one."""

    target: Target
    batches: EpochBatches | SourceBatches
    unit: str
    test: Test | None = None

    @property
    def num_rows(self) -> int:
        return self.batches.num_rows

    @property
    def steps_per_epoch(self) -> int:
        return self.batches.steps_per_epoch

    @property
    def scale(self) -> float:
        """Energy per mean loss."""
        return float(self.num_rows) if self.unit == "total" else 1.0

    def learning_rate(self, per_mean_loss: Any) -> Any:
        """Return learning rates in the unit of the energies."""
        return np.asarray(per_mean_loss, float) / self.scale

    def temperature(self, of_posterior: Any) -> Any:
        """Return temperatures in the unit of the energies."""
        return np.asarray(of_posterior, float) * self.scale / self.num_rows


def supervised(
    loss_fn: Callable[[Any, Any, Any, Array], tuple[Array, Any]],
    data: Any,
    *,
    batch_size: int,
    num_rows: int | None = None,
    unit: str = "mean",
    weight_decay: Decay = 0.0,
    prior_in_energy: bool = False,
    prepare: Callable[[Array, Any], Any] | None = None,
    test: Test | None = None,
) -> Supervised:
    """Return the posterior of a network of any JAX library, given its loss.

    Args:
        loss_fn: `loss_fn(params, model_state, batch, key) -> loss, model_state`, the loss being a
            mean over the batch. The model state (batch statistics, ...) belongs to the replica and
            travels with it; without one, pass {} through.
        data: arrays with a row for every example, in a new order each epoch; or a source, any
            object whose `iter()` gives an epoch of mini-batches, trees of arrays of `batch_size`
            rows, in an order of its own.
        num_rows: of all the data, for a source; its number of batches times `batch_size` unless
            given. An epoch has as many steps as there are whole batches of them.
        unit: of energies, "mean" or "total".
        weight_decay: of the Gaussian prior, per mean loss; always part of the gradient. A number;
            one for each pattern of names, the first that fits, as in {"*bias": 0.0, "*": 5e-4}; or
            a function of the name. Names are those of `params`, such as "blocks.0.convs.1".
        prior_in_energy: whether swaps see the prior, too.
        prepare: `prepare(key, batch)` turns rows into the batch of the loss, once for all replicas.
        test: an `rx.Test`, which `rx.train` evaluates networks on.

    >>> x = jnp.linspace(-1.0, 1.0, 64)
    >>> def loss_fn(params, model_state, batch, key):
    ...     x, y = batch
    ...     return jnp.mean((params[0] + params[1] * x - y) ** 2), model_state
    >>> problem = supervised(loss_fn, (x, 3 * x), batch_size=16, unit="total")
    >>> problem.steps_per_epoch, problem.scale
    (4, 64.0)
    """
    check_function("loss_fn", loss_fn, "params", "model_state", "batch", "key")
    choose("unit", unit, UNITS)
    has_decay = check_weight_decay(weight_decay)
    check_flag("prior_in_energy", prior_in_energy)
    if test is not None:
        check_test(test)
    if is_source(data, num_rows):
        batches = as_source(data, batch_size, num_rows, prepare)
    else:
        batches = as_epochs(data, batch_size, prepare)
    scale = float(batches.num_rows) if unit == "total" else 1.0

    def prior(params: Any) -> Array:
        return jnp.asarray(0.5 * scale * decayed_square(weight_decay, params))

    def energy(params: Any, model_state: Any, batch: Any, key: Array) -> tuple[Array, Any]:
        with explained("loss_fn", _FITS):
            returned = loss_fn(params, model_state, batch, key)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise ValueError(
                "The loss must return (loss, model_state); with nothing to remember, return the "
                "model_state that it was given."
            )
        loss, model_state = returned
        total = scale * loss
        return (total + prior(params) if prior_in_energy else total), model_state

    apart = has_decay and not prior_in_energy
    target = Target(energy, has_state=True, prior=prior if apart else None)
    return Supervised(target, batches, unit, test)


def classification(
    network: Network,
    dataset: Dataset,
    *,
    batch_size: int = 256,
    augment: bool = True,
    **options: Any,
) -> Supervised:
    """Return the posterior of a `Network` on images: mean cross-entropy, tested on the test part.

    Images stay uint8 on the device and are normalised, and with `augment` cropped, flipped and
    partly erased, inside the compiled step. Further options are those of `supervised`.
    """
    if not isinstance(network, Network) or not isinstance(dataset, Dataset):
        raise ValueError(
            f"The network is {show(network)} and the dataset {show(dataset)}; give an "
            "rx.nn.Network first and an rx.data.Dataset second."
        )
    check_flag("augment", augment)
    dataset.check()
    mean, std = dataset.mean, dataset.std
    normalised = plain(mean, std)
    augmented = augmentation(mean, std) if augment else None

    def prepare(key: Array, batch: tuple[Array, Array]) -> tuple[Array, Array]:
        images, labels = batch
        return (augmented(key, images) if augmented else normalised(images)), labels

    def outputs(params: Any, model_state: Any, images: Array, train: bool) -> tuple[Array, Any]:
        with explained("The network", _FITS):
            returned = network.apply(params, model_state, images, train)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise ValueError("network.apply must return (logits, state) of a batch of images.")
        logits, model_state = returned
        if jnp.ndim(logits) != 2 or logits.shape[-1] != dataset.num_classes:
            raise ValueError(
                f"The network has outputs of shape {jnp.shape(logits)} for {len(images)} images; "
                f"{dataset.name} has {dataset.num_classes} classes: let it have as many outputs."
            )
        return logits, model_state

    def loss_fn(params: Any, model_state: Any, batch: Any, key: Array) -> tuple[Array, Any]:
        images, labels = batch
        logits, model_state = outputs(params, model_state, images, True)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels)
        return jnp.mean(losses), model_state

    def logits(params: Any, model_state: Any, images: Array) -> Array:
        return outputs(params, model_state, normalised(images), False)[0]

    labels = jnp.asarray(dataset.test_labels)
    test = Test(logits, jnp.asarray(dataset.test_images), labels, dataset.num_classes)
    data = (dataset.train_images, dataset.train_labels)
    return supervised(loss_fn, data, batch_size=batch_size, prepare=prepare, test=test, **options)
