"""Predictions for any inputs: the outputs of networks, piece by piece on the device."""

import functools
import warnings
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
from replicax.run import plain

_PIECE = 512  # rows that networks see together
_TOGETHER = 10  # networks that are computed at once
_PROBED = 20  # outputs by which a network is known again
_ROUNDING = 0.03  # of the largest of them: bfloat16 in place of float32 stays below


@dataclass(frozen=True, eq=False)
class Predictor:
    """The outputs of networks for inputs, and the likelihood that these belong to."""

    outputs: Callable[[Any, Any, Any], Array]  # (params, model_state, inputs) -> (row, ...)
    likelihood: Likelihood
    like: Any = None  # shape and dtype of a row of the inputs, where they are known
    about: dict[str, Any] | None = None  # what makes it again of its network; None: nothing does

    def to_json(self, network: Any = None) -> dict[str, Any] | None:
        """Return all but the network as plain data, of which `restored.predictor_of` makes it; of
        the network, whose shapes may be given, what it is known by."""
        if self.about is None:
            return None
        inputs = None if self.like is None else plain.describe(self.like)
        content = {**self.about, "inputs": inputs, "likelihood": self.likelihood.to_json()}
        return content if network is None else {**content, "probe": self._probe(network)}

    def warn_unless(self, probe: list[float] | None, network: Any) -> None:
        """Warn unless the network is that of the probe, which `to_json` wrote down."""
        if probe is None:
            return
        found = self._probe(network)
        if found is None or _is_close(found, probe):
            return
        warnings.warn(
            "The network computes something else than the one that was trained: for the same "
            f"made-up parameters its outputs are {_shown(found)}, and were {_shown(probe)}. Give "
            "the network as it was, unless you mean to change it.",
            stacklevel=4,
        )

    def _probe(self, network: Any) -> list[float] | None:
        """Return outputs of made-up parameters for made-up inputs; None where that cannot be."""
        leaves = jax.tree.leaves((network, self.like))
        if self.like is None or any(np.dtype(x.dtype).kind not in "biuf" for x in leaves):
            return None
        two = jax.tree.map(lambda x: _made_up((2, *x.shape), x.dtype), self.like)
        params, state = (jax.tree.map(lambda x: _made_up(x.shape, x.dtype), x) for x in network)
        state = jax.tree.map(lambda x: 1 + abs(x) if x.dtype.kind == "f" else x, state)  # variances
        outputs = np.asarray(jax.jit(self.outputs)(params, state, two), float).ravel()[:_PROBED]
        return outputs.tolist() if np.isfinite(outputs).all() else None

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


def _made_up(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return numbers without a pattern that networks could be blind to, the same everywhere."""
    numbers = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape)
    if np.dtype(dtype).kind == "f":
        return (0.5 * np.cos(1.7 * numbers + 0.3)).astype(dtype)
    highest = 256 if np.dtype(dtype) == np.uint8 else 2
    return (37 * numbers % highest).astype(dtype)


def _is_close(found: list[float], probe: list[float]) -> bool:
    """Return whether outputs agree up to the rounding of another platform or precision."""
    room = _ROUNDING * max(map(abs, probe), default=0.0)
    return len(found) == len(probe) and bool(np.allclose(found, probe, rtol=0, atol=room))


def _shown(values: list[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values[:3])


def _row(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)


def _cut(values: Any, count: int, axis: int) -> np.ndarray:
    return np.asarray(values)[(slice(None),) * axis + (slice(count),)]
