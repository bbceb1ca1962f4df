"""The methods to sample networks have the constants of the paper and its authors' code."""

import inspect

import numpy as np
import pytest

from replicax.networks import swag, swag_cycles
from replicax.networks.methods import METHODS, Clock, Method
from replicax.networks.options import TrainOptions

CLOCK = Clock(epochs=200, steps_per_epoch=5, cycle_epochs=50)


def test_start_networks_are_trained_at_a_fifth_after_70_and_90_percent() -> None:
    spec = METHODS["pretrain"].build_kernel(0.9, CLOCK).spec
    assert spec is not None
    assert (spec["name"], spec["falls"], spec["factor"]) == ("stepwise", [700, 900], 0.2)
    assert spec["kernel"]["name"] == "momentum" and spec["kernel"]["decay"] == 0.9
    short = METHODS["pretrain"].build_kernel(0.9, Clock(13, 4, 13)).spec
    assert short is not None and short["falls"] == [4 * 9, 4 * 12], "whole epochs, the nearest"


@pytest.mark.parametrize("method", ["cyc-sghmc", "cyc-swag"])
def test_cycles_hold_their_last_15_percent(method: str) -> None:
    spec = METHODS[method].build_kernel(0.9, CLOCK).spec
    assert spec is not None
    del spec["kernel"]
    assert spec == {"name": "cyclical", "cycle_length": 250, "exploitation": 0.15, "hold": True}


def test_temperatures_rates_and_schedules_of_the_methods() -> None:
    table = {
        name: (m.learning_rate, m.temperature, m.schedule, m.is_single)
        for name, m in METHODS.items()
    }
    assert table == {
        "deo-star": ((0.005, 0.02), 0.0, "deo_star", False),
        "deo": ((0.005, 0.02), 0.0, "deo", False),
        "sghmc-pt": (0.005, "auto", "deo", False),
        "ensemble": (0.005, 0.0, "none", False),
        "sgld": (0.005, 1.0, "none", False),
        "cyc-sghmc": (0.1, 0.001, "none", True),
        "cyc-swag": (0.1, 0.0, "none", True),
        "pretrain": (0.1, 0.0, "none", False),
    }
    assert [name for name, m in METHODS.items() if m.picks_all] == ["ensemble", "sgld"]
    assert [name for name, m in METHODS.items() if m.draws_gaussian] == ["cyc-swag"]
    assert {name: m.test_every for name, m in METHODS.items() if m.test_every > 1} == {
        "pretrain": 10
    }


def test_sgld_has_no_momentum_and_the_others_have_the_users() -> None:
    for name, method in METHODS.items():
        spec = method.build_kernel(0.8, CLOCK).spec
        assert spec is not None
        inner = spec.get("kernel", spec)
        assert (inner["name"] == "sgld") == (name == "sgld")
        assert inner.get("decay", 0.8) == 0.8
        plain = method.build_kernel(0.0, CLOCK).spec
        assert plain is not None and plain.get("kernel", plain)["name"] == "sgld"


def weights_of(name: str, **options: int) -> list[list[float]]:
    """Of two networks in epochs 1 to 12."""
    method = METHODS[name]
    clock = Clock(epochs=12, steps_per_epoch=5, cycle_epochs=6)
    weights = method.weights(clock, method.build_kernel(0.9, clock), **options)
    return [weights(epoch, 2).tolist() for epoch in range(1, 13)]


def test_which_networks_are_averaged() -> None:
    coldest, none, both = [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]
    assert weights_of("deo-star", pick_every=4, burn_in=2) == [none] * 2 + [coldest] * 10
    assert weights_of("ensemble", pick_every=4) == [none, none, none, both] * 3
    late = weights_of("ensemble", pick_every=4, burn_in=4)
    assert late == [none] * 4 + [none, none, none, both] * 2
    slow = weights_of("cyc-sghmc", pick_every=4)  # 15 % of 30 steps are the last four
    assert slow == ([none] * 5 + [coldest]) * 2
    for name in ("pretrain", "cyc-swag"):
        assert not np.any(weights_of(name, pick_every=4))


def test_the_defaults_are_the_papers_for_cifar_100() -> None:
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(TrainOptions).parameters.items()
    }
    expected = {
        "method": "deo-star",
        "num_replicas": 10,
        "momentum": 0.9,
        "target_swap_rate": 0.005,
        "window": None,
        "buffer": 0.1,
        "on_swap": "keep",
        "cycle_epochs": 100,
        "burn_in": 0,
    }
    assert {name: defaults[name] for name in expected} == expected
    gain, buffer_gain = defaults["gain"], defaults["buffer_gain"]
    assert (gain.scale, gain.offset, gain.power, gain.cap) == (600, 1000, 0.8, 0.5)
    assert (buffer_gain.scale, buffer_gain.offset, buffer_gain.cap) == (60, 1000, 0.05)


def test_the_constants_of_swag() -> None:
    assert swag.start({"w": np.zeros(3, np.float32)}).deviations["w"].shape == (20, 3)
    assert (swag_cycles.NUM_DRAWS, swag_cycles._REFRESH_BATCHES) == (10, 50)


def test_which_rates_depend_on_the_length_of_a_run() -> None:
    in_time = ("constant", "cosine", "cyclical", "stepwise")
    follows = [Method("own", rate_schedule=name).follows_length for name in in_time]
    assert follows == [False, True, False, True]
