"""The lock of a run folder: one process at a time writes into it."""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows: nobody is kept out
    fcntl = None  # type: ignore[assignment]

_FILE = "lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, or say who holds it.

    The kernel gives it back when the process ends, however it ends.
    """
    if fcntl is None:
        yield
        return
    with _opened(folder / _FILE) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"{folder} is in use by {_owner(file)}; wait until it ends, or choose another "
                "folder."
            ) from None
        file.truncate(0)
        json.dump({"pid": os.getpid(), "host": socket.gethostname()}, file)
        file.flush()
        yield


def _opened(path: Path) -> IO[str]:
    try:
        return path.open("a+")
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder; it must be a file: remove it.") from None


def _owner(file: IO[str]) -> str:
    file.seek(0)
    try:
        owner = json.load(file)
        return f"process {int(owner['pid'])} on {owner['host']}"
    except (ValueError, TypeError, KeyError):
        return "another process"
