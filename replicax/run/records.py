"""Records of a run in memory: rows, final values, and how the run ended; what adds to them.

Six groups grow along their first axis: `steps` (rung_of), `draws` (parameters and energies of
the recorded rungs), `before_jumps` (where jumps of the coldest replica begin, in steps with draws),
`history` (ladder, buffer and counts), `epochs` (evaluations of networks) and `networks` (those of
an average, which are kept to predict with).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from replicax.run.carry import Carry
from replicax.run.program import Program
from replicax.run.storage.metadata import Metadata
from replicax.run.task import Task

# The groups, each with its growing axis.
GROUPS = {
    "steps": "step",
    "draws": "draw",
    "before_jumps": "ladder_step",
    "history": "point",
    "epochs": "epoch",
    "networks": "network",
}
Arrays = dict[str, np.ndarray]


class Result(NamedTuple):
    """How a run ended."""

    code: str  # finished, interrupted, stopped, batches_ended or nonfinite
    sentence: str


class Between:
    """What the host does between chunks, such as to renew what is learned: nothing, unless a method
    says what. The state is part of the checkpoint."""

    state: Any  # pytree of arrays

    def __init__(self) -> None:
        self.state = None

    @property
    def average(self) -> Any:
        """The average so far, for callbacks; None if there is none."""
        return None

    def first(self, program: Program, carry: Carry) -> Carry:
        """Return the carry before the first step."""
        return carry

    def after_chunk(
        self, program: Program, carry: Carry, num_steps: int, records: "Records"
    ) -> tuple[Carry, Arrays]:
        """Return the carry after a chunk of `num_steps`, and the numbers of an evaluation if there
        was one."""
        return carry, {}

    def final(self, state: Any, /) -> Arrays:
        """Return the values that the run leaves at its end."""
        return {}


@dataclass
class Evaluation(Between):
    """An evaluation of the replicas every `Program.evaluate_every` steps, such as a test of
    networks.

    Each leaves a row of the records "epochs", and rows of "networks" that are to be kept, or none.
    """

    state: Any  # pytree of arrays
    # state, carry -> state, row, networks
    evaluate: Callable[[Any, Carry], tuple[Any, dict[str, Any], Arrays]]
    final: Callable[[Any], Arrays]  # state -> values that the run leaves at its end
    running: Callable[[Any], Any] | None = None  # state -> the average so far, for callbacks

    @property
    def average(self) -> Any:
        return None if self.running is None else self.running(self.state)

    def after_chunk(
        self, program: Program, carry: Carry, num_steps: int, records: "Records"
    ) -> tuple[Carry, Arrays]:
        every, step = program.evaluate_every, int(carry.state.step)
        if every is None or step % every or not num_steps or program.is_broken(carry):
            return carry, {}
        self.state, row, networks = self.evaluate(self.state, carry)
        row = {name: np.asarray(value) for name, value in row.items()}
        records.append("epochs", {name: value[None] for name, value in row.items()})
        if networks:
            records.append("networks", networks)
        return carry, row


class Standing(NamedTuple):
    """Where a run stands: what it needs to go on, beside its records."""

    program: Program
    carry: Carry
    evaluation: Between
    compute: Callable | None = None  # its compiled chunk


class Records:
    """Records in memory; those in a folder have the same reader."""

    folder: Path | None = None
    metadata: Metadata
    standing: Standing | None = None  # at the end of a run in memory
    task: Task | None = None  # what this process sampled

    def __init__(self, shared: Path | None = None) -> None:
        self.shared = shared  # the folder of the run, in which the first process writes
        self._pending: dict[str, list[Arrays]] = {group: [] for group in GROUPS}
        self.final: Arrays = {}

    def append(self, group: str, arrays: Arrays) -> None:
        """Add rows; all arrays share the length of their first axis."""
        if len(next(iter(arrays.values()))):
            self._pending[group].append({name: storable(x) for name, x in arrays.items()})

    @property
    def pending_bytes(self) -> int:
        rows = (rows for group in self._pending.values() for rows in group)
        return sum(x.nbytes for arrays in rows for x in arrays.values())

    def keep(self, final: Arrays) -> None:
        """Keep everything appended so far, with the `final` values that belong to it."""
        self.final = final
        for group, parts in self._pending.items():
            if len(parts) > 1:
                self._pending[group] = [_join(parts)]

    def copy(self) -> "Records":
        """Return records that grow without these."""
        copy = Records(self.shared)
        copy._pending = {group: list(parts) for group, parts in self._pending.items()}
        copy.final, copy.metadata, copy.task = self.final, self.metadata, self.task
        return copy

    def take_pending(self) -> dict[str, Arrays]:
        """Remove and return the rows that were appended, by group."""
        taken = {group: _join(parts) for group, parts in self._pending.items() if parts}
        self._pending = {group: [] for group in GROUPS}
        return taken

    def names(self, group: str) -> list[str]:
        """Return the variables of a group."""
        parts = self._pending[group]
        return list(parts[0]) if parts else []

    def read(self, group: str, name: str) -> np.ndarray:
        """Return all rows of one variable, first axis growing."""
        parts = [rows[name] for rows in self._pending[group]]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def length(self, group: str) -> int:
        """Return the number of rows of a group."""
        names = self.names(group)
        return len(self.read(group, names[0])) if names else 0

    def write_metadata(self, metadata: Metadata) -> None:
        self.metadata = metadata


def _join(parts: list[Arrays]) -> Arrays:
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([rows[name] for rows in parts]) for name in parts[0]}


def storable(array: ArrayLike) -> np.ndarray:
    """Return an array of a NumPy type: bfloat16 and similar types become float32."""
    array = np.asarray(array)
    return array if array.dtype.kind in "biuf?" and array.dtype.isbuiltin else array.astype("f4")
