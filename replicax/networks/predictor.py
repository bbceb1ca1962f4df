"""Predictions for any inputs: the outputs of networks, computed on the device in pieces."""

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
from replicax.run.storage.metadata import Predicts

_PIECE = 512  # rows that networks see together
_TOGETHER = 10  # networks that are computed at once
_PROBED = 20  # outputs by which a network is known again
_ROUNDING = 0.03  # relative to the largest output; bfloat16 instead of float32 stays below


@dataclass(frozen=True, eq=False)
class Predictor:
    """The function that computes the outputs of networks, and the likelihood of their targets."""

    outputs: Callable[[Any, Any, Any], Array]  # (params, model_state, inputs) -> (row, ...)
    likelihood: Likelihood
    like: Any = None  # shape and dtype of a row of the inputs, where they are known
    about: dict[str, Any] | None = None  # fields of `Predicts` that restore it; None: nothing does

    def describe(self, network: Any = None) -> Predicts | None:
        """Return the predictor as plain data, without the network, for `restored.predictor_of`; if
        the shapes of the network are given, with outputs by which it can be recognised."""
        if self.about is None:
            return None
        inputs = None if self.like is None else plain.describe(self.like)
        probe = None if network is None else self._probe(network)
        return Predicts(self.likelihood.to_json(), inputs, **self.about, probe=probe)

    def warn_unless(self, probe: tuple[float, ...] | None, network: Any) -> None:
        """Warn unless the network reproduces the probe that `describe` stored."""
        if probe is None:
            return
        outputs = self._probe(network)
        if outputs is None or _is_close(outputs, probe):
            return
        warnings.warn(
            "The network differs from the one that was trained: for the same test parameters its "
            f"outputs are {_shown(outputs)} and were {_shown(probe)}. Give the original network, "
            "unless the change is intended.",
            stacklevel=4,
        )

    def _probe(self, network: Any) -> tuple[float, ...] | None:
        """Return outputs of fixed artificial parameters and inputs; None if they cannot be
        computed."""
        leaves = jax.tree.leaves((network, self.like))
        if self.like is None or any(np.dtype(x.dtype).kind not in "biuf" for x in leaves):
            return None
        two = jax.tree.map(lambda x: _made_up((2, *x.shape), x.dtype), self.like)
        params, state = (jax.tree.map(lambda x: _made_up(x.shape, x.dtype), x) for x in network)
        state = jax.tree.map(lambda x: 1 + abs(x) if x.dtype.kind == "f" else x, state)  # variances
        outputs = np.asarray(jax.jit(self.outputs)(params, state, two), float).ravel()[:_PROBED]
        return tuple(outputs.tolist()) if np.isfinite(outputs).all() else None

    def check(self, like: Any, inputs: Any = None) -> None:
        """Raise unless a network with the shapes of `like` has outputs that fit the likelihood."""
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
        """Return the predictions of the average of networks for inputs, or those of every network.

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
        """The compiled function that predicts one piece of the inputs."""

        def predict(points: Any, weights: Array, inputs: Any, members: bool, by: str) -> Any:
            one = lambda point: self.outputs(point[0], point[1], inputs)  # noqa: E731
            outputs = jax.lax.map(one, points, batch_size=min(_TOGETHER, len(weights)))
            if members:
                return self.likelihood.members(outputs)
            return self.likelihood.combine(outputs, weights, by)

        return jax.jit(predict, static_argnums=(3, 4))


def _made_up(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return irregular numbers that are the same on every machine."""
    numbers = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape)
    if np.dtype(dtype).kind == "f":
        return (0.5 * np.cos(1.7 * numbers + 0.3)).astype(dtype)
    highest = 256 if np.dtype(dtype) == np.uint8 else 2
    return (37 * numbers % highest).astype(dtype)


def _is_close(outputs: tuple[float, ...], probe: tuple[float, ...]) -> bool:
    """Return whether outputs agree up to rounding on another platform or in another precision."""
    room = _ROUNDING * max(map(abs, probe), default=0.0)
    return len(outputs) == len(probe) and bool(np.allclose(outputs, probe, rtol=0, atol=room))


def _shown(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4g}" for value in values[:3])


def _row(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)


def _cut(values: Any, count: int, axis: int) -> np.ndarray:
    return np.asarray(values)[(slice(None),) * axis + (slice(count),)]
