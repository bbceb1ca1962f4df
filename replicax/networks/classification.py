"""`classification`: the posterior of a network that predicts classes, by mean cross-entropy.

Outputs of the network become logits of classes: one output is the logit of the second of two
classes; of several labels for each row there is one such output for each; and of classes in an
order there is one output v, with P(class <= k) = 1 / (1 + exp(v - c_k)). The cut points c_k are
parameters: params are {"network": ..., "cuts": ...}, and cuts of 0 make all classes equally
probable at v = 0.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from replicax.data import Dataset, augmentation, count_classes, normalise
from replicax.errors import at_least, check_flag, choose, show
from replicax.networks.outcomes import KINDS, MULTILABEL, ORDINAL, Classes, two_logits
from replicax.networks.pairs import Pairs, mean_loss, of_arrays, read_pairs
from replicax.networks.predictor import Added, Predictor
from replicax.networks.task import Supervised, apply_network, predicting, supervised
from replicax.nn.network import Network
from replicax.run.sources import is_source

_CUTS = "cuts"


def classification(
    network: Network,
    dataset: Any,
    *,
    batch_size: int = 256,
    augment: bool = True,
    test: Any = None,
    num_classes: int | None = None,
    likelihood: str = "categorical",
    sample_weight: Any = None,
    class_weight: Any = None,
    **options: Any,
) -> Supervised:
    """Return the posterior of a `Network` on images: mean cross-entropy, evaluated on the test set.

    Images stay uint8 on the device and are normalised, and with `augment` cropped, flipped and
    partly erased, inside the compiled step.

    Args:
        network: with one output for each class; of two classes, one output is the logit of class 1.
        dataset: an `rx.data.Dataset`; or a pair of arrays (inputs, labels) with floating-point
            inputs, which are neither normalised nor augmented; or a source whose mini-batches are
            such pairs, as in `rx.supervised`, which needs `num_classes` and may `prepare` images.
        test: such a pair, on which networks are evaluated.
        num_classes: by default the highest label plus one; of "multilabel", the number of labels.
        likelihood: "categorical"; "ordinal", where the classes have an order, with one output of
            the network; or "multilabel", where each row has several labels of 0 or 1, (row, label),
            with one output for each.
        sample_weight: weights of the rows, by which their losses are multiplied, after division by
            their mean; of "multilabel" also (row, label). Of a source they are a third array of
            each batch, used as they are; a third array of `test` weighs its metrics.
        class_weight: "balanced", where all classes weigh the same together; or a weight for each
            class, as an array or a dict (others have 1). It multiplies `sample_weight`.

    Further options are those of `rx.supervised`.
    """
    check_flag("augment", augment)
    choose("likelihood", likelihood, KINDS)
    is_stream = _check_kinds(network, dataset, options.get("num_rows"))
    pixels: Any = None
    name = "the source" if is_stream else "the data"
    if isinstance(dataset, Dataset):
        if test is not None or num_classes is not None:
            raise ValueError("The dataset has its own test and num_classes: leave them out.")
        pairs, pixels = _of_images(dataset.check())
        num_classes, name = dataset.num_classes, dataset.name
    else:
        is_prepared = options.get("prepare") is not None
        pairs = read_pairs("dataset", dataset, test, "labels", is_stream, is_prepared)
    law = _classes(likelihood, num_classes, None if is_stream else pairs.rows[1])
    by_class = None if class_weight is None else _by_class(class_weight, law, is_stream)
    pairs = pairs.converted(lambda name, labels: law.as_targets(f"{name}[1]", labels))
    pairs = pairs.weighted(sample_weight, by_class)
    augmented = augmentation(**pixels) if pixels and augment else None
    normalised, logits = _normalisation(pixels), _logits(network, law, name)

    def prepare(key: Array, batch: Any) -> Any:
        images, *rest = batch
        return (augmented(key, images) if augmented else normalised(images)), *rest

    def loss_fn(params: Any, model_state: Any, batch: Any, key: Array) -> tuple[Array, Any]:
        images, labels, *weights = batch
        values, model_state = logits(params, model_state, images, True)
        values = values.astype(jnp.float32)
        losses = optax.softmax_cross_entropy_with_integer_labels(values, labels)
        return mean_loss(losses, *weights), model_state

    own = {"prepare": None if is_stream else prepare, **options}
    problem = supervised(loss_fn, pairs.rows, batch_size=batch_size, **own)
    predictor = classifier(network, law, pairs.like, pixels, name)
    return predicting(problem, pairs, predictor)


def _of_images(images: Dataset) -> tuple[Pairs, dict[str, Any]]:
    """Return the images with their labels, and the moments of their pixels."""
    test = jnp.asarray(images.test_images), images.test_labels
    pairs = of_arrays((images.train_images, images.train_labels), test)
    return pairs, {"mean": images.mean, "std": images.std}


def _classes(likelihood: str, num_classes: int | None, labels: np.ndarray | None) -> Classes:
    """Return the classes, by default as many as the labels have."""
    if num_classes is None and labels is None:
        raise ValueError(
            "num_classes is missing: the labels of a source are not known before they are "
            "read. Write num_classes=..., the number of classes."
        )
    if likelihood == MULTILABEL:
        if num_classes is None:
            num_classes = labels.shape[1] if labels is not None and labels.ndim == 2 else 1
        at_least("num_classes", num_classes, 1)
        return Classes(2, likelihood, num_classes)
    if num_classes is None:
        remedy = ", or write num_classes=..., how many there are"
        num_classes = count_classes("dataset[1]", labels, remedy)  # type: ignore[arg-type]
    at_least("num_classes", num_classes, 2 if likelihood == ORDINAL else 1)
    return Classes(num_classes, likelihood)


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


def _by_class(given: Any, law: Classes, is_stream: bool) -> Callable[[np.ndarray], np.ndarray]:
    """Return `weights(labels)`, those of their classes; raise unless `given` has some."""
    count = law.num_classes or 0
    if isinstance(given, str) and given == "balanced" and not is_stream:
        return functools.partial(_balanced, count)
    entries = given if isinstance(given, dict) else None
    if entries is not None and entries and set(entries) <= set(range(count)):
        given = [entries.get(number, 1.0) for number in range(count)]
    try:
        weights = np.asarray(given, np.float32)
    except (TypeError, ValueError):
        weights = np.zeros(0)
    is_good = weights.shape == (count,) and np.isfinite(weights).all()
    if not is_good or (weights < 0).any() or not weights.any():
        known = "" if is_stream else '"balanced", '
        raise ValueError(
            f"class_weight is {show(given)}; write {known}{count} numbers of at least 0, one for "
            "each class, or a dict of them by class."
        )
    return lambda labels: weights[labels]


def _balanced(num_classes: int, labels: np.ndarray) -> np.ndarray:
    """Return weights of rows by which all classes weigh the same, for each column of labels."""
    columns = labels.reshape(len(labels), -1)
    counts = (columns[..., None] == np.arange(num_classes)).sum(axis=0)  # (column, class)
    present = np.maximum((counts > 0).sum(axis=1), 1)
    each = len(labels) / (present[:, None] * np.maximum(counts, 1))
    return each[np.arange(columns.shape[1]), columns].reshape(labels.shape)


def classifier(
    network: Network, law: Classes, like: Any, pixels: Any = None, name: str = "the data"
) -> Predictor:
    """Return the predictor of classes; `like` is a row of the inputs, `pixels` has mean and std by
    which uint8 images are normalised."""
    outputs, normalised = _logits(network, law, name), _normalisation(pixels)

    def logits(params: Any, model_state: Any, images: Array) -> Array:
        return outputs(params, model_state, normalised(images), False)[0]

    return Predictor(logits, law, like, {"pixels": pixels}, network, adds=_added(law))


def _normalisation(pixels: dict[str, Any] | None) -> Callable[[Any], Any]:
    return functools.partial(normalise, **pixels) if pixels else lambda inputs: inputs


def _added(law: Classes) -> Added | None:
    """Return the parameters of the likelihood."""
    return Added(_CUTS, (law.num_classes or 0) - 1) if law.kind == ORDINAL else None


def _logits(network: Network, law: Classes, name: str) -> Callable[..., tuple[Array, Any]]:
    """Build `logits(params, model_state, inputs, train) -> logits, model_state`, of shape
    (row, class) or (row, label, 2), which checks that the network has as many outputs as the data
    set `name` needs."""
    count, added = law.num_outputs, _added(law)
    wanted = (1, 2) if law.kind not in (ORDINAL, MULTILABEL) and count == 2 else (count,)

    def logits(params: Any, model_state: Any, images: Array, train: bool) -> tuple[Array, Any]:
        params, cuts = (params, None) if added is None else added.split(params)
        values, model_state = apply_network(network, params, model_state, images, train)
        values = values[:, None] if jnp.ndim(values) == 1 and 1 in wanted else values
        if jnp.ndim(values) != 2 or values.shape[-1] not in wanted:
            has = f"{law.num_classes} classes: give it as many outputs"
            if law.kind in (ORDINAL, MULTILABEL):
                has = f'the likelihood "{law.kind}": give it {count} output{"s"[: count != 1]}'
            raise ValueError(
                f"The network has outputs of shape {jnp.shape(values)} for {len(images)} images; "
                f"{name} has {has}."
            )
        if cuts is not None:
            return _log_probabilities_in_order(values, cuts), model_state
        return two_logits(values, each=law.kind == MULTILABEL), model_state

    return logits


def _log_probabilities_in_order(values: Array, cuts: Array) -> Array:
    """Return log-probabilities of classes in an order, (row, class), given one value for each row
    and the parameters of the cut points (class - 1,): the first one, and the logs of the distances,
    relative to those of equal probabilities."""
    count = len(cuts) + 1
    equal = np.arange(1, count) / count
    start = np.log(equal / (1 - equal))
    gaps = np.diff(start) * jnp.exp(cuts[1:])
    places = jnp.cumsum(jnp.concatenate([start[:1] + cuts[:1], gaps]))
    z = places - values  # (row, class - 1)
    below, above = jax.nn.log_sigmoid(z), jax.nn.log_sigmoid(-z)
    # sigmoid(a) - sigmoid(b) = sigmoid(a) sigmoid(-b) (1 - exp(b - a))
    between = below[:, 1:] + above[:, :-1] + jnp.log(-jnp.expm1(-gaps))
    return jnp.concatenate([below[:, :1], between, above[:, -1:]], axis=1)
