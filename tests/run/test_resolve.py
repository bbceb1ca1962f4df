"""What is closed where choices are left open, and the program that they come to; nothing runs."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import in_method
from frozen.programs import CASES

import replicax as rx
from replicax import api
from replicax.networks import train
from replicax.run.batches import ArrayBatches
from replicax.run.options import Sampling
from replicax.run.program import Program
from replicax.run.resolve import resolve
from replicax.run.storage.metadata import from_plain, to_plain
from replicax.run.task import Task, as_task

NUM_ROWS = 300


def bowl(x: Any) -> Any:
    return jnp.sum(x**2)


def with_rows(x: Any, rows: Any) -> Any:
    return jnp.mean((x - rows) ** 2)


def bayesian(rows: Any, **options: Any) -> Any:
    return rx.bayesian(lambda x, rows: -((x - rows) ** 2), lambda x: -(x**2), rows, **options)


def posterior(num_rows: int = NUM_ROWS, batch_size: int | None = None) -> Any:
    return bayesian(np.zeros(num_rows, np.float32), batch_size=batch_size)


# Resolved twice


class Stopped(Exception):
    """A run that would begin: its program is the argument."""


def program_of(case: Callable[[], Any]) -> Program:
    """The program of a call that would run it."""

    def begin(kind: str, program: Program, *rest: Any, **about: Any) -> None:
        raise Stopped(program)

    with pytest.MonkeyPatch.context() as patch:
        for module in (api, train):
            patch.setattr(module, "begin", begin)
        with pytest.raises(Stopped) as caught:
            case()
    return caught.value.args[0]


def assert_equal(one: Program, other: Program) -> None:
    """All fields, also those that programs that compile to the same code may differ in."""
    assert (one.kernel.traits.spec is None) == (other.kernel.traits.spec is None)
    assert one.kernel.traits.spec == other.kernel.traits.spec
    assert replace(one, kernel=other.kernel, batches=other.batches) == other
    assert one.batches.describe() == other.batches.describe()
    jax.tree.map(np.testing.assert_array_equal, one.batches.data, other.batches.data)
    for ours, theirs in zip(one.ladder, other.ladder, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for name in ("buffer", "seed", "num_steps"):
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize("name", CASES)
def test_resolving_what_is_resolved_changes_nothing(name: str) -> None:
    program = program_of(CASES[name])
    again = resolve(program.task, program.run, program.method)
    assert_equal(again, program)
    assert again.run == program.run and again.method == program.method
    assert None not in (again.run.num_replicas, again.run.burn_in, again.run.on_nonfinite)


@pytest.mark.parametrize("name", [name for name in CASES if name != "optax"])
def test_what_a_folder_holds_is_the_program_again(name: str) -> None:
    """But for "optax", whose transform only the user can give again."""
    program = program_of(CASES[name])
    run, method = (json.loads(json.dumps(to_plain(x))) for x in (program.run, program.method))
    stored = from_plain(type(program.run), run), from_plain(rx.Method, method)
    again = resolve(program.task, *stored)
    assert_equal(again, program)
    assert to_plain(again.run) == to_plain(program.run)
    assert to_plain(again.method) == to_plain(program.method)


# Draws of the target


def closed(task: Any = None, num_steps: int = 3000, **chosen: Any) -> dict[str, Any]:
    """The options of run and method that `method="posterior"` comes to."""
    options = in_method({"num_steps": num_steps} | chosen, rx.posterior)
    method = options.pop("method")
    program = resolve(posterior() if task is None else task, Sampling(**options), method)
    return vars(program.run) | vars(program.method)


def part(choices: dict[str, Any], **wanted: Any) -> None:
    assert {name: choices[name] for name in wanted} == wanted


def test_exact_energies_are_moved_along_by_hmc_and_swapped_at_every_step() -> None:
    wanted = {"num_replicas": 8, "kernel": "hmc", "temperature": "auto", "adapt": True}
    wanted |= {"on_nonfinite": "stop", "energy_at": "moved", "burn_in": 1000, "swap_every": 1}
    part(closed(), **wanted, rule="metropolis", thin=1, schedule="deo", window=1)
    part(closed(as_task(bowl)), **wanted, rule="metropolis", thin=1, schedule="deo", window=1)


def test_what_is_chosen_stays() -> None:
    part(closed(kernel="sgld", learning_rate=0.1), kernel="sgld", on_nonfinite="restart")
    part(closed(burn_in=7, thin=3, rule="bias_corrected"), burn_in=7, thin=3, rule="bias_corrected")
    part(closed(temperature=(1.0, 3.0), adapt=False), temperature=(1.0, 3.0), adapt=False)
    part(closed(temperature=(1.0, 2.0, 4.0)), num_replicas=3)  # as many as temperatures
    part(closed(learning_rate=(0.1, 0.2)), num_replicas=8)  # two are the ends
    part(closed(window=1), schedule="deo")
    part(closed(window=4), schedule="no_gate", window=4)
    part(closed(schedule="seo"), schedule="seo")


def test_one_replica_has_no_ladder() -> None:
    part(closed(num_replicas=1), schedule="none", temperature=1.0, adapt=False, num_replicas=1)


def test_an_energy_with_noise_of_its_own_is_not_exact() -> None:
    exact = posterior(NUM_ROWS, NUM_ROWS)
    noisy = Task(exact.target._replace(noise=lambda key: 0.0), exact.batches)
    with pytest.raises(ValueError, match="The energy is noisy|needs all rows"):
        closed(noisy)


def test_a_bare_energy_that_is_noisy_needs_a_method() -> None:
    rows = np.zeros(NUM_ROWS, np.float32)
    whole = as_task(with_rows, rows, NUM_ROWS)
    part(closed(whole), kernel="hmc")
    noisy = replace(whole, target=whole.target._replace(noise=lambda key: 0.0))
    told = as_task(with_rows, lambda step: rows)
    for task in (as_task(with_rows, rows, 10), noisy, told):
        with pytest.raises(ValueError, match="The energy is noisy.*method=rx.deo_star"):
            closed(task)


# The paper's method


def program(
    target: Any = bowl, batches: Any = None, batch_size: int | None = None, **options: Any
) -> Program:
    chosen = {"num_steps": 1000, "num_replicas": 4, "learning_rate": (0.01, 0.1)} | options
    chosen = in_method(chosen)
    method = chosen.pop("method")
    return resolve(as_task(target, batches, batch_size), Sampling(**chosen), method)


POSTERIOR = rx.Target(bowl, prior=jnp.sum, tempers_likelihood=True)
TEMPERED = {"temperature": (1.0, 4.0), "rule": "metropolis", "window": 1}


def test_the_papers_method_is_closed_as_in_the_paper() -> None:
    made = program()
    chosen = vars(made.run) | vars(made.method)
    part(chosen, schedule="deo_star", rule="deterministic", kernel="sgld", temperature=1.0)
    part(chosen, burn_in=0, thin=1, on_nonfinite="restart", swap_every=1, energy_at="moved")
    part(chosen, target_swap_rate=0.4, history_every=100)
    assert chosen["window"] == made.settings.schedule.window > 1


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


def test_without_exchange_a_broken_replica_stops_the_run() -> None:
    assert program(schedule="none").run.on_nonfinite == "stop"
    assert program(schedule=rx.schedule.none()).run.on_nonfinite == "stop"


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
    monkeypatch.setattr(ArrayBatches, "for_run", lambda self, every: told.append(every) or self)
    rows, corrected = np.zeros((20, 2)), {"rule": "bias_corrected", "window": 1}
    program(with_rows, rows, 5, temperature=(1.0, 4.0), swap_every=3, **corrected)
    program(with_rows, rows, 5)
    assert told == [3, None]


@pytest.mark.parametrize("schedule", ["deo", "exactly_one"])
def test_the_best_point_is_tracked_where_swaps_are_forced(schedule: str) -> None:
    assert program(schedule=schedule).track_best == (schedule == "exactly_one")


def test_draws_are_taken_after_burn_in_thinned_and_where_kernels_exploit() -> None:
    steps = np.arange(30)
    made = program(burn_in=11, thin=4)
    np.testing.assert_array_equal(steps[made.is_drawn(steps)], [11, 15, 19, 23, 27])
    cycles = program(kernel=rx.kernels.cyclical(rx.kernels.sgld(), 10, 0.2), burn_in=5)
    np.testing.assert_array_equal(steps[cycles.is_drawn(steps)], [8, 9, 18, 19, 28, 29])
    with pytest.raises(ValueError, match="No draw would be taken in num_steps=1000"):
        program(kernel=rx.kernels.cyclical(rx.kernels.sgld(), 2000, 0.2))


def test_programs_that_compile_to_the_same_code_are_equal() -> None:
    """What the compiled loop is given as arguments does not tell them apart."""
    one = program(buffer=0.1, buffer_gain=0.1)

    def like(**options: Any) -> Program:
        made = program(**{"buffer": 0.1, "buffer_gain": 0.1} | options)
        return replace(made, kernel=one.kernel)

    assert like() == one
    for same in ({"seed": 5}, {"num_steps": 999}, {"learning_rate": (0.02, 0.1)}, {"buffer": 0.2}):
        assert like(history_every=100, **same) == one, same
    others: dict[str, Any] = {"thin": 2, "burn_in": 7, "num_chains": 2, "window": 3}
    others |= {"num_replicas": 5, "history_every": 50, "keep_draws": False}
    others |= {"on_nonfinite": "ignore"}
    for name, value in others.items():
        assert like(**{name: value}) != one, name
