"""Mini-batches of arrays in memory, and the source that the user's `batches` stand for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm import randomness
from replicax.algorithm.energy_noise import FreshBatches
from replicax.errors import check_function, check_numeric, explained, is_whole, show
from replicax.run.batch_source import Batches
from replicax.run.batch_source import NoBatches as NoBatches
from replicax.run.host_batches import HostBatches
from replicax.run.storage.metadata import BatchSpec

_ORDERS = 2**32 - 1  # a number that no step has: keys of epochs are not those of steps


@dataclass(frozen=True)
class _InMemory(Batches):
    """Rows of arrays."""

    data: Any  # pytree, leading axis: row
    batch_size: int

    @property
    def num_rows(self) -> int:
        return jax.tree.leaves(self.data)[0].shape[0]

    @property
    def is_whole(self) -> bool:
        return self.batch_size == self.num_rows


@dataclass(frozen=True)
class ArrayBatches(_InMemory):
    """Rows of arrays drawn with replacement, from the chain's own key, inside the loop."""

    def describe(self) -> BatchSpec:
        return BatchSpec("arrays", self.num_rows, self.batch_size)

    def draw(self, key: Array) -> Array:
        """Draw the row numbers of one mini-batch; all rows in order when it is everything."""
        if self.is_whole:
            return jnp.arange(self.num_rows)
        return jax.random.randint(key, (self.batch_size,), 0, self.num_rows)

    def take(self, data: Any, plan: Any, drawn: Any, step: Array, place: Array) -> Any:
        return _rows(data, drawn)

    def fresh(self, data: Any, step: Any = None, place: Any = None) -> FreshBatches:
        share = 0.0 if self.is_whole else 1.0
        return FreshBatches(lambda key: _rows(data, self.draw(key)), share)

    def first(self, key: Array) -> Any:
        return self.fresh(self.data)(key)


class Orders(NamedTuple):
    """The rows of the epochs that the steps of a segment belong to."""

    first_epoch: Array
    rows: Array  # (epoch, row)


@dataclass(frozen=True)
class EpochBatches(_InMemory):
    """Rows of arrays in an order of their own for every epoch, each row once.

    The last batch of an epoch is filled up from the epoch's beginning. `prepare(key, batch)`,
    where given, turns rows into the batch that the energy sees (augmentation, say), once for all
    replicas.
    """

    prepare: Callable[[Array, Any], Any] | None = None

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def describe(self) -> BatchSpec:
        return BatchSpec("epochs", self.num_rows, self.batch_size)

    def draw(self, key: Array) -> Array:
        """Return the key that prepares the batch."""
        return randomness.ordinary(key)

    def order(self, key: Array, epoch: Array) -> Array:
        """Return the rows of one epoch in their order  -> (row,)."""
        key = jax.random.fold_in(jax.random.fold_in(key, _ORDERS), epoch)
        return jax.random.permutation(key, self.num_rows)

    def plan(self, key: Array, step: Array, num_steps: int) -> Orders:
        """Order the rows of all epochs of a segment: to permute them at every step takes long."""
        num_epochs = -(-num_steps // self.steps_per_epoch) + 1
        first = step // self.steps_per_epoch
        epochs = first + jnp.arange(num_epochs)
        return Orders(first, jax.lax.map(lambda epoch: self.order(key, epoch), epochs))

    def take(self, data: Any, plan: Orders, drawn: Array, step: Array, place: Array) -> Any:
        order = plan.rows[step // self.steps_per_epoch - plan.first_epoch]
        first = (step % self.steps_per_epoch) * self.batch_size
        places = (first + jnp.arange(self.batch_size)) % self.num_rows
        return self._prepared(data, order[places], drawn)

    def fresh(self, data: Any, step: Any = None, place: Any = None) -> FreshBatches:
        """Return a function of a key that gives further batches, like those of an epoch: rows
        drawn without replacement, all rows in order when the batch is everything."""

        def draw(key: Array) -> Any:
            rows_key, key = jax.random.split(key)
            rows = _different_rows(rows_key, self.batch_size, self.num_rows)
            return self._prepared(data, rows, key)

        return FreshBatches(draw, 1 - self.batch_size / self.num_rows, data)

    def first(self, key: Array) -> Any:
        return self.fresh(self.data)(randomness.ordinary(key))

    def _prepared(self, data: Any, rows: Array, key: Array) -> Any:
        batch = _rows(data, rows)
        if self.prepare is None:
            return batch
        with explained("prepare", "It turns (key, rows) into a batch."):
            return self.prepare(key, batch)


def as_batches(batches: Any, batch_size: int | None) -> Batches:
    """Return the source of mini-batches that the user's `batches` and `batch_size` stand for."""
    if batches is None:
        raise ValueError("batch_size is given without batches; give the arrays as batches.")
    if isinstance(batches, Batches):
        return batches
    if batch_size is not None:
        return as_rows(batches, batch_size, "batches")
    if callable(batches):
        check_function("batches", batches, "step")
        return HostBatches(batches, is_function=True)
    if isinstance(batches, list) or hasattr(batches, "__next__"):
        return HostBatches(batches, is_function=False)
    leaves = jax.tree.leaves(batches)
    if leaves and all(isinstance(x, np.ndarray | jax.Array) for x in leaves):
        raise ValueError(
            "batches are arrays, so the size of a mini-batch must be said: batch_size=..., or "
            "the number of rows for full-batch energies."
        )
    if not hasattr(batches, "__iter__") or isinstance(batches, str | bytes | dict):
        raise ValueError(
            f"batches is {type(batches).__name__}; give arrays with batch_size, a function of "
            "the step, or an iterable."
        )
    return HostBatches(batches, is_function=False)


def as_epochs(
    data: Any, batch_size: int, prepare: Callable[[Array, Any], Any] | None = None
) -> EpochBatches:
    """Return arrays, checked, as batches that go through all rows in every epoch."""
    if prepare is not None:
        check_function("prepare", prepare, "key", "batch")
    rows = as_rows(data, batch_size, "data")
    return EpochBatches(rows.data, rows.batch_size, prepare)


def as_rows(data: Any, batch_size: int | None, name: str) -> ArrayBatches:
    """Return arrays, checked, as batches of so many rows, or of all; `name` is the argument's."""
    leaves = jax.tree.leaves(data)
    if not leaves or not all(hasattr(x, "shape") and len(x.shape) >= 1 for x in leaves):
        raise ValueError(f"{name} must be arrays with rows on their first axis.")
    if any(hasattr(x, "columns") for x in leaves):
        raise ValueError(
            f"{name} is a data frame; give dict({name}), its columns by name, or its to_numpy()."
        )
    check_numeric(name, leaves)
    rows = {x.shape[0] for x in leaves}
    if len(rows) != 1:
        raise ValueError(f"The arrays in {name} differ in their number of rows: {sorted(rows)}.")
    (num_rows,) = rows
    if num_rows == 0:
        raise ValueError(f"{name} has no rows; give at least one.")
    size = num_rows if batch_size is None else batch_size
    if not is_whole(size) or not 1 <= size <= num_rows:
        raise ValueError(
            f"batch_size is {show(size)}; with {num_rows} rows it must be a whole number from 1 "
            f"to {num_rows}."
        )
    return ArrayBatches(jax.tree.map(jnp.asarray, data), int(size))


def _rows(data: Any, rows: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[rows], data)


def _different_rows(key: Array, count: int, num_rows: int) -> Array:
    """Draw `count` of the rows without replacement; all in order when they are everything.

    Few of many are drawn with replacement, and those that repeat an earlier one again: that treats
    all rows alike, so every subset is equally likely, and takes no time for the other rows.
    """
    if count == num_rows:
        return jnp.arange(num_rows)
    if 2 * count > num_rows:
        return jax.random.permutation(key, num_rows)[:count]

    def draw(attempt: Array) -> Array:
        return jax.random.randint(jax.random.fold_in(key, attempt), (count,), 0, num_rows)

    def repeats(rows: Array) -> Array:
        order = jnp.argsort(rows, stable=True)
        is_repeated = jnp.diff(rows[order]) == 0
        return jnp.zeros(count, bool).at[order[1:]].set(is_repeated)

    def redraw(loop: tuple[Array, Array]) -> tuple[Array, Array]:
        rows, attempt = loop
        return jnp.where(repeats(rows), draw(attempt), rows), attempt + 1

    start = draw(jnp.array(0)), jnp.array(1)
    return jax.lax.while_loop(lambda loop: jnp.any(repeats(loop[0])), redraw, start)[0]


def sum_in_pieces(sum_over: Callable[[Any], Array], data: Any, size: int) -> Array:
    """Return the sum over all rows, `size` of them at a time, so that memory is bounded.

    `sum_over(rows)` returns the sum over some rows.
    """
    num_rows = len(jax.tree.leaves(data)[0])
    num_pieces, rest = divmod(num_rows, size)
    if num_pieces == 0 or (num_pieces == 1 and rest == 0):
        return sum_over(data)
    whole = num_pieces * size
    pieces = jax.tree.map(
        lambda leaf: leaf[:whole].reshape(num_pieces, size, *leaf.shape[1:]), data
    )
    total = jnp.sum(jax.lax.map(sum_over, pieces))
    if rest:
        total = total + sum_over(jax.tree.map(lambda leaf: leaf[whole:], data))
    return total
