"""Growing arrays of a run folder in zarr: appended, cut and read with their checksums checked."""

import contextlib
import itertools
import math
import os
import re
import shutil
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from replicax.errors import check_memory_for
from replicax.run.storage import files
from replicax.run.storage.files import Damaged

_CHUNK_BYTES = 2**20
_LARGEST_CHUNK = 2**30  # Blosc takes less than 2 GiB
_BLOSC_HEADER = 16  # bytes; 4 to 7: the number of bytes that it holds, little-endian
_SPARE = 2**12  # bytes that a chunk may take beside what it holds: header, checksum, blocks
_LAYOUT_BYTES = 2**16  # the largest zarr.json
_CODECS = ["bytes", "blosc", "crc32c"]
_AHEAD = 2**16  # chunks that a write which was cut off can have announced and not made
_PARTIAL = re.compile(r"(zarr|c(\.\d+)*)\.[0-9a-f]{32}\.partial")  # of a write that was cut off
_OWN = re.compile(rf"zarr\.json|c(\.\d+)*|{_PARTIAL.pattern}")  # files of an array


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


def checksum(rows: np.ndarray, before: int = 0) -> int:
    """Return the CRC-32 of rows that follow others."""
    return zlib.crc32(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data, before)


def append(
    store: Path, group: str, axis: str, rows: dict[str, np.ndarray], columns: dict[str, Column]
) -> None:
    """Append rows to the arrays of a group, which begin where there are no `columns` yet, and wait
    until they are on the disk."""
    import zarr

    _check_group(store)
    _check_group(store / group)
    opened = zarr.open_group(store, mode="a", use_consolidated=False).require_group(group)
    for name, values in rows.items():
        if os.path.lexists(store / group / name / "zarr.json"):
            column = columns.get(name, Column(str(values.dtype), values.shape[1:]))
            array = _opened(store, group, name, column, mode="r+")
            if name not in columns:  # of a run that was ended before its first commit
                array.resize((0, *values.shape[1:]))
        else:
            array = _create(opened, name, axis, values)
        array = array.with_config({"write_empty_chunks": True})  # one that is missing was lost
        length = array.shape[0]
        array.append(values)
        _sync(store / group / name, array, length)


def _check_group(place: Path) -> None:
    """Raise if a group that is there is none of ours: one can describe arrays on its own."""
    path = place / "zarr.json"
    if os.path.lexists(path):
        content = files.read_json(path, _LAYOUT_BYTES)
        if content.get("node_type") != "group" or content.get("consolidated_metadata"):
            raise Damaged(f"{path} is damaged: it is none that replicax writes.")


def _create(group: Any, name: str, axis: str, values: np.ndarray) -> Any:
    from zarr.codecs import BloscCodec, Crc32cCodec

    return group.create_array(
        name,
        shape=(0, *values.shape[1:]),
        chunks=chunk_shape(values.shape, values.dtype.itemsize),
        dtype=values.dtype,
        compressors=[BloscCodec(cname="zstd", clevel=3), Crc32cCodec()],
        fill_value=0,
        chunk_key_encoding={"name": "default", "separator": "."},
        dimension_names=[axis, *(f"{name}_{number}" for number in range(1, values.ndim))],
    )


def chunk_shape(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return chunks of about a megabyte, so that appending rewrites little: rows as long as they
    are not too large, with at least 1 along every axis, which may be empty."""
    row = [max(1, size) for size in shape[1:]]
    for axis in range(len(row)):
        while math.prod(row) * itemsize > _LARGEST_CHUNK and row[axis] > 1:
            row[axis] = -(-row[axis] // 2)
    return (max(1, _CHUNK_BYTES // (math.prod(row) * itemsize)), *row)


def cut(store: Path, groups: dict[str, Group], known: Collection[str]) -> None:
    """Drop all rows and groups that are not among `groups`; of what is beside them only arrays in
    `known` groups, since nothing else is ours. A group has the same arrays from its first row on.
    """
    _check_group(store)
    for name in known:
        place = store / name
        _check_group(place)
        for path in place.iterdir() if place.is_dir() else ():
            if name in groups:
                partial = path.iterdir() if path.name in groups[name].columns else ()
                for file in partial:
                    if _PARTIAL.fullmatch(file.name):
                        file.unlink(missing_ok=True)
            elif path.is_dir() and all(_OWN.fullmatch(file.name) for file in path.iterdir()):
                shutil.rmtree(path)
        if name not in groups:
            (place / "zarr.json").unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                place.rmdir()
    for name, group in groups.items():
        for column in group.columns:
            try:
                array = _opened(store, name, column, group.columns[column], mode="r+")
                if array.shape[0] > group.length:
                    array.resize((group.length, *array.shape[1:]))
            except Damaged:
                raise
            except Exception as error:  # zarr and its codecs raise of all kinds
                raise _damaged(store / name, error) from None


def read(store: Path, group: str, name: str, length: int, column: Column) -> np.ndarray:
    """Return the first `length` rows of an array that has rows like `column`."""
    place = files.below(store, group, name)
    row_bytes = math.prod(column.shape) * np.dtype(column.dtype).itemsize
    check_memory_for(str(place), length * row_bytes)  # zeros take hardly any room on the disk
    try:
        array = _opened(store, group, name, column, mode="r")
        if array.shape[0] < length:
            raise Damaged(
                f"{place} is damaged: it has {array.shape[0]} rows of {column.shape} "
                f"{column.dtype}, and the run has {length}."
            )
        for path, content in _chunks(place, array, 0, length):
            _check_chunk(path, content)
        rows = np.asarray(array[:length])
    except Damaged:
        raise
    except Exception as error:  # zarr and its codecs raise of all kinds
        raise _damaged(place, error) from None
    if column.checksum is not None and checksum(rows) != column.checksum:
        raise Damaged(f"{place} is damaged: its rows are not those that were written.")
    return rows


def _opened(store: Path, group: str, name: str, column: Column, mode: Any) -> Any:
    """Return an array whose zarr.json is one that `append` writes, for rows like `column`: others
    could name codecs that run code, chunks that fill the memory, or rows without end."""
    import zarr

    place = files.below(store, group, name)
    layout = files.read_json(place / "zarr.json", _LAYOUT_BYTES)
    found = (layout["data_type"], layout["shape"][1:])
    if found != (column.dtype, list(column.shape)):
        raise Damaged(
            f"{place} is damaged: its rows are {found[0]} of shape {found[1]}, and the run has "
            f"{column.dtype} of shape {list(column.shape)}."
        )
    rows, *others = layout["chunk_grid"]["configuration"]["chunk_shape"]
    row_bytes = math.prod(others) * np.dtype(column.dtype).itemsize
    announced = -(-layout["shape"][0] // rows)
    blosc = layout["codecs"][1]["configuration"]
    written = sum(1 for _ in place.iterdir())
    if (
        layout["zarr_format"] != 3
        or [codec["name"] for codec in layout["codecs"]] != _CODECS
        or blosc.get("typesize", 1) not in range(1, 256)
        or blosc.get("blocksize", 0) != 0
        or min([rows, *others]) < 1
        or any(part > max(1, size) for part, size in zip(others, column.shape, strict=True))
        or row_bytes > _LARGEST_CHUNK
        or rows * row_bytes > max(_CHUNK_BYTES, row_bytes)
        or announced > written + _AHEAD
    ):
        raise Damaged(f"{place} is damaged: its zarr.json is none that replicax writes.")
    return zarr.open_array(store, path=f"{group}/{name}", mode=mode, zarr_format=3)


def _damaged(place: Path, error: Exception) -> Damaged:
    reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    if isinstance(error, LookupError | TypeError | AttributeError):
        reason = "its zarr.json is none that replicax writes"
    return Damaged(f"{place} is damaged or missing: {reason.rstrip('.')}.")


def _check_chunk(path: Path, num_bytes: int) -> None:
    """Raise unless the file of a chunk is there and says that it holds `num_bytes`, so that none
    can fill the memory."""
    if not path.exists():
        raise Damaged(f"{path} is missing: part of the records was lost.")
    with files.open_regular(path, num_bytes + _SPARE) as file:
        header = file.read(_BLOSC_HEADER)
    if int.from_bytes(header[4:8], "little") != num_bytes:
        raise Damaged(f"{path} is damaged: it does not hold {num_bytes} bytes.")


def _chunks(place: Path, array: Any, start: int, stop: int) -> Any:
    """Yield file and size of the chunks with the rows from `start` to `stop`."""
    if stop <= start or 0 in array.shape[1:]:
        return
    rows, *others = array.chunks
    counts = [range(-(-size // part)) for size, part in zip(array.shape[1:], others, strict=True)]
    num_bytes = math.prod(array.chunks) * array.dtype.itemsize
    for place_of in itertools.product(range(start // rows, -(-stop // rows)), *counts):
        yield place / ".".join(("c", *map(str, place_of))), num_bytes


def _sync(place: Path, array: Any, start: int) -> None:
    for path, _ in _chunks(place, array, start, array.shape[0]):
        files.sync(path)
    for path in (place / "zarr.json", place, place.parent):
        files.sync(path)
