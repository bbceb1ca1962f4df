"""The warnings of a run."""

import warnings

import jax.numpy as jnp
import pytest

import replicax as rx


def sample_bowl(**options) -> rx.Posterior:
    """A Gaussian, four chains, learning rates at which successive draws are nearly independent."""
    defaults = {
        "num_steps": 2_000,
        "num_chains": 4,
        "num_replicas": 3,
        "learning_rate": 0.8,
        "temperature": (1.0, 4.0),
        "rule": "metropolis",
        "schedule": "deo",
        "burn_in": 50,
    }
    return rx.sample(rx.targets.gaussian(), jnp.zeros(2), **(defaults | options))


def test_a_run_without_problems_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior = sample_bowl()
    assert posterior.problems() == []
    assert posterior.round_trips.min() > 100
    assert posterior.summary()["problems"] == []


@pytest.mark.filterwarnings("ignore:Pair")
def test_no_round_trip_is_a_warning_where_rhat_looks_fine() -> None:
    stuck = {"rule": "deterministic", "buffer": 1e6, "adapt": False}
    with pytest.warns(UserWarning, match="R-hat looks fine .* but chain 0 made no round trip"):
        posterior = sample_bowl(**stuck)
    assert posterior.round_trips.tolist() == [0, 0, 0, 0]
    assert any("no round trip" in sentence for sentence in posterior.summary()["problems"])


def test_without_exchange_round_trips_are_not_expected() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample_bowl(schedule="none", adapt=False)


def test_a_buffer_below_zero_is_a_warning() -> None:
    eager = {"rule": "deterministic", "target_swap_rate": 0.8, "learning_rate": (0.2, 0.8)}
    with pytest.warns(UserWarning, match="The buffer ended below zero"):
        posterior = sample_bowl(**eager)
    assert posterior.buffer.min() < 0


@pytest.mark.filterwarnings("ignore:R-hat")
def test_a_pair_that_hardly_ever_swaps_is_a_warning_that_names_it() -> None:
    with pytest.warns(UserWarning, match="Pair 1 of chain . hardly ever swaps"):
        posterior = sample_bowl(temperature=(1.0, 2.0, 4_000.0))
    rates = posterior.window_swap_rate
    assert rates[:, 0].min() > 0.3 and rates[:, 1].max() < 0.01
