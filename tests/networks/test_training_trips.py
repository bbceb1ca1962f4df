"""A training that is stopped goes on with its round trips; one without any warns."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import assert_same_run

import replicax as rx
from replicax.networks.task import Test, supervised

ROWS = np.random.default_rng(1).normal(size=(8, 2)).astype(np.float32)
STEPS = 4  # of an epoch
# A buffer so low that every pair that may swap does.
SWAPPING: dict[str, Any] = {
    "epochs": 6,
    "method": rx.deo(learning_rate=(0.02, 0.1), buffer=-1e6),
    "num_replicas": 2,
    "keep_networks": True,
    "progress": False,
}


def quick_problem() -> Any:
    """Quick to compile: two numbers, drawn to the rows."""

    def loss_fn(params: Any, state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        return jnp.mean((params - batch) ** 2), state

    logits = lambda params, state, inputs: inputs[:, None] * params  # noqa: E731
    test = Test(logits, jnp.ones(2), jnp.array([0, 1]), 2)
    return supervised(loss_fn, ROWS, batch_size=2, test=test)


def start(key: Any) -> tuple[Any, Any]:
    return jax.random.normal(key, (2,)), {}


@pytest.mark.slow
def test_a_training_goes_on_with_its_round_trips_and_epochs(tmp_path: Path) -> None:
    """Two replicas that swap whenever they may: round trips begin before and after the stop."""
    problem = quick_problem()
    whole = rx.train(problem, start, **SWAPPING)
    stopped = rx.train(
        problem,
        start,
        run_dir=tmp_path / "run",
        callback=lambda progress: "stop" if progress.step >= 3 * STEPS else None,
        **SWAPPING,
    )
    assert 0 < stopped.round_trips[0] < whole.round_trips[0]
    resumed = rx.resume(tmp_path / "run", problem, progress=False)
    assert_same_run(resumed, whole)
    assert resumed.num_epochs == 6 and resumed.result.code == "finished"
    assert resumed.epochs["epoch"].tolist() == [1, 2, 3, 4, 5, 6]


def test_a_training_warns_at_its_end_and_again_when_it_is_resumed(tmp_path: Path) -> None:
    method = rx.deo(learning_rate=(0.02, 0.1), buffer=1e6)
    still = {**SWAPPING, "method": method, "run_dir": tmp_path / "run"}
    with pytest.warns(UserWarning, match="Chain 0 made no round trip"):
        trained = rx.train(quick_problem(), start, **still)
    assert any("no round trip" in sentence for sentence in trained.summary()["problems"])
    with pytest.warns(UserWarning, match="Chain 0 made no round trip"):
        rx.resume(tmp_path / "run", quick_problem(), progress=False)


@pytest.mark.filterwarnings("ignore:The buffer")
def test_the_few_draws_of_weights_are_no_reason_to_warn() -> None:
    trained = rx.train(quick_problem(), start, **SWAPPING)
    (sentence,) = trained.problems()
    assert "The buffer ended below zero" in sentence
