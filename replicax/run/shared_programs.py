"""`Programs`: compiled code that several runs share."""

import json
import threading
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from replicax.algorithm.state import Settings
from replicax.run.batch_source import NoBatches
from replicax.run.program import Program


class Programs:
    """Compiled programs, shared by the calls of `rx.sample` that they are passed to.

    Calls that differ in seed, starts, window, swap rate, ladder or noise level alone compile
    once. As with `jax.jit`, a target must be a pure function: what it reads from outside is
    read when it is compiled.

    >>> import replicax as rx
    >>> programs = rx.Programs()
    >>> for window in (1, 8):
    ...     posterior = rx.sample(
    ...         rx.targets.modes25(), rx.targets.modes25_start, num_steps=200, window=window,
    ...         num_replicas=4, learning_rate=(0.003, 0.6), programs=programs,
    ...     )  # fmt: skip
    """

    def __init__(self) -> None:
        self._compiled: dict[Hashable, Callable] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._compiled)

    def get(self, name: str, program: Program, compile: Callable[[], Callable], *more: Any):
        """Return what `compile()` gives, once for all programs that differ in `numbers` alone."""
        key = (name, identity(program), *more)
        with self._lock:
            if key not in self._compiled:
                self._compiled[key] = compile()
            return self._compiled[key]


def numbers(program: Program) -> list[Any]:
    """Return the numbers of a program that compiled code can take as data."""
    return [leaf for leaf in jax.tree.leaves(_dynamic(program)) if _is_numeric(leaf)]


def with_numbers(program: Program, numbers: list[Any]) -> Program:
    """Return the program with other numbers, which may be traced."""
    leaves, structure = jax.tree.flatten(_dynamic(program))
    values = iter(numbers)
    settings, burn_in = structure.unflatten(
        next(values) if _is_numeric(leaf) else leaf for leaf in leaves
    )
    return replace(program, settings=settings, burn_in=burn_in)


def _dynamic(program: Program) -> tuple[Settings, int]:
    return program.settings, program.burn_in


def _is_numeric(leaf: Any) -> bool:
    """Return False for a rule or schedule of the user's own, which is static."""
    return isinstance(leaf, int | float | np.ndarray | np.generic | jax.Array)


def identity(program: Program) -> Hashable:
    """Return a key that is equal for programs that compile to the same code."""
    spec, batches = program.kernel.spec, program.batches
    rest = replace(program, kernel=None, batches=None, settings=None, burn_in=0)  # type: ignore
    leaves, structure = jax.tree.flatten(_dynamic(program))
    return (
        structure,
        tuple(leaf for leaf in leaves if not _is_numeric(leaf)),
        rest,
        program.kernel if spec is None else json.dumps(spec, sort_keys=True),
        type(batches) if isinstance(batches, NoBatches) else id(batches),
    )
