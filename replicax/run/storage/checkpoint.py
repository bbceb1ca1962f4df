"""Checkpoints by Orbax: arrays saved by their path in a tree, restored into a tree of shapes.

Of several processes the first one writes, and all read.
"""

import contextlib
import logging
import math
import os
import re
import shutil
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from replicax.algorithm.kernel import PyTree
from replicax.errors import TooLarge, check_memory_for
from replicax.run.storage import files
from replicax.run.storage.files import Damaged, NotWritten

FOLDER = "checkpoints"
_OWN = re.compile(r"\d{1,18}(\.orbax-checkpoint-tmp.*)?")  # a checkpoint, whole or not
# And what earlier versions wrote beside them.
_LISTING = re.compile(rf"\.?\d{{1,18}}\.\d+({files.MARK}){{1,2}}")
# All that Orbax writes below a checkpoint.
_FILES = re.compile(
    r"(_METADATA|_CHECKPOINT_METADATA|_sharding|_strings\.json|commit_success\.txt"
    r"|(array_metadatas|process_metadata)/[\w.-]+"
    r"|(ocdbt\.process_\d+/)?(manifest\.ocdbt|d/[0-9a-f]{32}))(\.__lock)?"
)


class Misfit(ValueError):
    """A checkpoint of other arrays than those of this run."""


def by_path(tree: PyTree) -> dict[str, np.ndarray]:
    """Return the leaves by path, copied: the loop may write over its own. Empty ones, which Orbax
    does not take, are left out."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {_name(path): np.array(leaf) for path, leaf in leaves if leaf.size}


def save(folder: Path, step: int, arrays: dict[str, np.ndarray]) -> str:
    """Write a checkpoint and wait until it is on the disk; return its digest."""
    path = _path(folder, step)
    _make_way(path)
    with _checkpointer() as checkpointer:
        checkpointer.save(path, arrays)
    digests = files.digests_below(path, synced=True)
    files.sync(path.parent)
    return files.combine(digests)


def check(folder: Path, step: int, digest: str | None, most: float = math.inf) -> None:
    """Raise `Damaged` unless the checkpoint is as it was written, `ValueError` if there is none. It
    has at most `most` bytes."""
    path = _path(folder, step)
    files.check_own(path)
    if digest is None:
        raise ValueError(
            f"{folder} holds a copy of the results without a checkpoint, which cannot be resumed: "
            "give the folder that run_dir=... named in the run itself."
        )
    if not path.is_dir():
        raise Damaged(f"{path} is missing.")
    if files.size_below(path) > most:
        raise Damaged(f"{path} is damaged: it is larger than what was written.")
    if files.digest_folder(path) != digest:
        raise Damaged(f"{path} is damaged: its content is not what its digest says.")


def restore(
    folder: Path, step: int, like: PyTree, part: bool = False, gone: tuple[str, ...] = ()
) -> Any:
    """Return the checkpoint of `step` as a tree like `like`, a tree of shapes or arrays.

    With `part` the checkpoint may hold more than that; otherwise only what earlier versions wrote
    below the paths `gone`.
    """
    leaves = jax.tree_util.tree_leaves_with_path(like)
    expected = {_name(path): (x.shape, str(x.dtype)) for path, x in leaves if x.size}
    path = _path(folder, step)
    try:
        with _checkpointer() as checkpointer:
            stored = checkpointer.metadata(path).item_metadata.tree
            found = {name: _shape_and_dtype(x) for name, x in stored.items()}
            sizes = (math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in found.values())
            check_memory_for(str(path), sum(sizes))  # zeros take hardly any room on the disk
            if part:
                found = {name: value for name, value in found.items() if name in expected}
            kept = (name for name in found if not urllib.parse.unquote(name).startswith(gone))
            if {name: found[name] for name in kept} != expected:
                raise Misfit(
                    f"The checkpoint in {folder} does not fit: the params, the kernel or the "
                    "precision is not the one this run was started with."
                )
            # Read as NumPy arrays, whoever wrote them.
            on_host = {name: np.empty(x.shape, x.dtype) for name, x in stored.items()}
            saved = checkpointer.restore(path, on_host)
    except (Misfit, TooLarge):
        raise
    except Exception as error:  # of Orbax and TensorStore, which raise of all kinds
        raise Damaged(f"{path} is damaged: it holds no arrays of replicax.") from error
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: (
            np.asarray(saved[_name(path)]) if leaf.size else np.empty(leaf.shape, leaf.dtype)
        ),
        like,
    )


def _shape_and_dtype(stored: Any) -> tuple[tuple[int, ...], str]:
    """Return shape and dtype of an array; raise if its parts are larger than itself."""
    shape, parts = tuple(stored.shape), stored.storage.chunk_shape
    if any(part > max(1, size) for part, size in zip(parts, shape, strict=True)):
        raise ValueError("parts that could fill the memory")
    return shape, str(np.dtype(stored.dtype))


def delete_others(folder: Path, steps: list[int]) -> None:
    """Remove all checkpoints but those of `steps`, half-written ones too, and nothing else that may
    be beside them."""
    kept = {str(step) for step in steps}
    for path in (folder / FOLDER).glob("*"):
        if path.name in kept or path.is_symlink():
            continue
        if path.is_file() and _LISTING.fullmatch(path.name):
            path.unlink(missing_ok=True)
        elif path.is_dir() and _OWN.fullmatch(path.name) and _is_own(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_own(path: Path) -> bool:
    """Return whether a folder holds nothing but what Orbax writes."""
    names = (part.relative_to(path).as_posix() for part in path.rglob("*") if not part.is_dir())
    return all(_FILES.fullmatch(name) for name in names)


def _make_way(path: Path) -> None:
    """Remove what is left of an earlier checkpoint at a path; raise if it is something else."""
    if path.is_dir() and _is_own(path):
        shutil.rmtree(path)
    if os.path.lexists(path):
        raise NotWritten(f"{path} holds what replicax did not write: move it away.")


def num_bytes(folder: Path, step: int) -> int:
    """Return how many bytes the files of a checkpoint have."""
    return files.size_below(_path(folder, step))


def _path(folder: Path, step: int) -> Path:
    return (folder / FOLDER / str(step)).absolute()


def _name(path: tuple) -> str:
    return urllib.parse.quote(jax.tree_util.keystr(path), safe="")


@contextlib.contextmanager
def _checkpointer() -> Iterator[Any]:
    """Yield a checkpointer that waits for no other process and logs nothing: what goes wrong is
    raised."""
    import orbax.checkpoint as ocp

    number = jax.process_index()
    options = ocp.options.MultiprocessingOptions(
        primary_host=number, active_processes={number}, barrier_sync_key_prefix=f"replicax{number}"
    )
    if jax.process_count() == 1:
        options = ocp.options.MultiprocessingOptions()
    handler = ocp.StandardCheckpointHandler(multiprocessing_options=options)
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with ocp.Checkpointer(handler, multiprocessing_options=options) as checkpointer:
            yield checkpointer
    finally:
        logger.setLevel(level)
