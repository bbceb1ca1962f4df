"""`classification`: the posterior of a network that predicts classes, by mean cross-entropy."""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from replicax.data import Dataset, as_labels, augmentation, count_classes, normalise
from replicax.errors import at_least, check_flag, show
from replicax.networks.likelihoods import Categorical
from replicax.networks.pairs import of_arrays, read_pairs
from replicax.networks.predictor import Predictor
from replicax.networks.task import Supervised, apply_network, predicting, supervised
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
    check_flag("augment", augment)
    is_stream = _check_kinds(network, dataset, options.get("num_rows"))
    pixels: Any = None
    name = "the source" if is_stream else "the data"
    if isinstance(dataset, Dataset):
        if test is not None or num_classes is not None:
            raise ValueError("The dataset has its own test and num_classes: leave them out.")
        images = dataset.check()
        rows = images.train_images, images.train_labels
        pairs = of_arrays(rows, (jnp.asarray(images.test_images), images.test_labels))
        num_classes, name = images.num_classes, images.name
        pixels = {"mean": images.mean, "std": images.std}
    else:
        is_prepared = options.get("prepare") is not None
        pairs = read_pairs("dataset", dataset, test, "labels", is_stream, is_prepared)
        num_classes = _as_count(num_classes, None if is_stream else pairs.rows[1])
        pairs = pairs.converted(functools.partial(_as_labels, num_classes))
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

    own = {"prepare": None if is_stream else prepare, **options}
    problem = supervised(loss_fn, pairs.rows, batch_size=batch_size, **own)
    return predicting(problem, pairs, classifier(network, num_classes, pairs.like, pixels, name))


def _as_labels(num_classes: int, name: str, labels: Any) -> np.ndarray:
    return as_labels(f"{name}[1]", labels, num_classes)


def _as_count(num_classes: int | None, labels: np.ndarray | None) -> int:
    """Return the number of classes, by default that of the labels."""
    if num_classes is None and labels is None:
        raise ValueError(
            "num_classes is missing: the labels of a source are not known before they are "
            "read. Write num_classes=..., the number of classes."
        )
    if num_classes is None:
        remedy = ", or write num_classes=..., how many there are"
        num_classes = count_classes("dataset[1]", labels, remedy)  # type: ignore[arg-type]
    at_least("num_classes", num_classes, 1)
    return num_classes


def _check_kinds(network: Any, dataset: Any, num_rows: Any) -> bool:
    """Return whether the data are a source; raise unless they are of one of the three kinds."""
    is_set = isinstance(dataset, Dataset)
    is_stream = not is_set and is_source(dataset, num_rows)
    if isinstance(network, Network) and (is_stream or isinstance(dataset, tuple | list)):
        return is_stream
    raise ValueError(
        f"The network is {show(network)} and the dataset {show(dataset)}; give an rx.nn.Network "
        "first and an rx.data.Dataset, arrays (inputs, labels), or a source of such pairs, second."
    )


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
    return functools.partial(normalise, **pixels) if pixels else lambda inputs: inputs


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
