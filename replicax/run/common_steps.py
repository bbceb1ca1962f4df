"""The steps of several runs in one compiled program, of which each run is some chains.

Every run keeps its own thread, records and folder. A thread that needs steps waits until all others
do; then one of them takes the steps of all.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.run.batch_source import NoBatches
from replicax.run.compiled_loop import build_steps
from replicax.run.program import Program
from replicax.run.rows import STATE_AXES, Carry, Rows, per_chain
from replicax.run.shared_programs import identity, numbers


class Cancelled(Exception):
    """Another run failed before the first step."""


class _Asked(NamedTuple):
    """Up to `count` steps that a run asks for."""

    carry: Carry
    keys: Array
    data: Any
    count: int
    slots: Any


class CommonSteps:
    """Steps that `num_runs` runs take together."""

    def __init__(self, num_runs: int, signals: list[int]) -> None:
        self.signals = signals
        self._ready = threading.Condition()
        self._num_running = num_runs
        self._program: Program | None = None
        self._joined: list[int] = []  # threads, in the order in which their runs came
        self._asked: dict[int, _Asked] = {}  # by thread
        self._taken: dict[int, tuple[Carry, Rows]] = {}
        self._compiled: dict[int, Callable] = {}  # by number of runs
        self._error: BaseException | None = None
        self._has_begun = False

    @property
    def is_shown(self) -> bool:
        """Whether the progress of this thread's run is displayed: that of the first one alone."""
        thread = threading.get_ident()
        with self._ready:
            if thread not in self._joined:
                self._joined.append(thread)
            return self._joined[0] == thread

    def join(self, program: Program, keys: Array, capacity: int) -> Callable:
        """Return `chunk(carry, data, count, slots) -> carry, Rows` of a run."""
        program = replace(program, settings=replace(program.settings, langevin=True))
        with self._ready:
            if self._program is None:
                self._program = program
            _check_equal(self._program, program)

        def compile(num_runs: int) -> Callable:
            return _build_common(program, capacity, num_runs)

        def chunk(carry: Carry, data: Any, count: int, slots: Any) -> tuple[Carry, Rows]:
            return self._take(_Asked(carry, keys, data, count, slots), compile)

        return chunk

    def leave(self, error: BaseException | None = None) -> None:
        """End a run. One that fails before the first step ends the others, too."""
        with self._ready:
            self._num_running -= 1
            if error is not None and not self._has_begun:
                self._error = self._error or Cancelled()
            self._ready.notify_all()

    def _take(self, asked: _Asked, compile: Callable[[int], Callable]) -> tuple[Carry, Rows]:
        thread = threading.get_ident()
        with self._ready:
            self._asked[thread] = asked
            self._ready.notify_all()
            while thread not in self._taken:
                if self._error is not None:
                    raise self._error
                if len(self._asked) == self._num_running:
                    self._advance(compile)
                else:
                    self._ready.wait()
            return self._taken.pop(thread)

    def _advance(self, compile: Callable[[int], Callable]) -> None:
        """Take steps of the runs that are behind, up to the next one, or of all."""
        at = {thread: int(asked.carry.state.step) for thread, asked in self._asked.items()}
        behind = [thread for thread, step in at.items() if step == min(at.values())]
        group = [self._asked.pop(thread) for thread in behind]
        count = min(asked.count for asked in group)
        if self._asked:
            count = min(count, min(at[thread] for thread in self._asked) - min(at.values()))
        if len(group) not in self._compiled:
            self._compiled[len(group)] = compile(len(group))
        carries, keys = [one.carry for one in group], [one.keys for one in group]
        try:
            common = self._compiled[len(group)]
            taken = common(carries, keys, group[0].data, count, group[0].slots)
            jax.block_until_ready(taken)
        except BaseException as error:
            self._error = error
            self._ready.notify_all()
            raise
        self._has_begun = True
        self._taken |= dict(zip(behind, taken, strict=True))
        self._ready.notify_all()


def _build_common(program: Program, capacity: int, num_runs: int) -> Callable:
    """Compile `common(carries, keys, data, count, slots) -> [(carry, Rows), ...]`, by run."""
    each = program.num_chains
    chunk = build_steps(replace(program, num_chains=num_runs * each), capacity)

    def common(carries: Sequence[Carry], keys: Sequence[Array], *rest: Any) -> list[Any]:
        carry, rows = chunk(_join(carries), jnp.concatenate(keys), *rest)

        def part(run: int) -> tuple[Carry, Rows]:
            chains = slice(run * each, (run + 1) * each)
            of_rows = jax.tree.map(lambda leaf: leaf[:, chains], rows._replace(count=None))
            return per_chain(lambda leaf: leaf[chains], carry), of_rows._replace(count=rows.count)

        return [part(run) for run in range(num_runs)]

    return jax.jit(common, donate_argnums=0)


def _join(carries: Sequence[Carry]) -> Carry:
    """Return one carry with the chains of all; their steps are equal."""

    def join(axis: int | None, *parts: Any) -> Any:
        if axis is None:
            return parts[0]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)

    axes = Carry._make([STATE_AXES, 0])
    return jax.tree.map(join, axes, *carries, is_leaf=lambda axis: axis is None)


def _check_equal(one: Program, other: Program) -> None:
    """Raise unless two programs differ in seed and ladder alone, and can share their steps."""
    if other.mesh is not None:
        raise ValueError("Runs side by side share one device: write devices=1 in each call.")
    fed = other.batches.data is None and not isinstance(other.batches, NoBatches)
    if fed:
        raise ValueError(
            "Runs side by side need their data in memory, and a function of the step, an iterable "
            "or a source brings them as it goes: give arrays, or one run after another."
        )
    if _data(one) != _data(other) or one.target != other.target:
        raise ValueError(
            "Runs side by side share their target and data: make the energy, posterior or problem "
            "once, and give it to each call."
        )
    parts = [replace(program, batches=NoBatches()) for program in (one, other)]
    same = identity(parts[0]) == identity(parts[1])
    if not (same and all(map(np.array_equal, *map(numbers, parts)))):
        raise ValueError(
            "Runs side by side may differ in their seed, start, learning_rate and temperature, in "
            "run_dir and in what is averaged; these differ in more, such as the kernel, schedule, "
            "window, number of replicas or chains, thin or burn_in."
        )


def _data(program: Program) -> Any:
    """Return what tells whether two runs have the same rows."""
    batches = program.batches
    return batches.describe(), [id(leaf) for leaf in jax.tree.leaves(batches.data)]
