"""Files that are whole or absent, on the disk before they are relied on; their digests; and the
lock of a folder.

A run folder may come from anybody. Here is the one place where a name that a file holds becomes a
path, where links are refused before anything is written, and where a file is opened: a regular one,
of a size that fits.
"""

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import re
import shutil
import socket
import stat
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self

import numpy as np

try:
    import fcntl
except ImportError:  # Windows: nobody is kept out
    fcntl = None  # type: ignore[assignment]

_PIECE = 2**20
_NAME = re.compile(r"[\w-][\w.-]*")  # of one file or folder, which leads nowhere else
_NAME_BYTES = 255  # as file systems have it
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# A pipe without a writer does not block, so that its kind can be told.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
LOCK, MARK, RUN = "lock", ".replicax", "run.json"  # in a run folder
# In the first bytes of figures, pages and summaries, by which they are known again.
SOFTWARE = "replicax"
_SIGNS = (f"Software\0{SOFTWARE}".encode(), f'name="generator" content="{SOFTWARE}"'.encode(),
          b'{\n "run_dir": "')  # fmt: skip
_SIGNED_WITHIN = 2**10
_JSON_BYTES = 2**24  # the largest JSON file that is read: four times the longest note
_ARRAY_BYTES = 2**32  # the largest file of arrays that is read whole
_ARRAYS = 2**16  # in a file
_LEVELS = 64  # of folders in a part of a run, which has three


class Damaged(ValueError):
    """A file of a run folder that is missing, or not what was written."""


class NotWritten(OSError):
    """A file that could not be written, or the state of a run."""


def is_name(text: object) -> bool:
    """Return whether a text is the name of one file or folder."""
    return (
        isinstance(text, str)
        and _NAME.fullmatch(text) is not None
        and len(text.encode()) <= _NAME_BYTES
    )


def below(folder: Path, *names: str) -> Path:
    """Return the path of names that come from a file; raise if they lead out of the folder."""
    for name in names:
        if not is_name(name):
            shown = str(name)[:80]
            raise Damaged(f"{folder} is damaged: {shown!r} is not the name of a part of it.")
    return folder.joinpath(*names)


def check_own(path: Path, folders: bool = True) -> None:
    """Raise if a path, or anything below it, is neither a regular file nor a folder: what a link
    points to is not part of a run. Without `folders` it must be a file; it may be absent."""
    waiting = [path]
    while waiting:
        place = waiting.pop()
        try:
            kind = place.lstat().st_mode
            if stat.S_ISDIR(kind) and folders:
                if len(place.parts) - len(path.parts) > _LEVELS:
                    raise Damaged(f"{path} holds folders in folders without end: remove them.")
                waiting += place.iterdir()
                continue
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise Damaged(f"{path} cannot be read: {error.strerror}.") from None
        if stat.S_ISLNK(kind):
            raise Damaged(
                f"{place} is a symbolic link, which replicax does not follow inside a run folder: "
                "replace it by what it points to, or remove it."
            )
        if not stat.S_ISREG(kind):
            raise Damaged(f"{place} must be a regular file and is none: remove it.")


def check_place(path: Path) -> None:
    """Raise if a file would be written through a link that is inside a run folder."""
    places = [path, *path.parents]
    for place, *above in zip(places, places[1:], places[2:], strict=False):
        if place.is_symlink() and any(map(is_run, above)):
            check_own(place)


def is_run(folder: Path) -> bool:
    """Return whether a folder is that of a run."""
    return any(os.path.lexists(folder / name) for name in (MARK, RUN))


def open_regular(path: Path, most: float) -> IO[bytes]:
    """Open a regular file of at most `most` bytes for reading."""
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}.") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        os.close(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Damaged(f"{path} is damaged: it is not a regular file.")
        size = f"{most / 2**20:.0f} MiB" if most >= 2**20 else f"{most:.0f} bytes"
        raise Damaged(f"{path} is damaged: it is larger than {size}.")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, most: float) -> bytes:
    """Return the content of a regular file of at most `most` bytes."""
    with open_regular(path, most) as file:
        try:
            return file.read()
        except (OSError, MemoryError) as error:
            raise Damaged(f"{path} cannot be read: {error or 'it is too large'}.") from None


def write_whole(path: Path, content: bytes) -> None:
    """Write under another name, which carries the mark, wait for the disk, rename: a reader never
    sees half a file. A link under either name is replaced, and not followed."""
    temporary = path.with_name(f".{path.name}{MARK}")
    if path.exists() and not path.is_file():  # such as a device, which must stay one
        raise NotWritten(f"{path} is there already, and is no regular file: give another path.")
    try:
        with create(temporary) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(path.parent)
    except OSError as error:
        raise NotWritten(f"{path} could not be written: {error.strerror}.") from error


def write_shown(path: Path, content: bytes, named: bool = False) -> None:
    """Write a file that people look at, in the place of one of ours, or of any that the user has
    `named`; of links only those outside run folders are followed."""
    if not named:
        check_shown(path)
    check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(Path(os.path.realpath(path)), content)


def check_shown(path: Path) -> None:
    """Raise if a figure, page or summary would replace a file of the user's that has our name for
    it."""
    if path.is_file() and not is_shown(path):
        raise ValueError(
            f"{path} is there already, and was not written by this version of replicax: choose "
            "another folder, or remove it."
        )


def is_shown(path: Path) -> bool:
    """Return whether a file is a figure, a page or a summary that replicax wrote."""
    with open_regular(path, math.inf) as file:
        start = file.read(_SIGNED_WITHIN)
    return any(sign in start for sign in _SIGNS)


def create(path: Path) -> IO[bytes]:
    """Open a new file for writing in the place of one that may be there."""
    path.unlink(missing_ok=True)  # what it was a link to, hard or symbolic, stays as it is
    return path.open("xb")


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


def digest_values(parts: Iterable[np.ndarray]) -> str:
    """Return a digest of arrays, one after another, at the speed of memory: a CRC-32 of each piece,
    and a digest of these."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        content = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
        for start in range(0, len(content), _PIECE):
            piece = zlib.crc32(content[start : start + _PIECE])
            hashed.update(piece.to_bytes(4, "little"))
    return hashed.hexdigest()


def digest_file(path: Path) -> str:
    """Return the digest of a file."""
    with open_regular(path, math.inf) as file:
        found = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))  # type: ignore
    return found.hexdigest()


def size_below(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def digest_folder(folder: Path) -> str:
    """Return a digest of names and contents of all files below a folder."""
    return combine(digests_below(folder))


def digests_below(folder: Path, synced: bool = False) -> dict[str, str]:
    """Return the digests of all files below a folder, by name, and an empty one for folders;
    `synced` waits until they are on the disk."""
    digests = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
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


def read_arrays(path: Path, expected: str, most: float = _ARRAY_BYTES) -> dict[str, np.ndarray]:
    """Return the arrays that `write_arrays` wrote, if the file has the digest `expected` and at
    most `most` bytes."""
    content = read_bytes(path, most)
    if digest(content) != expected:
        raise Damaged(f"{path} is damaged: its content is not what its digest says.")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if len(entries) > _ARRAYS:
                raise ValueError("more arrays than a run has: that could take for ever")
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise ValueError("compressed: that could fill the memory")
            if sum(entry.file_size for entry in entries) > len(content):
                raise ValueError("entries that overlap: that could fill the memory")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            found = dict(arrays)
        if any(array.dtype.kind not in "biufc" for array in found.values()):
            raise ValueError("not numbers")
        return found
    except Exception:  # of zipfile and NumPy, which raise of all kinds
        raise Damaged(f"{path} is damaged: it holds no arrays.") from None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON object that carries the digest of its other entries."""
    text = json.dumps({**content, "digest": _digest_json(content)}, indent=1)
    write_whole(path, text.encode())


def read_json(path: Path, most: float = _JSON_BYTES) -> dict[str, Any]:
    """Return the JSON object in a file; raise `Damaged` if it is anything else."""
    try:
        content = json.loads(read_bytes(path, most))
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


class Lock:
    """The lock of a folder, held from entering on, or it is said who holds it.

    The kernel gives it back when the process ends, however it ends.
    """

    def __init__(self, folder: Path) -> None:
        self.path, self.held = folder / LOCK, contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self.take()
        except ValueError:
            self.held.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.held.close()

    def take(self) -> None:
        """Take the lock, or say who has it."""
        if fcntl is None:
            return
        self.file = self.held.enter_context(_opened_lock(self.path))
        owner = _owner(self.file)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{self.path.parent} is in use by {owner or 'another process'}; wait until it "
                "ends, or choose another folder."
            ) from None
        if owner is None and os.fstat(self.file.fileno()).st_size:
            raise ValueError(f"{self.path} is not a lock of replicax: rename or remove it.")
        self.file.truncate(0)
        json.dump({"pid": os.getpid(), "host": socket.gethostname()}, self.file)
        self.file.flush()

    def check(self) -> None:
        """Take the lock again where its file was removed; raise if another process was faster."""
        if fcntl is None:
            return
        try:
            there = self.path.stat()
        except OSError:
            there = None
        own = os.fstat(self.file.fileno())
        if there is None or (there.st_ino, there.st_dev) != (own.st_ino, own.st_dev):
            if not self.path.parent.is_dir():
                raise NotWritten(f"{self.path.parent} was removed while the run went on.")
            try:
                self.take()
            except ValueError as error:
                raise NotWritten(f"{self.path} was removed, and {error}") from None


def _opened_lock(path: Path) -> IO[str]:
    check_own(path, folders=False)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | _NO_LINK, 0o666)
    except OSError as error:
        raise ValueError(f"{path} cannot be opened ({error.strerror}): remove it.") from None
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise ValueError(f"{path} is also a file of another name: remove it.")
    return os.fdopen(descriptor, "a+")


def _owner(file: IO[str]) -> str | None:
    """Return who wrote a lock, None if it is empty or of another kind."""
    file.seek(0)
    try:
        owner = json.loads(file.read(1000))
        host = re.sub(r"[^\w.-]", "?", str(owner["host"])[:80])
        return f"process {int(owner['pid'])} on {host}"
    except (ValueError, TypeError, KeyError):
        return None
