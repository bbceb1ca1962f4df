"""`Evaluation`: tests of networks between the chunks of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from replicax.run.program import Program
from replicax.run.rows import Carry


@dataclass
class Evaluation:
    """An evaluation of the replicas every `Program.evaluate_every` steps, such as a test of
    networks.

    Its state is part of the checkpoint; each evaluation leaves a row of the records "epochs", and
    rows of "networks" that are to be kept, or none.
    """

    state: Any  # pytree of arrays
    # state, carry -> state, row, networks
    evaluate: Callable[[Any, Carry], tuple[Any, dict[str, Any], dict[str, np.ndarray]]]
    final: Callable[[Any], dict[str, np.ndarray]]  # state -> values that the run leaves at its end
    running: Callable[[Any], Any] | None = None  # state -> the average so far, for callbacks

    @property
    def average(self) -> Any:
        """The average so far, for callbacks; None if there is none."""
        return None if self.running is None else self.running(self.state)

    def after_chunk(
        self, program: Program, carry: Carry, num_steps: int, records: Any
    ) -> dict[str, np.ndarray]:
        """Return the row of an evaluation if one is due after a chunk of `num_steps`, else an empty
        one."""
        every, step = program.evaluate_every, int(carry.state.step)
        if every is None or step % every or not num_steps or program.is_broken(carry):
            return {}
        self.state, row, networks = self.evaluate(self.state, carry)
        row = {name: np.asarray(value) for name, value in row.items()}
        records.append("epochs", {name: value[None] for name, value in row.items()})
        if networks:
            records.append("networks", networks)
        return row
