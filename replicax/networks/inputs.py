"""Inputs of networks, in pairs with labels or targets and alone: checks, and conversion to the
dtypes that the networks expect."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.errors import check_numeric, show

_WHITE = 255


def check_pair(name: str, pair: Any, second: str) -> tuple[Any, np.ndarray]:
    """Return the pair (inputs, `second`) as arrays, with wider inputs converted to float32; raise
    if they do not fit each other. `name` is the name of the argument."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"{name} is {show(pair)}; give a pair of arrays (inputs, {second}).")
    inputs = jax.tree.map(jnp.asarray, _numeric(name, pair[0]))
    outcomes = _numeric(name, pair[1])
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
    return inputs, outcomes


def _numeric(name: str, tree: Any) -> Any:
    try:
        arrays = np.asarray(tree) if isinstance(tree, list) else jax.tree.map(np.asarray, tree)
    except (TypeError, ValueError):
        raise ValueError(f"{name} holds {show(tree)}; give arrays of numbers.") from None
    check_numeric(name, jax.tree.leaves(arrays))
    return arrays


def check_like(name: str, inputs: Any, others: Any) -> None:
    """Raise unless the rows of the inputs have the shapes of the training inputs."""
    shapes = [[leaf.shape[1:] for leaf in jax.tree.leaves(x)] for x in (inputs, others)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"The inputs of {name} have rows of shapes {shapes[0]}, the training inputs "
            f"{shapes[1]}: give inputs of the same shapes."
        )


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
    limits = np.iinfo(wanted) if wanted.kind in "iu" else None
    if (
        array.dtype.kind in "iu"
        and limits
        and limits.min <= array.min() <= array.max() <= limits.max
    ):
        return array.astype(wanted)
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
