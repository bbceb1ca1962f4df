"""Inputs with their outcomes, labels or targets, and perhaps weights of the rows: arrays in memory,
or a source of mini-batches.

The loss of a row is multiplied by its weight. Weights of arrays are divided by their mean, so that
they say how rows count beside each other, and not how much data there is.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.errors import check_kept, check_numeric, show

_LOOKED_AT = 2**22  # numbers of the inputs by which they are compared
_FEATURES = 1024  # of a row that are compared one by one


class Pairs(NamedTuple):
    """What networks learn from, and what they are tested on."""

    rows: Any  # arrays (inputs, outcomes) or (inputs, outcomes, weights), or a source of such
    test: Any = None  # such arrays, or None
    like: Any = None  # shape and dtype of a row of the inputs, where they are known
    seen: list[dict[str, Any]] | None = None  # range and moments of the inputs, where known
    check: Callable[[str, Any], Any] | None = None  # of a source: name, batch -> the batch
    name: str = "data"  # of the argument

    def converted(self, convert: Callable[[str, Any], np.ndarray]) -> "Pairs":
        """Return the pairs with `convert(name, outcomes)` applied to all outcomes; it raises where
        these do not suit."""

        def of(name: str, pair: Any) -> Any:
            return None if pair is None else (pair[0], convert(name, pair[1]), *pair[2:])

        test, check = of("test", self.test), self.check
        if check is None:
            return self._replace(rows=of(self.name, self.rows), test=test)
        return self._replace(test=test, check=lambda name, batch: of(name, check(name, batch)))

    def weighted(self, given: Any, by_outcome: Callable[[Any], Any] | None = None) -> "Pairs":
        """Return the pairs with weights of the rows, those given times those by their outcomes."""
        check = self.check
        if check is not None:
            if given is not None:
                raise ValueError(
                    "sample_weight is given, and the data are a source: let it give batches of "
                    "three arrays, the third being the weights of the rows."
                )
            if by_outcome is None:
                return self

            def batch_of(name: str, batch: Any) -> Any:
                inputs, outcomes, *weights = check(name, batch)
                return inputs, outcomes, _product([*weights, by_outcome(outcomes)])

            return self._replace(check=batch_of)
        inputs, outcomes, *weights = self.rows
        if given is not None:
            if weights:
                raise ValueError(
                    f"{self.name} has three arrays, the third being weights, and sample_weight is "
                    "given: leave out one of both."
                )
            weights = [as_weights("sample_weight", given, outcomes)]
        weights += [] if by_outcome is None else [by_outcome(outcomes)]
        if not weights:
            return self
        return self._replace(rows=(inputs, outcomes, of_mean_one(_product(weights))))


def of_arrays(rows: Any, test: Any, name: str = "data") -> Pairs:
    """Return the pairs of arrays that were checked."""
    return Pairs(rows, test, like_of(rows[0]), seen_in(rows[0]), name=name)


def read_pairs(
    name: str, data: Any, test: Any, second: str, is_source: bool, is_prepared: bool
) -> Pairs:
    """Return the data of a task, arrays or a source of pairs (inputs, `second`); raise if they are
    none."""
    tested = None if test is None else check_pair("test", test, second)
    if is_source:

        def check(name: str, batch: Any) -> Any:
            return check_batch(name, batch, second, is_prepared)

        return Pairs(data, tested, None if tested is None else like_of(tested[0]), check=check)
    rows = check_pair(name, data, second)
    if tested is not None:
        check_like("test", tested[0], rows[0])
    return of_arrays(rows, tested, name)


def as_weights(name: str, weights: Any, outcomes: Any, of_batch: bool = False) -> np.ndarray:
    """Return weights of the rows with these outcomes, float32; raise unless there is one for each,
    or for each label or target, of at least 0."""
    try:
        found = np.asarray(weights, np.float32)
    except (TypeError, ValueError):
        found = np.full(0, np.nan)
    shape = np.shape(outcomes)
    if found.shape not in (shape[:1], shape):
        raise ValueError(
            f"{name} has weights of shape {np.shape(weights)} for {shape[0]} rows: give one number "
            "for each row."
        )
    if not (np.isfinite(found).all() and (found >= 0).all() and (of_batch or found.any())):
        raise ValueError(
            f"{name} has weights between {found.min():g} and {found.max():g}: give finite ones of "
            "at least 0, of which 0 leaves a row out, and not all 0."
        )
    return found


def of_mean_one(weights: np.ndarray) -> np.ndarray:
    """Return weights divided by their mean."""
    return (weights / weights.mean(dtype=np.float64)).astype(np.float32)


def _product(weights: list[np.ndarray]) -> np.ndarray:
    """Return the product of weights (row,) or (row, part)."""
    axes = max(weight.ndim for weight in weights)
    parts = [weight.reshape(weight.shape + (1,) * (axes - weight.ndim)) for weight in weights]
    return np.prod(np.broadcast_arrays(*parts), axis=0)


def mean_loss(losses: Array, *weights: Array) -> Array:
    """Return the mean over rows of losses (row,), or the sum of their losses (row, part), each
    times its weight if there are weights."""
    for weight in weights:
        losses = losses * weight.reshape(weight.shape + (1,) * (losses.ndim - weight.ndim))
    return jnp.mean(losses if losses.ndim == 1 else jnp.sum(losses, axis=-1))


def check_pair(name: str, pair: Any, second: str) -> tuple[Any, ...]:
    """Return the pair (inputs, `second`) as arrays, with wider inputs converted to float32, and
    weights if they are a third array; raise if they do not fit each other. `name` is the name of
    the argument."""
    if not isinstance(pair, tuple | list) or len(pair) not in (2, 3):
        raise ValueError(
            f"{name} is {show(pair)}; give a pair of arrays (inputs, {second}), or "
            f"(inputs, {second}, weights)."
        )
    inputs, outcomes = _numeric(name, pair[0]), _numeric(name, pair[1])
    check_kept(f"The inputs of {name}", jax.tree.leaves(inputs))
    inputs = jax.tree.map(jnp.asarray, inputs)
    if not isinstance(outcomes, np.ndarray):
        raise ValueError(f"The {second} of {name} are {show(pair[1])}; give one array.")
    leaves = [*jax.tree.leaves(inputs), outcomes]
    rows = {leaf.shape[0] if leaf.ndim else 0 for leaf in leaves}
    if not jax.tree.leaves(inputs) or len(rows) != 1 or rows == {0}:
        raise ValueError(
            f"The inputs and {second} of {name} have shapes {[leaf.shape for leaf in leaves]}; "
            "give equally many rows of both, on the first axis, and at least one."
        )
    for leaf in leaves:
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not bool(np.isfinite(leaf).all()):
            raise ValueError(f"{name} holds NaN or infinity: leave those rows out.")
        if leaf is not outcomes and leaf.dtype == jnp.uint8:
            raise ValueError(
                f"The inputs of {name} are uint8; an rx.data.Dataset normalises such images. Give "
                "one, or floating-point inputs."
            )
    weights = [of_mean_one(as_weights(name, third, outcomes)) for third in pair[2:]]
    return inputs, outcomes, *weights


def _numeric(name: str, tree: Any) -> Any:
    try:
        arrays = np.asarray(tree) if isinstance(tree, list) else jax.tree.map(np.asarray, tree)
    except (TypeError, ValueError):
        raise ValueError(f"{name} holds {show(tree)}; give arrays of numbers.") from None
    check_numeric(name, jax.tree.leaves(arrays))
    return arrays


def check_batch(name: str, batch: Any, second: str, is_prepared: bool) -> tuple[Any, ...]:
    """Return a batch of a source; raise unless it is a pair (inputs, `second`), or has weights,
    too."""
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        raise ValueError(
            f"{name} is of type {type(batch).__name__}; let the source give pairs of arrays "
            f"(inputs, {second}), or (inputs, {second}, weights)."
        )
    if not is_prepared and any(leaf.dtype == np.uint8 for leaf in jax.tree.leaves(batch[0])):
        raise ValueError(
            f"{name} has uint8 inputs; give a prepare(key, batch) that converts them to floating "
            "point, or let the source do so."
        )
    weights = (as_weights(name, third, batch[1], of_batch=True) for third in batch[2:])
    return batch[0], batch[1], *weights


def like_of(inputs: Any) -> Any:
    """Return shape and dtype of a row of inputs; None of none."""
    row = lambda x: jax.ShapeDtypeStruct(np.shape(x)[1:], jnp.asarray(x[:1]).dtype)  # noqa: E731
    return jax.tree.map(row, inputs)


def check_like(name: str, inputs: Any, others: Any) -> None:
    """Raise unless the rows of the inputs have the shapes of the training inputs."""
    shapes = [[leaf.shape[1:] for leaf in jax.tree.leaves(x)] for x in (inputs, others)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"The inputs of {name} have rows of shapes {shapes[0]}, the training inputs "
            f"{shapes[1]}: give inputs of the same shapes."
        )


def seen_in(inputs: Any) -> list[dict[str, Any]]:
    """Return range and moments of each array of the inputs, by feature where rows have few."""
    return [_moments(columns_of(leaf)) for leaf in jax.tree.leaves(inputs)]


def columns_of(leaf: Any) -> np.ndarray:
    """Return an array as columns, one for each feature, or one of all numbers where rows are images
    or long; of many rows some."""
    leaf = leaf[:: max(1, leaf.size // _LOOKED_AT)]
    array = np.asarray(leaf).astype(np.float64)
    is_long = array.ndim != 2 or array.shape[1] > _FEATURES
    return array.reshape(-1, 1) if is_long else array


def _moments(columns: np.ndarray) -> dict[str, Any]:
    parts = {"low": columns.min(0), "high": columns.max(0), "mean": columns.mean(0)}
    return {name: part.tolist() for name, part in (parts | {"sd": columns.std(0)}).items()}
