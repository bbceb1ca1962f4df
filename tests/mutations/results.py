"""Mutations of `replicax/results/`: what a posterior says of its best point, its rates and its
problems."""

from mutations import mutations_of

_GRADIENTS = "results/test_gradient_problems.py"
_BEST = "results/test_posterior.py::test_the_best_draw_is_the_lowest_finite_one"

POSTERIOR = [
    *mutations_of(
        "results/posterior.py",
        (
            'return self._final("window_swaps") / np.maximum(self.num_windows, 1)',
            'return self._final("window_swaps") / self.counted_steps',
            "algorithm/test_step.py::test_a_sampled_chain_equals_the_oracle",
        ),
    ),
    *mutations_of(
        "results/posterior.py",
        (
            "energies = np.where(np.isfinite(energies), energies, np.inf)",
            "energies = np.where(np.isnan(energies), -np.inf, energies)",
            _BEST,
        ),
        ("np.argmin(energies, axis=1)", "np.argmax(energies, axis=1)", _BEST),
        ("chain = int(np.argmin(energies))", "chain = 0", _BEST),
    ),
]

_REPLICAS = "results/test_replica_rhat.py"
_ENERGIES = "results/test_energy_problems.py"
_PROBLEMS = "results/test_problems.py"
_MINI_BATCHES = (
    f"{_PROBLEMS}::test_the_deterministic_rule_is_a_warning_of_its_own_with_mini_batches"
)
_COLLAPSED = f"{_PROBLEMS}::test_a_collapsed_ladder_is_a_warning"
_COLDER = f"{_ENERGIES}::test_a_colder_rung_must_be_certain_and_matter"
_ACCEPTANCE = f"{_ENERGIES}::test_acceptance_far_from_its_target_is_found"

REPLICA_RHAT = [
    *mutations_of(
        "results/diagnostics.py",
        (
            "steps = posterior.draw_steps",
            "steps = posterior.draw_steps - posterior.draw_steps[0]",
            f"{_REPLICAS}::test_draws_are_those_of_the_replica_that_was_cold_at_their_step",
        ),
    ),
    *mutations_of(
        "results/diagnostics.py",
        (
            "np.cumsum(path >= turn, axis=1)",
            "np.cumsum(path >= 1, axis=1)",
            f"{_REPLICAS}::test_a_visit_ends_on_the_hottest_rung",
        ),
        (
            "(mean_of - chain_mean[chain_of]) ** 2",
            "(mean_of - mean.mean()) ** 2",
            f"{_REPLICAS}::test_chains_may_differ",
        ),
        (
            "excess = (between - within) / per_replica",
            "excess = between - within",
            f"{_REPLICAS}::test_replicas_that_agree_have_1_and_others_have_the_closed_form",
        ),
        (
            "_CHANCE = 1e-3",
            "_CHANCE = 0.5",
            f"{_REPLICAS}::test_draws_of_one_visit_count_once",
        ),
        (
            "folded = np.abs(values - np.median(values))",
            "folded = values",
            f"{_REPLICAS}::test_it_sees_replicas_that_differ_in_spread_alone",
        ),
        (
            ">= _VISITS * len",
            ">= len",
            f"{_REPLICAS}::test_where_nothing_can_be_told_it_is_nan",
        ),
    ),
]

MIXING = mutations_of(
    "results/mixing.py",
    (
        "REPLICA_RHAT_GOOD = 1.05",
        "REPLICA_RHAT_GOOD = 5.0",
        f"{_REPLICAS}::test_a_ladder_too_cold_to_change_modes_is_found",
    ),
    (
        "if posterior.num_chains < 2 or not worst > RHAT_GOOD:",
        "if not worst > RHAT_GOOD:",
        f"{_PROBLEMS}::test_chains_that_do_not_agree_are_a_warning_that_names_the_worst_parameter",
    ),
    (
        "-diagnostics.bulk_size(values) / posterior.num_chains",
        "-diagnostics.bulk_size(values)",
        f"{_PROBLEMS}::test_few_effective_draws_are_a_warning",
    ),
    (
        "-diagnostics.tail_size(values) / posterior.num_chains",
        "-diagnostics.bulk_size(values) / posterior.num_chains",
        f"{_PROBLEMS}::test_few_effective_draws_in_the_tails_are_a_warning",
    ),
)

GRADIENTS = mutations_of(
    "results/gradient_problems.py",
    (
        "_UNEXPLAINED = 0.1",
        "_UNEXPLAINED = 10.0",
        f"{_GRADIENTS}::test_jumps_are_found",
    ),
    ("_ROUNDING = 64", "_ROUNDING = 0", f"{_GRADIENTS}::test_kinks_and_rounding_are_no_jumps"),
    (
        "energies[:, -1] - energies[:, 0] - slopes @ _WEIGHTS",
        "energies[:, -1] - energies[:, 0] + slopes @ _WEIGHTS",
        f"{_GRADIENTS}::test_kinks_and_rounding_are_no_jumps",
    ),
    (
        "own = (draws - _centres(draws)) * gradients",
        "own = draws * gradients",
        f"{_GRADIENTS}::test_the_temperature_of_gaussian_draws",
    ),
    (
        "excess = mean - 1",
        "excess = 1 - mean",
        f"{_GRADIENTS}::test_draws_of_another_temperature_are_found",
    ),
    (
        "_HEATED, _HEATED_ONE = 0.1, 0.2",
        "_HEATED, _HEATED_ONE = 2.0, 2.0",
        f"{_GRADIENTS}::test_draws_of_another_temperature_are_found",
    ),
    ("bounds[0] = _HEATED", "pass", f"{_GRADIENTS}::test_the_temperature_of_gaussian_draws"),
)

ENERGIES = mutations_of(
    "results/energy_problems.py",
    (
        "np.all(np.diff(means, axis=1) < 0, axis=1)",
        "np.all(np.diff(means, axis=1) > 0, axis=1)",
        f"{_ENERGIES}::test_energies_that_fall_to_the_end_are_found",
    ),
    (
        "(fall > _FALL * spread)",
        "(fall > 0)",
        f"{_ENERGIES}::test_energies_that_come_to_rest_are_not",
    ),
    (
        "_RISE_CERTAIN = 4.5",
        "_RISE_CERTAIN = 0.0",
        f"{_ENERGIES}::test_a_rise_must_be_larger_than_noise",
    ),
    ("np.any(certain & (drop > relevant))", "np.any(certain)", _COLDER),
    ("np.any(certain & (drop > relevant))", "np.any(drop > relevant)", _COLDER),
    (
        "energies[:, :, :1] - energies",
        "energies - energies[:, :, :1]",
        f"{_ENERGIES}::test_rungs_of_sgd_that_are_colder_than_the_target_are_found",
    ),
    (
        "_RESTARTED = 0.01",
        "_RESTARTED = 1.0",
        f"{_ENERGIES}::test_replicas_that_break_often_are_found",
    ),
    (
        "_LOW_ACCEPTANCE, _HIGH_ACCEPTANCE = 0.2, 0.98",
        "_LOW_ACCEPTANCE, _HIGH_ACCEPTANCE = 0, 0.98",
        _ACCEPTANCE,
    ),
    (
        "_LOW_ACCEPTANCE, _HIGH_ACCEPTANCE = 0.2, 0.98",
        "_LOW_ACCEPTANCE, _HIGH_ACCEPTANCE = 0.2, 1",
        _ACCEPTANCE,
    ),
    (
        "not np.nanmax(excess[:, 0]) > _HEATED",
        "not np.nanmax(excess) > _HEATED",
        f"{_ENERGIES}::test_a_target_heated_by_gradient_noise_is_found",
    ),
)

PROBLEMS = mutations_of(
    "results/problems.py",
    ('samples = metadata.kind == "sample" and', "samples =", _MINI_BATCHES),
    ("if same[chain].mean() <= _COLLAPSED:", "if not same[chain].any():", _COLLAPSED),
    ("_SAME = 0.05", "_SAME = 0.001", _COLLAPSED),
)

MUTATIONS = [*POSTERIOR, *REPLICA_RHAT, *MIXING, *GRADIENTS, *ENERGIES, *PROBLEMS]
