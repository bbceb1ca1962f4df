"""The warnings of a run."""

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from altered_runs import with_properties
from common import in_method
from made_up_metadata import changed

import replicax as rx
from replicax.results import diagnostics
from replicax.run.batch_source import NoBatches
from replicax.run.batches import EpochBatches, as_batches


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
    return rx.sample(rx.targets.gaussian(), jnp.zeros(2), **in_method(defaults | options))


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


@pytest.fixture(scope="module")
def good() -> rx.Posterior:
    return sample_bowl()


def says(posterior: rx.Posterior, words: str) -> bool:
    return any(words in sentence for sentence in posterior.problems())


# Draws


def with_draws(good: rx.Posterior, values: np.ndarray) -> rx.Posterior:
    """Two parameters of independent draws, and another with these values."""
    noise = np.random.default_rng(0).standard_normal((2, 4, good.num_draws))
    components = {"a": noise[0], "worst": values, "b": noise[1]}
    return with_properties(good, components=lambda: components)


def autoregression(num_draws: int, correlation: float) -> np.ndarray:
    values = np.random.default_rng(1).standard_normal((4, num_draws))
    for draw in range(1, num_draws):
        values[:, draw] += correlation * values[:, draw - 1]
    return values


def test_chains_that_do_not_agree_are_a_warning_that_names_the_worst_parameter(good) -> None:
    noise = np.random.default_rng(1).standard_normal((4, good.num_draws))
    assert with_draws(good, noise).problems() == []
    moved = with_draws(good, noise + 0.5 * np.arange(4)[:, None])
    assert says(moved, "R-hat over chains is 1.1") and says(moved, "for worst (above 1.01)")
    optimised = with_properties(moved, temperatures=np.zeros((4, 3)))
    assert not says(optimised, "R-hat over chains")
    drifts = {"worst": noise[:1] + np.linspace(0, 2, good.num_draws)}
    alone = {"num_chains": 1, "energies": noise[:1], "rung_of": good.rung_of[:1]}
    alone = with_properties(good, components=lambda: drifts, **alone)
    assert not says(alone, "R-hat over chains")


@pytest.mark.parametrize(("correlation", "few"), [(0.5, False), (0.97, True)])
def test_few_effective_draws_are_a_warning(good, correlation: float, few: bool) -> None:
    # 1,950 draws times (1 - a) / (1 + a): 650 and 30 per chain.
    found = with_draws(good, autoregression(good.num_draws, correlation))
    assert says(found, "The effective size of worst in its bulk") == few


def test_few_effective_draws_in_the_tails_are_a_warning(good) -> None:
    rng = np.random.default_rng(1)
    wide = np.repeat(rng.random((4, good.num_draws // 75)) < 0.15, 75, axis=1)
    values = rng.standard_normal((4, good.num_draws)) * np.where(wide, 10.0, 1.0)
    assert says(with_draws(good, values), "The effective size of worst in its tails")


# The ladder


def test_a_collapsed_ladder_is_a_warning(good) -> None:
    def collapses(rates: list[float], temperatures: list[float], words: str = "") -> bool:
        ladder = {"learning_rates": np.tile(rates, (4, 1)), "num_replicas": len(rates),
                  "temperatures": np.tile(temperatures, (4, 1))}  # fmt: skip
        return says(with_properties(good, **ladder), f"The ladder has collapsed{words}")

    sgd = [1.0, 0, 0, 0, 0, 0]
    assert collapses([1e-4] * 4 + [1e-3] * 2, sgd, words=": rungs 1 to 3, 4 to 5 of chain 0")
    assert collapses([1e-4, 1.01e-4, 1.02e-4, 1.03e-4, 9.9e-4, 1e-3], sgd)
    assert not collapses(list(np.geomspace(1e-4, 1e-3, 6)), sgd)
    assert not collapses([1e-4, 2e-4, 2.01e-4, 3e-4, 5e-4, 1e-3], sgd)  # one pair of five
    assert not collapses([0.1] * 6, list(np.geomspace(1, 10, 6)))
    assert collapses([0.1] * 6, [1.0, 1.001, 1.002, 9.99, 9.999, 10.0])
    assert not collapses([0.1] * 6, [1.0, 2.0, 4.0, 8.0, 16.0, np.inf])  # the prior at the end
    assert not collapses([0.1] * 6, [1.0] * 6)  # both ends are the same: as it was given


DATA = jnp.zeros((100, 2))


@pytest.mark.parametrize(
    ("batches", "unknown"),
    [
        (NoBatches(), False),
        (as_batches(DATA, 100), False),
        (as_batches(DATA, 10), True),
        (as_batches(lambda step: DATA, None), True),
        (EpochBatches(DATA, 10), True),
    ],
)
def test_the_deterministic_rule_is_a_warning_of_its_own_with_mini_batches(
    good, batches: Any, unknown: bool
) -> None:
    metadata = changed(good.metadata, batches=batches.describe(), rule="deterministic")
    sentence = "t is not known that the deterministic rule samples the posterior"
    assert says(with_properties(good, metadata=metadata), sentence)
    assert (
        says(with_properties(good, metadata=metadata), f"With mini-batches i{sentence}") == unknown
    )
    optimised = with_properties(good, metadata=metadata, temperatures=np.zeros((4, 3)))
    assert not says(optimised, sentence)
    training = changed(metadata, kind="train")
    assert not says(with_properties(good, metadata=training), sentence)
    exact = changed(metadata, rule="bias_corrected")
    assert not says(with_properties(good, metadata=exact), sentence)


def test_a_large_movement_of_the_ladder_is_told_as_a_factor(good) -> None:
    summary = good.summary()
    summary["ladder_moved"] = 0.123
    assert "12.3%" in str(summary)
    summary["ladder_moved"] = 7.409
    assert "by a factor of 8.4" in str(summary)


def test_a_rung_of_infinite_temperature_stands_still(good) -> None:
    history = good.history
    rungs = np.broadcast_to([1.0, 4.0, np.inf], history["temperature"].shape).copy()
    metadata = changed(good.metadata, adapts="temperature")
    adapted = with_properties(good, history={**history, "temperature": rungs}, metadata=metadata)
    assert diagnostics.ladder_moved(adapted) == 0
    rungs[2, -1, 1] = 5.0
    assert diagnostics.ladder_moved(adapted) == 0.25


def test_a_start_from_one_point_is_told_beside_the_rhat_over_replicas(good) -> None:
    assert good.metadata.resolved.one_start
    assert "started at one point" in str(good.summary())
    metadata = changed(good.metadata, one_start=False)
    assert "started at one point" not in str(with_properties(good, metadata=metadata).summary())
