"""Orbax: save, restore. A checkpoint is a flat set of arrays; a template gives it its shape."""

import logging
from pathlib import Path
from typing import Any

import jax
import numpy as np


def save(folder: Path, step: int, tree: Any) -> None:
    """Commit a checkpoint atomically; the one before it is kept, older ones go."""
    import orbax.checkpoint as ocp

    with _manager(folder) as manager:
        if step in manager.all_steps():  # a step has one state only
            return
        manager.save(step, args=ocp.args.StandardSave(_named(tree, np.asarray)), force=True)
        manager.wait_until_finished()


def latest_step(folder: Path) -> int:
    with _manager(folder) as manager:
        step = manager.latest_step()
    if step is None:
        raise ValueError(f"{folder} holds no checkpoint: the run ended before it saved one.")
    return step


def restore(folder: Path, step: int, template: Any) -> Any:
    """The checkpoint of `step` in the shape of `template`, a tree of shapes or arrays."""
    import orbax.checkpoint as ocp

    wanted = _named(template, lambda leaf: np.empty(leaf.shape, leaf.dtype))
    with _manager(folder) as manager:
        found = manager.restore(step, args=ocp.args.StandardRestore())
    saved = {name: (x.shape, x.dtype) for name, x in found.items()}
    if saved != {name: (x.shape, x.dtype) for name, x in wanted.items()}:
        raise ValueError(
            f"The checkpoint in {folder} does not fit: the params, the kernel or the precision is "
            "not the one this run was started with."
        )
    leaves, structure = jax.tree.flatten(template)
    values = [
        np.asarray(found[_name(i)]) if leaf.size else np.empty(leaf.shape, leaf.dtype)
        for i, leaf in enumerate(leaves)
    ]
    return structure.unflatten(values)


def _named(tree: Any, make: Any) -> dict[str, np.ndarray]:
    """Leaves by name; Orbax does not take empty ones."""
    leaves = enumerate(jax.tree.leaves(tree))
    return {_name(i): make(leaf) for i, leaf in leaves if leaf.size}


def _name(index: int) -> str:
    return f"{index:06d}"


def _manager(folder: Path) -> Any:
    logging.getLogger("absl").setLevel(logging.ERROR)
    import orbax.checkpoint as ocp

    options = ocp.CheckpointManagerOptions(max_to_keep=2, create=True)
    return ocp.CheckpointManager((folder / "checkpoints").absolute(), options=options)
