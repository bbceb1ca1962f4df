"""Commits of a run folder: what is valid at a step, in one small file each, `commits/STEP.json`.

A commit names the lengths of the records, the values of the end of the run (`commits/STEP.npz`)
and the checkpoint, with digests. It is written last, so all that it names is on the disk; what
lies beyond it is not part of the run.
"""

import re
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from replicax.run.storage import files
from replicax.run.storage.files import Damaged

FOLDER = "commits"
Arrays = dict[str, np.ndarray]


class Column(NamedTuple):
    """Type and shape of the rows of one variable, and the CRC-32 of all of them in their order,
    which tells rows of one variable from those of another."""

    dtype: str
    shape: tuple[int, ...]
    checksum: int | None = None  # None: written before there were any

    def after(self, rows: np.ndarray) -> "Column":
        """Return the column with further rows."""
        if self.checksum is None:
            return self
        return self._replace(checksum=checksum(rows, self.checksum))


@dataclass(frozen=True)
class Group:
    """The rows of one group of records."""

    length: int
    columns: dict[str, Column]


@dataclass(frozen=True)
class Commit:
    """All that is valid once `step` steps are done."""

    step: int
    groups: dict[str, Group] = field(default_factory=dict)
    values: str = ""  # digest of the values
    checkpoint: str | None = None  # digest; None: a copy that cannot be resumed


def checksum(rows: np.ndarray, before: int = 0) -> int:
    """Return the CRC-32 of rows that follow others."""
    return zlib.crc32(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data, before)


def write(folder: Path, commit: Commit) -> None:
    """Make a commit valid."""
    files.write_json(_path(folder, commit.step), asdict(commit))


def write_values(folder: Path, step: int, values: Arrays) -> str:
    """Write the values of a commit to come; return their digest."""
    (folder / FOLDER).mkdir(exist_ok=True)
    return files.write_arrays(_path(folder, step, ".npz"), values)


def read_values(folder: Path, commit: Commit) -> Arrays:
    """Return the values of a commit."""
    return files.read_arrays(_path(folder, commit.step, ".npz"), commit.values)


def steps(folder: Path) -> list[int]:
    """Return the steps that have a commit, valid or damaged, newest first."""
    names = [path.stem for path in (folder / FOLDER).glob("*.json")]
    return sorted((int(name) for name in names if re.fullmatch(r"\d{1,18}", name)), reverse=True)


def read(folder: Path, step: int) -> Commit:
    """Return the commit of a step; raise `Damaged` if it is not what was written."""
    path = _path(folder, step)
    content = files.check_digest(path, files.read_json(path))
    try:
        groups = {
            name: Group(int(group["length"]), _columns(group["columns"]))
            for name, group in content["groups"].items()
        }
        commit = Commit(**{**content, "groups": groups})
    except (TypeError, KeyError, ValueError, AttributeError):
        raise Damaged(f"{path} is damaged: its entries are not those of a commit.") from None
    if commit.step != step:
        raise Damaged(f"{path} is damaged: it belongs to step {commit.step}.")
    return commit


def _columns(content: dict[str, Any]) -> dict[str, Column]:
    columns = {}
    for name, (dtype, shape, *checked) in content.items():
        is_numeric = np.dtype(dtype).kind in "biuf"
        if not re.fullmatch(r"[\w-][\w.-]*", name) or not is_numeric or min(shape, default=0) < 0:
            raise ValueError(name)
        if not all(value is None or isinstance(value, int) for value in checked):
            raise ValueError(name)
        columns[name] = Column(str(np.dtype(dtype)), tuple(map(int, shape)), *checked)
    return columns


def delete(folder: Path, step: int) -> None:
    """Remove a commit, first of all its validity."""
    for suffix in (".json", ".npz"):
        _path(folder, step, suffix).unlink(missing_ok=True)


def _path(folder: Path, step: int, suffix: str = ".json") -> Path:
    return folder / FOLDER / f"{step}{suffix}"
