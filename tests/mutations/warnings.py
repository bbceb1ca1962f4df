"""Mutations of the bounds beyond which a run is warned about."""

from mutations import killed_by

_HEATING = "networks/test_heating.py"
_CANCELS = f"{_HEATING}::test_the_noise_of_an_epoch_cancels_in_slow_directions"
_EXCESS = f"{_HEATING}::test_the_excess_temperature_of_exact_draws"

MUTATIONS = [
    *killed_by(
        "results/test_energy_problems.py::test_a_hottest_rung_without_finite_mass_is_found",
        "results/energy_problems.py",
        ("_RISE = 0.4", "_RISE = 4.0"),
        (
            "energies = kept_energies(posterior)[:, :, -1]",
            "energies = kept_energies(posterior)[:, :, 0]",
        ),
    ),
    *killed_by(
        "results/test_energy_problems.py::test_a_rise_must_be_larger_than_noise",
        "results/energy_problems.py",
        ("_RISE_CERTAIN = 4.5", "_RISE_CERTAIN = 0.5"),
    ),
    *killed_by(
        "results/test_bounds.py::test_energies_are_rounded_where_they_are_too_large",
        "results/energy_problems.py",
        ("_ROUNDED = 1.0", "_ROUNDED = 0.4"),
        ("_ROUNDED = 1.0", "_ROUNDED = 1.1"),
        ("judged = judged - 1 / temperatures[:, -1]", "pass"),
    ),
    *killed_by(
        "results/test_bounds.py::test_replicas_may_break_in_one_percent_of_steps[0.0101-True]",
        "results/energy_problems.py",
        ("_RESTARTED = 0.01", "_RESTARTED = 0.5"),
    ),
    *killed_by(
        "results/test_bounds.py::test_moves_are_accepted_between_20_and_98_percent",
        "results/energy_problems.py",
        (
            "_LOW_ACCEPTANCE, _HIGH_ACCEPTANCE = 0.2, 0.98",
            "_LOW_ACCEPTANCE, _HIGH_ACCEPTANCE = 0.02, 0.98",
        ),
        (
            "_LOW_ACCEPTANCE, _HIGH_ACCEPTANCE = 0.2, 0.98",
            "_LOW_ACCEPTANCE, _HIGH_ACCEPTANCE = 0.2, 1.98",
        ),
    ),
    *killed_by(
        "results/test_energy_problems.py::test_energies_that_fall_to_the_end_are_found[<lambda>0]",
        "results/energy_problems.py",
        ("falls &= late_fall > fall / 5", "falls &= late_fall > 5 * fall"),
    ),
    *killed_by(
        "results/test_bounds.py::test_energies_fall_where_half_of_the_chains_fall_to_the_end",
        "results/energy_problems.py",
        ("if falls.mean() < 0.5:", "if falls.mean() <= 0.0:"),
        ("falls &= late_fall > fall / 5", "falls &= True"),
    ),
    *killed_by(
        "results/test_bounds.py::test_replicas_may_differ_by_an_rhat_of_105[1.051-True]",
        "results/mixing.py",
        ("REPLICA_RHAT_GOOD = 1.05", "REPLICA_RHAT_GOOD = 1.5"),
    ),
    *killed_by(
        "results/test_bounds.py::"
        "test_a_chain_without_a_round_trip_is_told_where_rhat_says_nothing[trips2-1.009-False]",
        "results/mixing.py",
        (
            "chains = np.flatnonzero(posterior.round_trips == 0)",
            "chains = np.flatnonzero(posterior.round_trips <= 1)",
        ),
    ),
    *killed_by(
        "results/test_bounds.py::"
        "test_components_that_are_looked_at_are_evenly_spaced_and_the_energy",
        "results/mixing.py",
        ('"energy": posterior.energies}', "}"),
    ),
    *killed_by(
        "results/test_bounds.py::"
        "test_a_hundred_effective_draws_a_chain_are_enough[199.0-True-bulk]",
        "results/mixing.py",
        ("not np.isnan(value)}", "value > 0}"),
    ),
    *killed_by(
        "results/test_bounds.py::"
        "test_a_hundred_effective_draws_a_chain_are_enough[199.0-True-tail]",
        "results/mixing.py",
        (
            'sizes[name, "tails"] = -diagnostics.tail_size(values) / posterior.num_chains',
            'sizes[name, "tails"] = -diagnostics.tail_size(values)',
        ),
    ),
    *killed_by(
        "results/test_bounds.py::"
        "test_a_pair_blocks_below_one_swap_in_a_hundred_windows[0.011-0.4-50-False]",
        "results/problems.py",
        ("_RARE_SWAPS = 0.01", "_RARE_SWAPS = 0.1"),
    ),
    *killed_by(
        "results/test_bounds.py::"
        "test_a_pair_blocks_below_one_swap_in_a_hundred_windows[0.009-0.4-50-True]",
        "results/problems.py",
        ("_FEW_WINDOWS = 10", "_FEW_WINDOWS = 1000"),
    ),
    *killed_by(
        "results/test_bounds.py::test_a_ladder_may_move_by_one_percent[0.0101-True]",
        "results/problems.py",
        ("_FIXED = 0.01", "_FIXED = 0.5"),
    ),
    *killed_by(
        "results/test_problems.py::test_a_collapsed_ladder_is_a_warning",
        "results/problems.py",
        ("_COLLAPSED = 1 / 3", "_COLLAPSED = 2 / 3"),
    ),
    *killed_by(
        "results/test_bounds.py::test_distances_of_rungs_are_those_of_logarithms_either_way",
        "results/problems.py",
        (
            "return np.where(usable, np.abs(np.log(ratio)), lower != upper)",
            "return np.where(usable, np.log(ratio), lower != upper)",
        ),
    ),
    *killed_by(
        "results/test_bounds.py::"
        "test_rungs_are_the_same_at_a_twentieth_of_an_even_distance[0.051-False]",
        "results/problems.py",
        ("_SAME = 0.05", "_SAME = 0.5"),
    ),
    *killed_by(
        f"{_HEATING}::test_a_tenth_is_told",
        "networks/heating.py",
        ("_HEATED = 0.1 ", "_HEATED = 0.11 "),
        ("_HEATED = 0.1 ", "_HEATED = 0.09 "),
    ),
    *killed_by(
        f"{_HEATING}::test_what_cannot_be_measured_is_left_out",
        "networks/heating.py",
        ("_FEWEST = 10 ", "_FEWEST = 9 "),
        ("if not options.base.tempers_likelihood or decay", "if decay"),
        ("    if batches.is_whole:", "    if False:"),
        ("not isinstance(batches, EpochBatches) or not has", "batches is None or not has"),
        ('return 0.0 if spec.get("name") == "sgld" else None', "return 0.0"),
    ),
    *killed_by(
        f"{_EXCESS}[hot]",
        "networks/heating.py",
        ("_energies(posed, points) / temperature)", "_energies(posed, points))"),
        ("(2 * (1 - decay) * temperature)", "(2 * (1 - decay))"),
        ("lambda x: temperature * target.prior", "lambda x: target.prior"),
    ),
    *killed_by(
        f"{_EXCESS}[cold]",
        "networks/heating.py",
        ("rate / (2 * (1 - decay)", "rate / ((1 - decay)"),
        ("weight * share**2", "weight * share"),
        ("pairs = pairs / jnp.sqrt(2.0)", "pass"),
        ("(jnp.sum(products) - jnp.trace(products))", "jnp.sum(products)"),
        ("share = _share(rate * noise", "share = _share(noise"),
    ),
    *killed_by(
        f"{_EXCESS}[few]",
        "networks/heating.py",
        ("coldest = networks.rung == 0", "coldest = networks.rung >= 0"),
        ("determined = min(num_params, 2 * np", "determined = max(num_params, 2 * np"),
    ),
    *killed_by(
        _CANCELS,
        "networks/heating.py",
        ("apart = size / (rows - size)", "apart = size / rows"),
        ("correlated = again * np.outer(first, kick) + again", "correlated = again"),
        ("shares.append(1 + apart +", "shares.append(1 +"),
        ("np.linalg.matrix_power(step, steps - 1)", "np.linalg.matrix_power(step, steps)"),
        ("_stationary(epoch, correlated)", "_stationary(step, correlated)"),
    ),
    *killed_by(
        f"{_HEATING}::test_networks_that_are_too_far_apart_are_told[0.06-6-True]",
        "networks/trained.py",
        ("*([heated] if heated else []), *super()", "*super()"),
    ),
]
