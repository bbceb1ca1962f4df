"""How many rows a run has written after a number of steps."""

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax.algorithm import kernels
from replicax.run import rows
from replicax.run.batches import NoBatches
from replicax.run.options import Options
from replicax.run.program import Program, build_program

CYCLES = kernels.cyclical(kernels.sgld(), 20, exploitation=0.3)


def program_of(**options: Any) -> Program:
    chosen = Options(num_steps=100, learning_rate=(0.1, 0.2), num_replicas=3, **options).complete()
    return build_program(chosen, rx.targets.gaussian(), NoBatches(), evaluate_every=7)


@pytest.mark.parametrize("kernel", ["sgld", CYCLES], ids=["always", "in cycles"])
@pytest.mark.parametrize("burn_in", [0, 4, 60])
@pytest.mark.parametrize("thin", [1, 3])
def test_rows_are_counted_as_steps_draw_them(
    kernel: Any, burn_in: int, thin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_BLOCK_STEPS", 7, raising=False)
    program = program_of(kernel=kernel, burn_in=burn_in, thin=thin, history_every=10)
    for step in range(101):
        exploits = lambda k: kernel == "sgld" or k % 20 >= 14  # noqa: E731
        draws = [k for k in range(burn_in, step, thin) if exploits(k)]
        expected = {"steps": step, "draws": len(draws), "history": step // 10, "epochs": step // 7}
        assert rows.lengths(program, step) == expected


@pytest.mark.parametrize("kernel", ["sgld", CYCLES], ids=["always", "in cycles"])
def test_counting_the_rows_of_a_long_run_takes_little_memory(kernel: Any) -> None:
    program = replace(program_of(kernel=kernel), thin=2)
    num_steps = 3_000_000
    tracemalloc.start()
    counts = rows.lengths(program, num_steps)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    share = 1.0 if kernel == "sgld" else 0.3
    assert counts["draws"] == np.round(num_steps / 2 * share)
    assert peak < 4e6, "bytes; one array of all steps has 24 million"
