"""Mutations of what a run is made of: its program, and what options leave open."""

from mutations import killed_by, mutations_of

_BURN_IN = "run/test_progress.py::test_draws_follow_burn_in_and_thin"
_SETTINGS = "run/test_settings.py"
_LADDER = f"{_SETTINGS}::test_a_ladder_is_geometric_and_hot_without_noise"
_WINDOW = f"{_SETTINGS}::test_the_window_is_that_of_theorem_1_unless_one_is_given"
_ADAPTS = f"{_SETTINGS}::test_learning_rates_and_buffer_adapt_by_default"
_TEMPERATURES = f"{_SETTINGS}::test_temperatures_adapt_on_request_and_without_a_buffer"
_MEASURED = f"{_SETTINGS}::test_what_is_given_is_not_measured"

PROGRAM = [
    *mutations_of(
        "run/program.py",
        ("drawn = (steps >= self.burn_in)", "drawn = (steps > self.burn_in)", _BURN_IN),
        ("((steps - self.burn_in) % self.thin == 0)", "(steps % self.thin == 0)", _BURN_IN),
        (
            "drawn &= np.asarray(self.kernel.exploits(steps), bool)",
            "np.asarray(self.kernel.exploits(steps), bool)",
            "laws/test_kernels.py::test_a_cyclical_kernel_leaves_draws_only_of_the_exploitation_part",
        ),
        (
            "langevin=bool(np.any(ladder.temperature > 0)),",
            "langevin=bool(np.all(ladder.temperature > 0)),",
            "run/test_progress.py::test_noise_on_the_coldest_rung_alone_is_noise",
        ),
        (
            'stop_on_nonfinite=options.on_nonfinite != "ignore",',
            'stop_on_nonfinite=options.on_nonfinite == "stop",',
            "algorithm/test_restarts.py::test_a_coldest_rung_that_diverges_ends_the_run[restart]",
        ),
        (
            "track_best=forces if options.track_best is None else options.track_best,",
            "track_best=bool(options.track_best),",
            "run/test_progress.py::test_the_best_point_is_tracked_where_it_is_asked_for",
        ),
    ),
]

SETTINGS = [
    *mutations_of(
        "run/settings.py",
        (
            "window = optimal_window(num_replicas, options.target_swap_rate)",
            "window = optimal_window(num_replicas, 0.4)",
            _WINDOW,
        ),
        ("_MEASURE_STEPS = 100", "_MEASURE_STEPS = 10", _ADAPTS),
        ("if num_replicas <= 2 and not free_end:", "if False:", _ADAPTS),
        ("if np.ndim(options.learning_rate) > 0 else None", "if True else None", _ADAPTS),
        (
            "return schedule.exchanges and not rule.uses_temperature, None",
            "return not rule.uses_temperature, None",
            _ADAPTS,
        ),
        ("return adapt > 0, int(adapt)", "return adapt > 0, None", _ADAPTS),
        (
            "return schedule.exchanges and not rule.uses_temperature, None",
            "return schedule.exchanges, None",
            _TEMPERATURES,
        ),
        ("adapts_buffer=not fixed,", "adapts_buffer=adapts,", _TEMPERATURES),
        (
            "measures_buffer = buffer_auto and not rule.uses_temperature",
            "measures_buffer = buffer_auto",
            _TEMPERATURES,
        ),
        (
            "measures = measures_buffer or (gain_auto and not fixed)",
            "measures = measures_buffer",
            _MEASURED,
        ),
        ("measure_buffer=measures_buffer,", "measure_buffer=measures,", _MEASURED),
        (
            "freezes = adapt and rule.uses_temperature and options.burn_in > 0",
            "freezes = False",
            f"{_SETTINGS}::test_a_ladder_of_temperatures_stands_still_after_burn_in",
        ),
        (
            "freezes = adapt and rule.uses_temperature and options.burn_in > 0",
            "freezes = adapt and options.burn_in > 0",
            f"{_SETTINGS}::test_a_ladder_of_temperatures_stands_still_after_burn_in",
        ),
    ),
    *mutations_of("algorithm/ladder.py", ("by_rung[1:] = 0", "by_rung[:0] = 0", _LADDER)),
    *mutations_of(
        "algorithm/ladder.py",
        (
            "return geometric(values[0], values[1], num_replicas)",
            "return np.linspace(values[0], values[1], num_replicas)",
            _LADDER,
        ),
    ),
]

BY_HAND = [
    *killed_by(
        "laws/test_judgement.py::"
        "test_the_noise_of_two_states_is_that_of_their_difference[1000-arrays]",
        "run/batches.py",
        ("share = 0.0 if self.is_whole else 1.0", "share = 1.0"),
    ),
    *killed_by(
        "run/test_epochs.py::test_no_step_has_the_key_of_an_order",
        "run/batches.py",
        ("_ORDERS = 2**32 - 1", "_ORDERS = 0"),
    ),
    *killed_by(
        "run/test_epochs.py::test_every_subset_of_rows_is_an_equally_likely_further_batch[6-4]",
        "run/batches.py",
        (
            "jax.random.permutation(key, num_rows)[:count]",
            "jax.random.permutation(key, num_rows - 1)[:count]",
        ),
    ),
    *killed_by(
        "run/test_defaults.py::"
        "test_exact_energies_are_moved_along_by_hmc_and_swapped_at_every_step",
        "run/options.py",
        ("_NUM_REPLICAS = 8", "_NUM_REPLICAS = 4"),
        ('"on_nonfinite": "stop" if adjusted else "restart"', '"on_nonfinite": "restart"'),
    ),
    *killed_by(
        "run/test_defaults.py::"
        "test_mini_batches_are_judged_on_all_rows_where_that_costs_little[19999-batches1-wanted1]",
        "run/options.py",
        ("_USUAL_SWAP_EVERY = 10", "_USUAL_SWAP_EVERY = 1"),
        ("_FEWEST_ATTEMPTS = 1000", "_FEWEST_ATTEMPTS = 10"),
    ),
    *killed_by(
        "run/test_defaults.py::"
        "test_mini_batches_are_judged_on_all_rows_where_that_costs_little[20000-batches0-wanted0]",
        "run/options.py",
        ("_JUDGING_SHARE = 0.5", "_JUDGING_SHARE = 5.0"),
    ),
    *killed_by(
        "run/test_defaults.py::test_what_is_chosen_stays",
        "run/options.py",
        ('"deo" if chosen.get("window") in (None, 1) else "no_gate"', '"deo"'),
    ),
    *killed_by(
        "run/test_defaults.py::test_one_replica_has_no_ladder",
        "run/options.py",
        ('defaults |= {"schedule": "none", "temperature": 1.0, "adapt": False}', "pass"),
    ),
    *killed_by(
        "run/test_initial.py::test_starts_by_replica_and_by_chain",
        "run/per_replica.py",
        ("if shapes and fits_chains and by_chain is not False:", "if shapes and fits_chains:"),
    ),
    *killed_by(
        "run/test_initial.py::"
        "test_starts_are_one_point_where_no_replica_of_any_chain_differs[change3-False]",
        "run/initial.py",
        ("leaf == leaf[:1, :1]", "leaf == leaf[:1]"),
    ),
    *killed_by(
        "run/test_bayesian.py::"
        "test_bad_posteriors_are_refused_with_a_sentence[one that is missing, of many]",
        "run/initial.py",
        ("batch = batch if whole is None else program.batches.data", "whole = None"),
    ),
    *killed_by(
        "run/test_initial.py::test_memory_is_that_of_three_copies_of_all_replicas_of_all_chains",
        "run/initial.py",
        ("needed = num_chains * num_replicas * (3 *", "needed = num_replicas * (3 *"),
        ("_RUNG_BYTES = 64", "_RUNG_BYTES = 0"),
    ),
    *killed_by(
        "run/test_program.py::test_steps_count_from_burn_in_and_measurement_on[options0-100]",
        "run/program.py",
        (
            "return jnp.maximum(self.burn_in, self.settings.tuning.measure_steps)",
            "return self.burn_in",
        ),
    ),
    *killed_by(
        "run/test_program.py::test_energies_of_all_rungs_are_kept_for_the_evidence_alone",
        "run/program.py",
        (
            "return self.target.tempers_likelihood and self.settings.rule.uses_temperature",
            "return self.settings.rule.uses_temperature",
        ),
    ),
    *killed_by(
        "run/test_program.py::test_what_a_broken_replica_does[restart-True-True]",
        "run/program.py",
        ('restarts=options.on_nonfinite == "restart",', "restarts=False,"),
    ),
    *killed_by(
        "run/test_program.py::test_the_hottest_temperature_of_an_automatic_ladder",
        "run/program.py",
        ("_HOTTEST = 1e3", "_HOTTEST = 1e6"),
    ),
    *killed_by(
        "run/test_program.py::test_swaps_are_attempted_as_often_as_is_asked_for",
        "run/program.py",
        ("every = options.swap_every or 1", "every = 1"),
    ),
]

MUTATIONS = [
    *BY_HAND,
    *PROGRAM,
    *SETTINGS,
]
