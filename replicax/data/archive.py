"""Safe reading of downloaded files: checksums, archives and pickles.

Nothing is unpacked to the disk, and a pickle can call only functions that build arrays.
"""

import hashlib
import io
import pickle
import tarfile
import zlib
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

# Twice the size of the largest data set here.
MAX_UNPACKED_BYTES = 400_000_000

_NOT_AS_PUBLISHED = "it is incomplete, damaged or another file. Delete it and fetch it again"


def check_sum(path: Path, stream: io.BufferedReader, checksums: Sequence[str]) -> None:
    """Raise unless `stream` has all `checksums`, each written "algorithm:digits"."""
    for checksum in checksums:
        algorithm, _, published = checksum.partition(":")
        stream.seek(0)
        digest = hashlib.file_digest(stream, partial(_hasher, algorithm)).hexdigest()
        if digest != published:
            size = stream.seek(0, io.SEEK_END)
            raise ValueError(
                f"{path} ({size:,} bytes) has the {algorithm} checksum {digest}, not {published}: "
                f"{_NOT_AS_PUBLISHED}."
            )
    stream.seek(0)


def _hasher(algorithm: str):
    # Hardened systems refuse MD5 unless it is declared as not for security.
    return hashlib.new(algorithm, usedforsecurity=False)


def read_file(path: Path, checksums: Sequence[str]) -> bytes:
    """Return the content of the file at `path` after checking its checksums."""
    try:
        with path.open("rb") as stream:
            check_sum(path, stream, checksums)
            return stream.read()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is missing: its folder is incomplete. Delete the folder and put the original "
            "archive in its place."
        ) from None


def read_archive(
    path: Path, checksums: Sequence[str], members: Collection[str]
) -> dict[str, bytes]:
    """Return the content of the `members` of a .tar.gz file, after checking its checksums.

    All members are checked: an archive that has a link, a device, a path that leads out of its
    folder, or more bytes than the images need is refused as a whole.
    """
    contents: dict[str, bytes] = {}
    num_bytes = 0
    with path.open("rb") as stream:
        check_sum(path, stream, checksums)
        try:
            with tarfile.open(fileobj=stream, mode="r:gz") as archive:
                for member in archive:
                    num_bytes += member.size
                    _check_member(path, member, num_bytes)
                    if member.name in contents:
                        raise ValueError(f"{path} contains {member.name!r} twice; fetch it again.")
                    if member.name in members:
                        file = archive.extractfile(member)
                        assert file is not None  # only links and folders have no content
                        contents[member.name] = file.read()
        # EOFError and zlib.error: gzip data that are truncated or corrupt.
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise ValueError(
                f"{path} cannot be read as a .tar.gz archive ({_one_line(error)}): "
                f"{_NOT_AS_PUBLISHED}."
            ) from error
    missing = sorted(set(members) - set(contents))
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}: {_NOT_AS_PUBLISHED}.")
    return contents


def _check_member(path: Path, member: tarfile.TarInfo, num_bytes: int) -> None:
    """Raise if no data set needs such a member; `num_bytes` counts all members up to this one."""
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or "\\" in member.name:
        problem = "leads out of its folder"
    elif not (member.isdir() or member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)):
        problem = "is a link or a device, not a file"
    elif num_bytes > MAX_UNPACKED_BYTES:
        problem = f"brings the archive to more than {MAX_UNPACKED_BYTES:,} bytes"
    else:
        return
    raise ValueError(
        f"{path} is refused because its member {member.name!r} {problem}; fetch the archive "
        "from its publisher."
    )


def read_pickle(name: str, content: bytes) -> Any:
    """Return the arrays, bytes, numbers and containers in the pickle of the file `name`.

    Any other content is refused. Strings written by Python 2 become bytes.
    """
    try:
        return _PlainUnpickler(name, content).load()
    except _Refused as refused:
        raise ValueError(str(refused)) from None
    # A corrupt pickle can raise any exception.
    except Exception as error:
        raise ValueError(
            f"{name} cannot be read as a pickle ({_one_line(error)}): {_NOT_AS_PUBLISHED}."
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:150]


class _Refused(Exception):
    """A pickle names a function or class that is not allowed."""


def _encode(text: str, encoding: str) -> bytes:
    """Decode bytes as Python 3 writes them in protocol 2: text, and its encoding."""
    if encoding not in ("latin1", b"latin1"):
        raise _Refused(f"A pickle asks for the encoding {encoding!r}; only latin1 is allowed.")
    return text.encode("latin1")


class _Array:
    """Stands for `numpy.ndarray` in a pickle, which could make arrays of any size by it."""


def _reconstruct(kind: Any, shape: Any, letter: Any) -> np.ndarray:
    """Return the empty array that NumPy's pickles begin with; their content follows."""
    if kind is not _Array or shape != (0,):
        raise _Refused("A pickle asks for an array without its content, which no data set needs.")
    return np.empty(0, np.int8)


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,  # as NumPy 1 writes it
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,  # as NumPy 2 writes it
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler that can call only functions that build arrays."""

    def __init__(self, name: str, content: bytes):
        super().__init__(io.BytesIO(content), encoding="bytes")
        self._name = name

    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise _Refused(
                f"{self._name} is refused because it asks for {module_name}.{global_name}, which "
                "no array needs: it may be malicious. Fetch the data set from its publisher."
            ) from None
