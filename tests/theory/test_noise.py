"""Swaps under normal noise against quadrature; the number of replicas against brute force."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats
from scipy.special import log_ndtr

from replicax import theory
from replicax.theory.noise import log_reject


def accept_by_quadrature(gap: float, slope: float, noise: float) -> float:
    a, b = slope * gap - (slope * noise) ** 2, math.sqrt(2) * slope * noise
    kink = -a / b

    def density(x: float) -> float:
        return math.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)

    below = integrate.quad(lambda x: math.exp(a + b * x) * density(x), -40, kink)[0]
    return below + integrate.quad(density, kink, max(40, kink))[0]


def log_reject_by_quadrature(gap: float, slope: float, noise: float) -> float:
    """Integrate the rejection probability itself, scaled, so that 1e-50 does not vanish."""
    a, b = slope * gap - (slope * noise) ** 2, math.sqrt(2) * slope * noise
    kink = -a / b
    if kink > -5:
        shift, low, high = 0.0, -40.0, min(kink, 40.0)
    else:  # the mass sits within a few 1 / |kink| below the kink
        shift, low, high = kink**2 / 2, kink - 60 / abs(kink), kink

    def inner(x: float) -> float:
        return -math.expm1(a + b * x) * math.exp(shift - x**2 / 2)

    parts = np.unique(np.clip([low, -8.0, 0.0, 8.0, high], low, high))
    scaled = sum(
        integrate.quad(inner, start, stop, limit=200, epsabs=0, epsrel=1e-11)[0]
        for start, stop in pairwise(parts)
    )
    return math.log(scaled / math.sqrt(2 * math.pi)) - shift


gaps = {"gap": st.floats(-15, 15), "slope": st.floats(0.05, 3), "noise": st.floats(0.1, 5)}


class TestSwapProbability:
    @settings(max_examples=60, deadline=None)
    @given(**gaps)
    def test_swap_probability_is_the_integral(self, gap, slope, noise):
        kink = -(slope * gap - (slope * noise) ** 2) / (math.sqrt(2) * slope * noise)
        if abs(kink) < 30:
            probability = theory.swap_probability_under_noise(gap, slope, noise)
            expected = accept_by_quadrature(gap, slope, noise)
            assert probability == pytest.approx(expected, rel=1e-6, abs=1e-9)

    def test_swap_probability_limits(self):
        probability = theory.swap_probability_under_noise
        assert probability(-2.0, 0.5, 0.0) == pytest.approx(math.exp(-1))
        assert probability(2.0, 0.5, 0.0) == 1.0
        assert probability(-2.0, 0.5, 1e-9) == pytest.approx(math.exp(-1))
        assert probability([5.0, -5.0], 0.0, 3.0).tolist() == [1.0, 1.0]
        assert probability(1e8, 10.0, 1.0) == 1.0
        assert probability(-1e8, 10.0, 1.0) == 0.0


class TestOptimalBuffer:
    @settings(max_examples=100, deadline=None)
    @given(**gaps)
    def test_rules_agree_at_the_buffer(self, gap, slope, noise):
        buffer = theory.optimal_buffer(gap, slope, noise)
        expected = theory.swap_probability_under_noise(gap, slope, noise)
        probability = theory.deterministic_swap_probability(gap, buffer, noise)
        assert probability == pytest.approx(expected, rel=1e-8, abs=1e-300)
        assert buffer <= slope * noise**2

    @settings(max_examples=60, deadline=None)
    @given(gap=st.floats(0.5, 60), slope=st.floats(0.02, 2), noise=st.floats(0.5, 3))
    def test_where_nearly_every_swap_is_accepted(self, gap, slope, noise):
        if theory.swap_probability_under_noise(gap, slope, noise) > 0.5:
            buffer = theory.optimal_buffer(gap, slope, noise)
            refused = log_ndtr((buffer - gap) / (math.sqrt(2) * noise))
            assert refused == pytest.approx(log_reject_by_quadrature(gap, slope, noise), rel=1e-7)

    @settings(max_examples=60, deadline=None)
    @given(gap=st.floats(-5, 0), slope=st.floats(1e-9, 0.1), noise=st.floats(0.1, 3))
    def test_narrow_noise_at_a_falling_gap(self, gap, slope, noise):
        if theory.swap_probability_under_noise(gap, slope, noise) > 0.5:
            buffer = theory.optimal_buffer(gap, slope, noise)
            refused = log_ndtr((buffer - gap) / (math.sqrt(2) * noise))
            assert refused == pytest.approx(log_reject_by_quadrature(gap, slope, noise), rel=1e-6)

    @given(gap=st.floats(-1e6, 1e6), slope=st.floats(1e-8, 1e3), noise=st.floats(1e-6, 1e4))
    def test_is_finite_far_out(self, gap, slope, noise):
        buffer = theory.optimal_buffer(gap, slope, noise)
        assert math.isfinite(buffer) and buffer <= slope * noise**2

    def test_joins_smoothly_over_its_branches(self):
        for slope, noise in ((1e-6, 0.7), (0.03, 1.0), (0.9, 2.0), (0.9, 5.0)):
            gap = np.linspace(-40, 60, 20_001) * noise
            steps = np.diff(theory.optimal_buffer(gap, slope, noise)) / noise
            assert np.abs(np.diff(steps)).max() < 2e-4

    def test_sign_at_zero_gap_changes_at_954(self):
        for noise in (0.5, 3.0):
            assert theory.optimal_buffer(0.0, 0.953 / noise, noise) < 0
            assert theory.optimal_buffer(0.0, 0.955 / noise, noise) > 0

    def test_arrays_broadcast(self):
        buffers = theory.optimal_buffer(np.zeros((3, 1)), 0.9, np.array([1.0, 2.0]))
        assert buffers.shape == (3, 2)
        assert buffers[0, 1] == theory.optimal_buffer(0.0, 0.9, 2.0)

    def test_deterministic_rule_without_noise(self):
        probability = theory.deterministic_swap_probability([1.0, 2.0, 3.0], 2.0, 0.0)
        assert probability.tolist() == [0.0, 0.0, 1.0]

    def test_rounding_does_not_carry_it_beyond_its_limit(self):
        """Far out, gap minus quantile leaves 6e-11 of rounding where the limit is 1e-18."""
        assert theory.optimal_buffer(391_940.6774847229, 1e-6, 1e-6) <= 1e-18

    @pytest.mark.parametrize("b", [1e-7, 1e-10, 1e-13])
    def test_hardly_any_noise_is_the_first_term_of_its_series(self, b):
        """Of a falling gap d, in noises: it rejects with probability b (phi(d) - d Phi(-d))."""
        d = np.array([-3.0, -0.5, -1e-3])
        found = log_reject(math.sqrt(2) * d, b / math.sqrt(2), 1.0)
        wanted = np.log(b) + np.log(stats.norm.pdf(d) - d * stats.norm.cdf(-d))
        np.testing.assert_allclose(found, wanted, rtol=1e-7)


class TestOptimalNumReplicas:
    @given(mu=st.floats(4.6, 1e5))
    def test_is_the_rounded_zero_of_h_prime_between_the_bounds(self, mu):
        noise = 2 * mu / math.log(2)
        count = theory.optimal_num_replicas([noise], (0.5, 1.0))
        zero = optimize.brentq(lambda x: x**2 * (1 + 1 / math.log(x)) - 2 * mu**2, 2, 2 * mu + 9)
        assert count.num_replicas in (math.floor(zero), math.ceil(zero))
        assert count.lower == pytest.approx(1.1 * mu) and count.upper == pytest.approx(2**0.5 * mu)
        assert count.lower < zero < count.upper

    @pytest.mark.parametrize(("num_replicas", "holds"), [(4, False), (5, True), (5000, True)])
    def test_factor_of_the_bounds_holds_from_5(self, num_replicas, holds):
        assert (math.sqrt(2 / (1 + 1 / math.log(num_replicas))) > 1.1) is holds

    @given(mu=st.floats(0, 60))
    def test_is_the_brute_force_argmin(self, mu):
        count = theory.optimal_num_replicas([2 * mu / math.log(2)], (0.5, 1.0)).num_replicas
        num = np.arange(4, 200)
        h = np.log(num) + np.log(np.log(num)) + (mu / num) ** 2
        assert h[count - 4] <= h.min() + 1e-12

    def test_correction_is_a_factor_sqrt_2(self):
        corrected, paper = (
            theory.optimal_num_replicas(200.0, (1.0, 5.0), exponent)
            for exponent in ("corrected", "paper")
        )
        assert corrected.lower / paper.lower == pytest.approx(math.sqrt(2))
        assert corrected.upper / paper.upper == pytest.approx(math.sqrt(2))
        # Eq. 48: the paper rounds 1.1 / (2 sqrt 2) down to 1/3; the upper end is exactly 1/2.
        assert paper.upper == pytest.approx(200 / 2 / 1.0 * math.log(5))
        assert paper.lower > 200 / 3 / 5.0 * math.log(5)

    def test_ladders(self):
        per_rung = theory.optimal_num_replicas([10, 20, 30], [1, 2, 4, 8])
        assert per_rung == theory.optimal_num_replicas([10, 20, 30], (1, 8))
        mu = np.array([10 / 2, 20 / 4, 30 / 8]) * math.log(8) / 2
        assert per_rung.lower == pytest.approx(1.1 * mu.min())
        assert per_rung.upper == pytest.approx(math.sqrt(2) * mu.max())
        assert theory.optimal_num_replicas(10, [1, 2, 4]).upper == pytest.approx(
            math.sqrt(2) * 10 / 2 * math.log(4) / 2
        )
        assert theory.optimal_num_replicas(0.0, (1, 8)).num_replicas == 4
