"""Mutations of closed forms and of the planner."""

from mutations import killed_by

MUTATIONS = [
    *killed_by(
        "theory/test_round_trips.py::test_bad_arguments_are_refused",
        "theory/inputs.py",
        ("(rates >= 0) & (rates < 1)", "(rates >= 0) & (rates <= 1)"),
        ("(windows >= 1) & np.isfinite(windows)", "(windows >= 0) & np.isfinite(windows)"),
        ("if count < 2:", "if count < 1:"),
        ("not 0 < swap_rate < 1", "not 0 <= swap_rate <= 1"),
        (
            "if num_replicas is not None and check_num_replicas(num_replicas) != rates.size + 1:",
            "if False:",
        ),
    ),
    *killed_by(
        "theory/test_round_trips.py::TestRoundTrips::test_table_of_paper_facts",
        "theory/inputs.py",
        (
            "return rates[None], num_replicas - 1, num_replicas",
            "return rates[None], num_replicas, num_replicas",
        ),
    ),
    *killed_by(
        "theory/test_round_trips.py::TestDerivatives::test_of_a_pair_that_never_swaps",
        "theory/inputs.py",
        ("(fractions > 0) & (fractions <= 1)", "(fractions > 0) & (fractions < 1)"),
    ),
    *killed_by(
        "theory/test_round_trips.py::TestOptimalWindow::test_values_of_paper_facts[16-0.4-8-7]",
        "theory/inputs.py",
        (
            "(low, middle) if holds(middle) else (middle, high)",
            "(low, middle) if holds(middle) else (middle + 1, high)",
        ),
    ),
    *killed_by(
        "theory/test_noise.py::TestSwapProbability::test_corrected_exponent_is_the_rate_of_decay",
        "theory/noise.py",
        ('{"corrected": 4.0, "paper": 8.0}', '{"corrected": 8.0, "paper": 8.0}'),
    ),
    *killed_by(
        "theory/test_noise.py::TestSwapProbability::test_swap_probability_limits",
        "theory/noise.py",
        (
            "metropolis = np.exp(np.minimum(0.0, slope * gap))",
            "metropolis = np.exp(np.minimum(0.0, gap))",
        ),
    ),
    *killed_by(
        "theory/test_noise.py::TestOptimalBuffer::test_rules_agree_at_the_buffer",
        "theory/noise.py",
        (
            "scale = math.sqrt(2) * np.where(noise > 0, noise, 1.0)",
            "scale = np.where(noise > 0, noise, 1.0)",
        ),
    ),
    *killed_by(
        "theory/test_noise.py::TestOptimalBuffer::test_deterministic_rule_without_noise",
        "theory/noise.py",
        (
            "np.where(noise > 0, ndtr(margin / scale), margin > 0)",
            "np.where(noise > 0, ndtr(margin / scale), margin >= 0)",
        ),
    ),
    *killed_by(
        "theory/test_noise.py::TestOptimalBuffer::test_rounding_does_not_carry_it_beyond_its_limit",
        "theory/noise.py",
        (
            "np.minimum(gap - math.sqrt(2) * noise * quantile, slope * noise**2)",
            "gap - math.sqrt(2) * noise * quantile",
        ),
    ),
    *killed_by(
        "theory/test_noise.py::"
        "TestOptimalNumReplicas::test_is_the_rounded_zero_of_h_prime_between_the_bounds",
        "theory/noise.py",
        ("geometric[1:]", "geometric[:-1]"),
        (
            "mu = noise / upper_rung * log_ratio / math.sqrt(_divisor(exponent))",
            "mu = noise / upper_rung * log_ratio / _divisor(exponent)",
        ),
        ("math.log1p(math.log1p(1 / num) / math.log(num))", "0"),
    ),
    *killed_by(
        "theory/test_noise.py::TestOptimalNumReplicas::test_ladders",
        "theory/noise.py",
        ("upper_rung = temperatures[1:]", "upper_rung = temperatures[:-1]"),
    ),
    *killed_by(
        "theory/test_planner.py::test_attempts",
        "theory/planner.py",
        ("half = (num_replicas - 1) / 2", "half = num_replicas / 2"),
        ("deo_star = half * float(per_window) / window", "deo_star = half * float(per_window)"),
    ),
    *killed_by(
        "theory/test_planner.py::test_numbers_of_the_25_modes",
        "theory/planner.py",
        ('times["deo_star"] / exact_time - 1', 'exact_time / times["deo_star"] - 1'),
        ("1000 * num_replicas / time for scheme", "1000 / time for scheme"),
    ),
    *killed_by(
        "theory/test_planner.py::test_numbers_of_cifar",
        "theory/planner.py",
        ("copies_per_replica: int = 3", "copies_per_replica: int = 2"),
    ),
    *killed_by(
        "theory/test_planner.py::test_notes",
        "theory/planner.py",
        ('elif times["deo_star"] > times["deo"]:', 'elif times["deo_star"] < times["deo"]:'),
    ),
    *killed_by(
        "theory/test_planner.py::test_what_is_printed_of_noise_and_memory",
        "theory/planner.py",
        ('few = answer["num_replicas"] < worth', 'few = answer["num_replicas"] > worth'),
        ("answer['memory_bytes'] / 2**20", "answer['memory_bytes'] / 2**30"),
    ),
    *killed_by(
        "theory/test_planner.py::test_bad_arguments_are_refused",
        "theory/planner.py",
        (
            "if num_temperatures not in (2, num_replicas):",
            "if num_temperatures not in (2, num_replicas, 3):",
        ),
    ),
    *killed_by(
        "theory/test_round_trips.py::"
        "TestRoundTrips::test_lemma_1_solves_the_first_passage_system[2-1]",
        "theory/round_trips.py",
        (
            "as_number(2 * windows * num_replicas * (1 + retries))",
            "as_number(2 * windows * num_replicas * retries)",
        ),
    ),
    *killed_by(
        "theory/test_round_trips.py::TestRoundTrips::test_table_of_paper_facts",
        "theory/round_trips.py",
        (
            "return num_replicas / round_trip_time(rejection_rate, window, num_replicas)",
            "return 1 / round_trip_time(rejection_rate, window, num_replicas)",
        ),
    ),
    *killed_by(
        "theory/test_round_trips.py::TestDerivatives::test_of_the_time_is_its_finite_difference",
        "theory/round_trips.py",
        (
            "np.exp(-bounded) * (swapped - bounded) / swapped**2)",
            "np.exp(-bounded) * (swapped + bounded) / swapped**2)",
        ),
    ),
    *killed_by(
        "theory/test_round_trips.py::TestDerivatives::test_equation_has_the_sign_of_the_derivative",
        "theory/round_trips.py",
        ("(num_replicas - 1) * x * (1 - x + np.log(x))", "num_replicas * x * (1 - x + np.log(x))"),
    ),
    *killed_by(
        "theory/test_round_trips.py::TestDerivatives::test_of_the_equation",
        "theory/round_trips.py",
        ("(4 - 2 * num_replicas) * (x - 1)", "(2 - 2 * num_replicas) * (x - 1)"),
    ),
    *killed_by(
        "theory/test_round_trips.py::TestRoundTrips::test_adj_and_seo_solve_their_systems[2]",
        "theory/round_trips.py",
        (
            "float(2 * num_replicas * (num_replicas - 1 + retries))",
            "float(2 * num_replicas * (num_replicas + retries))",
        ),
        (
            "float(num_replicas * (1 + repeats * _odds(rates, 1.0).sum()))",
            "float(2 * num_replicas * (1 + repeats * _odds(rates, 1.0).sum()))",
        ),
    ),
    *killed_by(
        "theory/test_noise.py::TestSwapProbability::test_swap_probability_is_the_integral",
        "theory/tails.py",
        (
            "both = np.logaddexp(log_ndtr(d - b / 2), log_ratio + log_ndtr(-d - b / 2))",
            "both = np.logaddexp(log_ndtr(d - b / 2), log_ratio + log_ndtr(-d + b / 2))",
        ),
    ),
    *killed_by(
        "theory/test_noise.py::"
        "TestOptimalBuffer::test_hardly_any_noise_is_the_first_term_of_its_series[1e-13]",
        "theory/tails.py",
        ("np.where(b < _NARROW, b * density, ndtr(v) - ndtr(u))", "ndtr(v) - ndtr(u)"),
    ),
    *killed_by(
        "theory/test_noise.py::TestOptimalBuffer::test_rules_agree_at_the_buffer",
        "theory/tails.py",
        ("return -np.expm1(b * d) * ndtr(-v) + between", "return -np.expm1(b * d) * ndtr(-v)"),
        ("- math.log(2 * math.pi) / 2 + np.log(drop)", "- math.log(2 * math.pi) + np.log(drop)"),
        (
            "np.where(d < 0, np.log(_reject_below(d, b)), _log_reject_above(d, b))",
            "_log_reject_above(d, b)",
        ),
    ),
    *killed_by(
        "theory/test_noise.py::TestOptimalBuffer::test_is_finite_far_out",
        "theory/tails.py",
        (
            "slope = np.where(d > 30, fraction / (far + fraction), 1 - d * mills(d))",
            "slope = 1 - d * mills(d)",
        ),
        ("np.where(b < _NARROW * (1 + d), b * slope, mills(u) - mills(v))", "mills(u) - mills(v)"),
    ),
]
