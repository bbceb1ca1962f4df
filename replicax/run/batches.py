"""Where mini-batches come from; all replicas of a chain see the same one."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm import prng

_ORDERS = 2**32 - 1  # a number that no step has: keys of epochs are not those of steps


@dataclass(frozen=True)
class NoBatches:
    """The energy needs no data."""

    replayable = True

    def describe(self) -> str:
        return "none"


@dataclass(frozen=True)
class ArrayBatches:
    """Rows of arrays drawn with replacement, from the chain's own key, inside the loop."""

    data: Any  # pytree, leading axis: row
    batch_size: int
    replayable = True

    @property
    def num_rows(self) -> int:
        return jax.tree.leaves(self.data)[0].shape[0]

    def describe(self) -> str:
        return f"arrays of {self.num_rows} rows, {self.batch_size} a batch"

    def draw(self, key: Array) -> Array:
        """Row numbers of one mini-batch; all rows in order when the batch is everything."""
        if self.batch_size == self.num_rows:
            return jnp.arange(self.num_rows)
        return jax.random.randint(key, (self.batch_size,), 0, self.num_rows)

    @staticmethod
    def take(data: Any, rows: Array) -> Any:
        return jax.tree.map(lambda leaf: leaf[rows], data)


@dataclass(frozen=True)
class EpochBatches:
    """Rows of arrays in an order of their own for every epoch, each row once.

    The last batch of an epoch is filled up from the epoch's beginning. `prepare(key, batch)`,
    where given, makes of the rows what the energy sees (augmentation, say), once for all replicas.
    """

    data: Any  # pytree, leading axis: row
    batch_size: int
    prepare: Callable[[Array, Any], Any] | None = None
    replayable = True

    @property
    def num_rows(self) -> int:
        return jax.tree.leaves(self.data)[0].shape[0]

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def describe(self) -> str:
        return f"epochs of {self.num_rows} rows, {self.batch_size} a batch"

    def order(self, key: Array, epoch: Array) -> Array:
        """The rows of one epoch, (row,)."""
        key = jax.random.fold_in(jax.random.fold_in(key, _ORDERS), epoch)
        return jax.random.permutation(key, self.num_rows)

    def take(self, data: Any, order: Array, step: Array, key: Array) -> Any:
        """The batch of `step`, given its epoch's order; `key` prepares it."""
        first = (step % self.steps_per_epoch) * self.batch_size
        places = (first + jnp.arange(self.batch_size)) % self.num_rows
        return self._prepared(data, order[places], key)

    def fresh(self, data: Any, key: Array) -> Any:
        """A further batch, of rows drawn with replacement."""
        rows_key, key = jax.random.split(key)
        rows = jax.random.randint(rows_key, (self.batch_size,), 0, self.num_rows)
        return self._prepared(data, rows, key)

    def _prepared(self, data: Any, rows: Array, key: Array) -> Any:
        batch = jax.tree.map(lambda leaf: leaf[rows], data)
        return batch if self.prepare is None else self.prepare(key, batch)


class BatchesEnded(ValueError):
    """An iterable had no batch for a step."""

    def __init__(self, step: int) -> None:
        super().__init__(
            f"The batches ended at step {step}; give an iterable that goes on (itertools.cycle), a "
            "function of the step, or arrays with batch_size."
        )


@dataclass
class HostBatches:
    """Batches made on the host, by a function of the step or by an iterable, fed by the chunk."""

    source: Any
    is_function: bool
    position: int = 0  # the step the iterator stands at
    pending: list = field(default_factory=list)  # batches already pulled, first not yet used
    iterator: Iterator | None = None

    @property
    def replayable(self) -> bool:
        return self.is_function

    def describe(self) -> str:
        return "a function of the step" if self.is_function else "an iterable"

    def at(self, step: int) -> Any:
        """The batch of one step. An iterable goes forward only."""
        if self.is_function:
            return self.source(step)
        iterator = self.iterator = self.iterator or iter(self.source)
        if step < self.position:
            raise ValueError(
                f"The batches are an iterable that stands at step {self.position}; step {step} "
                "cannot be had again. Give a function of the step, or arrays with batch_size."
            )
        while self.position + len(self.pending) <= step:
            try:
                self.pending.append(next(iterator))
            except StopIteration:
                raise BatchesEnded(self.position + len(self.pending)) from None
        return self.pending[step - self.position]

    def feed(self, start: int, count: int, capacity: int) -> tuple[int, Any]:
        """How many batches there are for steps start .. start+count, and these, stacked and
        padded to `capacity` rows."""
        found: list[Any] = []
        with contextlib.suppress(BatchesEnded):
            for step in range(start, start + count):
                found.append(self.at(step))
        if not found:
            return 0, None
        self.forget(start + len(found))
        padded = found + [found[-1]] * (capacity - len(found))
        stacked = jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *padded)
        return len(found), stacked

    def forget(self, step: int) -> None:
        if not self.is_function:
            del self.pending[: step - self.position]
            self.position = step

    def skip_to(self, step: int) -> None:
        """Pull and drop the batches of an interrupted run's steps."""
        if not self.is_function and step > 0:
            self.at(step - 1)
            self.forget(step)


Batches = NoBatches | ArrayBatches | EpochBatches | HostBatches


def as_batches(batches: Any, batch_size: int | None) -> Batches:
    """Understand what the user gave as `batches`."""
    if batches is None:
        if batch_size is not None:
            raise ValueError("batch_size is given without batches; give the arrays as batches.")
        return NoBatches()
    if isinstance(batches, Batches):
        return batches
    if batch_size is not None:
        return _from_arrays(batches, batch_size)
    if callable(batches):
        return HostBatches(batches, is_function=True)
    if isinstance(batches, list) or hasattr(batches, "__next__"):
        return HostBatches(batches, is_function=False)
    leaves = jax.tree.leaves(batches)
    if leaves and all(isinstance(x, np.ndarray | jax.Array) for x in leaves):
        raise ValueError(
            "batches are arrays, so the size of a mini-batch must be said: batch_size=..., or "
            "the number of rows for full-batch energies."
        )
    if not hasattr(batches, "__iter__"):
        raise ValueError(
            f"batches is {type(batches).__name__}; give arrays with batch_size, a function of "
            "the step, or an iterable."
        )
    return HostBatches(batches, is_function=False)


def as_epochs(
    data: Any, batch_size: int, prepare: Callable[[Array, Any], Any] | None = None
) -> EpochBatches:
    """Arrays, checked, to be seen epoch by epoch."""
    rows = _from_arrays(data, batch_size)
    return EpochBatches(rows.data, rows.batch_size, prepare)


def _from_arrays(data: Any, batch_size: int) -> ArrayBatches:
    leaves = jax.tree.leaves(data)
    if not leaves or not all(hasattr(x, "shape") and len(x.shape) >= 1 for x in leaves):
        raise ValueError("With batch_size, batches must be arrays with rows on their first axis.")
    rows = {x.shape[0] for x in leaves}
    if len(rows) != 1:
        raise ValueError(f"The arrays in batches differ in their number of rows: {sorted(rows)}.")
    (num_rows,) = rows
    if not isinstance(batch_size, int | np.integer) or not 1 <= batch_size <= num_rows:
        raise ValueError(
            f"batch_size is {batch_size!r}; with {num_rows} rows it must be a whole number from 1 "
            f"to {num_rows}."
        )
    return ArrayBatches(jax.tree.map(jnp.asarray, data), int(batch_size))


def row_drawer(batches: Batches) -> Callable[[Array], Any] | None:
    """What a step draws for its batch: row numbers, or a key that prepares it."""
    if isinstance(batches, EpochBatches):
        return prng.ordinary
    return batches.draw if isinstance(batches, ArrayBatches) else None
