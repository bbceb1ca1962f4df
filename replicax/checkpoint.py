"""Orbax: save, restore. A checkpoint is a flat set of arrays; a template gives it its shape."""

import logging
from pathlib import Path
from typing import Any

import jax
import numpy as np


def save(folder: Path, step: int, tree: Any) -> None:
    """Commit a checkpoint atomically; the one before it is kept, older ones go."""
    leaves = {f"{i:06d}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(tree))}
    with _manager(folder) as manager:
        import orbax.checkpoint as ocp

        manager.save(step, args=ocp.args.StandardSave(leaves), force=True)
        manager.wait_until_finished()


def latest_step(folder: Path) -> int:
    with _manager(folder) as manager:
        step = manager.latest_step()
    if step is None:
        raise ValueError(f"{folder} holds no checkpoint: the run ended before it saved one.")
    return step


def restore(folder: Path, step: int, template: Any) -> Any:
    """The checkpoint of `step` in the shape of `template`."""
    wanted, structure = jax.tree.flatten(template)
    with _manager(folder) as manager:
        import orbax.checkpoint as ocp

        shapes = {f"{i:06d}": np.empty(x.shape, x.dtype) for i, x in enumerate(wanted)}
        try:
            found = manager.restore(step, args=ocp.args.StandardRestore(shapes))
        except ValueError as error:
            raise ValueError(
                f"The checkpoint of step {step} in {folder} does not fit: the target, params or "
                f"kernel is not the one this run was started with. ({error})"
            ) from error
    leaves = [np.asarray(found[name]) for name in sorted(found)]
    if [(x.shape, x.dtype) for x in leaves] != [(x.shape, x.dtype) for x in wanted]:
        raise ValueError(
            f"The checkpoint in {folder} does not fit: the params or the kernel is not the one "
            "this run was started with."
        )
    return structure.unflatten(leaves)


def _manager(folder: Path) -> Any:
    logging.getLogger("absl").setLevel(logging.ERROR)
    import orbax.checkpoint as ocp

    options = ocp.CheckpointManagerOptions(max_to_keep=2, create=True)
    return ocp.CheckpointManager((folder / "checkpoints").absolute(), options=options)
