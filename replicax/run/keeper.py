"""The result, final values and evaluations of a run, kept in memory."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import jax
import numpy as np

from replicax.run.counters import PAIR_COUNTS, completed_trips
from replicax.run.machine import peak_memory
from replicax.run.program import Program
from replicax.run.rows import Carry
from replicax.run.storage.metadata import Metadata
from replicax.run.storage.records import Arrays, Records


class Result(NamedTuple):
    """How a run ended."""

    code: str  # finished, interrupted, stopped, batches_ended or nonfinite
    sentence: str


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
    # state, rung_of (step, chain, replica) of the steps just done -> state
    follow: Callable[[Any, np.ndarray], Any] | None = None
    running: Callable[[Any], Any] | None = None  # state -> the average so far, for callbacks


class Keeper:
    """Keeps the final values of a run beside its records, which stay in memory."""

    def __init__(self, records: Records) -> None:
        self.records, self.step = records, -1  # of the last save
        self.began = time.monotonic()
        self.before = float(records.final.get("seconds", 0.0))  # of earlier processes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def is_due(self, step: int) -> bool:
        """Return whether the state is to be saved now; in memory, at the end alone."""
        return False

    def save(self, program: Program, carry: Carry, evaluation: Evaluation | None) -> None:
        """Save the state, once the one before it is saved."""
        step = int(carry.state.step)
        if step == self.step:  # a step has one state only
            return
        self.wait()
        values = final_values(program, carry)
        if evaluation is not None:
            values |= evaluation.final(evaluation.state)
        values["seconds"] = np.asarray(self.before + time.monotonic() - self.began)
        values["peak_bytes"] = np.asarray(peak_memory())
        self.step = step
        values = {name: np.array(value) for name, value in values.items()}  # the loop goes on
        self.keep(values, carry, evaluation)

    def keep(self, values: Arrays, carry: Carry, evaluation: Evaluation | None) -> None:
        """Keep all rows so far, and the values of this step."""
        self.records.keep(values)

    def wait(self) -> None:
        """Wait until all is saved."""

    def finish(self, result: Result) -> None:
        """Wait until all is saved, and write down how the run ended."""
        self.wait()
        ended = {**result._asdict(), "step": self.step}
        self.write_metadata(replace(self.records.metadata, result=ended))

    def write_metadata(self, metadata: Metadata) -> None:
        self.records.write_metadata(metadata)


def final_values(program: Program, carry: Carry) -> dict[str, np.ndarray]:
    """Return what the posterior reports of the end of the run, leading axis: chain; and the state
    of the source of its batches."""
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
