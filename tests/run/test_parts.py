"""From methods to the parts of the algorithm: ladder, window, and what adapts."""

from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax.algorithm import schedule, swap
from replicax.algorithm.tuning import ConstantGain
from replicax.run import parts
from replicax.run.parts import Clock, Plan
from replicax.run.resolve import with_usual
from replicax.theory import optimal_window

DETERMINISTIC, METROPOLIS = swap.deterministic(), swap.metropolis()


def method(**given: Any) -> rx.Method:
    return with_usual(rx.deo_star(**{"learning_rate": (0.01, 0.16)} | given), of_networks=False)


def plan(num_replicas: int = 5, burn_in: int = 0) -> Plan:
    return Plan(1000, num_replicas, burn_in, 1, 100, tuned_until=burn_in or None)


def ladder(rule: swap.Rule, adapts: bool, **given: Any) -> rx.algorithm.Ladder:
    return parts.ladder(method(**given), plan(), rule, adapts)


def tuning(
    rule: swap.Rule = DETERMINISTIC,
    num_replicas: int = 5,
    made: Any = None,
    burn_in: int = 0,
    **given: Any,
):
    chosen, planned = method(**given), plan(num_replicas, burn_in)
    adaptation = parts.adapts_until(chosen, planned, rule, made or schedule.deo())
    return parts.tuning(chosen, planned, rule, adaptation)


def test_a_ladder_is_geometric_and_hot_without_noise() -> None:
    made = ladder(DETERMINISTIC, True, temperature=2.0)
    np.testing.assert_allclose(made.learning_rate, [0.01, 0.02, 0.04, 0.08, 0.16])
    np.testing.assert_allclose(made.temperature, [2.0, 0, 0, 0, 0])
    made = ladder(METROPOLIS, False, temperature=(1.0, 16.0))
    np.testing.assert_allclose(made.temperature, [1, 2, 4, 8, 16])
    given = ladder(DETERMINISTIC, True, learning_rate=[1, 2, 3, 4, 5])
    np.testing.assert_allclose(given.learning_rate, [1, 2, 3, 4, 5])


def test_the_window_is_that_of_theorem_1_unless_one_is_given() -> None:
    made = parts.schedule(method(target_swap_rate=0.3), plan(7))
    assert (made.window, made.swaps) == (optimal_window(7, 0.3), "at_most_one")
    assert made.window > 1
    assert parts.schedule(method(window=3), plan(7)).window == 3
    assert parts.schedule(method(schedule="deo"), plan(7)).window == 1
    assert parts.schedule(method(schedule="exactly_one", window=3), plan(7)).swaps == "exactly_one"
    assert not parts.schedule(method(schedule="none"), plan(7)).exchanges


def test_learning_rates_and_buffer_adapt_by_default() -> None:
    made = tuning()
    assert (made.adapts, made.adapts_buffer, made.until) == ("learning_rate", True, None)
    assert (made.measure_steps, made.measure_buffer) == (100, True)
    assert made.target_swap_rate == 0.4 and made.buffer_gain is None
    assert tuning(num_replicas=2).adapts is None, "both ends are fixed"
    assert tuning(learning_rate=0.1).adapts is None, "one rate is no ladder"
    assert tuning(adapt=300).until == 300
    for nothing in (tuning(adapt=False), tuning(adapt=0), tuning(made=schedule.none())):
        assert (nothing.adapts, nothing.adapts_buffer) == (None, False)


def test_temperatures_adapt_on_request_and_without_a_buffer() -> None:
    given = {"temperature": (1.0, 4.0)}
    assert tuning(METROPOLIS, **given).adapts is None
    made = tuning(METROPOLIS, adapt=True, **given)
    assert (made.adapts, made.adapts_buffer) == ("temperature", False)
    assert (made.measure_steps, made.measure_buffer) == (0, False)


def test_what_is_given_is_not_measured() -> None:
    made = tuning(buffer=0.5, buffer_gain=0.1)
    assert (made.measure_steps, made.measure_buffer) == (0, False)
    assert isinstance(made.buffer_gain, ConstantGain) and made.buffer_gain.value == 0.1
    only_gain = tuning(buffer=0.5)
    assert (only_gain.measure_steps, only_gain.measure_buffer) == (100, False)
    assert tuning(gain=rx.Gain(3.0)).gain == rx.Gain(3.0)


@pytest.mark.parametrize(("burn_in", "until"), [(0, None), (400, 400)])
def test_a_ladder_of_temperatures_stands_still_after_burn_in(burn_in: int, until: Any) -> None:
    made = tuning(METROPOLIS, adapt=True, temperature=(1.0, 4.0), burn_in=burn_in)
    assert made.until == until
    assert tuning(adapt=True, burn_in=burn_in).until is None, "a rule without a target goes on"


@pytest.mark.parametrize("rates", [[1, 2, 3, 4, np.inf], [np.nan] * 5, [1, 2, np.nan, 4, 5], 0.0])
def test_rates_are_positive_and_finite(rates: Any) -> None:
    for rule in (DETERMINISTIC, METROPOLIS):
        with pytest.raises(ValueError, match="rates must be positive"):
            ladder(rule, False, learning_rate=rates, temperature=(1.0, 2.0))


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (rx.deo_star((0.1, 0.2), temperature=0.5), [0.5, 0, 0]),  # SGD above
        (rx.ensemble(0.1, temperature=0.5), [0.5, 0.5, 0.5]),  # that of all
        (rx.cyc_sghmc(temperature=0.5), [0.5]),
    ],
)
def test_one_temperature_of_networks_is_the_coldest_or_that_of_all(made: Any, wanted: list) -> None:
    planned = plan(len(wanted))._replace(clock=Clock(10, 3, 10))
    found = parts.ladder(with_usual(made, of_networks=True), planned, DETERMINISTIC, False)
    np.testing.assert_allclose(found.temperature, wanted)


@pytest.mark.parametrize(
    ("adapt", "rule", "tuned_until", "wanted"),
    [
        (None, DETERMINISTIC, 40, (True, None)),
        (None, METROPOLIS, 40, (False, None)),  # temperatures are the user's own
        (True, METROPOLIS, 40, (True, 40)),
        (True, METROPOLIS, 1, (True, 1)),
        (True, METROPOLIS, 0, (False, 0)),  # no burn-in in which to adapt
        (True, METROPOLIS, None, (True, None)),
        (False, DETERMINISTIC, 40, (False, None)),
        (0, DETERMINISTIC, 40, (False, 0)),
        (1, METROPOLIS, 40, (True, 1)),
    ],
)
def test_what_adapts_and_until_when(adapt: Any, rule: swap.Rule, tuned_until, wanted) -> None:
    planned = plan()._replace(tuned_until=tuned_until)
    assert parts.adapts_until(method(adapt=adapt), planned, rule, schedule.deo()) == wanted
    if adapt is None:
        networks = planned._replace(clock=Clock(10, 3, 10))  # whose temperatures adapt
        until = tuned_until if rule.uses_temperature else None
        found = parts.adapts_until(method(), networks, rule, schedule.deo())
        assert found == (True, until)
        assert parts.adapts_until(method(), networks, rule, schedule.none()) == (False, None)


def test_temperatures_adapt_in_rounds_and_their_hot_end_is_free_for_half_of_the_time() -> None:
    """160 steps: a sixteenth to settle; rounds end after an eighth, 1/4, 1/2 and .8 of them."""
    begun = plan()._replace(clock=Clock(100, 5, 10, pretrain_epochs=2))
    found = parts._barrier(rx.posterior(), begun, 170, 50.0)
    assert (found.first_step, found.free_until, found.hottest) == (20, 91, 50.0)
    assert found.round_ends == (30, 50, 90, 138)
    fixed = parts._barrier(rx.posterior(temperature=(1.0, 9.0)), plan(), 160, 50.0)
    assert (fixed.first_step, fixed.free_until) == (10, 0)
    assert fixed.round_ends == (20, 40, 80, 128)
