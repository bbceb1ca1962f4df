"""What the host does with a run between its chunks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from replicax.run.carry import Carry
from replicax.run.program import Program


class Between(Protocol):
    """What the host does between chunks: tests of networks, or the renewal of what is learned.

    Its state is part of the checkpoint.
    """

    state: Any  # pytree of arrays

    @property
    def average(self) -> Any:
        """The average so far, for callbacks; None if there is none."""

    def first(self, program: Program, carry: Carry) -> Carry:
        """Return the carry before the first step."""
        ...

    def after_chunk(
        self, program: Program, carry: Carry, num_steps: int, records: Any
    ) -> tuple[Carry, dict[str, np.ndarray]]:
        """Return the carry after a chunk of `num_steps`, and the numbers of an evaluation if there
        was one."""
        ...

    def final(self, state: Any, /) -> dict[str, np.ndarray]:
        """Return the values that the run leaves at its end."""
        ...


@dataclass
class Evaluation:
    """An evaluation of the replicas every `Program.evaluate_every` steps, such as a test of
    networks.

    Each evaluation leaves a row of the records "epochs", and rows of "networks" that are to be
    kept, or none.
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

    def first(self, program: Program, carry: Carry) -> Carry:
        """Return the carry before the first step, as it is."""
        return carry

    def after_chunk(
        self, program: Program, carry: Carry, num_steps: int, records: Any
    ) -> tuple[Carry, dict[str, np.ndarray]]:
        """Return the carry as it is, and the row of an evaluation if one is due, else an empty
        one."""
        every, step = program.evaluate_every, int(carry.state.step)
        if every is None or step % every or not num_steps or program.is_broken(carry):
            return carry, {}
        self.state, row, networks = self.evaluate(self.state, carry)
        row = {name: np.asarray(value) for name, value in row.items()}
        records.append("epochs", {name: value[None] for name, value in row.items()})
        if networks:
            records.append("networks", networks)
        return carry, row
