"""Checkpoints by Orbax: arrays saved by their path in a tree, restored into a tree of shapes."""

import logging
import urllib.parse
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
        arrays = {name: np.asarray(leaf) for name, leaf in _by_path(tree).items()}
        manager.save(step, args=ocp.args.StandardSave(arrays), force=True)
        manager.wait_until_finished()


def latest_step(folder: Path) -> int:
    """Return the step of the newest checkpoint."""
    with _manager(folder) as manager:
        step = manager.latest_step()
    if step is None:
        raise ValueError(f"{folder} holds no checkpoint: the run ended before it saved one.")
    return step


def restore(folder: Path, step: int, like: Any) -> Any:
    """Return the checkpoint of `step` as a tree like `like`, a tree of shapes or arrays."""
    import orbax.checkpoint as ocp

    with _manager(folder) as manager:
        saved = manager.restore(step, args=ocp.args.StandardRestore())
    expected = {name: (x.shape, x.dtype) for name, x in _by_path(like).items()}
    if {name: (x.shape, x.dtype) for name, x in saved.items()} != expected:
        raise ValueError(
            f"The checkpoint in {folder} does not fit: the params, the kernel or the precision is "
            "not the one this run was started with."
        )
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: (
            np.asarray(saved[_name(path)]) if leaf.size else np.empty(leaf.shape, leaf.dtype)
        ),
        like,
    )


def _by_path(tree: Any) -> dict[str, Any]:
    """Return the leaves by path; Orbax does not take empty ones."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(path): leaf for path, leaf in leaves if leaf.size}


def _name(path: tuple) -> str:
    return urllib.parse.quote(jax.tree_util.keystr(path), safe="")


def _manager(folder: Path) -> Any:
    logging.getLogger("absl").setLevel(logging.ERROR)
    import orbax.checkpoint as ocp

    options = ocp.CheckpointManagerOptions(
        max_to_keep=2, create=False, multiprocessing_options=_alone(ocp)
    )
    path = (folder / "checkpoints").absolute()
    path.mkdir(exist_ok=True)  # which Orbax does not do for one of several processes
    return ocp.CheckpointManager(path, options=options)


def _alone(ocp: Any) -> Any:
    """Return options under which this process waits for no other: one writes, all may read."""
    number = jax.process_index()
    if jax.process_count() == 1:
        return ocp.options.MultiprocessingOptions()
    return ocp.options.MultiprocessingOptions(
        primary_host=number, active_processes={number}, barrier_sync_key_prefix=f"replicax{number}"
    )
