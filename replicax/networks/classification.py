"""`classification`: the posterior of a network that predicts classes, by mean cross-entropy."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from replicax.data import Dataset, as_labels, augmentation, count_classes, plain
from replicax.errors import at_least, check_flag, explained, show
from replicax.networks.inputs import check_like, check_pair
from replicax.networks.likelihoods import Categorical
from replicax.networks.predictor import Predictor
from replicax.networks.problem import FITS, Supervised, Test, supervised
from replicax.nn.network import Network
from replicax.run.source_batches import is_source


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
    is_pair = isinstance(dataset, tuple | list) and not isinstance(dataset, Dataset)
    is_stream = not isinstance(dataset, Dataset) and is_source(dataset, options.get("num_rows"))
    known = isinstance(dataset, Dataset) or is_pair or is_stream
    if not isinstance(network, Network) or not known:
        raise ValueError(
            f"The network is {show(network)} and the dataset {show(dataset)}; give an "
            "rx.nn.Network first and an rx.data.Dataset, arrays (inputs, labels), or a source of "
            "such pairs, second."
        )
    check_flag("augment", augment)
    pixels = None
    if is_stream:
        data, name = dataset, "the source"
        num_classes = _classes_of_source(num_classes)
        tested = None if test is None else _test_arrays(test, num_classes)
    elif not isinstance(dataset, Dataset):
        name, (data, tested, num_classes) = "the data", _pairs(dataset, test, num_classes)
    elif test is not None or num_classes is not None:
        raise ValueError("The dataset has its own test and num_classes: leave them out.")
    else:
        dataset = dataset.check()
        name, num_classes = dataset.name, dataset.num_classes
        data = dataset.train_images, dataset.train_labels
        tested = jnp.asarray(dataset.test_images), dataset.test_labels
        pixels = {"mean": dataset.mean, "std": dataset.std}
    assert num_classes is not None
    normalised = _normalisation(pixels)
    augmented = augmentation(**pixels) if pixels and augment else None
    outputs = _outputs(network, num_classes, name)

    def prepare(key: Array, batch: tuple[Array, Array]) -> tuple[Array, Array]:
        images, labels = batch
        return (augmented(key, images) if augmented else normalised(images)), labels

    def loss_fn(params: Any, model_state: Any, batch: Any, key: Array) -> tuple[Array, Any]:
        images, labels = batch
        logits, model_state = outputs(params, model_state, images, True)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels)
        return jnp.mean(losses), model_state

    inputs = (None if tested is None else tested[0]) if is_stream else data[0]
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), inputs)
    predictor = classifier(network, num_classes, like, pixels, name)
    network_test = None if tested is None else Test(predictor.outputs, *tested, num_classes)  # type: ignore[arg-type]
    prepared = None if is_stream else prepare
    options = {"batch_size": batch_size, "prepare": prepared, "test": network_test, **options}
    problem = supervised(loss_fn, data, **options)
    if is_stream:
        check = functools.partial(_check_batch, num_classes, options["prepare"] is not None)
        problem = replace(problem, batches=replace(problem.batches, check=check))  # type: ignore
    return replace(problem, predictor=predictor)


def classifier(
    network: Network, num_classes: int, like: Any, pixels: Any = None, name: str = "the data"
) -> Predictor:
    """Return the predictor of classes; `like` is a row of the inputs, `pixels` has mean and std by
    which uint8 images are normalised."""
    outputs, normalised = _outputs(network, num_classes, name), _normalisation(pixels)

    def logits(params: Any, model_state: Any, images: Array) -> Array:
        return outputs(params, model_state, normalised(images), False)[0]

    return Predictor(logits, Categorical(num_classes), like, {"pixels": pixels})


def _normalisation(pixels: dict[str, Any] | None) -> Callable[[Any], Any]:
    return plain(**pixels) if pixels else lambda inputs: inputs


def _outputs(network: Network, num_classes: int, name: str) -> Callable[..., tuple[Array, Any]]:
    """Build `outputs(params, model_state, inputs, train) -> logits, model_state`, which checks that
    there is one logit for every class of the data set `name`."""

    def outputs(params: Any, model_state: Any, images: Array, train: bool) -> tuple[Array, Any]:
        with explained("The network", FITS):
            returned = network.apply(params, model_state, images, train)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise ValueError("network.apply must return (logits, state) for a batch of images.")
        logits, model_state = returned
        if jnp.ndim(logits) != 2 or logits.shape[-1] != num_classes:
            raise ValueError(
                f"The network has outputs of shape {jnp.shape(logits)} for {len(images)} images; "
                f"{name} has {num_classes} classes: give it as many outputs."
            )
        return logits, model_state

    return outputs


def _pairs(dataset: Any, test: Any, num_classes: int | None) -> tuple[Any, Any, int]:
    """Return the training and test arrays (inputs, labels), and the number of classes."""
    inputs, labels = check_pair("dataset", dataset, "labels")
    if num_classes is None:
        remedy = ", or write num_classes=..., how many there are"
        count = count_classes("dataset[1]", labels, remedy)
    else:
        at_least("num_classes", num_classes, 1)
        count = num_classes
    data = inputs, as_labels("dataset[1]", labels, count)
    if test is None:
        return data, None, count
    tested = _test_arrays(test, count)
    check_like("test", tested[0], data[0])
    return data, tested, count


def _classes_of_source(num_classes: Any) -> int:
    """Return the number of classes of a source; raise if it is not given."""
    if num_classes is None:
        raise ValueError(
            "num_classes is missing: the labels of a source are not known before they are read. "
            "Write num_classes=..., the number of classes."
        )
    at_least("num_classes", num_classes, 1)
    return num_classes


def _test_arrays(test: Any, num_classes: int) -> tuple[Any, Any]:
    """Return the test arrays (inputs, labels)."""
    inputs, labels = check_pair("test", test, "labels")
    return inputs, as_labels("test[1]", labels, num_classes)


def _check_batch(num_classes: Any, is_prepared: bool, name: str, batch: Any) -> tuple[Any, Any]:
    """Return a batch of a source with its labels as class numbers; raise if it has none."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise ValueError(
            f"{name} is of type {type(batch).__name__}; let the source give pairs of arrays "
            "(inputs, labels)."
        )
    inputs, labels = batch
    if not is_prepared and any(leaf.dtype == np.uint8 for leaf in jax.tree.leaves(inputs)):
        raise ValueError(
            f"{name} has uint8 inputs; give a prepare(key, batch) that converts them to floating "
            "point, or let the source do so."
        )
    return inputs, as_labels(f"{name}[1]", labels, num_classes)
