"""Pytrees as plain data, so that a run folder can be opened without the code that made it."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np


def leaf_names(tree: Any) -> list[str]:
    """Return a file-safe name for every leaf, from its path."""
    names = []
    for path, _ in jax.tree_util.tree_leaves_with_path(tree):
        name = ".".join(_entry(key) for key in path) or "params"
        names.append("".join(c if c.isalnum() or c in "._-" else "_" for c in name))
    if len(set(names)) < len(names):
        names = [f"{index}.{name}" for index, name in enumerate(names)]
    return names


def _entry(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def component_names(name: str, shape: tuple[int, ...]) -> Iterator[str]:
    """Give the name of every number of an array, such as `theta[0, 2]`."""
    for place in np.ndindex(*shape):
        yield f"{name}[{', '.join(map(str, place))}]" if shape else name


def first(tree: Any) -> Any:
    """Return one replica of a tree with leading axes (chain, replica, ...)."""
    return jax.tree.map(lambda leaf: leaf[0, 0], tree)


def describe(params: Any) -> dict[str, Any]:
    """Return names, shapes and dtypes of the leaves, and the containers if they are plain ones."""
    leaves = jax.tree.leaves(params)
    counter = iter(range(len(leaves)))
    return {
        "names": leaf_names(params),
        "shapes": [list(np.shape(x)) for x in leaves],
        "dtypes": [str(x.dtype) for x in leaves],
        "structure": _encode(params, counter),
    }


def rebuild(description: dict[str, Any], leaves: list[Any], like: Any = None) -> Any:
    """Return the tree with these leaves; a dict by name where its containers are not plain."""
    if like is not None:
        return jax.tree.structure(like).unflatten(leaves)
    if description["structure"] is None:
        return dict(zip(description["names"], leaves, strict=True))
    return _decode(description["structure"], leaves)


def _encode(tree: Any, counter: Any) -> Any:
    if tree is None:
        return {"none": True}
    if type(tree) is dict and all(isinstance(key, str) for key in tree):
        parts = {key: _encode(tree[key], counter) for key in sorted(tree)}
        return None if None in parts.values() else {"dict": parts}
    if type(tree) in (list, tuple):
        parts = [_encode(x, counter) for x in tree]
        return None if None in parts else {type(tree).__name__: parts}
    if jax.tree_util.treedef_is_leaf(jax.tree.structure(tree)):
        return {"leaf": next(counter)}
    return None


def _decode(structure: Any, leaves: list[Any]) -> Any:
    ((kind, content),) = structure.items()
    if kind == "leaf":
        return leaves[content]
    if kind == "none":
        return None
    if kind == "dict":
        return {key: _decode(part, leaves) for key, part in content.items()}
    return (list if kind == "list" else tuple)(_decode(part, leaves) for part in content)
