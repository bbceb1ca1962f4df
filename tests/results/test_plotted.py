"""What figures and pages show of a run: the numbers that both draw."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_up_metadata import metadata_of
from numpy.testing import assert_allclose, assert_array_equal

from replicax.results import plotted

SAME = np.full((2, 3), 0.1)
RATES = np.array([[0.1, 0.2, 0.4], [0.1, 0.3, 0.4]])
HEATS = np.array([[1.0, 2.0, 9.0], [1.0, 3.0, 9.0]])


def run(
    rates: np.ndarray = RATES, heats: np.ndarray = SAME, num_replicas: int = 3, **about: Any
) -> Any:
    return SimpleNamespace(
        metadata=metadata_of(**about),
        num_replicas=num_replicas,
        learning_rates=rates,
        temperatures=heats,
        energy_scale=32.0,
        temperature_scale=0.5,
        window=about.get("window", 1),
    )


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ({"adapts": "learning_rate"}, "learning_rate"),
        ({"adapts": None}, "learning_rate"),
        ({"adapts": None, "rates": SAME, "heats": HEATS}, "temperature"),
        ({"adapts": None, "heats": HEATS}, "temperature"),  # rates are tuned for each rung
        ({"adapts": "learning_rate", "heats": HEATS}, "learning_rate"),
        ({"adapts": "temperature", "rates": SAME, "heats": SAME}, "temperature"),
        ({"adapts": None, "heats": HEATS - 1}, "learning_rate"),  # SGD on the coldest rung
        ({"adapts": None, "heats": HEATS, "num_replicas": 1}, "learning_rate"),
    ],
)
def test_what_differs_by_rung_makes_the_ladder(known: dict[str, Any], name: str) -> None:
    assert plotted.name_of_ladder(run(**known)) == name


def test_a_ladder_is_in_the_unit_of_the_user() -> None:
    made = run(heats=HEATS)
    values = np.arange(12.0).reshape(2, 2, 3)
    made.history = {"step": np.array([50, 100]), "learning_rate": values, "temperature": values}
    for name, end, scale in (("learning_rate", RATES, 32), ("temperature", HEATS, 0.5)):
        ladder = plotted.ladder_over_time(made, name)
        assert_allclose(ladder.values, scale * values)
        assert_allclose(ladder.end, scale * end)
    made.history = {"step": np.zeros(0, int)}
    ladder = plotted.ladder_over_time(made, "temperature")
    assert ladder.values.shape == (2, 0, 3) and ladder.steps.size == 0
    assert_allclose(ladder.end, 0.5 * HEATS)


@pytest.mark.parametrize(
    ("about", "target"),
    [
        ({"rule": "deterministic", "adapts": None}, 0.3),
        ({"rule": "metropolis", "adapts": "learning_rate"}, 0.3),
        ({"rule": "metropolis", "adapts": "temperature"}, None),
    ],
)
def test_rates_have_a_target_where_they_adapt_to_it(
    about: dict[str, Any], target: float | None
) -> None:
    assert plotted.target_of_rates(run(**about, target_swap_rate=0.3)) == target


def test_units_of_rates() -> None:
    assert plotted.attempt_of(run()) == "per step"
    assert plotted.attempt_of(run(swap_every=2)) == "per attempt"
    assert plotted.turn_of(run()) == "per turn"
    assert plotted.turn_of(run(window=8)) == "per window of 8 steps"


def test_rates_over_time_begin_where_counting_begins() -> None:
    """From step 100 on, 10 of 100 attempts, then 40."""
    history = {"step": np.array([100, 200, 300]), "verdicts": np.array([[[0], [10], [50]]])}
    made = run(counted_from=100)
    made.history = history
    steps, rates = plotted.rates_over_time(made)
    assert_array_equal(steps, [200, 300])
    assert_allclose(rates.ravel(), [0.1, 0.4])


def test_round_trips_so_far_count_from_burn_in_on() -> None:
    made = run(swap_every=1)
    made.num_steps, made.counted_steps = 100, 60
    made.window_swap_rate = np.array([[0.5, 0.5], [0.5, 0.0]])
    ends = [[np.array([30, 50]), np.array([90])], [np.array([40]), np.array([41, 100])]]
    trips = plotted.trips_so_far(made, ends, 101)
    assert trips.start == 40 and trips.steps.tolist() == list(range(101))
    assert_array_equal(trips.so_far[:, [0, 40, 41, 50, 89, 90, 100]],
                       [[0, 0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 1, 1, 2]])  # fmt: skip
    rates = plotted.expected_trips(made)
    assert rates is not None and rates[0] > 0 == rates[1]
    assert trips.expected == [60 * rate / 1000 for rate in rates]
    made.metadata = metadata_of(schedule="seo")
    assert plotted.trips_so_far(made, ends, 11).expected is None


def test_densities_are_those_of_finite_draws() -> None:
    values = np.array([[0.0, 1.0, 2.0, np.inf], [2.0, np.nan, 4.0, 4.0]])
    edges = plotted.bin_edges(values)
    assert len(edges) == 11 and (edges[0], edges[-1]) == (0, 4)
    for chain in values:
        assert np.sum(plotted.density(chain, edges) * np.diff(edges)) == pytest.approx(1)
    broken = np.full((1, 3), np.nan)
    assert not plotted.density(broken, plotted.bin_edges(broken)).any()


@pytest.mark.parametrize("length", [1, 7, 8, 9, 1000])
def test_places_are_thinned_evenly(length: int) -> None:
    kept = plotted.thinned(length, 8)
    assert kept[0] == 0 and len(kept) <= 8 and len(np.unique(np.diff(kept))) <= 1
    shown = plotted.spread(length, 8)
    assert (shown[0], shown[-1], len(shown)) == (0, length - 1, min(length, 8))


def test_masses_of_modes_come_with_the_heaviest_first() -> None:
    draws = np.array([[[0.0, 0.0], [-2.0, 1.0], [-2.1, 1.1], [9.0, 9.0]]])
    modes = plotted.modes25_masses(draws)
    assert np.all(np.diff(modes.true) <= 1e-6) and len(modes.names) == 25
    found = dict(zip(modes.names, modes.sampled))
    assert found["0, 0"] == 0.25 and found["−2, 1"] == 0.5
    assert modes.outside[0] == 0.25 and modes.distance > 0.5
    assert modes.sampled.sum() == pytest.approx(0.75)
