"""Checkpoints by Orbax: arrays saved by their path in a tree, restored into a tree of shapes."""

import contextlib
import logging
import shutil
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from replicax.run.storage import files
from replicax.run.storage.files import Damaged

FOLDER = "checkpoints"


def copy_arrays(tree: Any) -> dict[str, np.ndarray]:
    """Return the leaves by path, copied: the loop may write over its own. Empty ones, which Orbax
    does not take, are left out."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(path): np.array(leaf) for path, leaf in leaves if leaf.size}


def save(folder: Path, step: int, arrays: dict[str, np.ndarray]) -> str:
    """Write a checkpoint and wait until it is on the disk; return its digest."""
    path = _path(folder, step)
    with _checkpointer() as checkpointer:
        checkpointer.save(path, arrays, force=True)
    digest = files.digest_folder(path, synced=True)
    files.sync(path)
    files.sync(path.parent)
    return digest


def check(folder: Path, step: int, digest: str | None) -> None:
    """Raise `Damaged` unless the checkpoint is as it was written."""
    path = _path(folder, step)
    if digest is None:
        raise Damaged(f"{folder} holds a copy of the results, without a checkpoint.")
    if not path.is_dir():
        raise Damaged(f"{path} is missing.")
    if files.digest_folder(path) != digest:
        raise Damaged(f"{path} is damaged: its content is not what its digest says.")


def restore(folder: Path, step: int, like: Any, part: bool = False) -> Any:
    """Return the checkpoint of `step` as a tree like `like`, a tree of shapes or arrays.

    With `part` the checkpoint may hold more than that.
    """
    leaves = jax.tree_util.tree_leaves_with_path(like)
    expected = {_name(path): (x.shape, str(x.dtype)) for path, x in leaves if x.size}
    path = _path(folder, step)
    with _checkpointer() as checkpointer:
        stored = checkpointer.metadata(path).item_metadata.tree
        found = {name: (tuple(x.shape), str(np.dtype(x.dtype))) for name, x in stored.items()}
        if part:
            found = {name: value for name, value in found.items() if name in expected}
        if found != expected:
            raise ValueError(
                f"The checkpoint in {folder} does not fit: the params, the kernel or the precision "
                "is not the one this run was started with."
            )
        saved = checkpointer.restore(path)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: (
            np.asarray(saved[_name(path)]) if leaf.size else np.empty(leaf.shape, leaf.dtype)
        ),
        like,
    )


def delete_others(folder: Path, steps: list[int]) -> None:
    """Remove all checkpoints but those of `steps`, half-written ones too."""
    kept = {str(step) for step in steps}
    for path in (folder / FOLDER).glob("*"):
        if path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _path(folder: Path, step: int) -> Path:
    return (folder / FOLDER / str(step)).absolute()


def _name(path: tuple) -> str:
    return urllib.parse.quote(jax.tree_util.keystr(path), safe="")


@contextlib.contextmanager
def _checkpointer() -> Iterator[Any]:
    """Yield a checkpointer that logs nothing: what goes wrong is raised."""
    import orbax.checkpoint as ocp

    handler = ocp.StandardCheckpointHandler(multiprocessing_options=_alone(ocp))
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with ocp.Checkpointer(handler, multiprocessing_options=_alone(ocp)) as checkpointer:
            yield checkpointer
    finally:
        logger.setLevel(level)


def _alone(ocp: Any) -> Any:
    """Return options under which this process waits for no other: one writes, all may read."""
    number = jax.process_index()
    if jax.process_count() == 1:
        return ocp.options.MultiprocessingOptions()
    return ocp.options.MultiprocessingOptions(
        primary_host=number, active_processes={number}, barrier_sync_key_prefix=f"replicax{number}"
    )
