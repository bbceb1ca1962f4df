"""Records of a run in memory: rows, final values, and how the run ended.

Six groups grow along their first axis: `steps` (rung_of), `draws` (parameters and energies of
the recorded rungs), `before_jumps` (where jumps of the coldest replica begin, in steps with draws),
`history` (ladder, buffer and counts), `epochs` (evaluations of networks) and `networks` (those of
an average, which are kept to predict with).
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import numpy as np

from replicax.algorithm.labels import first_direction, label_places
from replicax.algorithm.mixture import in_use
from replicax.run import trees
from replicax.run.carry import PAIR_COUNTS, Carry, completed_trips
from replicax.run.devices import peak_memory
from replicax.run.evaluation import Between
from replicax.run.processes import agree
from replicax.run.program import Program
from replicax.run.storage.metadata import Ending, Metadata
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


class Standing(NamedTuple):
    """Where a run stands: what it needs to go on, beside its records."""

    program: Program
    carry: Carry
    evaluation: Between | None


class Records:
    """Records in memory; those in a folder have the same reader."""

    folder: Path | None = None
    metadata: Metadata
    standing: Standing | None = None  # at the end of a run in memory
    task: Task | None = None  # what this process sampled

    def __init__(self, shared: Path | None = None) -> None:
        self.shared = shared  # the folder in which all processes write their checkpoints
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


def storable(array: Any) -> np.ndarray:
    """Return an array of a NumPy type: bfloat16 and similar types become float32."""
    array = np.asarray(array)
    return array if array.dtype.kind in "biuf?" and array.dtype.isbuiltin else array.astype("f4")


class Keeper:
    """Keeps the final values of a run beside its records, which stay in memory."""

    def __init__(
        self, records: Records, program: Program, evaluation: Between | None = None
    ) -> None:
        self.records, self.program, self.evaluation = records, program, evaluation
        self.step = -1  # of the last save
        self.began = time.monotonic()
        self.before = float(records.final.get("seconds", 0.0))  # of earlier processes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def append(self, carry: Carry, rows: dict[str, Arrays]) -> tuple[Carry, Arrays]:
        """Add the rows of a chunk, by group; return the carry with what is renewed after it, and
        the numbers of an evaluation of networks if one is due, else none."""
        for group, arrays in rows.items():
            self.records.append(group, arrays)
        if self.evaluation is None:
            return carry, {}
        num_steps = len(rows["steps"]["rung_of"])
        return self.evaluation.after_chunk(self.program, carry, num_steps, self.records)

    def is_due(self, step: int) -> bool:
        """Return whether the state is to be saved now; in memory, only at the end."""
        return False

    def save_if_due(self, carry: Carry) -> None:
        """Save the state if that is due, in any process."""
        (due,) = agree(self.is_due(int(carry.state.step)))
        if due:
            self.save(carry)

    def save(self, carry: Carry) -> None:
        """Save the state, after the one before it is saved."""
        step = int(carry.state.step)
        if step == self.step:  # a step has one state only
            return
        self.wait()
        values = final_values(self.program, carry)
        if self.evaluation is not None:
            values |= self.evaluation.final(self.evaluation.state)
        values["seconds"] = np.asarray(self.before + time.monotonic() - self.began)
        values["peak_bytes"] = np.asarray(peak_memory())
        self.step = step
        values = {name: np.array(value) for name, value in values.items()}  # the loop goes on
        self.keep(values, carry)

    def keep(self, values: Arrays, carry: Carry) -> None:
        """Keep all rows so far, and the values of this step."""
        self.records.keep(values)
        self.records.standing = Standing(self.program, carry, self.evaluation)

    def wait(self) -> None:
        """Wait until everything is saved."""

    def finish(self, result: Result) -> None:
        """Wait until everything is saved, and record how the run ended."""
        self.wait()
        ending = Ending(*result, step=self.step)
        self.write_metadata(replace(self.records.metadata, result=ending))

    def write_metadata(self, metadata: Metadata) -> None:
        self.records.write_metadata(metadata)


def final_values(program: Program, carry: Carry) -> dict[str, np.ndarray]:
    """Return the values at the end of the run that the posterior reports, leading axis: chain; and
    the state of the source of its batches."""
    state = carry.state._replace(replicas=None, model_state=None)
    state, counters = jax.device_get((state, carry.counters))
    values = {
        "step": np.asarray(state.step),
        "learning_rates": state.ladder.learning_rate,
        "temperatures": state.ladder.temperature,
        "buffer": state.buffer,
        "energy_unit": np.asarray(jax.jit(type(state.energy_unit).value)(state.energy_unit)),
        "window_correction": _window_correction(program, state),
        "energy": counters.energy,
        "nonfinite": counters.nonfinite,
        "restarts": counters.restarts,
        "acceptance": counters.acceptance,
        "heating": counters.heating,
        "best_energy": counters.best_energy,
        "round_trips": completed_trips(counters.turns).sum(axis=1),
        **{name: counters.pairs[:, row] for row, name in enumerate(PAIR_COUNTS)},
    }
    if jax.tree.leaves(state.mixture):
        stats, mixture = state.jumps.stats, in_use(state.mixture)
        values |= {f"jumps.{name}": value for name, value in stats._asdict().items()}
        values |= {f"mixture.{name}": value for name, value in mixture._asdict().items()}
    places = label_places(program.target.exchangeable, trees.first(carry.state.points))
    if places is not None:
        learned = jax.tree.leaves(state.order)
        direction = np.asarray(learned[0]) if learned else first_direction(places)
        values |= {"labels.places": places, "labels.direction": direction}
    if program.settings.redraws:
        values["redrawn"] = counters.redrawn
    source = program.batches.state(int(state.step))
    if source is not None:
        values["source"] = np.frombuffer(source, np.uint8)
    best = jax.tree.leaves(counters.best)
    return {**values, **{f"best.{i:06d}": leaf for i, leaf in enumerate(best)}}


def _window_correction(program: Program, state: Any) -> np.ndarray:
    """Return lambda_W in force, (chain,)."""
    rule = program.settings.rule
    if rule.tunes_correction:
        return state.correction.value
    return np.full(program.num_chains, rule.window_correction)
