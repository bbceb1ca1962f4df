"""Files that are whole or absent, on the disk before they are relied on, and their digests."""

import errno
import hashlib
import io
import json
import os
import shutil
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

_PIECE = 2**20
_JSON_BYTES = 2**26  # the largest JSON file that is read


class Damaged(ValueError):
    """A file of a run folder that is missing, or not what was written."""


class NotWritten(OSError):
    """A file that could not be written, or the state of a run."""


def write_whole(path: Path, content: bytes) -> None:
    """Write under another name, wait for the disk, rename: a reader never sees half a file."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(path.parent)
    except OSError as error:
        raise NotWritten(f"{path} could not be written: {error.strerror}.") from error


def check_room(folder: Path, num_bytes: int) -> None:
    """Raise if the disk has no room for so many bytes, before half of them are written."""
    if shutil.disk_usage(folder).free < num_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:  # folders, on Windows
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(content: bytes) -> str:
    """Return a digest of bytes."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def digest_file(path: Path) -> str:
    """Return the digest of a file."""
    hashed = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            hashed.update(piece)
    return hashed.hexdigest()


def digest_folder(folder: Path) -> str:
    """Return a digest of names and contents of all files below a folder."""
    return combine(digests_below(folder))


def digests_below(
    folder: Path, relative_to: Path | None = None, synced: bool = False
) -> dict[str, str]:
    """Return the digests of all files below a folder, by name, and an empty one for folders;
    `synced` waits until they are on the disk."""
    digests = {}
    for path in folder.rglob("*"):
        name = path.relative_to(relative_to or folder).as_posix()
        digests[name] = digest_file(path) if path.is_file() else ""
        if synced:
            sync(path)
    if synced:
        sync(folder)
    return digests


def combine(digests: dict[str, str]) -> str:
    """Return the digest of a folder, given those of what is below it by name."""
    hashed = hashlib.blake2b(digest_size=16)
    for name in sorted(digests, key=PurePosixPath):
        hashed.update(name.encode() + b"\0" + digests[name].encode())
    return hashed.hexdigest()


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> str:
    """Write arrays as an npz file; return its digest."""
    content = io.BytesIO()
    anything: Any = arrays
    np.savez(content, **anything)
    write_whole(path, content.getvalue())
    return digest(content.getvalue())


def read_arrays(path: Path, expected: str) -> dict[str, np.ndarray]:
    """Return the arrays that `write_arrays` wrote, if the file has the digest `expected`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}.") from None
    if digest(content) != expected:
        raise Damaged(f"{path} is damaged: its content is not what its digest says.")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError("compressed: that could fill the memory")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)
    except Exception:  # of zipfile and NumPy, which raise of all kinds
        raise Damaged(f"{path} is damaged: it holds no arrays.") from None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON object that carries the digest of its other entries."""
    text = json.dumps({**content, "digest": _digest_json(content)}, indent=1)
    write_whole(path, text.encode())


def read_json(path: Path) -> dict[str, Any]:
    """Return what `write_json` wrote; raise `Damaged` if it is anything else."""
    try:
        if path.stat().st_size > _JSON_BYTES:
            raise Damaged(f"{path} is damaged: it is larger than {_JSON_BYTES >> 20} MiB.")
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged(f"{path} is damaged: it does not hold JSON.") from None
    if not isinstance(content, dict):
        raise Damaged(f"{path} is damaged: it does not hold a JSON object.")
    return content


def check_digest(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of `path` without its digest, which must be that of the rest."""
    content = dict(content)
    if content.pop("digest", None) != _digest_json(content):
        raise Damaged(f"{path} is damaged: its content is not what its digest says.")
    return content


def _digest_json(content: dict[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True).encode())
