"""Mini-batches of a source: data that need not fit into memory, read epoch by epoch."""

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm import randomness
from replicax.algorithm.energy_noise import FreshBatches
from replicax.errors import check_function, explained, is_whole, show
from replicax.run.batch_source import Batches
from replicax.run.source_reader import Place, SourceReader
from replicax.run.storage.metadata import BatchSpec


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
    def is_whole(self) -> bool:
        return False

    @property
    def steps_per_epoch(self) -> int:
        return max(1, self.num_rows // self.batch_size)

    def describe(self) -> BatchSpec:
        kind = "bayesian, a source" if self.judges else "a source"
        return BatchSpec(kind, self.num_rows, self.batch_size)

    def batches_before(self, step: Any) -> Any:
        """Return how many batches of the stream the steps before `step` use."""
        return step if self.judged_every is None else step - (-step // self.judged_every)

    def draw(self, key: Array) -> Array | None:
        """Return the key that prepares the batch."""
        return None if self.prepare is None else randomness.ordinary(key)

    def take(self, data: Any, plan: Any, drawn: Any, step: Array, place: Array) -> Any:
        first = self.batches_before(step) - self.batches_before(step - place)
        return self._prepared(jax.tree.map(lambda leaf: leaf[first], data), drawn)

    def fresh(self, data: Any, step: Any = None, place: Any = None) -> FreshBatches | None:
        """Return the one further batch of a step at which swaps are attempted; its rows are taken
        as drawn independently."""
        if self.judged_every is None:
            return None
        further = self.batches_before(step) - self.batches_before(step - place) + 1
        return FreshBatches(lambda key: jax.tree.map(lambda leaf: leaf[further], data))

    def first(self, key: Array) -> Any:
        batches = self.reader.read(self.reader.number, 1)
        if not batches:
            raise ValueError(self.ending(0))
        return self._prepared(jax.tree.map(jnp.asarray, batches[0]), self.draw(key))

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

    def _prepared(self, batch: Any, key: Any) -> Any:
        if self.prepare is None:
            return batch
        with explained("prepare", "It turns (key, rows) into a batch."):
            return self.prepare(key, batch)


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
