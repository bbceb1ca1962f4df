"""Trainings side by side: networks and averages of each are those of the run alone."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tiny_networks import NETWORK, tiny_problem

import replicax as rx

pytestmark = pytest.mark.filterwarnings("ignore::replicax.errors.RunProblem")
PROBLEM = tiny_problem()


def call(problem: Any = PROBLEM, network: Any = NETWORK, **options: Any) -> Callable[[], Any]:
    defaults = {"epochs": 2, "num_replicas": 2, "cycle_epochs": 2, "progress": False}
    return functools.partial(rx.train, problem, network.init, **{**defaults, **options})


def assert_same(one: rx.Trained, other: rx.Trained) -> None:
    assert (one.method, one.num_epochs, one.num_replicas) == (
        other.method, other.num_epochs, other.num_replicas
    )  # fmt: skip
    np.testing.assert_allclose(one.log_probabilities(), other.log_probabilities(), atol=1e-4)
    np.testing.assert_allclose(one.epochs["nll"], other.epochs["nll"], rtol=1e-3)
    inputs = np.zeros((2, 6, 6, 1), np.uint8)
    np.testing.assert_allclose(one.predict(inputs), other.predict(inputs), atol=1e-4)


def test_cyclical_methods_and_seeds_share_their_steps() -> None:
    calls = [call(method="cyc-sghmc", seed=1), call(method="cyc-swag")]
    sghmc, swag = rx.together(calls)
    assert_same(swag, calls[1]())  # no noise beside a run with noise
    assert (sghmc.method, sghmc.num_epochs) == ("cyc-sghmc", swag.num_epochs)


@pytest.mark.slow
def test_convolutions_of_runs_side_by_side_are_their_own() -> None:
    network = rx.nn.small_cnn(3, widths=(2, 2))
    problem = tiny_problem(network)
    calls = [call(problem, network, method="cyc-sghmc", seed=seed) for seed in (0, 1)]
    for one, alone in zip(rx.together(calls), calls, strict=True):
        assert_same(one, alone())


@pytest.mark.slow
def test_ladders_of_networks_run_side_by_side(tmp_path) -> None:
    calls = [
        call(method="deo-star", num_replicas=3, window=2, learning_rate=(0.02, 0.1), seed=seed,
             run_dir=tmp_path / f"{seed}")
        for seed in (0, 1)
    ]  # fmt: skip
    together = rx.together(calls)
    for seed, one in enumerate(together):
        alone = call(method="deo-star", num_replicas=3, window=2, learning_rate=(0.02, 0.1),
                     seed=seed)()  # fmt: skip
        assert_same(one, alone)
        np.testing.assert_array_equal(one.rung_of, alone.rung_of)
        assert rx.load(tmp_path / f"{seed}", PROBLEM).num_steps == one.num_steps
