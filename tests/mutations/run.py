"""Mutations of `replicax/run/`."""

from mutations import mutations_of

_CUT = "run/test_host_loop.py::test_where_a_run_is_cut_changes_nothing"
_BEYOND = "run/test_host_loop.py::test_records_beyond_the_checkpoint_are_dropped"
_PACE = "run/test_host_loop.py::test_chunks_take_half_a_second_and_outweigh_their_fixed_cost"
_CALLBACK = "run/test_host_loop.py::test_a_callback_sees_progress_and_can_stop_the_run"
_PROGRESS = "run/test_progress.py::test_the_last_progress_is_what_the_posterior_says"
_WITHIN_EPOCH = "networks/test_train.py::test_a_run_stopped_within_an_epoch_goes_on_bit_for_bit"
_GROW = "run/test_host_loop.py::test_records_grow_and_are_cut_at_any_row"
_CHUNKS = "run/test_host_loop.py::test_chunks_on_disk_are_never_empty"
_BEST_SAVED = "run/test_saver.py::test_the_best_point_survives_saving"
_TRIPS = "algorithm/test_ladder.py::test_round_trips_are_those_of_the_oracle"
_SAMPLED = "algorithm/test_step.py::test_a_sampled_chain_equals_the_oracle"
_BURN_IN = "run/test_progress.py::test_draws_follow_burn_in_and_thin"
_SHARED = "run/test_programs.py::test_a_shared_program_gives_the_numbers_of_its_own"
_NONFINITE = (
    "run/test_host_loop.py::"
    "test_a_non_finite_energy_ends_the_run_with_its_place_and_keeps_the_draws"
)

_FOUR = "run/test_devices.py::test_four_devices_give_the_numbers_of_one"
_LARGEST = "run/test_devices.py::test_the_largest_even_mesh_is_chosen"
_REFUSED = "run/test_devices.py::test_devices_that_cannot_be_used_are_refused"
_ROWS = "run/test_data_parallel.py::test_shared_rows_give_the_numbers_of_one_device_to_rounding"
_SHARED_OUT = "run/test_data_parallel.py::test_devices_are_shared_out"
_NOT_SHARED = "run/test_data_parallel.py::test_batches_that_cannot_be_shared_are_refused"
_WRONG_NUMBER = "run/test_data_parallel.py::test_a_number_that_cannot_be_is_refused"
_CROSSING = "run/test_devices.py::test_only_energies_cross_in_a_step[network]"

SPREAD = mutations_of(
    "algorithm/spread.py",
    ("return jnp.where(is_here, values, jnp.zeros_like(values))", "return values", _FOUR),
    ("is_first = jax.lax.axis_index(REPLICA) == 0", "is_first = True", _FOUR),
    ("jax.lax.axis_index(axis) * length, length)", "0 * length, length)", _FOUR),
    ("part = PartitionSpec(DATA)", "part = PartitionSpec()", f"{_ROWS}[normalised-rows]"),
)

MESH = mutations_of(
    "run/mesh.py",
    ("and num_chains % chain_parts == 0", "", _LARGEST),
    ("(sizes[0] * sizes[1], sizes[0]))", "(sizes[0] * sizes[1], sizes[1]))", _LARGEST),
    ("if count % len(processes):", "if False:", _REFUSED),
    ("if devices > len(available):", "if False:", _REFUSED),
    ("num_replicas, wanted // data_parallel)", "num_replicas, wanted)", _SHARED_OUT),
    ("if wanted % data_parallel:", "if False:", _WRONG_NUMBER),
    ("if size % parts and not batches.is_whole:", "if False:", _NOT_SHARED),
    ("if all(size % parts for size in sizes):", "if False:", _NOT_SHARED),
)

SPREAD_LOOP = mutations_of(
    "run/compiled_loop.py",
    (
        "point = spread.rows(kept, drawn)",
        "point = spread.join(spread.rows(kept, drawn))",
        _CROSSING,
    ),
)

HOST_LOOP = mutations_of(
    "run/host_loop.py",
    ("_CHUNK_SECONDS = 0.5", "_CHUNK_SECONDS = 5.0", _PACE),
    ("max(_CHUNK_SECONDS, 4 * fixed)", "max(_CHUNK_SECONDS, 0 * fixed)", _PACE),
    (
        "return 2**62 if every is None else every - step % every",
        "return 2**62 if every is None else every",
        f"{_WITHIN_EPOCH}[ensemble]",
    ),
    (
        "count = min(pace.length, num_steps - step,",
        "count = min(pace.length, num_steps,",
        f"{_CUT}[203]",
    ),
    (
        "attempts = (step - int(program.counted_from)) //",
        "attempts = step //",
        _PROGRESS,
    ),
    (
        "seconds_left=(num_steps - step) / max(rate, 1e-9),",
        "seconds_left=num_steps / max(rate, 1e-9),",
        _PROGRESS,
    ),
    (
        "cold_energy=np.asarray(carry.counters.energy[:, 0]),",
        "cold_energy=np.asarray(carry.counters.energy[:, -1]),",
        _PROGRESS,
    ),
    ("at step {step - 1}. Draws", "at step {step}. Draws", f"{_NONFINITE}[nan]"),
    (
        "if stops and result is None:",
        "if stops and result is not None:",
        _CALLBACK,
    ),
    ("if due:", "if due and False:", _BEYOND),
    (
        "if program.evaluate_every is None or step % program.evaluate_every:",
        "if program.evaluate_every is None:",
        f"{_WITHIN_EPOCH}[ensemble]",
    ),
)

SAVER = mutations_of(
    "run/saver.py",
    (
        "_PENDING_BYTES = 2**28",
        "_PENDING_BYTES = 2**29",
        "run/test_saver.py::test_a_quarter_of_a_gigabyte_is_not_kept_waiting",
    ),
    (
        "if self.records.pending_bytes > _PENDING_BYTES:",
        "if self.records.pending_bytes > _PENDING_BYTES and self.every is None:",
        "run/test_saver.py::test_a_quarter_of_a_gigabyte_is_not_kept_waiting",
    ),
    (
        "return step - self.step >= steps",
        "return step - self.step > steps",
        "run/test_saver.py::test_a_checkpoint_may_be_due_by_steps_instead",
    ),
    (
        "self.step, self.clock = step, time.monotonic()",
        "self.clock = time.monotonic()",
        "run/test_saver.py::test_a_state_is_written_once",
    ),
    (
        "if self.records.folder is None:",
        "if self.records.folder is None and self.every is None:",
        "run/test_saver.py::test_records_in_memory_are_never_due",
    ),
    (
        'return {**values, **{f"best.{i:06d}": leaf for i, leaf in enumerate(best)}}',
        "return values",
        _BEST_SAVED,
    ),
    (
        '"best_energy": counters.best_energy,',
        '"best_energy": counters.energy.min(axis=1),',
        _BEST_SAVED,
    ),
    (
        "state = None if evaluation is None else evaluation.state",
        "state = None",
        f"{_WITHIN_EPOCH}[ensemble]",
    ),
    (
        '"round_trips": completed_trips(counters.turns).sum(axis=1),',
        '"round_trips": completed_trips(counters.turns).max(axis=1),',
        _SAMPLED,
    ),
    ('"buffer": state.buffer,', '"buffer": 0 * state.buffer,', _SAMPLED),
)

ROWS = mutations_of(
    "run/rows.py",
    (
        "number = step // every - start // every - 1",
        "number = step // every - start // every",
        _SAMPLED,
    ),
    (
        "num_points = (step + done) // program.history_every - step // program.history_every",
        "num_points = done // program.history_every",
        _SAMPLED,
    ),
    (
        "small = jnp.int8 if num_replicas <= 128 else jnp.int16",
        "small = jnp.int8 if num_replicas <= 256 else jnp.int16",
        "run/test_host_loop.py::test_the_index_process_is_stored_in_the_smallest_integer",
    ),
    ("return capacity // program.thin + 1", "return capacity // program.thin", _BURN_IN),
    (
        "return capacity // program.history_every + 1",
        "return capacity // program.history_every",
        _BURN_IN,
    ),
    (
        "slots[:count][drawn] = np.arange(drawn.sum())",
        "slots[:count][drawn] = np.arange(drawn.sum())[::-1]",
        _BURN_IN,
    ),
)

ROUND_TRIPS = mutations_of(
    "run/round_trips.py",
    ('return (rung_of == 0).astype("int32")', 'return (rung_of >= 0).astype("int32")', _TRIPS),
    ("(rung_of == (turns % 2) * hottest)", "(rung_of == ((turns + 1) % 2) * hottest)", _TRIPS),
    ("return (turns - (turns > 0)) // 2", "return turns // 2", _TRIPS),
    (
        "if hottest == 0:  # a single rung has no way",
        "if hottest < 0:",
        "run/test_progress.py::test_a_single_rung_has_no_round_trips",
    ),
    (
        "return [np.flatnonzero(steps) + 1 for steps in ended.T]",
        "return [np.flatnonzero(steps) for steps in ended.T]",
        "results/test_plots.py::test_trip_ends_of_a_known_path",
    ),
    (
        "np.diff(trips, axis=0, prepend=0) > 0",
        "trips > 0",
        "results/test_plots.py::test_trip_ends_of_a_known_path",
    ),
)

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
        "algorithm/test_replicas.py::test_a_coldest_rung_that_diverges_ends_the_run[restart]",
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

COMPILED_LOOP = mutations_of(
    "run/compiled_loop.py",
    ("drawn = after.replica_at[rungs]", "drawn = state.replica_at[rungs]", _SAMPLED),
    ("info.energy[state.rung_of[drawn]]", "info.energy[after.rung_of[drawn]]", _SAMPLED),
    (
        "until_point = ((start + first) // every + 1) * every - start",
        "until_point = ((start + first) // every + 1) * every",
        _SAMPLED,
    ),
    (
        "draw_block(draw_all, start + first + jnp.arange(block))",
        "draw_block(draw_all, start + jnp.arange(block))",
        _SAMPLED,
    ),
    (
        "plan = plan_chains(keys, start + first)",
        "plan = plan_chains(keys, start)",
        "run/test_epochs.py::test_how_a_run_is_cut_changes_nothing",
    ),
    (
        "lambda inner: (inner[2] < end) & _is_healthy(program, inner[0]),",
        "lambda inner: inner[2] < end,",
        "networks/test_train.py::test_a_coldest_network_that_breaks_ends_the_run[9]",
    ),
)

INITIAL = mutations_of(
    "run/initial.py",
    (
        "keys = jax.random.split(jax.random.fold_in(key, chain), num_replicas)",
        "keys = jax.random.split(jax.random.fold_in(key, 0), num_replicas)",
        "run/test_progress.py::test_drawn_starts_differ_by_chain_and_replica",
    ),
    (
        "jax.vmap(lambda chain: jax.random.fold_in(run_key, chain))(chains), start_key",
        "jax.vmap(lambda chain: jax.random.fold_in(run_key, 0 * chain))(chains), start_key",
        "run/test_progress.py::test_chains_from_one_start_go_their_own_ways",
    ),
    (
        "run_key, start_key = jax.random.split(key)",
        "run_key, start_key = key, key",
        _SAMPLED,
    ),
)

RESTORE = mutations_of(
    "run/restore.py",
    (
        "program.batches.skip_to(step, source)",
        "program.batches.skip_to(0, source)",
        "run/test_saver.py::test_batches_go_forward_when_a_run_is_rewound",
    ),
    ("records.rewind()", "records.folder", _BEYOND),
)

_COUNTED = (
    "run/test_counters.py::"
    "test_verdicts_count_from_their_first_step_and_windows_when_they_are_whole"
)
_LOWEST = "run/test_counters.py::test_the_best_point_is_the_lowest_finite_energy"
_BROKEN = "run/test_counters.py::test_non_finite_energies_and_restarts"

COUNTERS = mutations_of(
    "run/counters.py",
    ("counted = before.step >= counted_from", "counted = before.step > counted_from", _COUNTED),
    (
        "window_counted = schedule.window_start(attempt) * every >= counted_from",
        "window_counted = before.step >= counted_from",
        _COUNTED,
    ),
    ("info.active & opens & window_counted", "info.active & window_counted", _COUNTED),
    (
        "first_swap = info.swapped & (before.gate | opens)",
        "first_swap = info.swapped",
        "run/test_counters.py::test_a_window_counts_one_swap",
    ),
    (
        "first_swap = info.swapped & (before.gate | opens)",
        "first_swap = info.swapped & before.gate",
        "run/test_counters.py::test_a_window_counts_one_swap",
    ),
    (
        "energy = jnp.where(jnp.isfinite(info.energy), info.energy, jnp.inf)",
        "energy = info.energy",
        _LOWEST,
    ),
    (
        "energy = jnp.where(jnp.isfinite(info.energy), info.energy, jnp.inf)",
        "energy = jnp.nan_to_num(info.energy, nan=jnp.inf, neginf=-jnp.inf)",
        _LOWEST,
    ),
    (
        "better = energy[rung] < counters.best_energy",
        "better = energy[rung] > counters.best_energy",
        _LOWEST,
    ),
    ("replica = before.replica_at[rung]", "replica = rung", _LOWEST),
    (
        "return jnp.minimum(counters.best_energy, energy[rung]), best",
        "return energy[rung], best",
        _LOWEST,
    ),
    ("mended = info.restarted.at[0].set(False)", "mended = info.restarted", _BROKEN),
    (
        "nonfinite=counters.nonfinite + ~jnp.all(",
        "nonfinite=0 * counters.nonfinite + ~jnp.all(",
        _BROKEN,
    ),
    (
        "~jnp.all(jnp.isfinite(info.energy) | mended)",
        "~jnp.all(jnp.isfinite(info.energy))",
        _BROKEN,
    ),
    (
        "starts = after.step == counted_from",
        "starts = after.step == 0",
        "run/test_counters.py::test_round_trips_begin_with_the_counted_steps",
    ),
)

FORGET = mutations_of(
    "run/round_trips.py",
    (
        "return (turns > 0) * (2 - turns % 2)",
        "return (turns > 0) * 1",
        "run/test_counters.py::test_round_trips_begin_with_the_counted_steps",
    ),
)

_SETTINGS = "run/test_settings.py"
_LADDER = f"{_SETTINGS}::test_a_ladder_is_geometric_and_hot_without_noise"
_WINDOW = f"{_SETTINGS}::test_the_window_is_that_of_theorem_1_unless_one_is_given"
_ADAPTS = f"{_SETTINGS}::test_learning_rates_and_buffer_adapt_by_default"
_TEMPERATURES = f"{_SETTINGS}::test_temperatures_adapt_on_request_and_without_a_buffer"
_MEASURED = f"{_SETTINGS}::test_what_is_given_is_not_measured"

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

_SUBSETS = "run/test_epochs.py::test_every_subset_of_rows_is_an_equally_likely_further_batch"
_FINITE_POPULATION = "run/test_epochs.py::test_the_noise_of_energies_is_that_of_a_finite_population"

BATCHES = mutations_of(
    "run/batches.py",
    (
        "jax.random.randint(key, (self.batch_size,), 0, self.num_rows)",
        "jax.random.randint(key, (self.batch_size,), 0, self.num_rows - 1)",
        "run/test_batch_properties.py::test_every_row_is_drawn_equally_often",
    ),
    (
        "places = (first + jnp.arange(self.batch_size)) % self.num_rows",
        "places = jnp.minimum(first + jnp.arange(self.batch_size), self.num_rows - 1)",
        "run/test_epochs.py::test_a_last_batch_is_filled_from_the_beginning_of_its_epoch",
    ),
    (
        "return -(-self.num_rows // self.batch_size)",
        "return self.num_rows // self.batch_size",
        "run/test_epochs.py::test_a_last_batch_is_filled_from_the_beginning_of_its_epoch",
    ),
    (
        "jax.random.fold_in(jax.random.fold_in(key, _ORDERS), epoch)",
        "jax.random.fold_in(key, _ORDERS)",
        "run/test_epochs.py::test_an_epoch_shows_every_row_once",
    ),
    (
        "return prng.ordinary(key)",
        "return prng.ordinary(prng.make_key(0))",
        "run/test_epochs.py::test_a_batch_is_prepared_with_luck_of_its_own",
    ),
    (
        "rows = _different_rows(rows_key, self.batch_size, self.num_rows)",
        "rows = _different_rows(rows_key, self.batch_size, self.num_rows - 1)",
        _SUBSETS,
    ),
    (
        "rows = _different_rows(rows_key, self.batch_size, self.num_rows)",
        "rows = jax.random.randint(rows_key, (self.batch_size,), 0, self.num_rows)",
        _SUBSETS,
    ),
    (
        "return self._prepared(data, rows, key)",
        "return self._prepared(data, rows, jax.random.key(0))",
        "run/test_epochs.py::test_a_further_batch_is_prepared_with_a_key_of_its_own",
    ),
    (
        "return FreshBatches(draw, 1 - self.batch_size / self.num_rows, data)",
        "return FreshBatches(draw, 1.0, data)",
        "laws/test_judgement.py::test_the_noise_of_two_states_is_that_of_their_difference[500-epochs]",
    ),
    (
        "num_epochs = -(-num_steps // self.steps_per_epoch) + 1",
        "num_epochs = num_steps // self.steps_per_epoch",
        "run/test_epochs.py::test_how_a_run_is_cut_changes_nothing",
    ),
)

HOST_BATCHES = mutations_of(
    "run/host_batches.py",
    (
        "del self.pending[: step - self.position]",
        "del self.pending[: step - self.position - 1]",
        "run/test_batches.py::test_a_function_and_an_iterable_of_the_same_batches_agree",
    ),
)

_JUDGED = "run/test_sources.py::test_swaps_are_judged_on_the_batch_after_that_of_the_move"
_PLACES = "run/test_sources.py::test_a_run_that_stops_within_a_chunk_is_saved_at_a_place_before"
_RESUMED = "run/test_sources.py::test_a_posterior_of_a_source_resumes_bit_for_bit"

SOURCES = [
    *mutations_of(
        "run/source_batches.py",
        ("further = self.batches_before(step) - self.batches_before(step - place) + 1",
         "further = self.batches_before(step) - self.batches_before(step - place)", _JUDGED),
        ("step - (-step // self.judged_every)", "step + step // self.judged_every", _JUDGED),
    ),
    *mutations_of(
        "run/source_reader.py",
        ("first = self.place(self.number)", "first = self.place(number)", _PLACES),
        ("self._batch, self.number = place.batch, place.number",
         "self._batch, self.number = place.batch, number", _PLACES),
        ("self.source.set_epoch(epoch)", "self.source.set_epoch(0)", _JUDGED),
        ("np.array(leaf) for leaf in leaves]", "np.asarray(leaf) for leaf in leaves]",
         "run/test_sources.py::test_a_source_may_write_over_its_batches"),
    ),
    *mutations_of(
        "run/restore.py",
        ("None if source is None else source.tobytes()", "None", f"{_RESUMED}[Stateful]"),
    ),
]  # fmt: skip

MUTATIONS = [
    *SPREAD,
    *MESH,
    *SPREAD_LOOP,
    *HOST_LOOP,
    *SAVER,
    *ROWS,
    *ROUND_TRIPS,
    *FORGET,
    *PROGRAM,
    *COMPILED_LOOP,
    *INITIAL,
    *RESTORE,
    *COUNTERS,
    *SETTINGS,
    *BATCHES,
    *HOST_BATCHES,
    *SOURCES,
]
