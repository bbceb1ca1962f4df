"""Mutations of diagnostics, of the evidence and of the numbers of a posterior."""

from mutations import killed_by

MUTATIONS = [
    *killed_by(
        "results/test_diagnostics.py::test_rhat_is_that_of_arviz[independent]",
        "results/diagnostics.py",
        (
            "folded = np.abs(halves - np.median(halves))",
            "folded = np.abs(halves - np.mean(halves))",
        ),
    ),
    *killed_by(
        "results/test_diagnostics.py::test_rhat_is_that_of_arviz[antithetic]",
        "results/diagnostics.py",
        (
            "return max(_rhat(rank_normalised(halves)), _rhat(rank_normalised(folded)))",
            "return _rhat(rank_normalised(halves))",
        ),
    ),
    *killed_by(
        "results/test_diagnostics.py::test_effective_size_is_that_of_arviz[independent]",
        "results/diagnostics.py",
        ("return min(tail_sizes(values))", "return max(tail_sizes(values))"),
        ("for q in (0.05, 0.95))", "for q in (0.05, 0.5))"),
        ("halves <= np.quantile(whole, q)", "halves < np.quantile(whole, q)"),
        ("within = covariance[0] * length / (length - 1)", "within = covariance[0]"),
    ),
    *killed_by(
        "results/test_diagnostics.py::test_split_rhat_is_that_of_arviz[independent]",
        "results/diagnostics.py",
        (
            "between = length * halves.mean(axis=1).var(ddof=1)",
            "between = length * halves.mean(axis=1).var()",
        ),
    ),
    *killed_by(
        "results/test_evidence.py::test_its_standard_error_is_that_of_blocks_of_draws",
        "results/evidence.py",
        ("_BLOCKS = 16", "_BLOCKS = 2"),
    ),
    *killed_by(
        "results/test_evidence.py::"
        "test_the_evidence_is_the_mean_of_chains_that_each_have_their_own_ladder",
        "results/evidence.py",
        (
            "inverse = 1 / np.asarray(temperatures[chain], float)",
            "inverse = 1 / np.asarray(temperatures[0], float)",
        ),
        ("float(np.mean(values))", "float(np.median(values))"),
        ("gap * energies[:, rung + 1]", "gap * energies[:, rung]"),
    ),
    *killed_by(
        "results/test_posterior_numbers.py::test_rates_are_by_counted_steps_attempts_and_windows",
        "results/posterior.py",
        (
            'self._final("restarts") / max(self.num_steps, 1)',
            'self._final("restarts") / max(self.counted_steps, 1)',
        ),
        (
            'return self._final("acceptance") / self.counted_steps',
            'return self._final("acceptance") / self.num_steps',
        ),
    ),
    *killed_by(
        "results/test_posterior_numbers.py::test_the_barrier_says_how_many_replicas_would_do",
        "results/posterior.py",
        ("int(np.ceil(2 * self.barrier.max())) + 1", "int(np.ceil(self.barrier.max())) + 1"),
        ("np.sum(1 - self.verdict_rate, axis=1)", "np.sum(self.verdict_rate, axis=1)"),
    ),
    *killed_by(
        "results/test_posterior_numbers.py::test_histories_have_their_steps_and_counts",
        "results/posterior.py",
        ("(np.arange(points) + 1) * self.metadata", "np.arange(points) * self.metadata"),
    ),
    *killed_by(
        "results/test_replica_rhat.py::test_where_nothing_can_be_told_it_is_nan",
        "results/diagnostics.py",
        ("_VISITS = 3", "_VISITS = 1"),
    ),
    *killed_by(
        "results/test_replica_rhat.py::"
        "test_replicas_that_agree_have_1_and_others_have_the_closed_form",
        "results/diagnostics.py",
        ("chance = _CHANCE / (2 * max(len(components), 1))", "chance = _CHANCE * 1000"),
    ),
    *killed_by(
        "results/test_replica_rhat.py::test_a_visit_ends_on_the_hottest_rung",
        "results/diagnostics.py",
        ("range(posterior.num_replicas - 1, 0, -1)", "range(1, posterior.num_replicas)"),
    ),
    *killed_by(
        "results/test_replica_rhat.py::"
        "test_visits_of_unequal_numbers_are_weighed_as_in_an_analysis_of_variance",
        "results/diagnostics.py",
        ("excess = (between - within) / per_replica", "excess = between / per_replica"),
        (
            "per_replica = (num_visits - squares.sum()) / (num_groups - num_chains)",
            "per_replica = num_visits / num_groups",
        ),
    ),
    *killed_by(
        "results/test_posterior_numbers.py::test_expected_trips_are_those_of_lemma_1_per_step",
        "results/summary.py",
        ("theory.round_trip_rate(1 - rate)", "theory.round_trip_rate(rate)"),
    ),
    *killed_by(
        "results/test_posterior_numbers.py::test_mean_energies_are_by_chain_and_rung_after_burn_in",
        "results/summary.py",
        (
            "energies.mean(axis=1).tolist() if energies.shape[1]",
            "energies.mean(axis=0).tolist() if energies.shape[1]",
        ),
    ),
    *killed_by(
        "results/test_posterior_numbers.py::test_round_trips_are_told_per_thousand_counted_steps",
        "results/summary.py",
        (
            "posterior.round_trips / posterior.counted_steps * 1000",
            "posterior.round_trips / num_steps * 1000",
        ),
    ),
]
