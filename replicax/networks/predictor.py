"""Predictions for any inputs: the outputs of networks, piece by piece on the device."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.errors import check_flag, choose, explained
from replicax.networks.inputs import as_inputs
from replicax.networks.likelihoods import Likelihood
from replicax.run import pytrees

_PIECE = 512  # rows that networks see together
_TOGETHER = 10  # networks that are computed at once


@dataclass(frozen=True, eq=False)
class Predictor:
    """The outputs of networks for inputs, and the likelihood that these belong to."""

    outputs: Callable[[Any, Any, Any], Array]  # (params, model_state, inputs) -> (row, ...)
    likelihood: Likelihood
    like: Any = None  # shape and dtype of a row of the inputs, where they are known
    about: dict[str, Any] | None = None  # what makes it again of its network; None: nothing does

    def to_json(self) -> dict[str, Any] | None:
        """Return all but the network as plain data, of which `restored.predictor_of` makes it."""
        if self.about is None:
            return None
        inputs = None if self.like is None else pytrees.describe(self.like)
        return {**self.about, "inputs": inputs, "likelihood": self.likelihood.to_json()}

    def check(self, like: Any, inputs: Any = None) -> None:
        """Raise unless one network, of which `like` has the shapes, has outputs that fit."""
        rows = self.like if inputs is None else jax.tree.map(lambda x: _row(x), inputs)
        if rows is None:
            return
        two = jax.tree.map(lambda x: jax.ShapeDtypeStruct((2, *x.shape), x.dtype), rows)
        with explained("The logits of the test" if inputs is None else "The network"):
            outputs = jax.eval_shape(self.outputs, *like, two)
        self.likelihood.check(getattr(outputs, "shape", None), 2)

    def predict(
        self, points: Any, weights: np.ndarray, inputs: Any, members: bool = False, by: str = ""
    ) -> Any:
        """Return what the average of networks predicts for inputs, or every one of them.

        `points` are (params, model_state) with a leading axis (network, ...).
        """
        check_flag("members", members)
        choose("by", by, self.likelihood.ways)
        inputs = as_inputs(inputs, self.like)
        self.check(jax.tree.map(_row, points), inputs)
        num_rows = len(jax.tree.leaves(inputs)[0])
        # Few sizes of pieces, each of which is compiled once.
        size = min(_PIECE, 1 << (num_rows - 1).bit_length())
        pieces = []
        for start in range(0, num_rows, size):
            rows = np.minimum(np.arange(start, start + size), num_rows - 1)  # the last is repeated
            piece = jax.tree.map(lambda x: jnp.asarray(x[rows]), inputs)  # noqa: B023
            predicted = self._compiled(points, jnp.asarray(weights), piece, members, by)
            kept, axis = min(size, num_rows - start), int(members)
            pieces.append(jax.tree.map(lambda x: _cut(x, kept, axis), predicted))  # noqa: B023
        joined = jax.tree.map(lambda *parts: np.concatenate(parts, axis=int(members)), *pieces)
        return self.likelihood.finished(joined)

    @functools.cached_property
    def _compiled(self) -> Callable[[Any, Array, Any, bool, str], Any]:
        """The predictions for one piece of the inputs."""

        def predict(points: Any, weights: Array, inputs: Any, members: bool, by: str) -> Any:
            one = lambda point: self.outputs(point[0], point[1], inputs)  # noqa: E731
            outputs = jax.lax.map(one, points, batch_size=min(_TOGETHER, len(weights)))
            if members:
                return self.likelihood.members(outputs)
            return self.likelihood.combine(outputs, weights, by)

        return jax.jit(predict, static_argnums=(3, 4))


def _row(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)


def _cut(values: Any, count: int, axis: int) -> np.ndarray:
    return np.asarray(values)[(slice(None),) * axis + (slice(count),)]
