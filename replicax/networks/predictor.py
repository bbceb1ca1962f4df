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
from jax.typing import DTypeLike

from replicax.errors import check_flag, check_number, check_numeric, choose, explained, show
from replicax.networks.outcomes import Outcomes
from replicax.networks.pairs import columns_of
from replicax.run import trees
from replicax.run.storage.metadata import Predicts

_WHITE = 255
_PIECE = 512  # rows that networks see together
_TOGETHER = 10  # networks that are computed at once
_PROBED = 20  # outputs by which a network is known again
_ENOUGH = 8  # rows from which a spread and a mean say something
_NARROW, _SHIFTED = 0.2, 3  # of the spread in the training
_WIDE = 5.0  # spread or mean of an input, or one over the usual spread, that is not standard
_ROUNDING = 0.03  # relative to the largest output; bfloat16 instead of float32 stays below


@dataclass(frozen=True)
class Added:
    """Parameters of a likelihood beside those of the network, which begin as zeros: params are
    {"network": ..., name: ...}."""

    name: str
    size: int

    def add(self, params: Any, num_axes: int = 0) -> Any:
        """Return the params of networks with those of the likelihood; axes lead."""
        if self._has(params):
            return params
        leaves = jax.tree.leaves(params)
        lead = jnp.shape(leaves[0])[:num_axes] if leaves else ()
        return {"network": params, self.name: jnp.zeros((*lead, self.size))}

    def split(self, params: Any) -> tuple[Any, Array]:
        """Return the params of the network, and those of the likelihood."""
        if not self._has(params):
            raise ValueError(
                f"The params lack {self.name}, those of the likelihood: start from "
                "problem.start_from(network.init)."
            )
        return params["network"], params[self.name]

    def _has(self, params: Any) -> bool:
        return isinstance(params, dict) and set(params) == {"network", self.name}


@dataclass(frozen=True, eq=False)
class Predictor:
    """The function that computes the outputs of networks, and the likelihood of their targets."""

    outputs: Callable[[Any, Any, Any], Array]  # (params, model_state, inputs) -> (row, ...)
    likelihood: Outcomes
    like: Any = None  # shape and dtype of a row of the inputs, where they are known
    about: dict[str, Any] | None = None  # fields of `Predicts` that restore it; None: nothing does
    network: Any = None  # whose outputs these are, where it is known
    seen: list[dict[str, Any]] | None = None  # of the training inputs, `seen_in`
    adds: Added | None = None  # the parameters of the likelihood

    def describe(self, network: Any = None) -> Predicts | None:
        """Return the predictor as plain data, without the network, for `trained.predictor_of`; if
        the shapes of the network are given, with outputs by which it can be recognised."""
        if self.about is None:
            return None
        inputs = None if self.like is None else trees.describe(self.like)
        probe = None if network is None else self._probe(network)
        return Predicts(
            self.likelihood.to_json(), inputs, **self.about, probe=probe, seen=self.seen
        )

    def warn_of_others(self, inputs: Any) -> None:
        """Warn if inputs are unlike those that the networks were trained on."""
        arrays = jax.tree.leaves(inputs)
        for array, seen in zip(arrays, self.seen or [], strict=False):
            try:
                difference = _difference(columns_of(array), seen)
            except (KeyError, TypeError, ValueError):  # of a folder that says something else
                return
            if difference is not None:
                warnings.warn(
                    f"The inputs are unlike those of the training: {difference}. Networks can be "
                    "wrong there with great confidence: give inputs in the unit of the training.",
                    stacklevel=4,
                )
                return

    def warn_unless(self, probe: tuple[float, ...] | None, network: Any) -> None:
        """Warn unless the network reproduces the probe that `describe` stored."""
        if probe is None:
            return
        outputs = self._probe(network)
        if outputs is None or _is_close(outputs, probe):
            return
        now, before = (", ".join(f"{x:.4g}" for x in some[:3]) for some in (outputs, probe))
        warnings.warn(
            "The network differs from the one that was trained: for the same test parameters its "
            f"outputs are {now} and were {before}. Give the original network, unless the change is "
            "intended.",
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

    def check_start(
        self, like: Any, what: str = "start has", whose: str = "the network of the problem"
    ) -> None:
        """Raise unless a network with the shapes of `like` is one that the network initialises."""
        init, adds = getattr(self.network, "init", None), self.adds
        if init is None:
            return
        made = lambda key: init(key)[0] if adds is None else adds.add(init(key)[0])  # noqa: E731
        own = jax.tree.map(lambda leaf: leaf.shape, jax.eval_shape(made, jax.random.key(0)))
        found = jax.tree.map(lambda leaf: leaf.shape, like[0])
        if own != found:
            raise ValueError(
                f"The {what} other parameters than {whose}: give those that belong together, "
                "problem and network.init; of a network that is partly frozen the network that "
                "rx.freeze returns."
            )

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
        self,
        points: Any,
        weights: np.ndarray,
        inputs: Any,
        members: bool = False,
        by: str = "",
        interval: float | None = None,
    ) -> Any:
        """Return the predictions of the average of networks for inputs, with the ends of a central
        interval if it is given, or those of every network.

        `points` are (params, model_state) with a leading axis (network, ...).
        """
        check_flag("members", members)
        choose("by", by, self.likelihood.ways)
        if interval is not None:
            check_number("interval", interval, lambda x: 0 < x < 1, "give a number such as 0.9")
            self.likelihood.check_interval()
            if members:
                raise ValueError(
                    "interval is that of the average, and members are single networks: leave out "
                    "one of both."
                )
        inputs = as_inputs(inputs, self.like)
        self.check(jax.tree.map(_row, points), inputs)
        num_rows = len(jax.tree.leaves(inputs)[0])
        # Few sizes of pieces, each of which is compiled once.
        size = min(_PIECE, 1 << (num_rows - 1).bit_length())
        pieces = []
        for start in range(0, num_rows, size):
            rows = np.minimum(np.arange(start, start + size), num_rows - 1)  # the last is repeated
            piece = jax.tree.map(lambda x: jnp.asarray(x[rows]), inputs)  # noqa: B023
            predicted = self._compiled(points, jnp.asarray(weights), piece, members, by, interval)
            kept, axis = min(size, num_rows - start), int(members)
            pieces.append(jax.tree.map(lambda x: _cut(x, kept, axis), predicted))  # noqa: B023
        joined = jax.tree.map(lambda *parts: np.concatenate(parts, axis=int(members)), *pieces)
        return self.likelihood.finished(joined)

    @functools.cached_property
    def _compiled(self) -> Callable[..., Any]:
        """The compiled function that predicts one piece of the inputs."""

        def predict(
            points: Any, weights: Array, inputs: Any, members: bool, by: str, interval: float | None
        ) -> Any:
            one = lambda point: self.outputs(point[0], point[1], inputs)  # noqa: E731
            outputs = jax.lax.map(one, points, batch_size=min(_TOGETHER, len(weights)))
            if members:
                return self.likelihood.members(outputs)
            return self.likelihood.combine(outputs, weights, by, interval)

        return jax.jit(predict, static_argnums=(3, 4, 5))


def _row(leaf: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)


def _cut(values: Any, count: int, axis: int) -> np.ndarray:
    return np.asarray(values)[(slice(None),) * axis + (slice(count),)]


def unlike_standard(problem: Any) -> str | None:
    """Return a sentence about inputs whose columns are far from a mean of 0 and a spread of 1; None
    if there are none, or if the network normalises them itself."""
    predictor = problem.predictor
    if predictor is None or predictor.seen is None or predictor.like is None:
        return None
    if not all(jnp.issubdtype(row.dtype, jnp.floating) for row in jax.tree.leaves(predictor.like)):
        return None  # images of bytes
    for seen in predictor.seen:
        mean, sd = np.asarray(seen["mean"], float), np.asarray(seen["sd"], float)
        varies = sd > 0
        far = varies & ((sd > _WIDE) | (np.abs(mean) > _WIDE))
        # A single narrow column may be a rare category.
        narrow = varies.any() and np.median(sd[varies]) < 1 / _WIDE
        if far.any() or narrow:
            place = int(np.argmax(far * (np.abs(mean) + sd)) if far.any() else np.argmax(varies))
            return (
                f"The inputs are not standardised: column {place} has a mean of {mean[place]:.3g} "
                f"and a standard deviation of {sd[place]:.3g}, which networks learn badly. Write "
                "(inputs - inputs.mean(0)) / inputs.std(0), with the same numbers for the test."
            )
    return None


def _difference(columns: np.ndarray, seen: dict[str, Any]) -> str | None:
    """Return in words how columns differ from those that were seen, None if they do not."""
    low, high, mean, sd = (np.asarray(seen[name], float) for name in ("low", "high", "mean", "sd"))
    varies = sd > 0
    if columns.shape[1] != len(low) or not varies.any():
        return None
    columns, span = columns[:, varies], (high - low)[varies]
    low, high, mean, sd = low[varies], high[varies], mean[varies], sd[varies]
    beyond = np.maximum(columns.max(0) - high, low - columns.min(0)) > span
    where = why = ""
    if beyond.any():
        place = int(np.argmax(beyond))
        where = f" in column {np.flatnonzero(varies)[place]}" if len(low) > 1 else ""
        columns, low, high = columns[:, place], low[place], high[place]
    elif len(columns) < _ENOUGH:
        return None
    elif np.median(columns.std(0) / sd) < _NARROW:
        why = ", and vary less than a fifth as much"
    elif np.median(np.abs(columns.mean(0) - mean) / sd) > _SHIFTED:
        why = f", with means that are {_SHIFTED} standard deviations apart"
    else:
        return None
    return (
        f"they go from {columns.min():.4g} to {columns.max():.4g}{where}, and those of the "
        f"training from {np.min(low):.4g} to {np.max(high):.4g}{why}"
    )


def _made_up(shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
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


def as_inputs(inputs: Any, like: Any = None) -> Any:
    """Return inputs as arrays with the dtypes of the training inputs; raise if they do not fit.

    `like` has the shapes and dtypes of a row of inputs, or is None if they are not known. For
    networks of uint8 images, floating-point images from 0 to 1 or from 0 to 255 are recognised.
    """
    if isinstance(inputs, list) and like is not None and _is_leaf(like):
        inputs = _as_array(inputs)
    arrays = jax.tree.map(_as_array, inputs)
    leaves = jax.tree.leaves(arrays)
    if not leaves:
        raise ValueError(f"The inputs are {show(inputs)}; give arrays with a row for each input.")
    check_numeric("inputs", leaves)
    if like is not None:
        if jax.tree.structure(arrays) != jax.tree.structure(like):
            raise ValueError(
                f"The inputs are {_structure(arrays)}, and the network takes {_structure(like)}: "
                "give inputs like those of the training."
            )
        arrays = jax.tree.map(_like, arrays, like)
    leaves = jax.tree.leaves(arrays)
    lengths = sorted({leaf.shape[0] if leaf.ndim else -1 for leaf in leaves})
    if lengths[0] < 1 or len(lengths) > 1:
        raise ValueError(
            f"The inputs have shapes {[leaf.shape for leaf in leaves]}; give at least one row, on "
            "the first axis, and equally many in each array."
        )
    for leaf in leaves:
        if leaf.dtype.kind == "f":
            check_finite(leaf)
    return arrays


def check_finite(leaf: np.ndarray) -> None:
    if not np.isfinite(leaf).all():
        row = int(np.argwhere(~np.isfinite(leaf))[0][0])
        raise ValueError(f"The inputs are NaN or infinite, row {row} first: leave those out.")


def _as_array(leaf: Any) -> np.ndarray:
    try:
        return np.asarray(leaf)
    except (TypeError, ValueError):
        raise ValueError(f"The inputs hold {show(leaf)}; give arrays of numbers.") from None


def _is_leaf(tree: Any) -> bool:
    return jax.tree_util.treedef_is_leaf(jax.tree.structure(tree))


def _structure(tree: Any) -> str:
    if _is_leaf(tree):
        return "one array"
    names = f" {', '.join(map(str, tree))}" if isinstance(tree, dict) else ""
    return f"a {type(tree).__name__} of {len(tree)} parts{names}"


def _like(array: np.ndarray, row: Any) -> np.ndarray:
    """Return an array with the dtype of the training inputs; raise if its shape does not fit."""
    if array.shape[1:] != row.shape:
        single = " For one input alone, write inputs[None]." if array.shape == row.shape else ""
        raise ValueError(
            f"The inputs have shape {array.shape}; the network takes (row, "
            f"{', '.join(map(str, row.shape))}).{single}"
        )
    wanted = np.dtype(row.dtype)
    if array.dtype.kind == "V":  # a dtype that only JAX has, such as bfloat16
        array = array.astype(np.float32)
    if array.dtype == wanted or not array.size:
        return array
    if wanted == np.uint8:
        return as_pixels(array)
    if jnp.issubdtype(wanted, jnp.floating) and array.dtype == np.uint8:
        raise ValueError(
            f"The inputs are bytes, uint8, and the network was trained on {wanted}: give them as "
            "in the training, for example images / 255 if those were from 0 to 1."
        )
    if jnp.issubdtype(wanted, jnp.floating) and array.dtype.kind in "biuf":
        return array.astype(wanted)
    if wanted.kind in "iu" and array.dtype.kind in "iu":
        cast = array.astype(wanted)
        if np.array_equal(cast, array):
            return cast
    raise ValueError(
        f"The inputs are {array.dtype}; the network was trained on {wanted}: give those."
    )


def as_pixels(images: np.ndarray) -> np.ndarray:
    """Return images as pixels from 0 (black) to 255 (white): uint8, or float32 if not integers."""
    if images.dtype.kind == "b":
        return _WHITE * images.astype(np.uint8)
    if images.dtype.kind == "f":
        check_finite(images)
    low, high = images.min(), images.max()
    if images.dtype.kind in "iu" and low >= 0 and high <= _WHITE:
        return images.astype(np.uint8)
    if images.dtype.kind == "f" and low >= 0 and high <= _WHITE:
        factor = _WHITE if high <= 1 else 1
        return (factor * images).astype(np.float32)
    raise ValueError(
        f"The inputs are {images.dtype} from {low:.4g} to {high:.4g}; the network was trained on "
        "uint8 images: give pixels of 0 to 255, or of 0.0 to 1.0. It normalises them itself."
    )
