"""Options and parameters as plain data, so that a run folder can be opened without the code that
made it."""

from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm import kernels, schedule, swap
from replicax.algorithm.kernels import Kernel
from replicax.algorithm.tuning import ConstantGain, Gain
from replicax.run.storage.metadata import TreeSpec

CUSTOM = "custom"  # stands in a run folder for an object that only the user can give again
_CLASSES = {
    made.__name__: made
    for made in (
        schedule.WindowedDEO,
        schedule.StochasticEvenOdd,
        schedule.Adjacent,
        schedule.AllPairs,
        schedule.NoExchange,
        swap.Deterministic,
        swap.Metropolis,
        swap.BiasCorrected,
        swap.WindowCorrected,
        Gain,
        ConstantGain,
    )
}


def to_plain(options: Any) -> dict[str, Any]:
    """Return the fields of a dataclass of options as plain data."""
    return {entry.name: _plain(getattr(options, entry.name)) for entry in fields(options)}


def from_plain(
    kind: Any,
    data: dict[str, Any],
    given: dict[str, Any],
    call: str = "rx.resume(run_dir, target, {}=...)",
) -> Any:
    """Return the dataclass of options that `to_plain` wrote; entries of `given` replace its own.

    `call` says how to give a user-defined object again.
    """
    values = {}
    for entry in fields(kind):
        value = given.get(entry.name)
        if value is None:
            value = _stored(entry.name, data)
        if isinstance(value, str) and value == CUSTOM:
            raise ValueError(
                f"This run was started with a {entry.name} of your own, which a folder cannot "
                f"hold; give it again: {call.format(entry.name)}."
            )
        values[entry.name] = value
    return kind(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, Kernel):
        return {"kernel": value.spec} if value.spec is not None else CUSTOM
    if is_dataclass(value):
        name = type(value).__name__
        if _CLASSES.get(name) is not type(value):
            return CUSTOM
        return {name: {key: _plain(part) for key, part in asdict(value).items()}}  # type: ignore
    if isinstance(value, np.ndarray | jax.Array | np.generic):
        return np.asarray(value).tolist()
    if hasattr(value, "_fields"):  # a named tuple, such as a transform of optax
        return CUSTOM
    if isinstance(value, tuple | list | range):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else CUSTOM


def _stored(name: str, data: Any) -> Any:
    """Return the option `name` of a run folder; raise if it is missing or damaged."""
    if not isinstance(data, dict) or name not in data:
        raise ValueError(f"The options of the run lack {name}: its run.json is damaged.")
    value = data[name]
    if not isinstance(value, dict):
        return value
    try:
        ((kind, content),) = value.items()
        return kernels.from_spec(content) if kind == "kernel" else _CLASSES[kind](**content)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        raise ValueError(
            f"The option {name} of the run is none of replicax: its run.json is damaged."
        ) from None


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
    """Yield the name of every element of an array, such as `theta[0, 2]`."""
    for place in np.ndindex(*shape):
        yield f"{name}[{', '.join(map(str, place))}]" if shape else name


def first(tree: Any) -> Any:
    """Return one replica of a tree with leading axes (chain, replica, ...)."""
    return jax.tree.map(lambda leaf: leaf[0, 0], tree)


def describe(params: Any) -> TreeSpec:
    """Return names, shapes and dtypes of the leaves, and the containers if they are plain ones."""
    leaves = jax.tree.leaves(params)
    return TreeSpec(
        names=tuple(leaf_names(params)),
        shapes=tuple(np.shape(x) for x in leaves),
        dtypes=tuple(str(x.dtype) for x in leaves),
        structure=_encode(params, iter(range(len(leaves)))),
    )


def rebuild(spec: TreeSpec, leaves: list[Any], like: Any = None) -> Any:
    """Return the tree with these leaves; a dict by name if its containers are not plain."""
    if like is not None:
        return jax.tree.structure(like).unflatten(leaves)
    if spec.structure is None:
        return dict(zip(spec.names, leaves, strict=True))
    return _decode(spec.structure, leaves)


def shapes_of(spec: TreeSpec, like: Any = None) -> Any:
    """Return the tree with shapes and dtypes in the place of its arrays."""
    shapes = zip(spec.shapes, spec.dtypes, strict=True)
    leaves = [jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape, dtype in shapes]
    return rebuild(spec, leaves, like)


def _encode(tree: Any, counter: Iterator[int]) -> dict[str, Any] | None:
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


def _decode(structure: dict[str, Any], leaves: list[Any]) -> Any:
    ((kind, content),) = structure.items()
    if kind == "leaf":
        return leaves[content]
    if kind == "none":
        return None
    if kind == "dict":
        return {key: _decode(part, leaves) for key, part in content.items()}
    return (list if kind == "list" else tuple)(_decode(part, leaves) for part in content)
