"""Records of a run, in memory or in a folder, behind one reader.

Four groups grow along their first axis: `steps` (rung_of), `draws` (parameters and energies of
the recorded rungs), `history` (ladder, buffer and counts) and `epochs` (evaluations of networks).
In a folder they are zarr groups written through xarray.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from replicax.run.metadata import FILE, Metadata, read_metadata

# The groups, each with its growing axis.
GROUPS = {"steps": "step", "draws": "draw", "history": "point", "epochs": "epoch"}
Arrays = dict[str, np.ndarray]


class Records:
    """Records in memory; the reader that both kinds share."""

    folder: Path | None = None
    metadata: Metadata

    def __init__(self) -> None:
        self._pending: dict[str, list[Arrays]] = {group: [] for group in GROUPS}
        self.final: Arrays = {}

    def append(self, group: str, arrays: Arrays) -> None:
        """Add rows; all arrays share the length of their first axis."""
        if len(next(iter(arrays.values()))):
            self._pending[group].append({name: _storable(x) for name, x in arrays.items()})

    @property
    def pending_bytes(self) -> int:
        rows = (rows for group in self._pending.values() for rows in group)
        return sum(x.nbytes for arrays in rows for x in arrays.values())

    def flush(self, final: Arrays) -> None:
        """Keep everything appended so far, with the `final` values that belong to it."""
        self.final = final
        for group, parts in self._pending.items():
            if len(parts) > 1:
                self._pending[group] = [_join(parts)]

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

    def save(self, folder: Path) -> None:
        """Copy everything into a new folder that `open_records` reads."""
        copy = create_records(folder)
        for group in GROUPS:
            if self.names(group):
                copy.append(group, {name: self.read(group, name) for name in self.names(group)})
        copy.write_metadata(self.metadata)
        copy.flush(self.final)

    def write_metadata(self, metadata: Metadata) -> None:
        self.metadata = metadata


class FolderRecords(Records):
    """Records in a run folder, one zarr group per group; `flush` moves pending rows to disk."""

    folder: Path

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def write_metadata(self, metadata: Metadata) -> None:
        super().write_metadata(metadata)
        _write_whole(self.folder / FILE, metadata.to_json().encode())

    def flush(self, final: Arrays) -> None:
        for group, parts in self._pending.items():
            if parts:
                self._write(group, _join(parts))
                parts.clear()
        self.final = final
        temporary = self.folder / "final.tmp.npz"
        values: Any = {name: _storable(x) for name, x in final.items()}
        np.savez(temporary, **values)
        temporary.replace(self.folder / "final.npz")

    @property
    def _store(self) -> Path:
        return self.folder / "records.zarr"

    def _exists(self, group: str) -> bool:
        return (self._store / group).exists()

    def _dataset(self, group: str) -> Any:
        import xarray

        return xarray.open_zarr(self._store, group=group, consolidated=False)

    def _write(self, group: str, arrays: Arrays) -> None:
        import xarray

        axis = GROUPS[group]
        data = {name: ((axis, *_axes(name, x)), x) for name, x in arrays.items()}
        options: dict[str, Any] = (
            {"append_dim": axis}
            if self._exists(group)
            else {"encoding": {name: {"chunks": _chunks(x)} for name, x in arrays.items()}}
        )
        xarray.Dataset(data).to_zarr(
            self._store, group=group, mode="a", consolidated=False, **options
        )

    def names(self, group: str) -> list[str]:
        return list(self._dataset(group).data_vars) if self._exists(group) else []

    def read(self, group: str, name: str) -> np.ndarray:
        return self._dataset(group)[name].to_numpy()

    def length(self, group: str) -> int:
        return self._dataset(group).sizes[GROUPS[group]] if self._exists(group) else 0

    def truncate(self, lengths: dict[str, int]) -> None:
        """Drop rows beyond `lengths`: those written after the checkpoint a run resumes from."""
        import zarr

        for group, length in lengths.items():
            if not self._exists(group) or self.length(group) <= length:
                continue
            if length == 0:
                shutil.rmtree(self._store / group)
                continue
            opened: Any = zarr.open_group(self._store, path=group, mode="r+")
            for name in self.names(group):
                array = opened[name]
                array.resize((length, *array.shape[1:]))


def create_records(folder: str | Path | None) -> Records:
    """Return new, empty records: in memory, or in a folder that holds no run yet."""
    if folder is None:
        return Records()
    folder = Path(folder)
    if (folder / FILE).exists():
        raise ValueError(
            f"{folder} already holds a run; write rx.resume({str(folder)!r}, target) to continue "
            "it, or choose another run_dir."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"{folder} is or lies below a file; run_dir must be a folder.") from None
    return FolderRecords(folder)


def open_records(folder: str | Path) -> FolderRecords:
    """Return the records of a run folder."""
    records = FolderRecords(Path(folder))
    records.metadata = read_metadata(records.folder)
    if (records.folder / "final.npz").exists():
        with np.load(records.folder / "final.npz") as final:
            records.final = dict(final)
    return records


def _join(parts: list[Arrays]) -> Arrays:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([rows[name] for rows in parts]) for name in parts[0]}


def _storable(array: Any) -> np.ndarray:
    """Widen bfloat16 and its kin, which are no NumPy types of their own."""
    array = np.asarray(array)
    return array if array.dtype.kind in "biuf?" and array.dtype.isbuiltin else array.astype("f4")


def _axes(name: str, array: np.ndarray) -> list[str]:
    return [f"{name}_{axis}" for axis in range(1, array.ndim)]


def _chunks(array: np.ndarray) -> tuple[int, ...]:
    """Return chunks of about a megabyte, so that appending rewrites little; at least 1 along every
    axis, which may be empty: a single replica has no pairs."""
    row = max(1, array[:1].nbytes)
    return (max(1, 2**20 // row), *(max(1, size) for size in array.shape[1:]))


def _write_whole(path: Path, content: bytes) -> None:
    """Write and rename, so that a reader never sees half a file."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
