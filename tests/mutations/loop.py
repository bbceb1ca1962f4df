"""Mutations of the loop: chunks, rows, checkpoints."""

from mutations import killed_by, mutations_of

_CUT = "run/test_host_loop.py::test_where_a_run_is_cut_changes_nothing"
_BEYOND = "run/test_host_loop.py::test_records_beyond_the_checkpoint_are_dropped"
_PACE = "run/test_host_loop.py::test_chunks_take_half_a_second_and_outweigh_their_fixed_cost"
_CALLBACK = "run/test_host_loop.py::test_a_callback_sees_progress_and_can_stop_the_run"
_PROGRESS = "run/test_progress.py::test_the_last_progress_is_what_the_posterior_says"
_WITHIN_EPOCH = (
    "networks/test_training_runs.py::test_a_run_stopped_within_an_epoch_goes_on_bit_for_bit"
)
_BEST_SAVED = "run/test_saver.py::test_the_best_point_survives_saving"
_SAMPLED = "algorithm/test_step.py::test_a_sampled_chain_equals_the_oracle"
_BURN_IN = "run/test_progress.py::test_draws_follow_burn_in_and_thin"
_NONFINITE = (
    "run/test_host_loop.py::"
    "test_a_non_finite_energy_ends_the_run_with_its_place_and_keeps_the_draws"
)

HOST_LOOP = [
    *mutations_of(
        "run/host_loop.py",
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
        ("at step {step - 1}. Draws", "at step {step}. Draws", f"{_NONFINITE}[nan]"),
        (
            "if stops and result is None:",
            "if stops and result is not None:",
            _CALLBACK,
        ),
        ("if due:", "if due and False:", _BEYOND),
    ),
    *mutations_of(
        "run/progress.py",
        (
            "num_attempts(int(program.counted_from), step,",
            "num_attempts(0, step,",
            _PROGRESS,
        ),
        (
            "seconds_left=(num_steps - step) / max(rate, 1e-9),",
            "seconds_left=num_steps / max(rate, 1e-9),",
            _PROGRESS,
        ),
        (
            "cold_energy=np.asarray(carry.counters.energy)[:, 0],",
            "cold_energy=np.asarray(carry.counters.energy)[:, -1],",
            _PROGRESS,
        ),
    ),
    *mutations_of(
        "run/evaluation.py",
        (
            "if every is None or step % every or not",
            "if every is None or not",
            f"{_WITHIN_EPOCH}[ensemble]",
        ),
    ),
    *mutations_of(
        "run/compiled_loop.py",
        ("_CHUNK_SECONDS = 0.5", "_CHUNK_SECONDS = 5.0", _PACE),
        ("max(_CHUNK_SECONDS, 4 * fixed)", "max(_CHUNK_SECONDS, 0 * fixed)", _PACE),
    ),
]

KEEPER = mutations_of(
    "run/records.py",
    (
        "self.step = step",
        "self.step = -1",
        "run/test_saver.py::test_a_state_is_written_once",
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
        '"round_trips": completed_trips(counters.turns).sum(axis=1),',
        '"round_trips": completed_trips(counters.turns).max(axis=1),',
        _SAMPLED,
    ),
    ('"buffer": state.buffer,', '"buffer": 0 * state.buffer,', _SAMPLED),
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
        "if self.records.folder is None:",
        "if self.records.folder is None and self.every is None:",
        "run/test_saver.py::test_records_in_memory_are_never_due",
    ),
    (
        "state = None if self.evaluation is None else self.evaluation.state",
        "state = None",
        f"{_WITHIN_EPOCH}[ensemble]",
    ),
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
        "networks/test_training_runs.py::test_a_coldest_network_that_breaks_ends_the_run[9]",
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

BY_HAND = [
    *killed_by(
        "run/test_counted_steps.py::"
        "test_the_best_point_that_is_tracked_is_that_of_its_energy_before_the_move",
        "run/compiled_loop.py",
        ('scored = state if settings.energy_at == "before" else after', "scored = after"),
    ),
    *killed_by(
        "run/test_chunk_capacity.py::"
        "test_a_chunk_has_room_for_its_draws_paths_and_batches[changes0-8008]",
        "run/compiled_loop.py",
        (
            "draw_bytes = _num_bytes(carry.state.points) // num_replicas * len(program.draw_rungs)",
            "draw_bytes = 0",
        ),
    ),
    *killed_by(
        "algorithm/test_step.py::test_a_sampled_chain_equals_the_oracle",
        "run/compiled_loop.py",
        ("get(leaf, place - first), drawn", "get(leaf, place), drawn"),
        (
            "jnp.minimum(jnp.minimum(first + block, count), until_point)",
            "jnp.minimum(first + block, count)",
        ),
    ),
    *killed_by(
        "algorithm/test_step.py::test_a_sampled_chain_equals_the_oracle",
        "run/rows.py",
        ("jnp.where(step % every == 0, number, _num_points(program, capacity))", "number"),
    ),
    *killed_by(
        "run/test_rows.py::test_a_step_is_written_to_its_place_and_its_draw_to_its_slot",
        "run/rows.py",
        (
            "put(kept, by_rung.astype(kept.dtype), slot)",
            "put(kept, by_rung[::-1].astype(kept.dtype), slot)",
        ),
    ),
    *killed_by(
        "algorithm/test_step.py::test_a_sampled_chain_equals_the_oracle",
        "run/records.py",
        ("counters.pairs[:, row] for row", "counters.pairs[:, 0] for row"),
        (
            '"learning_rates": state.ladder.learning_rate,',
            '"learning_rates": state.ladder.temperature,',
        ),
    ),
]

MUTATIONS = [
    *HOST_LOOP,
    *KEEPER,
    *SAVER,
    *ROWS,
    *COMPILED_LOOP,
    *INITIAL,
    *RESTORE,
    *BY_HAND,
]
