"""`classification`: the posterior of a network that predicts classes, by mean cross-entropy."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from replicax.data import Dataset, as_labels, augmentation, count_classes, plain
from replicax.errors import at_least, check_flag, show
from replicax.networks.likelihoods import Categorical
from replicax.networks.predictor import (
    Predictor,
    check_batch,
    check_like,
    check_pair,
    like_of,
    seen_in,
)
from replicax.networks.task import Supervised, Test, apply_network, supervised, with_check
from replicax.nn.network import Network
from replicax.run.sources import is_source


def classification(
    network: Network,
    dataset: Any,
    *,
    batch_size: int = 256,
    augment: bool = True,
    test: Any = None,
    num_classes: int | None = None,
    **options: Any,
) -> Supervised:
    """Return the posterior of a `Network` on images: mean cross-entropy, evaluated on the test set.

    Images stay uint8 on the device and are normalised, and with `augment` cropped, flipped and
    partly erased, inside the compiled step. Further options are those of `supervised`.

    Instead of an `rx.data.Dataset`, `dataset` may be a pair of arrays (inputs, labels) with
    floating-point inputs, which are neither normalised nor augmented. Then networks are evaluated
    on `test=(inputs, labels)`, if given, and `num_classes` is by default the highest label plus
    one.

    It may also be a source whose mini-batches are such pairs, as in `supervised`; then
    `num_classes` is required, and `prepare` may convert uint8 images to inputs.
    """
    data = _as_data(network, dataset, test, num_classes, options.get("num_rows"))
    check_flag("augment", augment)
    normalised = _normalisation(data.pixels)
    augmented = augmentation(**data.pixels) if data.pixels and augment else None
    outputs = _outputs(network, data.num_classes, data.name)

    def prepare(key: Array, batch: tuple[Array, Array]) -> tuple[Array, Array]:
        images, labels = batch
        return (augmented(key, images) if augmented else normalised(images)), labels

    def loss_fn(params: Any, model_state: Any, batch: Any, key: Array) -> tuple[Array, Any]:
        images, labels = batch
        logits, model_state = outputs(params, model_state, images, True)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels)
        return jnp.mean(losses), model_state

    known = data.test if data.is_source else data.rows
    predictor = classifier(
        network, data.num_classes, like_of(known and known[0]), data.pixels, data.name
    )
    predictor = replace(predictor, seen=None if data.is_source else seen_in(data.rows[0]))
    tested = None
    if data.test is not None:
        tested = Test(predictor.outputs, data.test[0], data.test[1], data.num_classes)
    own = {"prepare": None if data.is_source else prepare, "test": tested, **options}
    problem = supervised(loss_fn, data.rows, batch_size=batch_size, **own)
    if data.is_source:
        is_prepared = own["prepare"] is not None
        problem = with_check(
            problem, functools.partial(_check_batch, data.num_classes, is_prepared)
        )
    return replace(problem, predictor=predictor)


def classifier(
    network: Network, num_classes: int, like: Any, pixels: Any = None, name: str = "the data"
) -> Predictor:
    """Return the predictor of classes; `like` is a row of the inputs, `pixels` has mean and std by
    which uint8 images are normalised."""
    outputs, normalised = _outputs(network, num_classes, name), _normalisation(pixels)

    def logits(params: Any, model_state: Any, images: Array) -> Array:
        return outputs(params, model_state, normalised(images), False)[0]

    return Predictor(logits, Categorical(num_classes), like, {"pixels": pixels}, network)


def _normalisation(pixels: dict[str, Any] | None) -> Callable[[Any], Any]:
    return plain(**pixels) if pixels else lambda inputs: inputs


def _outputs(network: Network, num_classes: int, name: str) -> Callable[..., tuple[Array, Any]]:
    """Build `outputs(params, model_state, inputs, train) -> logits, model_state`, which checks that
    there is one logit for every class of the data set `name`."""

    def outputs(params: Any, model_state: Any, images: Array, train: bool) -> tuple[Array, Any]:
        logits, model_state = apply_network(network, params, model_state, images, train)
        if jnp.ndim(logits) != 2 or logits.shape[-1] != num_classes:
            raise ValueError(
                f"The network has outputs of shape {jnp.shape(logits)} for {len(images)} images; "
                f"{name} has {num_classes} classes: give it as many outputs."
            )
        return logits, model_state

    return outputs


class _Data(NamedTuple):
    """What networks learn from, and what they are tested on."""

    name: str
    rows: Any  # arrays (inputs, labels), or a source of such pairs
    test: Any  # arrays (inputs, labels), or None
    num_classes: int
    pixels: dict[str, Any] | None = None  # mean and std of images of bytes
    is_source: bool = False


def _as_data(
    network: Network, dataset: Any, test: Any, num_classes: int | None, num_rows: int | None
) -> _Data:
    """Return the data of a classification; raise unless they are of one of the three kinds."""
    is_pair, is_set = isinstance(dataset, tuple | list), isinstance(dataset, Dataset)
    is_stream = not is_set and is_source(dataset, num_rows)
    if not isinstance(network, Network) or not (is_pair or is_stream):
        raise ValueError(
            f"The network is {show(network)} and the dataset {show(dataset)}; give an "
            "rx.nn.Network first and an rx.data.Dataset, arrays (inputs, labels), or a source of "
            "such pairs, second."
        )
    if is_stream:
        if num_classes is None:
            raise ValueError(
                "num_classes is missing: the labels of a source are not known before they are "
                "read. Write num_classes=..., the number of classes."
            )
        at_least("num_classes", num_classes, 1)
        tested = None if test is None else _test_arrays(test, num_classes)
        return _Data("the source", dataset, tested, num_classes, is_source=True)
    if not is_set:
        return _as_pairs(dataset, test, num_classes)
    if test is not None or num_classes is not None:
        raise ValueError("The dataset has its own test and num_classes: leave them out.")
    images = dataset.check()
    rows = images.train_images, images.train_labels
    tested = jnp.asarray(images.test_images), images.test_labels
    pixels = {"mean": images.mean, "std": images.std}
    return _Data(images.name, rows, tested, images.num_classes, pixels)


def _as_pairs(dataset: Any, test: Any, num_classes: int | None) -> _Data:
    """Return the data of arrays (inputs, labels)."""
    inputs, labels = check_pair("dataset", dataset, "labels")
    if num_classes is None:
        remedy = ", or write num_classes=..., how many there are"
        num_classes = count_classes("dataset[1]", labels, remedy)
    at_least("num_classes", num_classes, 1)
    rows = inputs, as_labels("dataset[1]", labels, num_classes)
    tested = None if test is None else _test_arrays(test, num_classes)
    if tested is not None:
        check_like("test", tested[0], inputs)
    return _Data("the data", rows, tested, num_classes)


def _test_arrays(test: Any, num_classes: int) -> tuple[Any, np.ndarray]:
    inputs, labels = check_pair("test", test, "labels")
    return inputs, as_labels("test[1]", labels, num_classes)


def _check_batch(num_classes: int, is_prepared: bool, name: str, batch: Any) -> tuple[Any, Any]:
    """Return a batch of a source with its labels as class numbers; raise if it has none."""
    inputs, labels = check_batch(name, batch, "labels")
    if not is_prepared and any(leaf.dtype == np.uint8 for leaf in jax.tree.leaves(inputs)):
        raise ValueError(
            f"{name} has uint8 inputs; give a prepare(key, batch) that converts them to floating "
            "point, or let the source do so."
        )
    return inputs, as_labels(f"{name}[1]", labels, num_classes)
