"""Checks of pairs of arrays: inputs with labels or targets."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.errors import check_numeric, show


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
