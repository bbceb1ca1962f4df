"""Mutations of what a run is made of: its program, and what options leave open."""

from mutations import mutations_of

_BURN_IN = "run/test_progress.py::test_draws_follow_burn_in_and_thin"
_SETTINGS = "run/test_settings.py"
_LADDER = f"{_SETTINGS}::test_a_ladder_is_geometric_and_hot_without_noise"
_WINDOW = f"{_SETTINGS}::test_the_window_is_that_of_theorem_1_unless_one_is_given"
_ADAPTS = f"{_SETTINGS}::test_learning_rates_and_buffer_adapt_by_default"
_TEMPERATURES = f"{_SETTINGS}::test_temperatures_adapt_on_request_and_without_a_buffer"
_MEASURED = f"{_SETTINGS}::test_what_is_given_is_not_measured"

PROGRAM = mutations_of(
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
    (
        "type(batches) if isinstance(batches, NoBatches) else id(batches),",
        "type(batches),",
        "run/test_shared_programs.py::test_other_data_of_the_same_shape_do_not_share",
    ),
    (
        "program.kernel if spec is None else json.dumps(spec, sort_keys=True),",
        'program.kernel if spec is None else spec["name"],',
        "run/test_shared_programs.py::test_kernels_of_other_constants_do_not_share",
    ),
    (
        "next(values) if _is_numeric(leaf) else leaf for leaf in leaves",
        "leaf for leaf in leaves",
        "run/test_shared_programs.py::test_the_noise_of_each_pair_is_that_of_the_run",
    ),
    (
        "return program.settings, program.burn_in",
        "return program.settings, 0",
        "run/test_shared_programs.py::test_the_burn_in_is_that_of_the_run",
    ),
    (
        "seed: int = field(compare=False)",
        "seed: int",
        "run/test_programs.py::test_runs_that_differ_in_numbers_compile_once",
    ),
)

SETTINGS = mutations_of(
    "run/settings.py",
    ("temperatures[1:] = 0", "temperatures[:0] = 0", _LADDER),
    (
        "return geometric(values[0], values[1], num_replicas)",
        "return np.linspace(values[0], values[1], num_replicas)",
        _LADDER,
    ),
    (
        "window = optimal_window(num_replicas, options.target_swap_rate)",
        "window = optimal_window(num_replicas, 0.4)",
        _WINDOW,
    ),
    ("_MEASURE_STEPS = 100", "_MEASURE_STEPS = 10", _ADAPTS),
    ("if adapts and (num_replicas > 2 or free_end):", "if adapts:", _ADAPTS),
    ('if adapts_rungs == "learning_rate" and ladder_is_scalar:', "if False:", _ADAPTS),
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
)

MUTATIONS = [
    *PROGRAM,
    *SETTINGS,
]
