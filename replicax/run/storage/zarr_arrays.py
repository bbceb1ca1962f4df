"""Growing arrays of a run folder in zarr: appended, cut and read with their checksums checked."""

import itertools
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from replicax.run.storage import files
from replicax.run.storage.commits import Column, Group, checksum
from replicax.run.storage.files import Damaged

_CHUNK_BYTES = 2**20
_LARGEST_CHUNK = 2**30  # Blosc takes less than 2 GiB
_BLOSC_HEADER = 16  # bytes; 4 to 7: the number of bytes that it holds, little-endian


def append(store: Path, group: str, axis: str, rows: dict[str, np.ndarray]) -> None:
    """Append rows to the arrays of a group, which are made where there are none, and wait until
    they are on the disk."""
    import zarr

    opened = zarr.open_group(store, mode="a").require_group(group)
    for name, values in rows.items():
        array: Any = opened.get(name)
        if array is None:
            array = _create(opened, name, axis, values)
        array = array.with_config({"write_empty_chunks": True})  # one that is missing was lost
        length = array.shape[0]
        array.append(values)
        _sync(store / group / name, array, length)


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


def cut(store: Path, groups: dict[str, Group]) -> None:
    """Drop all rows, arrays and groups that are not among `groups`."""
    import zarr

    for path in store.rglob("*.partial"):  # of a write that was cut off
        path.unlink(missing_ok=True)
    for path in store.iterdir() if store.exists() else ():
        if path.is_dir() and path.name not in groups:
            shutil.rmtree(path)
    for name, group in groups.items():
        for path in (store / name).iterdir():
            if path.is_dir() and path.name not in group.columns:
                shutil.rmtree(path)
        try:
            opened: Any = zarr.open_group(store, mode="a").require_group(name)
            for column in group.columns:
                array = opened[column]
                if array.shape[0] > group.length:
                    array.resize((group.length, *array.shape[1:]))
        except Exception as error:
            raise _damaged(store / name, error) from None


def read(store: Path, group: str, name: str, length: int, column: Column) -> np.ndarray:
    """Return the first `length` rows of an array that has rows like `column`."""
    import zarr

    place = store / group / name
    try:
        array: Any = zarr.open_array(store, path=f"{group}/{name}", mode="r")
        found = Column(str(array.dtype), tuple(array.shape[1:]), column.checksum)
        if found != column or array.shape[0] < length:
            raise Damaged(
                f"{place} is damaged: it has {array.shape[0]} rows of {found.shape} {found.dtype}, "
                f"and the run has {length} of {column.shape} {column.dtype}."
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


def _damaged(place: Path, error: Exception) -> Damaged:
    reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return Damaged(f"{place} is damaged or missing: {reason.rstrip('.')}.")


def _check_chunk(path: Path, num_bytes: int) -> None:
    """Raise unless the file of a chunk is there and says that it holds `num_bytes`, so that none
    can fill the memory."""
    try:
        with path.open("rb") as file:
            header = file.read(_BLOSC_HEADER)
    except OSError:
        raise Damaged(f"{path} is missing: part of the records was lost.") from None
    if int.from_bytes(header[4:8], "little") != num_bytes or num_bytes > 2 * _LARGEST_CHUNK:
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
