"""The cold part of a ladder: several rungs whose networks are averaged, one per epoch.

A network that has just come from a hotter rung predicts like that rung. It counts only after it has
stayed on the part for `settle_steps`; changing rungs within the part does not restart this count.
"""

from typing import Any, NamedTuple

import numpy as np


class ColdPart(NamedTuple):
    """The coldest rungs, and how long a network must have stayed on them to be averaged."""

    num_rungs: int
    settle_steps: int

    def start(self, num_replicas: int) -> Any:
        """Return the stay of every replica before the first step."""
        return np.zeros(num_replicas, np.int32)

    def follow(self, stay: Any, rung_of: np.ndarray) -> Any:
        """Return the number of steps that each replica has been on the part, 0 outside.

        `stay` is this number before the steps of `rung_of` (step, replica).
        """
        if not len(rung_of):
            return stay
        from_end = (rung_of >= self.num_rungs)[::-1]
        since = np.where(from_end.any(axis=0), from_end.argmax(axis=0), stay + len(rung_of))
        return since.astype(np.int32)

    def weights(self, turn: int, stay: np.ndarray) -> np.ndarray:
        """Return weights (rung,) that select one network: the rungs take turns, and a rung whose
        network has not settled passes its turn to the next. `stay` is by rung."""
        weights = np.zeros(len(stay))
        for place in range(self.num_rungs):
            rung = (turn + place) % self.num_rungs
            if stay[rung] >= self.settle_steps:
                weights[rung] = 1.0
                break
        return weights
