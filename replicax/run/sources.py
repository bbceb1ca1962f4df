"""Mini-batches of a source: data that need not fit into memory, read ahead in the order of the
source, epoch by epoch, and again from a stored place.
"""

import base64
import json
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm import randomness
from replicax.algorithm.energy_noise import FreshBatches
from replicax.algorithm.kernel import PyTree
from replicax.errors import check_function, check_kept, check_numeric, is_whole, show
from replicax.run.batches import Batches, Number, prepared
from replicax.run.storage.metadata import BatchSpec

_ITERATED = (
    "Give an object whose iter() starts a new epoch, such as a list, a loader, or an instance of "
    "a class with __iter__."
)
_END = object()  # in the place of a batch
_BYTES = "bytes"  # the key under which JSON holds bytes


class Place(NamedTuple):
    """A place in the stream of batches from which it can be read again."""

    number: int = 0  # batches before it, in all epochs
    epoch: int = 0
    batch: int = 0  # batches before it, in its epoch
    state: str | None = None  # of the iterator, as JSON, where it has one


class SourceReader:
    """The batches of a source as one stream, numbered from 0 on.

    One thread at a time uses the iterator: a worker that reads ahead, or the caller once the worker
    is done.
    """

    def __init__(
        self, source: Any, batch_size: int, check: Callable[[str, Any], Any] | None = None
    ) -> None:
        self.source, self.batch_size, self.check = source, batch_size, check
        self.number = 0  # of the first pending batch
        self.pending: list[Any] = []  # batches read and not yet used
        self.ending: str | None = None  # why there are no more batches
        self._epoch, self._batch = 0, 0  # where the iterator stands
        self._iterator: Iterator | None = None
        self._kind: Any = None  # containers, shapes and dtypes of the first batch
        self._places = [Place()]
        self._worker: ThreadPoolExecutor | None = None
        self._reading: Future | None = None

    def read(self, number: int, count: int) -> list[Any]:
        """Return up to `count` batches from `number` on, fewer where the source ends."""
        assert number == self.number, "the stream goes forward; go_to begins elsewhere"
        self._wait()
        self._read(count)
        return self.pending[:count]

    def forget(self, number: int) -> None:
        """Drop the batches before `number`; a run may still be saved where it last dropped some."""
        first = self.place(self.number)
        self._places = [place for place in self._places if place.number >= first.number]
        del self.pending[: number - self.number]
        self.number = number

    def read_ahead(self, count: int) -> None:
        """Begin to read, beside the caller, until `count` batches are pending."""
        self._wait()
        if len(self.pending) < count and self.ending is None:
            self._worker = self._worker or ThreadPoolExecutor(1, "replicax-source")
            self._reading = self._worker.submit(self._read, count)

    def close(self) -> None:
        """Wait until nothing is read any more; what failed beyond the run does not matter."""
        if self._worker is not None:
            self._worker.shutdown()
        self._worker = self._reading = None

    def place(self, number: int) -> Place:
        """Return the last known place up to `number`."""
        return [place for place in self._places if place.number <= number][-1]

    def go_to(self, place: Place, number: int) -> bool:
        """Go to `number`, by way of a place before it, unless the stream has been used; return
        whether the iterator took its state. Else batches of the place's epoch are dropped."""
        positioned = place.state is not None and self._has_state
        if positioned or place.epoch != self._epoch:  # else the batch that was looked at counts
            self._open(place.epoch)
            self.pending, self.number = [], place.number - place.batch
        if positioned:
            self._opened().set_state(_decoded(place.state))
            self._batch, self.number = place.batch, place.number
        self._drop(place.number)
        if self._epoch != place.epoch:
            raise ValueError(
                f"Epoch {place.epoch} of the source has fewer batches than when the run was "
                f"started, {place.batch} or more. Give the same source again."
            )
        self._drop(number)
        self.number = number
        self._places = [place._replace(state=place.state if positioned else None)]
        return positioned

    @property
    def _has_state(self) -> bool:
        iterator = self._opened()
        return hasattr(iterator, "get_state") and hasattr(iterator, "set_state")

    def _wait(self) -> None:
        if self._reading is not None:
            reading, self._reading = self._reading, None
            reading.result()

    def _read(self, count: int) -> None:
        """Read until `count` batches are pending, or the source ends."""
        if len(self.pending) >= count or self.ending is not None:
            return
        state = _encoded(self._opened().get_state()) if self._has_state else None
        number = self.number + len(self.pending)
        self._places.append(Place(number, self._epoch, self._batch, state))
        while len(self.pending) < count:
            batch = self._next()
            if batch is _END:
                return
            self.pending.append(self._checked(batch))

    def _drop(self, number: int) -> None:
        """Drop the batches before `number`, of which there may be fewer."""
        while self.number < number and self.ending is None:
            if self.pending:
                del self.pending[0]
            else:
                self._next()
            self.number += 1

    def _next(self) -> Any:
        """Return the next batch of this epoch or the one after it, or say why there is none."""
        batch = next(self._opened(), _END)
        if batch is _END and self._batch:
            self._open(self._epoch + 1)
            batch = next(self._opened(), _END)
        if batch is _END:
            count = self.number + len(self.pending)
            self.ending = (
                f"The source ended after {count} batches, and gives none when it is iterated "
                f"again, as generators do. {_ITERATED}"
                if count
                else f"The source gives no batch. {_ITERATED}"
            )
        else:
            self._batch += 1
        return batch

    def _opened(self) -> Any:
        if self._iterator is None:
            self._open(self._epoch)
        return self._iterator

    def _open(self, epoch: int) -> None:
        if hasattr(self.source, "set_epoch"):  # its order is a function of the epoch
            self.source.set_epoch(epoch)
        self._iterator, self._epoch, self._batch = iter(self.source), epoch, 0

    def _checked(self, batch: Any) -> Any:
        """Return a batch as NumPy arrays of its own, if it is like the first one."""
        leaves, structure = jax.tree.flatten(batch)
        name = f"Batch {self._batch - 1} of epoch {self._epoch} of the source"
        if self._kind is None:
            check_kept(name, leaves)
        leaves = [np.array(leaf) for leaf in leaves]  # a source may write over its own
        check_numeric(name, leaves)
        arrays = ", ".join(f"{leaf.shape} {leaf.dtype}" for leaf in leaves)
        if {leaf.shape[:1] for leaf in leaves} != {(self.batch_size,)}:
            raise ValueError(
                f"{name} has the arrays {arrays or 'of none'}; each must have batch_size="
                f"{self.batch_size} rows. Leave out an incomplete last batch (drop_remainder, "
                "drop_last), or fill it up."
            )
        self._kind = self._kind or (structure, arrays)
        if (structure, arrays) != self._kind:
            raise ValueError(
                f"{name} has the arrays {arrays} in {structure}; the first had {self._kind[1]} in "
                f"{self._kind[0]}. All need the same containers, shapes and dtypes."
            )
        batch = structure.unflatten(leaves)
        return batch if self.check is None else self.check(name, batch)


def _encoded(state: Any) -> str:
    """Return the state of an iterator as JSON."""
    if isinstance(state, bytes | bytearray):
        state = {_BYTES: base64.b64encode(state).decode()}
    try:
        return json.dumps(state)
    except (TypeError, ValueError):
        raise ValueError(
            f"get_state of the source's iterator returns {show(state)}; it must return bytes, or "
            "plain data: numbers, text, lists and dicts."
        ) from None


def _decoded(text: str | None) -> Any:
    state = json.loads(text or "null")
    if isinstance(state, dict) and set(state) == {_BYTES}:
        return base64.b64decode(state[_BYTES])
    return state


@dataclass(eq=False)
class SourceBatches(Batches):
    """Batches of a source, in its order; all chains see the same ones.

    Where swaps are judged afresh, every `judged_every` steps, the batch after that of the move
    judges them: the batches of the steps s = 0, 1, ... have the places s + ceil(s / judged_every)
    in the stream.
    """

    source: Any
    batch_size: int
    num_rows: int  # of an epoch
    judges: bool = False  # whether the target can judge swaps on one further batch
    prepare: Callable[[Array, Any], Any] | None = None
    judged_every: int | None = None  # steps; None: no further batches
    check: Callable[[str, Any], Any] | None = None  # name, batch -> the batch, if it is good
    reader: SourceReader = field(init=False)

    data: ClassVar[Any] = None

    def __post_init__(self) -> None:
        self.reader = SourceReader(self.source, self.batch_size, self.check)

    def for_run(self, judged_every: int | None) -> "SourceBatches":
        """Return the batches of a run, which begin with the first epoch."""
        return replace(self, judged_every=judged_every)

    @property
    def can_refresh(self) -> bool:
        return self.judges

    @property
    def has_all_rows(self) -> bool:
        return False

    @property
    def steps_per_epoch(self) -> int:
        return max(1, self.num_rows // self.batch_size)

    def describe(self) -> BatchSpec:
        kind = "bayesian, a source" if self.judges else "a source"
        return BatchSpec(kind, self.num_rows, self.batch_size)

    def batches_before(self, step: int | Array) -> Any:
        """Return how many batches of the stream the steps before `step` use."""
        return step if self.judged_every is None else step - (-step // self.judged_every)

    def draw(self, key: Array) -> Array | None:
        """Return the key that prepares the batch."""
        return None if self.prepare is None else randomness.ordinary(key)

    def take(self, data: PyTree, plan: PyTree, drawn: PyTree, step: Array, place: Array) -> Any:
        first = self.batches_before(step) - self.batches_before(step - place)
        return prepared(self.prepare, drawn, jax.tree.map(lambda leaf: leaf[first], data))

    def fresh(self, data: PyTree, step: Number = None, place: Number = None) -> FreshBatches | None:
        """Return the one further batch of a step at which swaps are attempted; its rows are taken
        as drawn independently."""
        if self.judged_every is None or step is None or place is None:
            return None
        further = self.batches_before(step) - self.batches_before(step - place) + 1
        return FreshBatches(lambda key: jax.tree.map(lambda leaf: leaf[further], data))

    def first(self, key: Array) -> Any:
        batches = self.reader.read(self.reader.number, 1)
        if not batches:
            raise ValueError(self.ending(0))
        return prepared(self.prepare, self.draw(key), jax.tree.map(jnp.asarray, batches[0]))

    def first_rows(self, count: int, most_bytes: int) -> Any:
        """Return the rows of up to `count` mini-batches of the first epoch, read for themselves;
        of an iterator, which cannot be read twice, those of one."""
        reader = SourceReader(self.source, self.batch_size, self.check)
        reader = self.reader if hasattr(self.source, "__next__") else reader
        batches = reader.read(reader.number, 1)
        if not batches:
            raise ValueError(reader.ending)
        if reader is not self.reader:
            size = max(1, sum(leaf.nbytes for leaf in jax.tree.leaves(batches)))
            batches = reader.read(0, max(1, min(count, self.steps_per_epoch, most_bytes // size)))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *batches)

    def bytes_per_step(self, step: int) -> int:
        batches = self.reader.read(self.batches_before(step), 1)
        size = sum(leaf.nbytes for batch in batches for leaf in jax.tree.leaves(batch))
        return size if self.judged_every is None else size + -(-size // self.judged_every)

    def feed(self, start: int, count: int, capacity: int) -> tuple[int, Any]:
        """Stack the batches of the steps, padded to those of `capacity` steps."""
        first = self.batches_before(start)
        batches = self.reader.read(first, self.batches_before(start + count) - first)
        while self.batches_before(start + count) - first > len(batches):  # the source ended
            count -= 1
        if count == 0:
            return 0, None
        batches = batches[: self.batches_before(start + count) - first]
        self.reader.forget(self.batches_before(start + count))

        def stack(*leaves: np.ndarray) -> np.ndarray:
            stacked = np.zeros((self.batches_before(capacity), *leaves[0].shape), leaves[0].dtype)
            np.stack(leaves, out=stacked[: len(leaves)])
            return stacked

        return count, jax.tree.map(stack, *batches)

    def read_ahead(self, start: int, count: int) -> None:
        if count > 0:
            self.reader.read_ahead(self.batches_before(start + count) - self.batches_before(start))

    def ending(self, step: int) -> str:
        return self.reader.ending or super().ending(step)

    def close(self) -> None:
        self.reader.close()

    def state(self, step: int) -> bytes:
        return json.dumps(self.reader.place(self.batches_before(step))).encode()

    def skip_to(self, step: int, state: bytes | None = None) -> None:
        """Go to `step`, by the state of the source's iterator where it has one."""
        place = Place() if state is None else Place._make(json.loads(state))
        number = self.batches_before(step)
        if not self.reader.go_to(place, number) and step > 0:
            warnings.warn(
                f"The iterator of the source has no get_state and set_state: from epoch "
                f"{place.epoch} on, {number - place.number + place.batch} batches were read again "
                "and dropped. The run continues exactly if the source gave the same ones in the "
                "same order as before.",
                stacklevel=4,
            )


def is_source(data: Any, num_rows: Any) -> bool:
    """Return whether data are a source: told to be one by `num_rows`, or iterable and no arrays."""
    leaves = jax.tree.leaves(data, is_leaf=lambda part: hasattr(part, "__next__"))
    alone = len(leaves) == 1 and leaves[0] is data
    iterable = hasattr(data, "__iter__") and not isinstance(data, str | bytes)
    return num_rows is not None or (alone and iterable and not hasattr(data, "shape"))


def as_source(
    data: Any,
    batch_size: Any,
    num_rows: Any,
    prepare: Callable[[Array, Any], Any] | None = None,
    judges: bool = False,
) -> SourceBatches:
    """Return a source, checked, as batches; without `num_rows` its length says how many."""
    if not hasattr(data, "__iter__") or isinstance(data, str | bytes | dict | tuple):
        raise ValueError(
            f"num_rows is given, and data is {show(data)}: give a source, whose iter() gives "
            "batches, or arrays without num_rows."
        )
    if hasattr(data, "shape"):
        raise ValueError("num_rows is given with arrays, which have their own: leave it out.")
    if prepare is not None:
        check_function("prepare", prepare, "key", "batch")
    if not is_whole(batch_size) or batch_size < 1:
        raise ValueError(
            f"batch_size is {show(batch_size)}; give the number of rows that every batch of the "
            "source has, a whole number from 1 on."
        )
    if num_rows is None and not judges and hasattr(data, "__len__"):
        num_rows = len(data) * int(batch_size)
    if not is_whole(num_rows) or num_rows < batch_size:
        raise ValueError(
            f"num_rows is {show(num_rows)}; for a source give the number of rows of all its data, "
            f"a whole number from batch_size={batch_size} on."
        )
    return SourceBatches(data, int(batch_size), int(num_rows), judges, prepare)
