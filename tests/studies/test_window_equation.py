"""The slope of the round trip time in the window, against differences of the time itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicax import theory
from studies.shared import window_equation as slopes


@given(rate=st.floats(0.02, 0.999), window=st.floats(1.1, 300), num_replicas=st.integers(2, 40))
def test_the_slope_of_the_time_is_its_finite_difference(rate, window, num_replicas):
    width = 1e-4 * window
    ends = np.array([window - width, window + width])
    low, high = theory.round_trip_time(rate, ends, num_replicas)
    slope = slopes.round_trip_time_derivative(rate, window, num_replicas)
    scale = high / window
    assert slope == pytest.approx((high - low) / (2 * width), rel=1e-5, abs=1e-5 * scale)


@given(x=st.floats(1e-6, 0.99), num_replicas=st.integers(2, 40))
def test_the_equation_has_the_sign_of_the_slope(x, num_replicas):
    slope = slopes.round_trip_time_derivative(x**0.2, 5, num_replicas)
    g = slopes.window_equation(x, num_replicas)
    assert slope == pytest.approx(2 * num_replicas * g / (1 - x) ** 2, rel=1e-6, abs=1e-6)


@given(x=st.floats(1e-3, 0.99), num_replicas=st.integers(2, 40))
def test_the_slope_of_the_equation_is_its_finite_difference(x, num_replicas):
    width = 1e-5 * x
    low, high = slopes.window_equation([x - width, x + width], num_replicas)
    slope = slopes.window_equation_derivative(x, num_replicas)
    assert slope == pytest.approx((high - low) / (2 * width), rel=1e-4, abs=1e-4)


def test_of_a_pair_that_never_swaps():
    assert slopes.window_equation(1.0, 5) == slopes.window_equation_derivative(1.0, 5) == 0
