"""The methods to sample networks have the constants of the paper and its authors' code."""

import inspect
from typing import Any

import numpy as np
import pytest
from common import OF_NETWORKS
from tiny_networks import tiny_problem

import replicax as rx
from replicax.networks import swag
from replicax.networks.train import weights_of
from replicax.run.methods import METHODS, Method
from replicax.run.options import Training
from replicax.run.parts import Clock, build_kernel, clock_of
from replicax.run.resolve import resolve, with_usual

CLOCK = Clock(epochs=200, steps_per_epoch=5, cycle_epochs=50)
TRAINING = ("deep-ensemble", "ensemble-then-sample")  # with a rate that is found
SAMPLING = [name for name in OF_NETWORKS if name not in TRAINING]


def closed(name: str, **choices: Any) -> Method:
    """A method with what is usual for networks where it is open."""
    return with_usual(METHODS[name](**choices), of_networks=True)


def spec_of(name: str, clock: Clock = CLOCK, **choices: Any) -> dict[str, Any]:
    steps = clock.epochs * clock.steps_per_epoch
    spec = build_kernel(closed(name, **choices), steps, clock, None).traits.spec
    assert spec is not None
    return spec


def test_start_networks_are_trained_at_a_fifth_after_70_and_90_percent() -> None:
    spec = spec_of("pretrain")
    assert (spec["name"], spec["falls"], spec["factor"]) == ("stepwise", [700, 900], 0.2)
    assert spec["kernel"]["name"] == "momentum" and spec["kernel"]["decay"] == 0.9
    short = spec_of("pretrain", Clock(13, 4, 13))
    assert short["falls"] == [4 * 9, 4 * 12], "whole epochs, the nearest"


@pytest.mark.parametrize("method", ["cyc-sghmc", "cyc-swag"])
def test_cycles_hold_their_last_15_percent(method: str) -> None:
    spec = spec_of(method)
    del spec["kernel"]
    assert spec == {"name": "cyclical", "cycle_length": 250, "exploitation": 0.15, "hold": True}


def test_temperatures_rates_and_schedules_of_the_methods() -> None:
    methods = {name: closed(name) for name in SAMPLING}
    table = {
        name: (m.learning_rate, m.temperature, m.schedule, m.is_single)
        for name, m in methods.items()
    }
    assert table == {
        "deo-star": ((0.005, 0.02), 0.0, "deo_star", False),
        "deo": ((0.005, 0.02), 0.0, "deo", False),
        "sghmc-pt": ("auto", 1.0, "none", False),
        "ensemble": (0.005, 0.0, "none", False),
        "sgld": ("auto", 1.0, "none", False),
        "cyc-sghmc": (0.1, 0.001, "none", True),
        "cyc-swag": (0.1, 0.0, "none", True),
        "pretrain": (0.1, 0.0, "none", False),
    }
    assert [name for name, m in methods.items() if m.picks_all] == ["ensemble"]
    assert [name for name, m in methods.items() if m.draws_gaussian] == ["cyc-swag"]
    assert {name: m.test_every for name, m in methods.items() if m.test_every > 1} == {
        "pretrain": 10
    }
    assert [name for name, m in methods.items() if m.tempers_likelihood] == ["sghmc-pt"]


def test_sgld_has_no_momentum_and_the_others_have_the_users() -> None:
    for name in SAMPLING:
        spec = spec_of(name, momentum=0.8, learning_rate=0.01)
        inner = spec.get("kernel", spec)
        assert (inner["name"] == "sgld") == (name == "sgld")
        assert inner.get("decay", 0.8) == 0.8
        plain = spec_of(name, momentum=0.0)
        assert plain.get("kernel", plain)["name"] == "sgld"


def weights(name: str, burn_in: int = 0, **choices: Any) -> list[list[float]]:
    """Of two networks in epochs 1 to 12; ensembles are averaged every fourth."""
    choices |= {"cycle_epochs": 6} if name.startswith("cyc") else {}
    method, alone = METHODS[name](**choices), name.startswith("cyc")
    run = Training(epochs=12, num_replicas=1 if alone else 2, burn_in=burn_in)
    clock = clock_of(run, method, 5)._replace(pick_every=4)
    found = weights_of(resolve(tiny_problem(batch_size=7), run, method), clock)
    return [found(epoch, 2).tolist() for epoch in range(1, 13)]


def test_which_networks_are_averaged() -> None:
    coldest, none, both = [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]
    assert weights("deo-star", burn_in=2) == [none] * 2 + [coldest] * 10
    assert weights("ensemble") == [none, none, none, both] * 3
    late = weights("ensemble", burn_in=4)
    assert late == [none] * 4 + [none, none, none, both] * 2
    slow = weights("cyc-sghmc")  # 15 % of 30 steps are the last four
    assert slow == ([none] * 5 + [coldest]) * 2
    last = [none] * 11 + [both]
    for name in TRAINING:
        assert weights(name, learning_rate=0.1) == last
    for name in ("pretrain", "cyc-swag"):
        assert not np.any(weights(name))


def test_the_defaults_are_the_papers_for_cifar_100() -> None:
    run = {name: x.default for name, x in inspect.signature(rx.train).parameters.items()}
    expected = {"method": "deep-ensemble", "num_replicas": 10, "burn_in": None}
    assert {name: run[name] for name in expected} == expected
    method = closed("deo-star")
    assert (method.momentum, method.target_swap_rate, method.window) == (0.9, 0.005, None)
    assert (method.buffer, method.on_swap) == (0.1, "keep")
    assert METHODS["cyc-swag"]().cycle_epochs == METHODS["cyc-sghmc"]().cycle_epochs == 100
    gain, buffer_gain = method.gain, method.buffer_gain
    assert (gain.scale, gain.offset, gain.power, gain.cap) == (600, 1000, 0.8, 0.5)
    assert (buffer_gain.scale, buffer_gain.offset, buffer_gain.cap) == (60, 1000, 0.05)


def test_the_constants_of_swag() -> None:
    assert swag.start({"w": np.zeros(3, np.float32)}).deviations["w"].shape == (20, 3)
    assert (swag.NUM_DRAWS, swag._REFRESH_BATCHES) == (10, 50)


def test_which_rates_depend_on_the_length_of_a_run() -> None:
    in_time = ("constant", "cosine", "cyclical", "stepwise")
    follows = [Method("own", rate_schedule=name).follows_length for name in in_time]
    assert follows == [False, True, False, True]
