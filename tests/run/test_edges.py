"""The edges of options, and closed forms of what a run is built from: one step, one more."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax.run import parts
from replicax.run.options import Sampling, Session, Training, checkpoint_interval
from replicax.run.resolve import resolve, with_usual
from replicax.run.task import as_task

LITTLE, MOST = 1e-9, 2**31 - 1


def sampling(**given: Any) -> Sampling:
    return Sampling(**{"num_steps": 10} | given)


def training(**given: Any) -> Training:
    return Training(**{"epochs": 10} | given)


def method(**given: Any) -> rx.Method:
    return rx.Method("mine", **given)


EDGES: dict[str, tuple[Callable[..., Any], str, list, list]] = {
    "steps": (sampling, "num_steps", [1, MOST], [0, MOST + 1]),
    "chains": (sampling, "num_chains", [1], [0]),
    "thin": (sampling, "thin", [1, None], [0]),
    "burn-in": (sampling, "burn_in", [0, None], [-1]),
    "history": (sampling, "history_every", [1, None], [0]),
    "seed": (sampling, "seed", [-(2**31), 2**32 - 1], [-(2**31) - 1, 2**32]),
    "checkpoints": (sampling, "keep_checkpoints", [1], [0]),
    "checkpoint_every": (
        sampling, "checkpoint_every", [1, "1s", "0.5m", None], [0, "1", "s", "1d", "-1s", "1.s"]
    ),
    "draw_rungs": (sampling, "draw_rungs", [(0, 2), [0], range(2), "all"], [(0, 0.5), "al", 0]),
    "epochs": (training, "epochs", [1], [0]),
    "networks": (training, "num_replicas", [1], [0]),
    "epochs of burn-in": (training, "burn_in", [0, None], [-1]),
    "averaged networks": (training, "keep_averaged", [0], [-1]),
    "window": (method, "window", [1, None], [0]),
    "swap_every": (method, "swap_every", [1, None], [0]),
    "target_swap_rate": (method, "target_swap_rate", [LITTLE, 0.99, None], [0.0, 1.0]),
    "momentum": (method, "momentum", [0.0, 0.99], [-LITTLE, 1.0, None]),
    "warm-up": (method, "warmup_epochs", [0.0, LITTLE], [-LITTLE]),
    "cycle": (method, "cycle_epochs", [1], [0]),
    "norm": (method, "clip_norm", [LITTLE, None], [0.0]),
    "test_every": (method, "test_every", [1], [0]),
    "adapt": (method, "adapt", [0, 1, True, False, None], [-1, 0.5, "no"]),
    "note": (Session, "note", [None, {}, {"a": [1, None]}], [[], "a", {"a": print}, {1j: 2}]),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_the_edge_is_taken_and_what_is_beyond_it_refused(name: str) -> None:
    make, option, taken, refused = EDGES[name]
    for value in taken:
        kept = getattr(make(**{option: value}), option)
        assert kept is value
    for value in refused:
        with pytest.raises(ValueError, match=option):
            make(**{option: value})


def test_what_is_usual_is_what_the_documentation_promises() -> None:
    """A default is a promise: who changes one changes what runs for everyone."""
    run, trained, usual, alone = sampling(), training(), method(), Session()
    assert (run.num_chains, run.seed, run.keep_checkpoints, run.draw_rungs) == (None, 0, 2, (0,))
    assert run.keep_draws and not trained.keep_networks
    assert (trained.num_replicas, trained.burn_in, trained.keep_averaged) == (10, None, None)
    assert (usual.momentum, usual.cycle_epochs, usual.test_every) == (0.9, 100, 1)
    assert (usual.on_swap, usual.rate_schedule, usual.averages) == ("keep", "constant", "coldest")
    assert not (usual.is_single or usual.tempers_likelihood or usual.keeps_law)
    assert usual.warmup_epochs == 0 and alone.data_parallel == 1 and alone.devices is None
    assert checkpoint_interval(None) == (None, 30.0) and checkpoint_interval(1) == (1, 0.0)
    assert [checkpoint_interval(f"2{unit}")[1] for unit in "smh"] == [2.0, 120.0, 7200.0]


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (rx.cyc_sghmc(), {"learning_rate": 0.1, "temperature": 1e-3, "cycle_epochs": 100}),
        (rx.cyc_swag(), {"learning_rate": 0.1, "averages": "gaussian", "cycle_epochs": 100}),
        (rx.pretrain(), {"learning_rate": 0.1, "averages": "nothing", "test_every": 10}),
        (rx.sghmc_pt(0.1), {"kernel": "sghmc", "temperature": "auto", "swap_every": 10}),
        (rx.sgld(0.1), {"kernel": "sgld", "temperature": 1.0, "averages": "all"}),
        (rx.ensemble(), {"averages": "all", "temperature": 0.0}),
    ],
)
def test_methods_are_those_of_their_papers(made: rx.Method, wanted: dict[str, Any]) -> None:
    """A rate that is left open fits new networks; networks that were trained have these."""
    closed = with_usual(made, of_networks=True)
    assert {name: getattr(closed, name) for name in wanted} == wanted
    assert made.learning_rate == (0.1 if made.name in ("pretrain", "sghmc-pt", "sgld") else None)
    assert made.is_single == made.name.startswith("cyc")
    assert made.is_cyclical == made.name.startswith("cyc")
    assert made.tempers_likelihood == (made.name == "sghmc-pt")


def test_what_a_method_leaves_open_is_as_in_the_paper_for_networks_and_for_targets() -> None:
    networks, target = with_usual(rx.deo_star(), True), with_usual(rx.deo_star(), False)
    assert (networks.kernel, networks.temperature, networks.target_swap_rate) == (
        "momentum", 0.0, 0.005
    )  # fmt: skip
    assert networks.learning_rate == (0.005, 0.02) and networks.buffer == 0.1
    assert networks.gain == rx.Gain(600.0, 1000.0)
    assert networks.buffer_gain == rx.Gain(60.0, 1000.0, cap=0.05)
    assert (target.kernel, target.temperature, target.target_swap_rate) == ("sgld", 1.0, 0.4)
    assert target.learning_rate is None and target.buffer == target.buffer_gain == "auto"
    assert target.gain == rx.Gain() == rx.Gain(50.0, 500.0, 0.8, 0.5)
    for usual in (networks, target):
        assert (usual.rule, usual.swap_every, usual.momentum) == ("deterministic", 1, 0.9)
    assert with_usual(rx.ensemble(), True).learning_rate == 0.005, "without a ladder one rate"
    ladder = rx.sghmc_pt(kernel="sghmc")
    assert with_usual(ladder, True).learning_rate == 0.005, "temperatures are the ladder"
    exact = with_usual(rx.posterior(), False)
    assert (exact.kernel, exact.schedule, exact.rule, exact.swap_every) == (None,) * 4
    assert exact.temperature == exact.learning_rate == "auto"


def test_methods_that_contradict_themselves_are_refused() -> None:
    gaussian = {"averages": "gaussian", "rate_schedule": "cyclical"}
    assert method(**gaussian, test_every=1).draws_gaussian
    assert method(test_every=2).test_every == 2
    assert method(is_single=True, schedule="none").is_single
    for wrong in ({"test_every": 2} | gaussian, {"averages": "gaussian"}):
        with pytest.raises(ValueError, match="gaussian"):
            method(**wrong)
    with pytest.raises(ValueError, match="one network"):
        method(is_single=True, schedule="deo")


def test_draws_of_the_target_come_first_and_each_rung_once() -> None:
    assert parts.draw_rungs("all", 3) == (0, 1, 2)
    assert parts.draw_rungs((0, 2), 3) == (0, 2)
    assert parts.draw_rungs(range(1), 3) == (0,)
    for wrong in ((), (1,), (1, 0), (0, 2, 2), (0, 3), (0, -1)):
        with pytest.raises(ValueError, match="draw_rungs"):
            parts.draw_rungs(wrong, 3)


# Rounds of tuning


def bowl(x: Any) -> Any:
    return jnp.sum(x**2)


POSTERIOR = rx.Target(bowl, prior=bowl, tempers_likelihood=True)


def program(burn_in: int, method: rx.Method, target: Any = bowl, num_replicas: int = 4) -> Any:
    run = sampling(num_steps=20_000, burn_in=burn_in, num_replicas=num_replicas)
    return resolve(as_task(target), run, method)


def tuning(burn_in: int, num_replicas: int = 4, **given: Any) -> Any:
    method = rx.posterior(**given)
    return program(burn_in, method, num_replicas=num_replicas).settings.tuning


def test_rounds_of_tuning_double_and_the_last_fifth_is_kept_for_what_was_tuned() -> None:
    """Of step sizes all rounds, of temperatures the last four, after a sixteenth of the burn-in."""
    made = tuning(6400)
    doubled = (100, 200, 400, 800, 1600, 3200)
    assert made.step_sizes.round_ends == (*doubled, 5120) and made.step_sizes.until == 6400
    assert made.barrier.round_ends == (800, 1600, 3200, 5120) and made.barrier.first_step == 400
    assert (made.barrier.hottest, made.barrier.free_until) == (1000.0, 3201)
    assert made.until == 6400 and made.adapts == "temperature"


def test_a_short_burn_in_has_fewer_rounds_and_none_of_no_steps() -> None:
    assert tuning(5).step_sizes.round_ends == (1, 2, 4)
    assert tuning(1).step_sizes.round_ends == (1,)


def test_a_given_ladder_of_temperatures_keeps_its_ends() -> None:
    made = tuning(6400, temperature=(1.0, 9.0)).barrier
    assert (made.round_ends, made.first_step) == ((800, 1600, 3200, 5120), 400)
    assert made.free_until == 0


def test_only_an_automatic_ladder_of_two_rungs_adapts_its_hottest_temperature() -> None:
    assert tuning(50, 2).adapts == "temperature"
    assert tuning(50, 2, temperature=(1.0, 4.0)).adapts is None
    assert tuning(50, 3, temperature=(1.0, 4.0)).adapts == "temperature"


@pytest.mark.parametrize(
    ("target", "count", "wanted"),
    [
        (bowl, 3, [1.0, 10.0, 100.0]),
        (POSTERIOR, 4, [1.0, 1000.0**0.5, 1000.0, np.inf]),  # up to the prior
        (POSTERIOR, 2, [1.0, 100.0]),
    ],
)
def test_an_automatic_ladder_begins_at_1(target: Any, count: int, wanted: list[float]) -> None:
    made = program(100, rx.posterior(), target, count).ladder
    np.testing.assert_allclose(made.temperature, wanted)
    np.testing.assert_allclose(made.learning_rate, 0.01)


# Preconditioners


def spec_of(kernel: Any, burn_in: int, rule: str = "metropolis") -> dict[str, Any]:
    method = rx.Method("mine", learning_rate=0.1, temperature=(1.0, 2.0), schedule="deo",
                       kernel=kernel, rule=rule, adapt=False)  # fmt: skip
    return program(burn_in, method).kernel.traits.spec


@pytest.mark.parametrize(("decay", "averaged"), [(0.99, 100), (0.9, 10), (0.5, 2), (0.0, 1)])
def test_a_preconditioner_is_frozen_after_half_of_a_burn_in_of_twice_what_it_averages(
    decay: float, averaged: int
) -> None:
    kernel = rx.kernels.preconditioned(decay)
    assert spec_of(kernel, 2 * averaged) == kernel.traits.spec | {"freeze_after": averaged}
    assert spec_of(kernel, 2 * averaged + 3)["freeze_after"] == (2 * averaged + 3) // 2
    with pytest.raises(ValueError, match=f"averages over {averaged} steps.*={2 * averaged} or"):
        spec_of(kernel, 2 * averaged - 1)


def test_a_preconditioner_of_ones_own_freezes_within_the_burn_in_and_others_stay() -> None:
    for kernel in (rx.kernels.preconditioned(freeze_after=50), rx.kernels.sghmc()):
        assert spec_of(kernel, 50) == kernel.traits.spec
    free = rx.kernels.preconditioned()
    assert spec_of(free, 50, "deterministic") == free.traits.spec
    with pytest.raises(ValueError, match="freeze_after is 51.*burn_in=102"):
        spec_of(rx.kernels.preconditioned(freeze_after=51), 50)
