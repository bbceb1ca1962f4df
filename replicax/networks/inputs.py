"""Inputs of predictions: checks, and conversion to the dtypes that the networks expect."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.errors import check_numeric, show

_WHITE = 255


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
