"""Saving a run: records are flushed and a checkpoint is committed when one is due."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from replicax.run import checkpoint, devices, processes
from replicax.run.counters import PAIR_COUNTS
from replicax.run.program import Program
from replicax.run.records import FolderRecords, Records
from replicax.run.round_trips import completed_trips
from replicax.run.rows import Carry

_CHECKPOINT_SECONDS = 30.0
_PENDING_BYTES = 2**28


@dataclass
class Evaluation:
    """An evaluation of the replicas every `Program.evaluate_every` steps, such as a test of
    networks.

    Its state is part of the checkpoint; each evaluation leaves a row of the records "epochs".
    """

    state: Any  # pytree of arrays
    evaluate: Callable[[Any, Carry], tuple[Any, dict[str, Any]]]  # state, carry -> state, row
    final: Callable[[Any], dict[str, np.ndarray]]  # state -> values that the run leaves at its end


@dataclass
class Saver:
    """Flushes records and commits a checkpoint when it is due."""

    records: Records
    every: int | None = None  # steps; None: by the clock
    step: int = 0
    clock: float = 0.0

    def start(self, step: int) -> None:
        self.step, self.clock = step, time.monotonic()

    def is_due(self, step: int) -> bool:
        if self.records.folder is None:
            return False
        if self.records.pending_bytes > _PENDING_BYTES:
            return True
        if self.every is not None:
            return step - self.step >= self.every
        return time.monotonic() - self.clock >= _CHECKPOINT_SECONDS

    def save(self, program: Program, carry: Carry, evaluation: Evaluation | None) -> None:
        """Flush the records, then commit the checkpoint: rows beyond it are dropped on resume."""
        values = final_values(program, carry)
        if evaluation is not None:
            values |= evaluation.final(evaluation.state)
        self.records.flush(values)
        step = int(carry.state.step)
        (has_folder,) = processes.agree(self.records.folder is not None)
        if has_folder:  # the first process writes what all have
            state = None if evaluation is None else evaluation.state
            saved = devices.to_host({"carry": carry, "evaluation": state})
            if isinstance(self.records, FolderRecords):
                checkpoint.save(self.records.folder, step, saved)
        self.start(step)


def final_values(program: Program, carry: Carry) -> dict[str, np.ndarray]:
    """Return what the posterior reports of the end of the run; leading axis: chain."""
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
    best = jax.tree.leaves(counters.best)
    return {**values, **{f"best.{i:06d}": leaf for i, leaf in enumerate(best)}}


def _window_correction(program: Program, state: Any) -> np.ndarray:
    """Return lambda_W in force, (chain,)."""
    rule = program.settings.rule
    if rule.tunes_correction:
        return state.correction.value
    return np.full(program.num_chains, rule.window_correction)
