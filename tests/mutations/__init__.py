"""One-line mutations of the core, each with the tests that must kill it: `make mutants`.

A mutation is what a careless change could do: a sign, an index, a default, a guard. A list for
every room of `replicax/` says which line, what it becomes, and which few quick tests must then
fail. `tests/run_mutants.py` applies them one after another to a copy of the package.
"""

from importlib.util import find_spec
from typing import NamedTuple


class Mutation(NamedTuple):
    """One change of one line."""

    file: str  # below replicax/
    line: str  # a piece of one line, found once in the file
    becomes: str
    tests: tuple[str, ...]  # below tests/: files, or names of tests in them

    @property
    def name(self) -> str:
        return f"{self.file}: {self.line} -> {self.becomes}"


def mutations_of(file: str, *changes: tuple[str, ...]) -> list[Mutation]:
    """Return the mutations of one file, each given as (line, what it becomes, test, ...)."""
    return [Mutation(file, line, becomes, tuple(tests)) for line, becomes, *tests in changes]


def killed_by(test: str, file: str, *changes: tuple[str, str]) -> list[Mutation]:
    """Return the mutations of one file that one test must kill, each as (line, what it becomes)."""
    return [Mutation(file, line, becomes, (test,)) for line, becomes in changes]


def all_mutations() -> list[Mutation]:
    """Return the lists of all rooms."""
    from mutations import (
        adaptation,
        averages,
        batches,
        counters,
        data,
        devices,
        diagnostics,
        exchange,
        inputs,
        interop,
        likelihoods,
        loop,
        moves,
        networks,
        nn,
        posteriors,
        predictions,
        report,
        results,
        samplers,
        settings,
        storage,
        targets,
        theory,
        torch_bridge,
        warnings,
    )

    rooms = [exchange, adaptation, moves, samplers, targets, posteriors, devices, loop, counters]
    rooms += [
        settings,
        batches,
        storage,
        results,
        diagnostics,
        warnings,
        report,
        networks,
        averages,
    ]
    rooms += [predictions, likelihoods, nn, data, inputs, interop, theory]
    rooms += [torch_bridge] if find_spec("torch") else []
    return [mutation for room in rooms for mutation in room.MUTATIONS]
