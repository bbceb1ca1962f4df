"""What is filled in where choices are left open, of targets and data that are made up."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax.run import options

NAMES = (
    "num_replicas kernel temperature adapt on_nonfinite swap_energy burn_in swap_every rule thin"
)
OPEN = dict.fromkeys([*NAMES.split(), "schedule", "window"])
POSTERIOR = rx.Target(lambda x, batch, key: 0.0, tempers_likelihood=True)


def rows(num_rows: int = 300, batch_size: int = 10, **changes: Any) -> Any:
    known = {"num_rows": num_rows, "batch_size": batch_size, "data": np.zeros(num_rows)}
    known |= {"is_whole": batch_size == num_rows, "can_refresh": True}
    return SimpleNamespace(**known | changes)


def filled(target: Any = POSTERIOR, batches: Any = None, **chosen: Any) -> dict[str, Any]:
    choices = {**OPEN, "num_steps": 3000, "learning_rate": "auto"} | chosen
    whole = rows(300, 300)
    return options.fill_in(choices, target, whole if batches is None else batches)


def part(choices: dict[str, Any], **wanted: Any) -> None:
    assert {name: choices[name] for name in wanted} == wanted


def test_exact_energies_are_moved_along_by_hmc_and_swapped_at_every_step() -> None:
    wanted = {"num_replicas": 8, "kernel": "hmc", "temperature": "auto", "adapt": True}
    wanted |= {"on_nonfinite": "stop", "swap_energy": "batch", "burn_in": 1000, "swap_every": 1}
    part(filled(), **wanted, rule="metropolis", thin=1, schedule="deo")


def test_what_is_chosen_stays() -> None:
    part(filled(kernel="sgld"), kernel="sgld", on_nonfinite="restart")
    part(filled(burn_in=7, thin=3, rule="bias_corrected"), burn_in=7, thin=3, rule="bias_corrected")
    part(filled(temperature=(1.0, 3.0), adapt=False), temperature=(1.0, 3.0), adapt=False)
    part(filled(temperature=(1.0, 2.0, 4.0)), num_replicas=None)  # as many as temperatures
    part(filled(learning_rate=(0.1, 0.2)), num_replicas=8)  # two are the ends
    part(filled(window=1), schedule="deo")
    part(filled(window=4), schedule="no_gate")
    part(filled(schedule="seo"), schedule="seo")


def test_one_replica_has_no_ladder() -> None:
    part(filled(num_replicas=1), schedule="none", temperature=1.0, adapt=False, num_replicas=1)


def test_an_energy_with_noise_of_its_own_is_not_exact() -> None:
    noisy = POSTERIOR._replace(noise=lambda key: 0.0)
    part(filled(noisy, rows(300, 300)), kernel="langevin", on_nonfinite="restart")


@pytest.mark.parametrize(
    ("num_steps", "batches", "wanted"),
    [
        # All rows cost half of the moves of 20 steps: 300 / (3 x 10 / 2) evaluations.
        (20_000, rows(), ("full", 20, "metropolis")),
        (19_999, rows(), ("batch", 10, "bias_corrected")),  # too few attempts
        (20_000, rows(data=None), ("batch", 10, "bias_corrected")),  # of a source
        (20_000, rows(310), ("batch", 10, "bias_corrected")),  # every 21 steps, 952 attempts
        (10_000, rows(100), ("full", 10, "metropolis")),  # every 7 would do: ten are usual
    ],
)
def test_mini_batches_are_judged_on_all_rows_where_that_costs_little(
    num_steps: int, batches: Any, wanted: tuple[str, int, str]
) -> None:
    energy, every, rule = wanted
    found = filled(batches=batches, num_steps=num_steps)
    part(found, kernel="langevin", on_nonfinite="restart", swap_energy=energy)
    part(found, swap_every=every, rule=rule, thin=every)
    assert found["burn_in"] == num_steps // 3 // every * every


def test_energies_and_steps_of_ones_own_are_kept_on_mini_batches() -> None:
    part(filled(batches=rows(), swap_energy="full"), swap_energy="full", swap_every=20)
    found = filled(batches=rows(), num_steps=20_000, swap_every=5)
    part(found, swap_energy="full", swap_every=5, thin=5, burn_in=6665)


def test_a_bare_energy_that_is_noisy_needs_a_learning_rate() -> None:
    bare = rx.Target(lambda x, batch, key: 0.0)
    part(filled(bare, rows(300, 300)), kernel="hmc")
    noisy = bare._replace(noise=lambda key: 0.0)
    told = rows(300, 300, can_refresh=False)  # batches of a function of the step
    for target, batches in ((bare, rows()), (noisy, rows(300, 300)), (bare, told)):
        with pytest.raises(ValueError, match="learning_rate is not given, and the energy is noisy"):
            filled(target, batches)


def test_the_papers_choices_are_those_of_a_bare_energy_with_a_learning_rate() -> None:
    bare = rx.Target(lambda x, batch, key: 0.0)
    assert filled(bare)["kernel"] == filled(learning_rate=(0.1, 0.2))["kernel"] == "hmc"
    assert filled(bare, learning_rate=(0.1, 0.2))["kernel"] is None
    part(options.PAPER, schedule="deo_star", rule="deterministic", kernel="sgld", temperature=1.0)
    part(options.PAPER, burn_in=0, thin=1, on_nonfinite="restart", swap_every=1)
