"""Trees of parameters: the names of their arrays, and their shapes and containers as plain data."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm.kernel import PyTree


@dataclass(frozen=True)
class TreeSpec:
    """Names, shapes, dtypes and containers of a tree of arrays; `describe` makes it and `rebuild`
    makes the tree again. One entry per leaf."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    structure: dict[str, Any] | None  # None: containers that a folder cannot describe

    def __post_init__(self) -> None:
        places = range(len(self.names))
        try:
            found = None if self.structure is None else _decode(self.structure, places)
        except (AttributeError, ValueError) as error:
            raise TypeError("no containers") from error
        if self.structure is not None and sorted(jax.tree.leaves(found)) != list(places):
            raise TypeError("not one place for each leaf")

    @property
    def num_elements(self) -> int:
        """The number of elements of all arrays."""
        return sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """The number of elements of each array."""
        return [math.prod(shape) for shape in self.shapes]


def leaf_names(tree: PyTree) -> list[str]:
    """Return a file-safe name for every leaf, from its path."""
    names = []
    for path, _ in jax.tree_util.tree_leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "params"
        names.append("".join(c if c.isalnum() or c in "._-" else "_" for c in name))
    if len(set(names)) < len(names):
        names = [f"{index}.{name}" for index, name in enumerate(names)]
    return names


def component_names(name: str, shape: tuple[int, ...]) -> Iterator[str]:
    """Yield the name of every element of an array, such as `theta[0, 2]`."""
    for place in np.ndindex(*shape):
        yield f"{name}[{', '.join(map(str, place))}]" if shape else name


def first(tree: PyTree) -> Any:
    """Return one replica of a tree with leading axes (chain, replica, ...)."""
    return jax.tree.map(lambda leaf: leaf[0, 0], tree)


def describe(params: PyTree) -> TreeSpec:
    """Return names, shapes and dtypes of the leaves, and the containers if they are plain ones."""
    leaves = jax.tree.leaves(params)
    return TreeSpec(
        names=tuple(leaf_names(params)),
        shapes=tuple(np.shape(x) for x in leaves),
        dtypes=tuple(str(x.dtype) for x in leaves),
        structure=_encode(params, iter(range(len(leaves)))),
    )


def rebuild(spec: TreeSpec, leaves: list[Any], like: PyTree = None) -> Any:
    """Return the tree with these leaves; a dict by name if its containers are not plain."""
    if like is not None:
        return jax.tree.structure(like).unflatten(leaves)
    if spec.structure is None:
        return dict(zip(spec.names, leaves, strict=True))
    return _decode(spec.structure, leaves)


def shapes_of(spec: TreeSpec, like: PyTree = None) -> Any:
    """Return the tree with shapes and dtypes in the place of its arrays."""
    shapes = zip(spec.shapes, spec.dtypes, strict=True)
    leaves = [jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape, dtype in shapes]
    return rebuild(spec, leaves, like)


def _encode(tree: PyTree, counter: Iterator[int]) -> dict[str, Any] | None:
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


def _decode(structure: dict[str, Any], leaves: Sequence[Any]) -> Any:
    ((kind, content),) = structure.items()
    if kind == "leaf":
        return leaves[content]
    if kind == "none":
        return None
    if kind == "dict":
        return {key: _decode(part, leaves) for key, part in content.items()}
    return {"list": list, "tuple": tuple}[kind](_decode(part, leaves) for part in content)
