"""`Batches`: the interface of all sources of mini-batches, and the source of targets without data.

All replicas of a chain see the same mini-batch.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from jax import Array

from replicax.algorithm.energy_noise import FreshBatches
from replicax.run.storage.metadata import BatchSpec


class Batches:
    """The interface of all sources; its own methods are those of a target that needs no data.

    Inside the compiled loop: `draw` makes the randomness of one step, `plan` what the steps of a
    segment share, `take` the mini-batch of a step. On the host: `feed` the data of a chunk.
    """

    data: Any  # arrays that the compiled loop reads; None where `feed` brings them

    @property
    def can_refresh(self) -> bool:
        """Whether there are further mini-batches, or none are needed."""
        return True

    @property
    def is_whole(self) -> bool:
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

    def take(self, data: Any, plan: Any, drawn: Any, step: Array, place: Array) -> Any:
        """Return the mini-batch of `step`, the `place`-th of its chunk."""
        return None

    def fresh(self, data: Any, step: Any = None, place: Any = None) -> FreshBatches | None:
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
