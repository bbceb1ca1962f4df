"""The static parts of a run, from its options; nothing is compiled."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax.algorithm.target import as_target
from replicax.run.batches import Batches, NoBatches, as_batches
from replicax.run.options import Options
from replicax.run.program import Program, build_program

PLAIN = as_target(lambda x: jnp.sum(x**2))
ON_ROWS = as_target(lambda x, rows: jnp.mean((x - rows) ** 2))
POSTERIOR = as_target(rx.Target(lambda x: jnp.sum(x**2), prior=jnp.sum, tempers_likelihood=True))
TEMPERED = {"temperature": (1.0, 4.0), "rule": "metropolis", "window": 1}


def program(target: Any = PLAIN, batches: Batches | None = None, **options: Any) -> Program:
    chosen = {"num_steps": 1000, "num_replicas": 4, "learning_rate": (0.01, 0.1)} | options
    return build_program(Options(**chosen).complete(), target, batches or NoBatches())


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, 100),  # the first hundred measure the unit of the buffer
        ({"burn_in": 50}, 100),
        ({"burn_in": 250}, 250),
        ({"buffer": 0.1, "buffer_gain": 0.1}, 0),
        (TEMPERED, 0),
    ],
)
def test_steps_count_from_burn_in_and_measurement_on(options: dict, first: int) -> None:
    assert int(program(**options).counted_from) == first


@pytest.mark.parametrize(
    ("on_nonfinite", "restarts", "stops"),
    [("restart", True, True), ("stop", False, True), ("ignore", False, False)],
)
def test_what_a_broken_replica_does(on_nonfinite: str, restarts: bool, stops: bool) -> None:
    made = program(on_nonfinite=on_nonfinite)
    assert (made.settings.restarts, made.stop_on_nonfinite) == (restarts, stops)


def test_energies_of_all_rungs_are_kept_for_the_evidence_alone() -> None:
    assert program(POSTERIOR, **TEMPERED).keeps_rung_energies
    assert not program(**TEMPERED).keeps_rung_energies
    assert not program(POSTERIOR).keeps_rung_energies  # the rule has no temperatures


def test_swaps_are_attempted_as_often_as_is_asked_for() -> None:
    assert program(swap_every=7, **TEMPERED).settings.swap_every == 7
    assert program(**TEMPERED).settings.swap_every == 1


def test_the_hottest_temperature_of_an_automatic_ladder() -> None:
    """The prior itself where moves are adjusted and the likelihood alone is tempered."""
    auto = {"temperature": "auto", "rule": "metropolis", "window": 1, "burn_in": 500, "adapt": True}
    assert program(**auto).settings.tuning.barrier.hottest == 1e3
    assert program(POSTERIOR, **auto).settings.tuning.barrier.hottest == 1e3
    assert np.isinf(program(POSTERIOR, kernel="hmc", **auto).settings.tuning.barrier.hottest)


def test_batches_are_told_where_swaps_are_judged_on_further_ones(monkeypatch) -> None:
    told = []
    monkeypatch.setattr(Batches, "for_run", lambda self, every: told.append(every) or self)
    rows = as_batches(jnp.zeros((20, 2)), 5)
    program(ON_ROWS, rows, temperature=(1.0, 4.0), rule="bias_corrected", window=1, swap_every=3)
    program(ON_ROWS, rows)
    assert told == [3, None]


def test_draws_are_taken_after_burn_in_thinned_and_where_kernels_exploit() -> None:
    steps = np.arange(30)
    made = program(burn_in=11, thin=4)
    np.testing.assert_array_equal(steps[made.is_drawn(steps)], [11, 15, 19, 23, 27])
    cycles = program(kernel=rx.kernels.cyclical(rx.kernels.sgld(), 10, 0.2), burn_in=5)
    np.testing.assert_array_equal(steps[cycles.is_drawn(steps)], [8, 9, 18, 19, 28, 29])
    with pytest.raises(ValueError, match="No draw would be taken in num_steps=1000"):
        program(kernel=rx.kernels.cyclical(rx.kernels.sgld(), 2000, 0.2))
