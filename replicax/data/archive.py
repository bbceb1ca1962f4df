"""Reading files that came from elsewhere: checksums, archives and pickles, trusted in that order.

Nothing is unpacked to the disk, and nothing in a pickle is called that does not make an array.
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

# Twice what the largest data set here needs.
MAX_UNPACKED_BYTES = 400_000_000

_NOT_AS_PUBLISHED = "it is incomplete, damaged or another file. Delete it and fetch it again"


def check_sum(path: Path, stream: io.BufferedReader, checksums: Sequence[str]) -> None:
    """Raise unless the stream has every one of the checksums, each written "algorithm:digits"."""
    for checksum in checksums:
        algorithm, _, wanted = checksum.partition(":")
        stream.seek(0)
        found = hashlib.file_digest(stream, partial(_hasher, algorithm)).hexdigest()
        if found != wanted:
            size = stream.seek(0, io.SEEK_END)
            raise ValueError(
                f"{path} ({size:,} bytes) has the {algorithm} checksum {found}, not {wanted}: "
                f"{_NOT_AS_PUBLISHED}."
            )
    stream.seek(0)


def _hasher(algorithm: str):
    # Some hardened systems refuse MD5 unless told that no secret hangs on it.
    return hashlib.new(algorithm, usedforsecurity=False)


def read_file(path: Path, checksums: Sequence[str]) -> bytes:
    """The content of a file, once its checksums are right."""
    try:
        with path.open("rb") as stream:
            check_sum(path, stream, checksums)
            return stream.read()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is missing: its folder is incomplete. Delete the folder, and put the "
            "archive that it came from in its place."
        ) from None


def read_archive(path: Path, checksums: Sequence[str], wanted: Collection[str]) -> dict[str, bytes]:
    """The wanted members of a .tar.gz file, by name, once its checksums are right.

    Every member is looked at, wanted or not: an archive with a link, a device, a path that leads
    out of a folder, or more bytes than images could need, is refused as a whole.
    """
    found: dict[str, bytes] = {}
    num_bytes = 0
    with path.open("rb") as stream:
        check_sum(path, stream, checksums)
        try:
            with tarfile.open(fileobj=stream, mode="r:gz") as archive:
                for member in archive:
                    num_bytes += member.size
                    _check_member(path, member, num_bytes)
                    if member.name in found:
                        raise ValueError(f"{path} holds {member.name!r} twice; fetch it again.")
                    if member.name in wanted:
                        content = archive.extractfile(member)
                        assert content is not None  # only links and folders have no content
                        found[member.name] = content.read()
        # EOFError and zlib.error: gzip data that end early, or are scrambled.
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            raise ValueError(
                f"{path} cannot be read as a .tar.gz archive ({error}): {_NOT_AS_PUBLISHED}."
            ) from error
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}: {_NOT_AS_PUBLISHED}.")
    return found


def _check_member(path: Path, member: tarfile.TarInfo, num_bytes: int) -> None:
    """Refuse what no data set needs; `num_bytes` counts all members up to this one."""
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or "\\" in member.name:
        problem = "leads out of the folder it belongs in"
    elif not (member.isdir() or member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)):
        problem = "is a link or a device, not a file"
    elif num_bytes > MAX_UNPACKED_BYTES:
        problem = f"brings the archive to more than {MAX_UNPACKED_BYTES:,} bytes"
    else:
        return
    raise ValueError(
        f"{path} is refused, because its member {member.name!r} {problem}; fetch the archive from "
        "its publisher."
    )


def read_pickle(name: str, content: bytes) -> Any:
    """Arrays, bytes, numbers and plain containers of them; any other content is refused.

    Strings that Python 2 wrote become bytes.
    """
    try:
        return _PlainUnpickler(name, content).load()
    except _Refused as refused:
        raise ValueError(str(refused)) from None
    # A scrambled pickle fails in whatever way its first wrong byte leads to.
    except Exception as error:
        raise ValueError(
            f"{name} cannot be read as a pickle ({error}): {_NOT_AS_PUBLISHED}."
        ) from error


class _Refused(Exception):
    """A pickle asks for something that is not on the list."""


def _encode(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in old pickles: as text that stands for them."""
    if encoding not in ("latin1", b"latin1"):
        raise _Refused(f"A pickle asks for the encoding {encoding!r}; only latin1 is admitted.")
    return text.encode("latin1")


_RECONSTRUCT = np.empty(0).__reduce__()[0]  # NumPy's own, wherever this version keeps it
_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,  # as NumPy 1 writes it
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,  # as NumPy 2 writes it
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
}


class _PlainUnpickler(pickle.Unpickler):
    """A pickle can name any function and call it; this one finds only what makes arrays."""

    def __init__(self, name: str, content: bytes):
        super().__init__(io.BytesIO(content), encoding="bytes")
        self._name = name

    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return _ADMITTED[module_name, global_name]
        except KeyError:
            raise _Refused(
                f"{self._name} is refused, because it asks for {module_name}.{global_name}, which "
                "no array needs: it may be malicious. Fetch the data set from its publisher."
            ) from None
