"""Mutations of adjusted and Langevin moves, and of step sizes that tune themselves."""

from mutations import killed_by

MUTATIONS = [
    *killed_by(
        "algorithm/test_moves_by_hand.py::test_an_adjusted_move_is_that_of_leapfrog_steps[mala]",
        "algorithm/adjusted_kernels.py",
        ("mala(target_acceptance: float = 0.574)", "mala(target_acceptance: float = 0.8)"),
        ("kernel = hmc(1, target_acceptance)", "kernel = hmc(2, target_acceptance)"),
        ("lambda u, v: slope * u + v, at.gradient", "lambda u, v: u + slope * v, at.gradient"),
        ("z - (share * length) * s * g", "z - (share * length) * g"),
        ("x + length * s * z", "x + length * z"),
    ),
    *killed_by(
        "algorithm/test_moves_by_hand.py::test_an_adjusted_move_is_that_of_leapfrog_steps",
        "algorithm/adjusted_kernels.py",
        ("hmc(num_leapfrog: int = 8", "hmc(num_leapfrog: int = 9"),
    ),
    *killed_by(
        "algorithm/test_moves_by_hand.py::"
        "test_a_proposal_without_a_probability_is_rejected_and_counts_as_that",
        "algorithm/adjusted_kernels.py",
        (
            "jnp.where(jnp.isnan(log_ratio), -jnp.inf, jnp.minimum(log_ratio, 0.0))",
            "jnp.minimum(log_ratio, 0.0)",
        ),
    ),
    *killed_by(
        "algorithm/test_moves_by_hand.py::test_a_langevin_move_is_that_of_its_equations[0.05-True]",
        "algorithm/langevin.py",
        ("_TURN = 0.1", "_TURN = -0.1"),
        ("_LARGEST_STEP = 0.2", "_LARGEST_STEP = 0.8"),
        ("size = rate * (curvature + along**2)", "size = rate * curvature"),
        ("size = rate * (curvature + along**2)", "size = rate * along**2"),
        ("jnp.square(d) / 2, 1.0), whitened", "jnp.square(d) / 2, 1.0), half"),
    ),
    *killed_by(
        "algorithm/test_moves_by_hand.py::test_a_langevin_move_is_that_of_its_equations[0.4-True]",
        "algorithm/langevin.py",
        ("rate = jnp.minimum(rate, 2 * _LARGEST_STEP / (curvature + 1e-30))", "rate = rate"),
    ),
    *killed_by(
        "algorithm/test_moves_by_hand.py::test_a_langevin_move_is_that_of_its_equations[4.0-False]",
        "algorithm/langevin.py",
        ("jnp.square(d) / 2, 1.0), whitened", "jnp.square(d) / 2, 0.9), whitened"),
    ),
    *killed_by(
        "algorithm/test_step_sizes.py::test_a_round_that_is_long_keeps_a_least_gain",
        "algorithm/rounds.py",
        (
            "1.5 / (1 + sizes.count.astype(dtype)) ** 0.6, 0.02)",
            "1.5 / (1 + sizes.count.astype(dtype)) ** 0.6, 0.2)",
        ),
    ),
    *killed_by(
        "algorithm/test_step_sizes.py::"
        "test_rates_follow_errors_and_scales_are_inverse_to_steepness",
        "algorithm/rounds.py",
        ("jnp.exp(gain * error)", "jnp.exp(-gain * error)"),
        (
            "jnp.where(jnp.isfinite(error), error, -1.0)",
            "jnp.where(jnp.isfinite(error), error, 1.0)",
        ),
        (
            "jnp.any(step == jnp.array(round_ends) - 1)",
            "jnp.any(step == jnp.array(round_ends))",
        ),
        ("step < tuning.until, tuned,", "step < tuning.until + 100_000, tuned,"),
        ("-log + jnp.log(_SQUARE_OF_NORMAL)", "log + jnp.log(_SQUARE_OF_NORMAL)"),
        ("-log + jnp.log(_SQUARE_OF_NORMAL)", "-log - jnp.log(_SQUARE_OF_NORMAL)"),
    ),
]
