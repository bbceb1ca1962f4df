"""Round trips and windows against linear systems, brute force and the numbers of the paper."""

import math
import subprocess
import sys
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicax import theory

num_replicas_and_rate = {"num_replicas": st.integers(2, 60), "swap_rate": st.floats(1e-3, 0.99)}


def mean_passage(transition: np.ndarray, start: int, goal: int) -> float:
    """Expected steps from `start` to `goal` of a Markov chain, by its linear system."""
    others = [state for state in range(len(transition)) if state != goal]
    system = np.eye(len(others)) - transition[np.ix_(others, others)]
    return np.linalg.solve(system, np.ones(len(others)))[others.index(start)]


def deo_transition(stay: np.ndarray) -> np.ndarray:
    """State 2 p + d: rung p, next attempt upwards (d = 0) or downwards (d = 1); stay[pair]."""
    num = len(stay) + 1
    transition = np.zeros((2 * num, 2 * num))
    for p in range(num):
        up_blocked = stay[p] if p < num - 1 else 1.0
        down_blocked = stay[p - 1] if p > 0 else 1.0
        transition[2 * p, 2 * p + 1] = up_blocked
        transition[2 * p + 1, 2 * p] = down_blocked
        if p < num - 1:
            transition[2 * p, 2 * (p + 1)] = 1 - up_blocked
        if p > 0:
            transition[2 * p + 1, 2 * (p - 1) + 1] = 1 - down_blocked
    return transition


def adj_transition(rates: np.ndarray) -> np.ndarray:
    """One ascending sweep: attempt pair 0, then 1, ..., carrying the position along."""
    sweep = np.eye(len(rates) + 1)
    for pair, rate in enumerate(rates):
        attempt = np.eye(len(rates) + 1)
        attempt[pair : pair + 2, pair : pair + 2] = [[rate, 1 - rate], [1 - rate, rate]]
        sweep = sweep @ attempt
    return sweep


def seo_transition(rates: np.ndarray) -> np.ndarray:
    """A coin picks the even or the odd pairs."""
    halves = []
    for parity in (0, 1):
        half = np.eye(len(rates) + 1)
        for pair in range(parity, len(rates), 2):
            stay = rates[pair]
            half[pair : pair + 2, pair : pair + 2] = [[stay, 1 - stay], [1 - stay, stay]]
        halves.append(half)
    return (halves[0] + halves[1]) / 2


@pytest.fixture(params=[2, 3, 4, 7, 12])
def rates(request: pytest.FixtureRequest) -> np.ndarray:
    return np.random.default_rng(request.param).uniform(0.0, 0.97, request.param - 1)


class TestRoundTrips:
    @pytest.mark.parametrize("window", [1, 2, 5, 20])
    def test_lemma_1_solves_the_first_passage_system(self, rates, window):
        transition, top = deo_transition(rates**window), 2 * len(rates) + 1
        trip = window * (mean_passage(transition, 0, top) + mean_passage(transition, top, 0))
        assert theory.round_trip_time(rates, window) == pytest.approx(trip, rel=1e-9)

    def test_adj_and_seo_solve_their_systems(self, rates):
        for transition, time in (
            (adj_transition(rates), theory.round_trip_time_adj(rates)),
            (seo_transition(rates), theory.round_trip_time_seo(rates)),
        ):
            top = len(rates)
            trip = mean_passage(transition, 0, top) + mean_passage(transition, top, 0)
            assert time == pytest.approx(trip, rel=1e-9)

    def test_table_of_paper_facts(self):
        windows = np.array([1, 2, 4, 6, 7, 8, 10, 12, 16, 20])
        trips = 1000 * theory.round_trip_rate(0.6, windows, num_replicas=16)
        expected = [21.28, 26.49, 38.66, 48.06, 49.88, 49.75, 45.82, 40.35, 31.12, 24.99]
        np.testing.assert_allclose(trips, expected, atol=0.005)

    @pytest.mark.parametrize(("window", "trips"), [(1, 5.5), (626, 11.1)])
    def test_cifar_trips_in_100_epochs(self, window, trips):
        steps = 100 * 196
        total = steps * theory.round_trip_rate(0.995, window, num_replicas=10)
        assert total == pytest.approx(trips, abs=0.05)

    def test_orders_of_growth(self):
        def order(time):
            return math.log(time(64) / time(16)) / math.log(4)

        def deo_star(num):
            return theory.round_trip_time(0.6, theory.optimal_window(num, 0.4), num)

        assert order(lambda num: theory.round_trip_time(0.6, 1, num)) == pytest.approx(
            2.01, abs=0.01
        )
        assert order(lambda num: theory.round_trip_time_seo(0.6, num)) == pytest.approx(
            2.04, abs=0.01
        )
        assert order(lambda num: theory.round_trip_time_adj(0.6, num)) == pytest.approx(
            2.01, abs=0.01
        )
        assert order(deo_star) == pytest.approx(1.22, abs=0.01)
        assert order(lambda num: deo_star(num) / math.log(num)) == pytest.approx(0.93, abs=0.01)

    def test_limits(self):
        assert theory.round_trip_time(0.0, 3, num_replicas=5) == 2 * 3 * 5
        assert theory.round_trip_time([0.0, 0.0]) == 6
        assert theory.round_trip_time(0.5, 1e6, num_replicas=4) == 8e6
        assert theory.round_trip_time_adj(0.3, 9) * 2 == pytest.approx(
            theory.round_trip_time(0.3, 1, 9)
        )

    def test_scalar_is_the_same_rate_on_every_pair(self):
        windows = np.array([[1.0, 2.5], [7.0, 30.0]])
        scalar = theory.round_trip_time(0.8, windows, num_replicas=6)
        assert scalar.shape == windows.shape
        np.testing.assert_allclose(scalar, theory.round_trip_time([0.8] * 5, windows))
        assert type(theory.round_trip_time(0.8, 2, 6)) is float

    def test_two_replicas_gain_nothing_from_a_window(self):
        windows = np.array([1, 10, 3000])
        assert np.all(np.diff(theory.round_trip_time(1 - 7.6e-5, windows, 2)) > 0)


class TestOptimalWindow:
    @pytest.mark.parametrize(
        ("num_replicas", "swap_rate", "closed", "exact"),
        [(16, 0.4, 8, 7), (10, 0.005, 626, 604), (2, 0.1, 1, 1), (3, 0.001, 1, 1)],
    )
    def test_values_of_paper_facts(self, num_replicas, swap_rate, closed, exact):
        assert theory.optimal_window(num_replicas, swap_rate) == closed
        assert theory.optimal_window(num_replicas, swap_rate, exact=True) == exact

    @given(**num_replicas_and_rate)
    def test_exact_is_the_brute_force_argmin(self, num_replicas, swap_rate):
        exact = theory.optimal_window(num_replicas, swap_rate, exact=True)
        windows = np.arange(1, 2 * theory.optimal_window(num_replicas, swap_rate) + 10)
        times = theory.round_trip_time(1 - swap_rate, windows, num_replicas)
        assert times[exact - 1] <= times.min() * (1 + 1e-12)
        assert abs(exact - windows[np.argmin(times)]) <= 1

    @settings(max_examples=25)
    @given(num_replicas=st.integers(4, 2000), exponent=st.floats(-6, -0.01))
    def test_exact_beats_its_neighbours_to_60_digits(self, num_replicas, exponent):
        swap_rate = 10**exponent
        exact = theory.optimal_window(num_replicas, swap_rate, exact=True)

        def time(window: int) -> Decimal:
            stuck = (1 - Decimal(swap_rate)) ** window
            return window * (1 + (num_replicas - 1) * stuck / (1 - stuck))

        with localcontext() as context:
            context.prec = 60
            assert time(exact) <= time(exact + 1)
            assert exact == 1 or time(exact) < time(exact - 1)

    @pytest.mark.parametrize("rate", np.linspace(0.2, 0.7, 26))
    def test_closed_form_at_four_replicas_is_no_better_than_window_1(self, rate):
        window = theory.optimal_window(4, 1 - rate)
        assert theory.round_trip_time(rate, window, 4) > theory.round_trip_time(rate, 1, 4)

    def test_closed_form_costs_little_from_16_replicas_on(self):
        for num_replicas in (16, 64, 1024):
            windows = [theory.optimal_window(num_replicas, 0.01, exact) for exact in (False, True)]
            closed, exact = theory.round_trip_time(0.99, windows, num_replicas)
            assert exact <= closed < 1.01 * exact


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: theory.round_trip_time(0.5), "needs num_replicas"),
        (lambda: theory.round_trip_time(0.5, 1, 1), "at least 2"),
        (lambda: theory.round_trip_time(0.5, 1, 3.5), "must be a whole number"),
        (lambda: theory.round_trip_time([], 1), "at least 2"),
        (lambda: theory.round_trip_time([0.5, 0.5], 1, 4), "belong to 3 replicas, not to 4"),
        (lambda: theory.round_trip_time([[0.5]], 1), "has shape"),
        (lambda: theory.round_trip_time(1.0, 1, 4), r"must lie in \[0, 1\)"),
        (lambda: theory.round_trip_time([0.5, -0.1]), r"must lie in \[0, 1\)"),
        (lambda: theory.round_trip_time_adj(float("nan"), 4), r"must lie in \[0, 1\)"),
        (lambda: theory.round_trip_time(0.5, 0.5, 4), "at least 1"),
        (lambda: theory.round_trip_rate(0.5, [1, math.inf], 4), "at least 1"),
        (lambda: theory.optimal_window(1, 0.4), "at least 2"),
        (lambda: theory.optimal_window(8, 0.0), "strictly between 0 and 1"),
        (lambda: theory.optimal_window(8, 1.0, exact=True), "strictly between 0 and 1"),
        (lambda: theory.optimal_num_replicas(-1.0, (1, 2)), "not negative"),
        (lambda: theory.optimal_num_replicas(1.0, (2, 1)), "positive and increasing"),
        (lambda: theory.optimal_num_replicas(1.0, 3.0), "positive and increasing"),
        (lambda: theory.optimal_num_replicas([1.0, 2.0], (1, 2, 3, 4)), "3 pairs"),
        (lambda: theory.optimal_num_replicas(1.0, (1, 2), "papr"), "one of corrected, paper"),
        (lambda: theory.optimal_buffer(0.0, 0.9, 0.0), "Metropolis rule"),
        (lambda: theory.optimal_buffer(0.0, 0.0, 1.0), "Metropolis rule"),
        (lambda: theory.optimal_buffer(math.nan, 0.9, 1.0), "must be finite"),
        (lambda: theory.swap_probability_under_noise(0.0, -0.9, 1.0), "not negative"),
    ],
)
def test_bad_arguments_are_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_theory_imports_neither_jax_nor_scipy():
    code = (
        "import sys; from replicax import theory; theory.optimal_window(16, .4); "
        "assert not {'jax', 'scipy', 'rich'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
