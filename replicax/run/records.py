"""What a run leaves behind, in memory or in a folder, behind one reader.

Four groups grow along their first axis: `steps` (rung_of), `draws` (parameters and energies of
the recorded rungs), `history` (ladder, buffer and counts) and `epochs` (how the networks did in
their tests). In a folder they are zarr groups written through xarray, or one `.npy` per variable
and flush where zarr is not installed.
"""

import importlib.util
import json
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

# The groups, each with its growing axis.
GROUPS = {"steps": "step", "draws": "draw", "history": "point", "epochs": "epoch"}
Arrays = dict[str, np.ndarray]


class Records:
    """Records in memory; the reader that both kinds share."""

    def __init__(self) -> None:
        self._pending: dict[str, list[Arrays]] = {group: [] for group in GROUPS}
        self.final: Arrays = {}
        self.meta: dict[str, Any] = {}

    def append(self, group: str, arrays: Arrays) -> None:
        """Add rows; all arrays share the length of their first axis."""
        if len(next(iter(arrays.values()))):
            self._pending[group].append({name: _storable(x) for name, x in arrays.items()})

    @property
    def pending_bytes(self) -> int:
        rows = (rows for group in self._pending.values() for rows in group)
        return sum(x.nbytes for arrays in rows for x in arrays.values())

    def flush(self, final: Arrays) -> None:
        """Make everything appended so far last, with the `final` values that belong to it."""
        self.final = final
        for group, parts in self._pending.items():
            if len(parts) > 1:
                self._pending[group] = [_join(parts)]

    def names(self, group: str) -> list[str]:
        parts = self._pending[group]
        return list(parts[0]) if parts else []

    def read(self, group: str, name: str) -> np.ndarray:
        """All rows of one variable, first axis growing."""
        parts = [rows[name] for rows in self._pending[group]]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def length(self, group: str) -> int:
        names = self.names(group)
        return len(self.read(group, names[0])) if names else 0

    def save(self, folder: Path) -> None:
        """Copy everything into a new folder that `open_records` reads."""
        copy = create_records(folder)
        for group in GROUPS:
            if self.names(group):
                copy.append(group, {name: self.read(group, name) for name in self.names(group)})
        copy.write_meta(self.meta)
        copy.flush(self.final)

    def write_meta(self, meta: dict[str, Any]) -> None:
        self.meta = meta

    def truncate(self, lengths: dict[str, int]) -> None:
        """Forget rows beyond `lengths`: those written after the checkpoint a run resumes from."""
        for group, length in lengths.items():
            if self.names(group):
                rows = {name: self.read(group, name)[:length] for name in self.names(group)}
                self._pending[group] = [rows] if length else []


class FolderRecords(Records, ABC):
    """Records in a run folder; `flush` moves what is pending to disk."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def write_meta(self, meta: dict[str, Any]) -> None:
        super().write_meta(meta)
        _write_whole(self.folder / "run.json", json.dumps(meta, indent=1).encode())

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

    @abstractmethod
    def _write(self, group: str, arrays: Arrays) -> None:
        """Add rows to a group on disk."""


class ZarrRecords(FolderRecords):
    """One zarr group per group of records, grown through xarray."""

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


class NpyRecords(FolderRecords):
    """One `.npy` per variable and flush, for machines without zarr."""

    def _parts(self, group: str, name: str | None = None) -> list[Path]:
        found = sorted((self.folder / "records" / group).glob("*.npy"))
        return [path for path in found if name is None or path.name.split(".", 1)[1][:-4] == name]

    def _write(self, group: str, arrays: Arrays) -> None:
        folder = self.folder / "records" / group
        folder.mkdir(parents=True, exist_ok=True)
        start = self.length(group)
        for name, array in arrays.items():
            np.save(folder / f"{start:012d}.{name}.npy", array)

    def names(self, group: str) -> list[str]:
        return sorted({path.name.split(".", 1)[1][:-4] for path in self._parts(group)})

    def read(self, group: str, name: str) -> np.ndarray:
        parts = [np.load(path, mmap_mode="r") for path in self._parts(group, name)]
        return np.concatenate(parts)

    def length(self, group: str) -> int:
        names = self.names(group)
        parts = self._parts(group, names[0]) if names else []
        return sum(len(np.load(path, mmap_mode="r")) for path in parts)

    def truncate(self, lengths: dict[str, int]) -> None:
        for group, length in lengths.items():
            for path in self._parts(group):
                kept = length - int(path.name.split(".", 1)[0])
                rows = np.load(path)
                if kept <= 0:
                    path.unlink()
                elif kept < len(rows):
                    np.save(path, rows[:kept])


def create_records(folder: Path | None, with_zarr: bool | None = None) -> Records:
    """New, empty records: in memory, or in a folder that holds no run yet."""
    if folder is None:
        return Records()
    if (folder / "run.json").exists():
        raise ValueError(
            f"{folder} already holds a run; write rx.resume({str(folder)!r}, target) to continue "
            "it, or choose another run_dir."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"{folder} is or lies below a file; run_dir must be a folder.") from None
    with_zarr = _has_zarr() if with_zarr is None else with_zarr
    return (ZarrRecords if with_zarr else NpyRecords)(folder)


def open_records(folder: str | Path) -> FolderRecords:
    """The records of a run folder."""
    folder = Path(folder)
    if not (folder / "run.json").is_file():
        raise ValueError(f"{folder} is not a run folder: there is no run.json in it.")
    has_npy = (folder / "records").exists()
    kind = NpyRecords if has_npy or not _has_zarr() else ZarrRecords
    records: FolderRecords = kind(folder)
    records.meta = json.loads((folder / "run.json").read_text())
    if (folder / "final.npz").exists():
        with np.load(folder / "final.npz") as final:
            records.final = dict(final)
    return records


def _has_zarr() -> bool:
    return importlib.util.find_spec("zarr") is not None


def _join(parts: list[Arrays]) -> Arrays:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([rows[name] for rows in parts]) for name in parts[0]}


def _storable(array: Any) -> np.ndarray:
    """bfloat16 and its kin are no NumPy types of their own: widen them."""
    array = np.asarray(array)
    return array if array.dtype.kind in "biuf?" and array.dtype.isbuiltin else array.astype("f4")


def _axes(name: str, array: np.ndarray) -> list[str]:
    return [f"{name}_{axis}" for axis in range(1, array.ndim)]


def _chunks(array: np.ndarray) -> tuple[int, ...]:
    """About a megabyte, so that appending rewrites little; at least 1 along every axis, which may
    be empty: a single replica has no pairs."""
    row = max(1, array[:1].nbytes)
    return (max(1, 2**20 // row), *(max(1, size) for size in array.shape[1:]))


def _write_whole(path: Path, content: bytes) -> None:
    """Write and rename, so that a reader never sees half a file."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
