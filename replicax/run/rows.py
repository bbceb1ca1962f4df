"""Rows where they are, and sums over all of them: arrays in memory or mapped from a disk, a source
of blocks, partitions of Dask.

A sweep reads each block of rows once and evaluates many points on it. All blocks of a run have one
shape, the last of them filled up and masked. Differences to one common centre are taken row by row
and added up over the rows of a tile, in the precision of the device; these partial sums are added
on the host, in double precision and in the order of the rows. So a sum does not depend on how many
threads, devices or workers share it.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm.tiles import largest_value
from replicax.errors import check_kept, check_numeric, is_whole, show
from replicax.run.batches import Batches
from replicax.run.compiled_once import compiled_once
from replicax.run.storage.metadata import BatchSpec

_BLOCK_ROWS, _BLOCK_BYTES = 2**15, 2**25  # of a block, at most
_TILE_BYTES = 2**18  # of the largest intermediate value of a tile
_FEWEST, _MOST = 16, 2**12  # rows of a tile
_AHEAD = 2  # blocks that wait for each thread
_COMPILED = 8  # functions that are kept compiled
_ITERATED = "Give an object whose iter() starts again, such as a list or a class with __iter__."

Seen = Callable[[int], None]  # told how many more rows are done; may raise


class Sums(NamedTuple):
    """Sums over all rows at points (m, d)."""

    apart: Any  # log likelihoods minus that of the centre         shape (m,)
    centre: Any  # log likelihood of the centre                    shape ()
    gradient: Any = None  # of derivatives: of each point          shape (m, d)
    hessian: Any = None  #                                         shape (m, d, d)


@dataclass(frozen=True)
class Job:
    """What a sweep sums over the rows: differences to a centre, and derivatives if wanted."""

    of_rows: Callable[[Array, Any], Array]  # flattened point, rows -> (row,)
    derivatives: str | None = None  # how the second ones are computed: "forward" or "reverse"

    def of_tile(self, tile: Any, mask: Array, centre: Array, points: Array) -> Sums:
        """Return the sums over the rows of a tile that are not masked."""
        at_centre = self.of_rows(centre, tile)
        whole = jnp.sum(jnp.where(mask, at_centre, 0.0))

        def apart(point: Array) -> Array:
            return jnp.sum(jnp.where(mask, self.of_rows(point, tile) - at_centre, 0.0))

        if self.derivatives is None:
            return Sums(jax.vmap(apart)(points), whole)
        second = jax.jacfwd if self.derivatives == "forward" else jax.jacrev
        both = jax.vmap(jax.value_and_grad(apart))(points)
        return Sums(both[0], whole, both[1], jax.vmap(second(jax.grad(apart)))(points))


@lru_cache(_COMPILED)
def _compiled(job: Job, tile_rows: int) -> Callable:
    """Return `sums(block, count, centre, points)`, compiled: by tile, derivatives of all of it."""

    def sums(block: Any, count: Array, centre: Array, points: Array) -> Sums:
        size = jax.tree.leaves(block)[0].shape[0]
        tiles = jax.tree.map(lambda leaf: leaf.reshape(-1, tile_rows, *leaf.shape[1:]), block)
        masks = (jnp.arange(size) < count).reshape(-1, tile_rows)
        of_tile = lambda part: job.of_tile(part[0], part[1], centre, points)  # noqa: E731
        if job.derivatives is None:
            return jax.lax.map(of_tile, (tiles, masks))
        zeros = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype),
            jax.eval_shape(of_tile, jax.tree.map(lambda x: x[0], (tiles, masks))),
        )
        add = lambda total, part: (jax.tree.map(jnp.add, total, of_tile(part)), None)  # noqa: E731
        total, _ = jax.lax.scan(add, zeros, (tiles, masks))
        return jax.tree.map(lambda x: x[None], total)

    return compiled_once(sums)


class Plan(NamedTuple):
    """The shapes of a sweep, which are the same wherever the rows are."""

    block_rows: int
    tile_rows: int


def plan_of(
    job: Job, num_rows: int, few: Any, d: int, num_points: int, most: int | None = None
) -> Plan:
    """Return the shapes of a sweep of so many points over rows like `few`, of which at most `most`
    are read at once."""
    size = min(len(jax.tree.leaves(few)[0]), 64)
    some = jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype), few)
    bytes_per_row = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(some)) // size
    point = jax.ShapeDtypeStruct((d,), jnp.float32)
    largest = num_points * largest_value(job.of_rows, point, some) / size
    if job.derivatives is not None:
        largest *= d
    tile = int(np.clip(_TILE_BYTES / max(largest, 1), _FEWEST, _MOST))
    tile = 2 ** int(np.log2(min(tile, most or tile)))
    if most is not None:
        return Plan(most // tile * tile, tile)
    block = min(_BLOCK_ROWS, max(_BLOCK_BYTES // bytes_per_row, _FEWEST), num_rows)
    return Plan(max(tile, 2 ** int(np.ceil(np.log2(block)))), tile)


class Rows:
    """The interface of rows wherever they are."""

    num_rows: int

    def some(self, count: int) -> Any:
        """Return about `count` rows in memory, evenly spaced."""
        raise NotImplementedError

    def sums(
        self, job: Job, plan: Plan, centre: np.ndarray, points: np.ndarray, seen: Seen, devices: Any
    ) -> Sums:
        """Return sums over all rows, in double precision; `seen` is told of rows that are done."""
        raise NotImplementedError

    def _spaced(self, count: int) -> np.ndarray:
        """Return the numbers of `count` rows, or of all, from the first to near the last."""
        count = min(count, self.num_rows)
        return np.arange(count) * self.num_rows // max(count, 1)


class Blocks(Rows):
    """Rows that this process reads block by block."""

    def blocks(self, size: int) -> Iterator[Any]:
        """Yield all rows in their order, `size` at a time, the last ones fewer."""
        raise NotImplementedError

    def sums(
        self, job: Job, plan: Plan, centre: np.ndarray, points: np.ndarray, seen: Seen, devices: Any
    ) -> Sums:
        function = _compiled(job, plan.tile_rows)
        devices = list(devices or [None])
        threads = max(len(devices), _num_threads() if devices[0] is None else 1)
        given = [jax.device_put((centre, points), device) for device in devices]

        def one(number: int, block: Any) -> tuple[int, Sums]:
            count = len(jax.tree.leaves(block)[0])
            place = number % len(devices)
            if count < plan.block_rows:
                block = jax.tree.map(lambda leaf: _filled(leaf, plan.block_rows), block)
            block = jax.device_put(block, devices[place])
            sums = function(block, np.int32(count), *given[place])
            return count, jax.tree.map(lambda x: np.asarray(x).sum(axis=0, dtype=float), sums)

        waiting: deque[Future] = deque()
        total: Any = None
        pool = ThreadPoolExecutor(threads, "replicax-rows")
        try:
            for number, block in enumerate(self.blocks(plan.block_rows)):
                waiting.append(pool.submit(one, number, block))
                # The first one compiles.
                if number == 0 or len(waiting) > _AHEAD * threads:
                    total = _added(total, waiting.popleft(), seen)
            while waiting:
                total = _added(total, waiting.popleft(), seen)
        finally:
            pool.shutdown(cancel_futures=True)
        return total


def _added(total: Any, future: Future, seen: Seen) -> Any:
    count, sums = future.result()
    seen(count)
    return sums if total is None else jax.tree.map(np.add, total, sums)


def _num_threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _filled(leaf: np.ndarray, size: int) -> np.ndarray:
    """Return a block filled up with its last row."""
    return np.concatenate([leaf, np.repeat(leaf[-1:], size - len(leaf), axis=0)])


@dataclass(frozen=True)
class ArrayRows(Blocks):
    """Rows of arrays in memory, or mapped from a disk."""

    data: Any  # pytree of NumPy arrays, leading axis: row

    @property
    def num_rows(self) -> int:  # type: ignore[override]
        return len(jax.tree.leaves(self.data)[0])

    def some(self, count: int) -> Any:
        places = self._spaced(count)
        return jax.tree.map(lambda leaf: np.array(leaf[places]), self.data)

    def blocks(self, size: int) -> Iterator[Any]:
        for begin in range(0, self.num_rows, size):
            yield jax.tree.map(lambda leaf, at=begin: leaf[at : at + size], self.data)


@dataclass(eq=False)
class SourceRows(Blocks):
    """Rows of a source: an object whose iter() gives blocks of rows, of any sizes."""

    source: Any
    given: int | None = None  # how many there are, if it is known

    @cached_property
    def num_rows(self) -> int:  # type: ignore[override]
        if self.given is not None:
            return self.given
        return sum(len(jax.tree.leaves(block)[0]) for block in self._read())

    def _read(self) -> Iterator[Any]:
        number = -1
        for number, block in enumerate(iter(self.source)):
            leaves, structure = jax.tree.flatten(block)
            name = f"Block {number} of the source"
            check_numeric(name, leaves)
            leaves = [np.array(leaf) for leaf in leaves]  # a source may write over its own
            if number == 0:
                check_kept(name, leaves)
            if len({leaf.shape[:1] for leaf in leaves}) != 1 or not leaves[0].ndim:
                shapes = [leaf.shape for leaf in leaves]
                raise ValueError(f"{name} has arrays of shapes {shapes}; all need the same rows.")
            yield structure.unflatten(leaves)
        if number < 0:
            raise ValueError(
                f"The source gives no block, or none when it is read again. {_ITERATED}"
            )

    def some(self, count: int) -> Any:
        places, begin, taken = self._spaced(count), 0, []
        for block in self._read():
            end = begin + len(jax.tree.leaves(block)[0])
            at = places[(begin <= places) & (places < end)] - begin
            taken.append(jax.tree.map(lambda leaf, at=at: leaf[at], block))
            begin = end
        if begin != self.num_rows:  # which is what the user said
            raise ValueError(
                f"num_rows is {self.given}, and the source has {begin} rows: write that."
            )
        return jax.tree.map(lambda *parts: np.concatenate(parts), *taken)

    def blocks(self, size: int) -> Iterator[Any]:
        rest: Any = None
        for block in self._read():
            if rest is not None:
                block = jax.tree.map(lambda *parts: np.concatenate(parts), rest, block)
            count = len(jax.tree.leaves(block)[0])
            for begin in range(0, count - size + 1, size):
                yield jax.tree.map(lambda leaf, at=begin: leaf[at : at + size], block)
            rest = jax.tree.map(lambda leaf, at=count // size * size: leaf[at:], block)
        if rest is not None and len(jax.tree.leaves(rest)[0]):
            yield rest


@dataclass(eq=False)
class DaskRows(Rows):
    """Rows of Dask arrays, or of a Dask dataframe, as dict of its columns. Each partition is
    evaluated on the worker that holds it, and the numbers of the points come back."""

    partitions: list[Any]  # delayed pytrees of arrays

    @cached_property
    def _lengths(self) -> list[int]:
        from dask.base import compute
        from dask.delayed import delayed

        count = delayed(_length, pure=True)
        return list(compute(*(count(part) for part in self.partitions)))

    @property
    def num_rows(self) -> int:  # type: ignore[override]
        return sum(self._lengths)

    def some(self, count: int) -> Any:
        from dask.base import compute
        from dask.delayed import delayed

        places, take = self._spaced(count), delayed(_taken, pure=True)
        edges = np.searchsorted(places, np.cumsum([0, *self._lengths]))
        begins = np.cumsum([0, *self._lengths[:-1]])
        parts = [
            take(part, places[first:last] - begin)
            for part, first, last, begin in zip(self.partitions, edges, edges[1:], begins)
        ]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *compute(*parts))

    def sums(
        self, job: Job, plan: Plan, centre: np.ndarray, points: np.ndarray, seen: Seen, devices: Any
    ) -> Sums:
        import cloudpickle
        from dask.base import compute
        from dask.delayed import delayed

        seen(0)
        text = delayed(cloudpickle.dumps(job), pure=True)
        given = delayed((plan, np.asarray(centre), np.asarray(points)), pure=True)
        one = delayed(_of_partition, pure=True)
        filled = (part for part, length in zip(self.partitions, self._lengths) if length)
        parts = compute(*(one(text, part, given) for part in filled))
        total = parts[0]
        for part in parts[1:]:
            total = jax.tree.map(np.add, total, part)
        seen(self.num_rows)
        return total


@lru_cache(_COMPILED)
def _unpickled(text: bytes) -> Job:
    """Return the same object for the same text, so that a worker compiles it once."""
    import cloudpickle

    return cloudpickle.loads(text)


def _of_partition(text: bytes, rows: Any, given: tuple[Plan, np.ndarray, np.ndarray]) -> Sums:
    plan, centre, points = given
    return ArrayRows(_columns(rows)).sums(
        _unpickled(text), plan, centre, points, lambda count: None, None
    )


def _columns(rows: Any) -> Any:
    """Return the columns of a data frame by name; other rows as they are."""
    return {name: rows[name].to_numpy() for name in rows.columns} if _is_frame(rows) else rows


def _is_frame(rows: Any) -> bool:
    return hasattr(rows, "columns") and hasattr(rows, "dtypes")


def _length(rows: Any) -> int:
    return len(jax.tree.leaves(_columns(rows))[0])


def _taken(rows: Any, places: np.ndarray) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf[places]), _columns(rows))


def is_dask(data: Any) -> bool:
    """Return whether all data are Dask collections, without importing Dask."""
    leaves = jax.tree.leaves(data)
    return bool(leaves) and all(hasattr(leaf, "__dask_graph__") for leaf in leaves)


def as_dask_rows(data: Any) -> DaskRows:
    """Return the partitions of Dask arrays with rows on their first axis, or of a dataframe."""
    from dask.delayed import delayed

    if _is_frame(data):
        return DaskRows(list(data.to_delayed()))
    leaves, structure = jax.tree.flatten(data)
    if any(_is_frame(leaf) or not hasattr(leaf, "rechunk") for leaf in leaves):
        raise ValueError(
            f"data holds {show(leaves[0])}; give Dask arrays with rows on their first axis, or one "
            "Dask dataframe, whose columns log_likelihood sees as a dict of arrays."
        )
    first = leaves[0].chunks[0]
    aligned = [
        leaf.rechunk({0: first, **dict.fromkeys(range(1, leaf.ndim), -1)}) for leaf in leaves
    ]
    parts = zip(*(leaf.to_delayed().ravel() for leaf in aligned), strict=True)
    return DaskRows([delayed(structure.unflatten(part)) for part in parts])


@dataclass(eq=False)
class Elsewhere(Batches):
    """Rows that are not arrays in memory, all of them: only sweeps reach them."""

    rows: Rows

    data: ClassVar[Any] = None

    @property
    def num_rows(self) -> int:
        return self.rows.num_rows

    def describe(self) -> BatchSpec:
        return BatchSpec(f"bayesian, {type(self.rows).__name__}", self.num_rows, self.num_rows)


def as_source_rows(data: Any, num_rows: Any) -> SourceRows:
    """Return a source of blocks of rows, checked; without `num_rows` they are counted."""
    if not hasattr(data, "__iter__") or isinstance(data, str | bytes | dict | tuple):
        raise ValueError(
            f"num_rows is given, and data is {show(data)}: give a source, whose iter() gives "
            "blocks of rows, or arrays without num_rows."
        )
    if hasattr(data, "__next__"):
        raise ValueError(f"data is an iterator, which is read once alone. {_ITERATED}")
    if num_rows is not None and (not is_whole(num_rows) or num_rows < 1):
        raise ValueError(f"num_rows is {show(num_rows)}; give the number of all rows, or leave it.")
    return SourceRows(data, num_rows)
