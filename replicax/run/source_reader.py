"""Read a source of mini-batches in its order, epoch after epoch, ahead of the run; and again from
a place that a run folder holds."""

import base64
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from replicax.errors import check_numeric, show

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
        leaves = [np.array(leaf) for leaf in leaves]  # a source may write over its own
        name = f"Batch {self._batch - 1} of epoch {self._epoch} of the source"
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
