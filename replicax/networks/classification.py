"""`classification`: a network and classes as a posterior, by mean cross-entropy."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from replicax.algorithm.tracing import explained
from replicax.data import Dataset, as_labels, augmentation, plain
from replicax.errors import at_least, check_flag, show
from replicax.networks.arrays import check_like, check_pair
from replicax.networks.likelihoods import Categorical
from replicax.networks.predictor import Predictor
from replicax.networks.problem import FITS, Supervised, Test, supervised
from replicax.nn.network import Network


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
    """Return the posterior of a `Network` on images: mean cross-entropy, tested on the test part.

    Images stay uint8 on the device and are normalised, and with `augment` cropped, flipped and
    partly erased, inside the compiled step. Further options are those of `supervised`.

    Instead of an `rx.data.Dataset`, `dataset` may be a pair of arrays (inputs, labels), of any
    inputs of floating point, which are used as they are: neither normalised nor augmented. Then
    `test=(inputs, labels)` are what networks are tested on, if they are, and `num_classes` is the
    highest label and one unless given.
    """
    is_pair = isinstance(dataset, tuple | list) and not isinstance(dataset, Dataset)
    if not isinstance(network, Network) or not (isinstance(dataset, Dataset) or is_pair):
        raise ValueError(
            f"The network is {show(network)} and the dataset {show(dataset)}; give an "
            "rx.nn.Network first and an rx.data.Dataset, or arrays (inputs, labels), second."
        )
    check_flag("augment", augment)
    if not isinstance(dataset, Dataset):
        data, tested, num_classes = _pairs(dataset, test, num_classes)
        name, augmented, normalised = "The data", None, lambda images: images
    elif test is not None or num_classes is not None:
        raise ValueError("The dataset has a test and num_classes of its own: leave them out.")
    else:
        dataset = dataset.check()
        name, num_classes = dataset.name, dataset.num_classes
        data = dataset.train_images, dataset.train_labels
        tested = jnp.asarray(dataset.test_images), dataset.test_labels
        mean, std = dataset.mean, dataset.std
        normalised = plain(mean, std)
        augmented = augmentation(mean, std) if augment else None

    def prepare(key: Array, batch: tuple[Array, Array]) -> tuple[Array, Array]:
        images, labels = batch
        return (augmented(key, images) if augmented else normalised(images)), labels

    def outputs(params: Any, model_state: Any, images: Array, train: bool) -> tuple[Array, Any]:
        with explained("The network", FITS):
            returned = network.apply(params, model_state, images, train)
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise ValueError("network.apply must return (logits, state) of a batch of images.")
        logits, model_state = returned
        if jnp.ndim(logits) != 2 or logits.shape[-1] != num_classes:
            raise ValueError(
                f"The network has outputs of shape {jnp.shape(logits)} for {len(images)} images; "
                f"{name} has {num_classes} classes: let it have as many outputs."
            )
        return logits, model_state

    def loss_fn(params: Any, model_state: Any, batch: Any, key: Array) -> tuple[Array, Any]:
        images, labels = batch
        logits, model_state = outputs(params, model_state, images, True)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels)
        return jnp.mean(losses), model_state

    def logits(params: Any, model_state: Any, images: Array) -> Array:
        return outputs(params, model_state, normalised(images), False)[0]

    judged = None if tested is None else Test(logits, *tested, num_classes)  # type: ignore[arg-type]
    options = {"batch_size": batch_size, "prepare": prepare, "test": judged, **options}
    problem = supervised(loss_fn, data, **options)
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), data[0])
    return replace(problem, predictor=Predictor(logits, Categorical(num_classes), like))


def _pairs(dataset: Any, test: Any, num_classes: int | None) -> tuple[Any, Any, int]:
    """Return arrays (inputs, labels) to train on and to test with, and the number of classes."""
    inputs, labels = check_pair("dataset", dataset, "labels")
    one_hot = labels.ndim == 2
    count = int(labels.shape[1] if one_hot else labels.max() + 1)
    if num_classes is not None:
        at_least("num_classes", num_classes, 1)
        count = num_classes
    data = inputs, as_labels("dataset[1]", labels, count)
    if test is None:
        return data, None, count
    inputs, labels = check_pair("test", test, "labels")
    check_like("test", inputs, data[0])
    return data, (inputs, as_labels("test[1]", labels, count)), count
