"""Mini-batches made on the host, by a function of the step or by an iterable."""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.errors import check_numeric
from replicax.run.batch_source import Batches
from replicax.run.storage.metadata import BatchSpec


class BatchesEnded(ValueError):
    """An iterable had no batch for a step."""

    def __init__(self, step: int) -> None:
        super().__init__(
            f"The batches ended at step {step}; give an iterable that goes on (itertools.cycle), a "
            "function of the step, or arrays with batch_size."
        )


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


@dataclass
class HostBatches(Batches):
    """Batches made on the host, by a function of the step or by an iterable."""

    source: Any
    is_function: bool
    position: int = 0  # the step the iterator stands at
    pending: list = field(default_factory=list)  # batches already pulled, first not yet used
    iterator: Iterator | None = None

    data: ClassVar[Any] = None

    @property
    def can_refresh(self) -> bool:
        return False

    def describe(self) -> BatchSpec:
        return BatchSpec("a function of the step" if self.is_function else "an iterable")

    def take(self, data: Any, plan: Any, drawn: Any, step: Array, place: Array) -> Any:
        return jax.tree.map(lambda leaf: leaf[place], data)

    def first(self, key: Array) -> Any:
        batch = self.at(0)
        leaves = jax.tree.leaves(batch)
        if not leaves:
            raise ValueError("batches gives nothing at step 0; it must give the rows of a step.")
        check_numeric("batches", leaves)
        return jax.tree.map(jnp.asarray, batch)

    def bytes_per_step(self, step: int) -> int:
        try:
            batch = self.at(step)
        except BatchesEnded:  # the loop says so, unless the run needs no further batch
            return 0
        return sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(batch))

    def at(self, step: int) -> Any:
        """Return the batch of one step. An iterable goes forward only."""
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
        """Stack the batches of the steps, padded to `capacity` rows."""
        batches: list[Any] = []
        with contextlib.suppress(BatchesEnded):
            for step in range(start, start + count):
                batches.append(self.at(step))
        if not batches:
            return 0, None
        self._forget(start + len(batches))
        padded = batches + [batches[-1]] * (capacity - len(batches))
        try:
            stacked = jax.tree.map(
                lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *padded
            )
        except (ValueError, TypeError):
            raise UnequalBatches(start, batches) from None
        return len(batches), stacked

    def ending(self, step: int) -> str:
        return str(BatchesEnded(step))

    def skip_to(self, step: int, state: bytes | None = None) -> None:
        """Drop the batches of the steps before `step`, one at a time; there may be fewer."""
        if self.is_function or step <= self.position:
            return
        iterator = self.iterator = self.iterator or iter(self.source)
        num_pulled = self.position + len(self.pending)
        self._forget(step)
        for _ in itertools.islice(iterator, max(0, step - num_pulled)):
            pass

    def _forget(self, step: int) -> None:
        if not self.is_function:
            del self.pending[: step - self.position]
            self.position = step
