"""Mini-batches: the interface of all their sources, those of arrays in memory, and those that a
function makes on the host.

All replicas of a chain see the same mini-batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm import randomness
from replicax.algorithm.energy_noise import FreshBatches
from replicax.algorithm.kernel import PyTree
from replicax.errors import check_function, check_kept, check_numeric, explained, is_whole, show
from replicax.run.compiled_once import compiled_once
from replicax.run.storage.metadata import BatchSpec

Number = Array | None  # of a step, or of its place in a chunk
_ORDERS = 2**32 - 1  # a number that no step has: keys of epochs are not those of steps


class Batches:
    """The interface of all sources; its own methods are those of a target that needs no data.

    Inside the compiled loop: `draw` makes the randomness of one step, `plan` what the steps of a
    segment share, `take` the mini-batch of a step. On the host: `feed` the data of a chunk.
    """

    data: PyTree  # arrays that the compiled loop reads; None where `feed` brings them

    @property
    def can_refresh(self) -> bool:
        """Whether there are further mini-batches, or none are needed."""
        return True

    @property
    def has_all_rows(self) -> bool:
        """Whether every batch has all rows of the data, as far as is known."""
        return True

    def for_run(self, judged_every: int | None) -> "Batches":
        """Return the batches of one run, whose swaps are judged on further ones at so many steps'
        distance, or never."""
        return self

    def describe(self) -> BatchSpec:
        """Return a description that tells two sources apart when a run resumes."""
        return BatchSpec("none")

    def draw(self, key: Array) -> Any:
        """Draw the randomness of one step's mini-batch."""
        return None

    def plan(self, key: Array, step: Array, num_steps: int) -> Any:
        """Prepare up to `num_steps` steps from `step` on, where that is cheaper done at once."""
        return None

    def take(self, data: PyTree, plan: PyTree, drawn: PyTree, step: Array, place: Array) -> Any:
        """Return the mini-batch of `step`, the `place`-th of its chunk."""
        return None

    def fresh(self, data: PyTree, step: Number = None, place: Number = None) -> FreshBatches | None:
        """Return further mini-batches, a function of a key; None where there are none.

        `step`, the `place`-th of its chunk, is needed where `feed` brings the data."""
        return None

    def first(self, key: Array) -> Any:
        """Return a mini-batch like those that steps see, to check the energy with."""
        return None

    def bytes_per_step(self, step: int) -> int:
        """Return how much data the chunk must hold for each step."""
        return 0

    def feed(self, start: int, count: int, capacity: int) -> tuple[int, Any]:
        """Return for how many of `count` steps from `start` on there are batches, and the data."""
        return count, self.data

    def read_ahead(self, start: int, count: int) -> None:
        """Begin to make the batches of `count` steps from `start` on, beside the loop."""

    def ending(self, step: int) -> str:
        """Return a sentence about batches that ended at `step`."""
        return f"The batches ended at step {step}."

    def close(self) -> None:
        """End what goes on beside the loop."""

    def state(self, step: int) -> bytes | None:
        """Return what `skip_to` needs to know besides the step."""
        return None

    def skip_to(self, step: int, state: bytes | None = None) -> None:
        """Go forward to `step`, for a run that resumes there; `state` was that of the step."""


@dataclass(frozen=True)
class NoBatches(Batches):
    """The energy needs no data."""

    data: ClassVar[Any] = None


class UnequalBatches(ValueError):
    """Batches of different steps have other shapes or containers."""

    def __init__(self, start: int, batches: list[Any]) -> None:
        kinds = [
            (jax.tree.structure(batch), [np.shape(leaf) for leaf in jax.tree.leaves(batch)])
            for batch in batches
        ]
        place = next(i for i, kind in enumerate(kinds) if kind != kinds[0])
        shapes = [", ".join(map(str, kinds[i][1])) for i in (0, place)]
        super().__init__(
            f"batches differ: at step {start} their shapes are {shapes[0]}, at step "
            f"{start + place} {shapes[1]}, and all steps need the same shapes and containers. "
            "Leave out the incomplete batch (drop_last), or fill it up."
        )


@dataclass(frozen=True)
class HostBatches(Batches):
    """Batches made on the host, by a function of the step."""

    at: Callable[[int], Any]

    data: ClassVar[Any] = None

    @property
    def can_refresh(self) -> bool:
        return False

    def describe(self) -> BatchSpec:
        return BatchSpec("a function of the step")

    def take(self, data: PyTree, plan: PyTree, drawn: PyTree, step: Array, place: Array) -> Any:
        return jax.tree.map(lambda leaf: leaf[place], data)

    def first(self, key: Array) -> Any:
        batch = self.at(0)
        leaves = jax.tree.leaves(batch)
        if not leaves:
            raise ValueError("batches gives nothing at step 0; it must give the rows of a step.")
        check_numeric("batches", leaves)
        check_kept("batches", leaves)
        return jax.tree.map(jnp.asarray, batch)

    def bytes_per_step(self, step: int) -> int:
        return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(self.at(step)))

    def feed(self, start: int, count: int, capacity: int) -> tuple[int, Any]:
        """Stack the batches of the steps, padded to `capacity` rows."""
        batches = [self.at(step) for step in range(start, start + count)]
        padded = batches + [batches[-1]] * (capacity - count)
        try:
            stacked = jax.tree.map(
                lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *padded
            )
        except (ValueError, TypeError):
            raise UnequalBatches(start, batches) from None
        return count, stacked


@dataclass(frozen=True)
class _InMemory(Batches):
    """Rows of arrays."""

    data: PyTree  # pytree, leading axis: row
    batch_size: int

    @property
    def num_rows(self) -> int:
        return jax.tree.leaves(self.data)[0].shape[0]

    @property
    def has_all_rows(self) -> bool:
        return self.batch_size == self.num_rows

    def for_run(self, judged_every: int | None) -> Self:
        return replace(self, data=jax.tree.map(jnp.asarray, self.data))


@dataclass(frozen=True)
class ArrayBatches(_InMemory):
    """Rows of arrays drawn with replacement, from the chain's own key, inside the loop; or all."""

    kind: str = "arrays"  # told when a run resumes

    def describe(self) -> BatchSpec:
        return BatchSpec(self.kind, self.num_rows, self.batch_size)

    def draw(self, key: Array) -> Array | None:
        """Draw the row numbers of one mini-batch; None where it is everything."""
        if self.has_all_rows:
            return None
        return jax.random.randint(key, (self.batch_size,), 0, self.num_rows)

    def take(self, data: PyTree, plan: PyTree, drawn: PyTree, step: Array, place: Array) -> Any:
        return data if self.has_all_rows else _rows(data, drawn)

    def fresh(self, data: PyTree, step: Number = None, place: Number = None) -> FreshBatches:
        if self.has_all_rows:
            return FreshBatches(lambda key: data, 0.0, data)
        return FreshBatches(lambda key: _rows(data, self.draw(key)), 1.0, data)

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
    replicas. With `rows_per_step` a step sees more rows than `batch_size`, and as many steps as
    before, `steps_per_epoch`, go through all rows several times.
    """

    prepare: Callable[[Array, Any], Any] | None = None
    rows_per_step: int | None = None

    @property
    def rows_seen(self) -> int:
        """The rows of one step."""
        return self.batch_size if self.rows_per_step is None else self.rows_per_step

    @property
    def has_all_rows(self) -> bool:
        return self.rows_seen == self.num_rows

    @property
    def steps_per_pass(self) -> int:
        """Steps in which every row is seen."""
        return -(-self.num_rows // self.rows_seen)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def steps_to_see_all(self, num_steps: int) -> int:
        """Return in how many steps of equal size all rows are seen, of at most `num_steps`."""
        return -(-self.num_rows // -(-self.num_rows // num_steps))

    def seen_twice(self, num_steps: int) -> int:
        """Return how many rows are seen twice where so many steps of equal size see all."""
        return num_steps * -(-self.num_rows // num_steps) - self.num_rows

    def describe(self) -> BatchSpec:
        return BatchSpec("epochs", self.num_rows, self.batch_size)

    def draw(self, key: Array) -> Array:
        """Return the key that prepares the batch."""
        return randomness.ordinary(key)

    def order(self, key: Array, epoch: Array) -> Array:
        """Return the rows of one epoch in their order  -> (row,)."""
        key = jax.random.fold_in(jax.random.fold_in(key, _ORDERS), epoch)
        return jax.random.permutation(key, self.num_rows)

    def plan(self, key: Array, step: Array, num_steps: int) -> Orders | None:
        """Order the rows of all passes of a segment: to permute them at every step takes long."""
        if self.rows_per_step == self.num_rows:
            return None
        num_passes = -(-num_steps // self.steps_per_pass) + 1
        first = step // self.steps_per_pass
        passes = first + jnp.arange(num_passes)
        return Orders(first, jax.lax.map(lambda number: self.order(key, number), passes))

    def take(
        self, data: PyTree, plan: Orders | None, drawn: Array, step: Array, place: Array
    ) -> Any:
        if plan is None:
            return prepared(self.prepare, drawn, data)
        order = plan.rows[step // self.steps_per_pass - plan.first_epoch]
        first = (step % self.steps_per_pass) * self.rows_seen
        places = (first + jnp.arange(self.rows_seen)) % self.num_rows
        return self._prepared(data, order[places], drawn)

    def fresh(self, data: PyTree, step: Number = None, place: Number = None) -> FreshBatches:
        """Return a function of a key that gives further batches, like those of a step: rows
        drawn without replacement, all rows in order when the batch is everything."""

        def draw(key: Array) -> Any:
            rows_key, key = jax.random.split(key)
            rows = _different_rows(rows_key, self.rows_seen, self.num_rows)
            return self._prepared(data, rows, key)

        return FreshBatches(draw, 1 - self.rows_seen / self.num_rows, data)

    def first(self, key: Array) -> Any:
        # One program instead of a dozen, where rows are drawn without replacement.
        def draw(data: PyTree, key: Array) -> Any:
            return self.fresh(data)(randomness.ordinary(key))

        return compiled_once(draw, runs_once=True)(self.data, key)

    def _prepared(self, data: PyTree, rows: Array, key: Array) -> Any:
        return prepared(self.prepare, key, _rows(data, rows))


def prepared(prepare: Callable[[Array, Any], Any] | None, key: Any, rows: PyTree) -> Any:
    """Return rows as the energy sees them, by the user's function where there is one."""
    if prepare is None:
        return rows
    with explained("prepare", "It turns (key, rows) into a batch."):
        return prepare(key, rows)


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
        return HostBatches(batches)
    leaves = jax.tree.leaves(batches)
    if leaves and all(isinstance(x, np.ndarray | jax.Array) for x in leaves):
        raise ValueError(
            "batches are arrays, so the size of a mini-batch must be said: batch_size=..., or "
            "the number of rows for full-batch energies."
        )
    raise ValueError(
        f"batches is {show(batches)}; give arrays with batch_size, or a function of the step. A "
        "source of batches belongs to rx.bayesian or rx.supervised, with num_rows=..."
    )


def as_epochs(
    data: PyTree, batch_size: int, prepare: Callable[[Array, Any], Any] | None = None
) -> EpochBatches:
    """Return arrays, checked, as batches that go through all rows in every epoch."""
    if prepare is not None:
        check_function("prepare", prepare, "key", "batch")
    rows = as_rows(data, batch_size, "data")
    return EpochBatches(rows.data, rows.batch_size, prepare)


def as_rows(
    data: PyTree, batch_size: int | None, name: str, place: Callable = jnp.asarray
) -> ArrayBatches:
    """Return arrays, checked, as batches of so many rows, or of all; `name` is the argument's, and
    `place` says where the arrays are: unless they are those of JAX, a run makes them so."""
    leaves = jax.tree.leaves(data)
    if not leaves or not all(hasattr(x, "shape") and len(x.shape) >= 1 for x in leaves):
        raise ValueError(f"{name} must be arrays with rows on their first axis.")
    if any(hasattr(x, "columns") for x in leaves):
        raise ValueError(
            f"{name} is a data frame; give dict({name}), its columns by name, or its to_numpy()."
        )
    check_numeric(name, leaves)
    check_kept(name, leaves)
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
    return ArrayBatches(jax.tree.map(place, data), int(size))


def _rows(data: PyTree, rows: PyTree) -> Any:
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


def sum_in_pieces(sum_over: Callable[[Any], Array], data: PyTree, size: int) -> Array:
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
