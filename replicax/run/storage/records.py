"""Records of a run, in memory or in a folder, behind one reader.

Five groups grow along their first axis: `steps` (rung_of), `draws` (parameters and energies of
the recorded rungs), `history` (ladder, buffer and counts), `epochs` (evaluations of networks) and
`networks` (those of an average, which are kept to predict with).
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from replicax.run import processes
from replicax.run.storage.metadata import Metadata

# The groups, each with its growing axis.
GROUPS = {
    "steps": "step",
    "draws": "draw",
    "history": "point",
    "epochs": "epoch",
    "networks": "network",
}
Arrays = dict[str, np.ndarray]


class Records:
    """Records in memory; the reader that both kinds share."""

    folder: Path | None = None
    metadata: Metadata

    def __init__(self, shared: Path | None = None) -> None:
        self.shared = shared  # the folder in which all processes write their checkpoints
        self._pending: dict[str, list[Arrays]] = {group: [] for group in GROUPS}
        self.final: Arrays = {}

    def append(self, group: str, arrays: Arrays) -> None:
        """Add rows; all arrays share the length of their first axis."""
        if len(next(iter(arrays.values()))):
            self._pending[group].append({name: storable(x) for name, x in arrays.items()})

    @property
    def pending_bytes(self) -> int:
        rows = (rows for group in self._pending.values() for rows in group)
        return sum(x.nbytes for arrays in rows for x in arrays.values())

    def keep(self, final: Arrays) -> None:
        """Keep everything appended so far, with the `final` values that belong to it."""
        self.final = final
        for group, parts in self._pending.items():
            if len(parts) > 1:
                self._pending[group] = [_join(parts)]

    def take_pending(self) -> dict[str, Arrays]:
        """Remove and return the rows that were appended, by group."""
        taken = {group: _join(parts) for group, parts in self._pending.items() if parts}
        self._pending = {group: [] for group in GROUPS}
        return taken

    def names(self, group: str) -> list[str]:
        """Return the variables of a group."""
        parts = self._pending[group]
        return list(parts[0]) if parts else []

    def read(self, group: str, name: str) -> np.ndarray:
        """Return all rows of one variable, first axis growing."""
        parts = [rows[name] for rows in self._pending[group]]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def length(self, group: str) -> int:
        """Return the number of rows of a group."""
        names = self.names(group)
        return len(self.read(group, names[0])) if names else 0

    def write_metadata(self, metadata: Metadata) -> None:
        self.metadata = metadata


@contextlib.contextmanager
def records_of_run(run_dir: str | Path | None) -> Iterator[Records]:
    """Yield the records of a run that begins, in memory or in a folder; of several processes the
    first alone writes into the folder."""
    if run_dir is None:
        yield Records()
    elif processes.is_first():
        from replicax.run.storage.folder import new_folder  # which imports this file

        with new_folder(Path(run_dir)) as records:
            yield records
    else:
        yield Records(Path(run_dir))


def _join(parts: list[Arrays]) -> Arrays:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([rows[name] for rows in parts]) for name in parts[0]}


def storable(array: Any) -> np.ndarray:
    """Widen bfloat16 and its kin, which are no NumPy types of their own."""
    array = np.asarray(array)
    return array if array.dtype.kind in "biuf?" and array.dtype.isbuiltin else array.astype("f4")
