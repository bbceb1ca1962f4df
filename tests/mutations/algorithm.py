"""Mutations of `replicax/algorithm/`."""

from mutations import mutations_of

_ORACLE = "algorithm/test_step.py::test_the_library_equals_the_oracle"
_DEO = f"{_ORACLE}[deo-deterministic-momentum-moved]"
_WINDOWED = f"{_ORACLE}[at_most_one-deterministic-momentum-moved]"
_METROPOLIS = f"{_ORACLE}[at_most_one-metropolis-momentum-moved]"
_CORRECTED = f"{_ORACLE}[at_most_one-bias_corrected-momentum-moved]"
_BY_PAIR = f"{_ORACLE}[at_most_one-bias_corrected_by_pair-momentum-moved]"
_WINDOW_CORRECTED = f"{_ORACLE}[at_most_one-window_corrected-momentum-moved]"
_APE = f"{_ORACLE}[ape-metropolis-momentum-moved]"
_CLOCK = "algorithm/test_properties.py::test_windows_open_and_close_by_one_clock"
_SWEEPS = "algorithm/test_properties.py::test_sweeps_attempt_the_pairs_they_promise"
_ONE_BY_ONE = "algorithm/test_properties.py::test_a_sweep_is_one_swap_after_another"
_DISJOINT = "algorithm/test_properties.py::test_disjoint_swaps_are_those_of_moving_parameters"
_ANY_TWO = "algorithm/test_properties.py::test_a_swap_of_any_two_is_that_of_moving_parameters"
_NON_FINITE = "algorithm/test_exchange.py::test_a_non_finite_energy_never_swaps"
_STAGES = "algorithm/test_exchange.py::test_ladder_and_buffer_are_measured_then_adapted_then_frozen"
_NO_GATE = "algorithm/test_step.py::test_without_a_gate_a_pair_may_swap_at_every_step_of_its_window"
_SORTED = "algorithm/test_ladder.py::test_an_adapted_ladder_is_sorted_between_its_fixed_ends"
_UNIT = "algorithm/test_ladder.py::test_ties_and_non_finite_energies_say_nothing_of_the_unit"
_WHEN = (
    "algorithm/test_ladder.py::test_nothing_is_tuned_while_the_unit_is_measured_or_after_the_end"
)
_GAIN = "algorithm/test_step.py::test_the_gain_of_the_library_is_that_of_the_oracle"
_GEOMETRIC = "algorithm/test_ladder.py::test_a_geometric_ladder_has_equal_ratios_and_exact_ends"
_EQUAL_REJECTION = "algorithm/test_ladder.py::test_equal_rejection_by_hand"
_BY_HAND = "algorithm/test_correction_by_hand.py::test_every_step_is_that_of_the_recursion"
_DRAWN_TWICE = "algorithm/test_randomness.py::test_no_number_is_drawn_twice"

SCHEDULE = mutations_of(
    "algorithm/schedule.py",
    ("return step % self.window == 0", "return (step + 1) % self.window == 0", _CLOCK),
    ("return step - step % self.window", "return step - (step - 1) % self.window", _CLOCK),
    ("(step // self.window) % 2, num_pairs", "(step % self.window) % 2, num_pairs", _WINDOWED),
    (
        "closes = (step + 1) % self.window == 0",
        "closes = step % self.window == 0",
        "algorithm/test_step.py::test_exactly_one_means_one_swap_in_every_active_window",
    ),
    (
        "wanted = wanted | (closes & finite)",
        "wanted = wanted | closes",
        f"{_NON_FINITE}[forced]",
    ),
    ("return active & wanted", "return active & gate & wanted", _NO_GATE),
    ("(jnp.arange(num_pairs) + 1) % 2 == parity", "jnp.arange(num_pairs) % 2 == parity", _DEO),
    ("adjacent = swapped & (hot == cold + 1)", "adjacent = swapped", _APE),
    (
        "return num_replicas * (num_replicas - 1) // 2",
        "return num_replicas * num_replicas // 2",
        _SWEEPS,
    ),
    ("jnp.triu_indices(num_replicas, k=1)", "jnp.triu_indices(num_replicas, k=0)", _SWEEPS),
    (
        "stays, climbs = jnp.where(swapped, above, climber),",
        "stays, climbs = jnp.where(swapped, climber, above),",
        _ONE_BY_ONE,
    ),
    (
        "return jax.random.bernoulli(key)",
        "return jax.random.bernoulli(key, 0.2)",
        "algorithm/test_randomness.py::test_the_coin_of_seo_is_fair",
    ),
    (
        'def windowed_deo(window: Any, swaps: str = "at_most_one"',
        'def windowed_deo(window: Any, swaps: str = "no_gate"',
        _WINDOWED,
    ),
    (
        "if num_replicas < (2 if self.exchanges else 1):",
        "if num_replicas < 1:",
        "run/test_bad_input.py::test_a_bad_option_gets_a_sentence_with_the_remedy",
    ),
)

SWAP = mutations_of(
    "algorithm/swap.py",
    (
        "return rule.wanted(proposal) & proposal.is_finite",
        "return rule.wanted(proposal)",
        f"{_NON_FINITE}[adj]",
    ),
    (
        "return proposal.buffer < proposal.cold_energy - proposal.hot_energy",
        "return proposal.buffer < proposal.hot_energy - proposal.cold_energy",
        _DEO,
    ),
    (
        "return proposal.log_uniform < log_probability",
        "return proposal.log_uniform > log_probability",
        _METROPOLIS,
    ),
    (
        "slope**2 * proposal.energy_noise_var",
        "slope * proposal.energy_noise_var",
        _CORRECTED,
    ),
    (
        "proposal.energy_noise_var - window_correction",
        "proposal.energy_noise_var + window_correction",
        _WINDOW_CORRECTED,
    ),
    ("gap = inverse[cold] - inverse[hot]", "gap = inverse[hot] - inverse[cold]", _METROPOLIS),
    ("jnp.pad(swapped, (0, 1))", "jnp.pad(swapped, (1, 0))", _DISJOINT),
    ("index.replica_at[rungs + move]", "index.replica_at[rungs - move]", _DISJOINT),
    ("index.rung_of + move[index.rung_of]", "index.rung_of + move", _DISJOINT),
    (
        "jnp.where(swapped, hot, cold), jnp.where(swapped, cold, hot)",
        "jnp.where(swapped, hot, cold), jnp.where(swapped, hot, cold)",
        _ANY_TWO,
    ),
)

TUNING = mutations_of(
    "algorithm/tuning.py",
    ("return jnp.minimum(self.cap,", "return jnp.maximum(self.cap,", _GAIN),
    ("power: float = 0.8", "power: float = 0.7", _GAIN),
    ("cap: float = 0.5", "cap: float = 1.0", _GAIN),
    (
        "excess = wanted.astype(rungs.dtype) - target_swap_rate",
        "excess = target_swap_rate - wanted.astype(rungs.dtype)",
        _SORTED,
    ),
    ("forward = rungs[:-2] + gap[:-1]", "forward = rungs[:-2] + gap[1:]", _SORTED),
    ("backward = rungs[2:] - gap[1:]", "backward = rungs[2:] - gap[:-1]", _SORTED),
    (
        "jnp.clip((forward + backward) / 2, rungs[0], rungs[-1])",
        "(forward + backward) / 2",
        _SORTED,
    ),
    (
        "crossed = jnp.any(tuned[1:] < tuned[:-1])",
        "crossed = jnp.all(tuned[1:] < tuned[:-1])",
        _SORTED,
    ),
    (
        "return buffer + gain.astype(buffer.dtype) * excess",
        "return buffer - gain.astype(buffer.dtype) * excess",
        "algorithm/test_ladder.py::test_the_buffer_follows_the_mean_verdict",
    ),
    (
        "usable = (difference > 0) & jnp.isfinite(difference)",
        "usable = difference > 0",
        _UNIT,
    ),
    (
        "usable = (difference > 0) & jnp.isfinite(difference)",
        "usable = jnp.isfinite(difference)",
        _UNIT,
    ),
    (
        "spread = 1.887 * jnp.exp(",
        "spread = jnp.exp(",
        "algorithm/test_ladder.py::"
        "test_the_unit_of_gaussian_differences_is_their_standard_deviation",
    ),
    ("return step < self.measure_steps", "return step <= self.measure_steps", _STAGES),
    (
        "tunes = tunes & (step < tuning.until)",
        "tunes = tunes & (step <= tuning.until)",
        _STAGES,
    ),
    ("tunes = ~measuring", "tunes = measuring | True", _WHEN),
    (
        "buffer = jnp.where(measuring, unit.value(), buffer)",
        "buffer = jnp.where(measuring, buffer, buffer)",
        _STAGES,
    ),
    (
        "else tuning.gain(step) * unit.value()",
        "else tuning.gain(step)",
        "algorithm/test_exchange.py::test_the_unit_of_the_energy_does_not_matter",
    ),
)

WINDOW_CORRECTION = mutations_of(
    "algorithm/window_correction.py",
    ("_BLOCKS = 50", "_BLOCKS = 25", _BY_HAND),
    ("_GAIN = 100.0", "_GAIN = 50.0", _BY_HAND),
    ("_GAIN_DELAY = 5", "_GAIN_DELAY = 6", _BY_HAND),
    ("_UNSETTLED = 10", "_UNSETTLED = 20", _BY_HAND),
    ("measures = (step >= settled) &", "measures = (step >= 0) &", _BY_HAND),
    (
        "jnp.asarray(rule.reference_steps - settled, dtype)",
        "jnp.asarray(rule.reference_steps, dtype)",
        _BY_HAND,
    ),
    (
        "slope = 1 / temperature[0] - 1 / temperature[1]",
        "slope = 1 / temperature[1] - 1 / temperature[0]",
        _BY_HAND,
    ),
    (
        "slope = 1 / temperature[0] - 1 / temperature[1]",
        "slope = 1 / temperature[0]",
        _BY_HAND,
    ),
    (
        "ends = tunes & ((place + 1) % length == 0)",
        "ends = tunes & (place % length == 0)",
        _BY_HAND,
    ),
    (
        "jnp.clip(correction.value + gain * slope * excess, -most, most)",
        "correction.value + gain * slope * excess",
        f"{_BY_HAND}[2]",
    ),
    ("half = rule.tuning_steps // 2", "half = rule.tuning_steps // 3", _BY_HAND),
    (
        "block = jax.tree.map(lambda part: jnp.where(ends, 0, part), block)",
        "block = jax.tree.map(lambda part: part, block)",
        _BY_HAND,
    ),
    (
        "value = jnp.where(place + 1 == rule.tuning_steps, average, value)",
        "value = jnp.where(place + 1 == rule.tuning_steps, value, value)",
        _BY_HAND,
    ),
    (
        "jnp.where(finite, cold_energy - anchor, 0)",
        "cold_energy - anchor",
        "algorithm/test_window_correction.py::test_energies_that_are_not_finite_say_nothing",
    ),
    (
        "anchor = jnp.where((step == 0) & finite,",
        "anchor = jnp.where(step == 0,",
        "algorithm/test_correction_by_hand.py::test_a_first_energy_that_is_not_finite_says_nothing",
    ),
    (
        "term = term - self.lost",
        "term = term + 0 * self.lost",
        "algorithm/test_window_correction.py::test_millions_of_terms_are_summed_without_loss",
    ),
    (
        "window = jnp.where(step < rule.reference_steps, 1, schedule.window)",
        "window = jnp.where(step <= rule.reference_steps, 1, schedule.window)",
        "algorithm/test_correction_by_hand.py::test_windows_begin_where_the_reference_ends",
    ),
)

RANDOMNESS = mutations_of(
    "algorithm/randomness.py",
    ("jax.vmap(target.draw)(keys[:, 2])", "jax.vmap(target.draw)(keys[:, 1])", _DRAWN_TWICE),
    ("(keys[:, 0], replicas)", "(keys[:, 1], replicas)", _DRAWN_TWICE),
    (
        "jax.random.split(jax.random.fold_in(key, step))",
        "jax.random.split(key)",
        "algorithm/test_randomness.py::test_another_step_or_key_draws_other_numbers",
    ),
    (
        "batch=jax.random.split(batch_key, count),",
        "batch=jax.random.split(energy_key, count),",
        f"{_DRAWN_TWICE}[ape]",
    ),
    (
        "return -jax.random.exponential(key, (count,))",
        "return -jax.random.uniform(key, (count,))",
        "algorithm/test_randomness.py::test_log_uniforms_are_logarithms_of_uniform_numbers",
    ),
)

LADDER = mutations_of(
    "algorithm/ladder.py",
    ("return np.array([cold])", "return np.array([hot])", _GEOMETRIC),
    ("np.clip(np.geomspace(cold, hot,", "np.clip(np.linspace(cold, hot,", _GEOMETRIC),
    (
        "steps = np.maximum(rejection_rate, 1e-6)",
        "steps = rejection_rate",
        "algorithm/test_ladder.py::test_equal_rejection_takes_a_pair_that_never_rejects",
    ),
    (
        "at_rung = np.concatenate([[0.0], np.cumsum(steps)])",
        "at_rung = np.concatenate([[0.0], np.cumsum(steps[::-1])])",
        _EQUAL_REJECTION,
    ),
    (
        "PchipInterpolator(at_rung, 1 / temperature)",
        "PchipInterpolator(at_rung, 1 / temperature[::-1])",
        _EQUAL_REJECTION,
    ),
)

_NOISE = "algorithm/test_energy_noise.py"
_WEIGHTS = f"{_NOISE}::test_an_estimate_is_by_rung_and_its_weight_falls_to_a_twentieth"
_MEET = f"{_NOISE}::test_noise_is_that_of_the_replicas_that_meet"
_ATTEMPT = f"{_NOISE}::test_the_two_of_an_attempt_share_its_batch"
_BY_ROW = f"{_NOISE}::test_noise_by_row_is_that_of_a_mean_over_the_batch"

ENERGY_NOISE = mutations_of(
    "algorithm/energy_noise.py",
    ("rule.estimate_every + 1), 0.05)", "rule.estimate_every + 1), 0.0)", _WEIGHTS),
    ("1 / (step // rule.estimate_every + 1)", "1 / (step + 1)", _WEIGHTS),
    ("source.energies(key)[state.replica_at]", "source.energies(key)", _WEIGHTS),
    ("* (latest - before)", "* (before - latest)", _WEIGHTS),
    ("step % rule.estimate_every == 0, renew", "step % rule.estimate_every != 0, renew", _WEIGHTS),
    (
        "return jnp.where(jnp.isfinite(latest), renewed, before)",
        "return renewed",
        f"{_NOISE}::test_a_pair_that_is_not_finite_keeps_its_estimate",
    ),
    (
        "return self.by_replica[replica_at[:-1], replica_at[1:]]",
        "return jnp.diagonal(self.by_replica, offset=1)",
        _MEET,
    ),
    ("return jnp.diagonal(self.by_rung, offset=1)", "return jnp.diagonal(self.by_rung)", _MEET),
    (
        "return self.by_rung[rungs[0], rungs[1]]",
        "return self.by_rung[rungs[0], rungs[0] + 1]",
        _MEET,
    ),
    ("return self.by_replica[replicas]", "return self.by_replica[rungs]", _MEET),
    ("scale = self.fresh_batch.noise_share / rows.shape[1]", "scale = 1 / rows.shape[1]", _BY_ROW),
    (
        "scale = self.fresh_batch.noise_share / rows.shape[1]",
        "scale = self.fresh_batch.noise_share",
        _BY_ROW,
    ),
    ("batch = self.another_batch(attempt.batch)", "batch = self.batch", _ATTEMPT),
    (
        "return energy(cold_replica, 0), energy(hot_replica, 1)",
        "return energy(cold_replica, 0), energy(hot_replica, 0)",
        _ATTEMPT,
    ),
    (
        "(energies.shape[0] - 1)",
        "energies.shape[0]",
        "algorithm/test_properties.py::"
        "test_the_noise_of_a_pair_is_half_the_variance_of_its_difference",
    ),
    (
        "(variance[:, None] + variance[None, :]) / 2 - covariance",
        "(variance[:, None] + variance[None, :]) / 2",
        _BY_ROW,
    ),
)

SWAP_NOISE = mutations_of(
    "algorithm/swap.py",
    (
        "std if std.ndim == 0 else std[cold]) ** 2",
        "std if std.ndim == 0 else std[hot]) ** 2",
        _BY_PAIR,
    ),
    (
        "std if std.ndim == 0 else std[cold]) ** 2",
        "std if std.ndim == 0 else std[cold])",
        _CORRECTED,
    ),
)

_RUNGS = "algorithm/test_kernel_rungs.py"
_MOMENTUM = f"{_RUNGS}::test_momentum_takes_the_law_of_its_new_rung"
_CYCLE = f"{_RUNGS}::test_a_cycle_is_a_cosine_with_noise_at_its_end"
_PRECONDITIONED = f"{_ORACLE}[at_most_one-deterministic-preconditioned-moved-weight_decay]"

KERNELS = mutations_of(
    "algorithm/kernels.py",
    (
        "jnp.sqrt(2 * (1 - decay) * rung.temperature / rung.learning_rate)",
        "jnp.sqrt(2 * rung.temperature / rung.learning_rate)",
        _DEO,
    ),
    (
        "return jnp.sqrt(2 * rung.learning_rate * rung.temperature)",
        "return jnp.sqrt(rung.learning_rate * rung.temperature)",
        _PRECONDITIONED,
    ),
    (
        "hotter * (old.learning_rate / new.learning_rate)",
        "hotter * (new.learning_rate / old.learning_rate)",
        _MOMENTUM,
    ),
    ("scale = jnp.sqrt(variance)", "scale = variance", _MOMENTUM),
    (
        "has_law = (old.temperature > 0) & (new.temperature > 0)",
        "has_law = old.temperature > 0",
        _MOMENTUM,
    ),
    ("return kernel._replace(change_rung=_scale_momentum)", "return kernel", _MOMENTUM),
    (
        "adapts = state.count < num_steps",
        "adapts = state.count <= num_steps",
        f"{_RUNGS}::test_the_preconditioner_freezes_after_its_steps",
    ),
    (
        "scale = jax.tree.map(jnp.sqrt, scale)",
        "scale = jax.tree.map(jnp.square, scale)",
        _PRECONDITIONED,
    ),
    (
        "return momentum(1 - friction,",
        "return momentum(friction,",
        f"{_RUNGS}::test_the_defaults_of_kernels",
    ),
    (
        "decay: float = 0.9, *,",
        "decay: float = 0.99, *,",
        f"{_RUNGS}::test_the_defaults_of_kernels",
    ),
    (
        "lambda p, u: p + rung.learning_rate * u",
        "lambda p, u: p - rung.learning_rate * u",
        "laws/test_kernels.py::"
        "test_a_kernel_has_the_stationary_moments_of_its_recursion[optax sgd]",
    ),
)

TIMED_KERNELS = mutations_of(
    "algorithm/timed_kernels.py",
    (
        "place = jnp.minimum(place, begins) if hold else place",
        "place = jnp.minimum(place, begins)",
        _CYCLE,
    ),
    ("place = jnp.minimum(place, begins) if hold else place", "place = place", _CYCLE),
    ("temperature = rung.temperature * exploits(count)", "temperature = rung.temperature", _CYCLE),
    ("return step % cycle_length >= begins", "return step % cycle_length > begins", _CYCLE),
    (
        "(cycle_length - place) / cycle_length) ** 2",
        "(cycle_length - place) / cycle_length)",
        _CYCLE,
    ),
    (
        "jnp.sum(count >= jnp.array(falls, jnp.int32))",
        "jnp.sum(count > jnp.array(falls, jnp.int32))",
        f"{_RUNGS}::test_a_stepwise_rate_falls_at_its_steps",
    ),
    (
        "done = jnp.minimum(count / num_steps, 1.0)",
        "done = count / num_steps",
        f"{_RUNGS}::test_annealing_ends_where_it_was_told",
    ),
    (
        "TimedMemory(count + 1, inner.memory)), energy",
        "TimedMemory(count, inner.memory)), energy",
        _CYCLE,
    ),
    (
        "change_rung=None if kernel.change_rung is None else change_rung,",
        "change_rung=None,",
        f"{_RUNGS}::test_a_timed_kernel_changes_rungs_as_they_are_at_its_time",
    ),
)

_REPLICAS = "algorithm/test_replicas.py"
_NEIGHBOUR = f"{_REPLICAS}::test_a_broken_replica_takes_all_of_its_nearest_sound_colder_neighbour"

REPLICAS = mutations_of(
    "algorithm/replicas.py",
    ("jnp.where(broken[replica_at], -1, rungs)", "jnp.where(broken, -1, rungs)", _NEIGHBOUR),
    (
        "source = jnp.where(sound_below >= 0, sound_below, rungs)",
        "source = jnp.where(sound_below > 0, sound_below, rungs)",
        _NEIGHBOUR,
    ),
    (
        "source = jnp.where(sound_below >= 0, sound_below, rungs)",
        "source = jnp.maximum(rungs - 1, 0)",
        _NEIGHBOUR,
    ),
    (".at[replica_at].set(replica_at[source])", ".at[replica_at].set(source)", _NEIGHBOUR),
    (
        "return ~(jnp.isfinite(energy_of) & jnp.isfinite(total))",
        "return ~jnp.isfinite(energy_of)",
        f"{_REPLICAS}::test_energies_and_parameters_are_looked_at",
    ),
    (
        "return ~(jnp.isfinite(energy_of) & jnp.isfinite(total))",
        "return ~jnp.isfinite(total)",
        f"{_REPLICAS}::test_energies_and_parameters_are_looked_at",
    ),
    (
        "jax.tree.leaves((replicas.params, model_state))",
        "jax.tree.leaves(replicas.params)",
        f"{_REPLICAS}::test_statistics_that_break_are_caught",
    ),
    (
        "jnp.where(swaps, new, old), fresh, replica)",
        "jnp.where(swaps, old, new), fresh, replica)",
        f"{_REPLICAS}::test_a_swap_costs_the_momentum_of_those_that_swapped[reset]",
    ),
    (
        "row.shape[1] > _SMALL]",
        "row.shape[1] > 2 * _SMALL]",
        f"{_REPLICAS}::test_large_arrays_are_looked_at_too",
    ),
)


STEP = mutations_of(
    "algorithm/step.py",
    ("rung_of = spread.here(state.rung_of)", "rung_of = spread.here(state.replica_at)", _DEO),
    (
        "spread.whole(jnp.where(broken, jnp.nan, energy_of))",
        "spread.whole(energy_of)",
        f"{_REPLICAS}::test_parameters_that_break_in_the_move_are_caught",
    ),
    (
        "has_swapped = after.rung_of != state.rung_of",
        "has_swapped = after.rung_of == state.rung_of",
        f"{_REPLICAS}::test_a_swap_costs_the_momentum_of_those_that_swapped[reset]",
    ),
    (
        "spread.here(state.rung_of), spread.here(after.rung_of)",
        "spread.here(after.rung_of), spread.here(state.rung_of)",
        f"{_RUNGS}::test_a_swap_gives_momentum_the_law_of_the_new_rung",
    ),
    (
        "elif settings.rule.uses_temperature and",
        "elif not settings.rule.uses_temperature and",
        f"{_RUNGS}::test_a_swap_gives_momentum_the_law_of_the_new_rung",
    ),
    (
        "return fresh_batch(energy_noise.batch_key(random.judge))",
        "return batch",
        f"{_RUNGS}::test_swaps_are_judged_on_another_batch",
    ),
)

EXCHANGE = mutations_of(
    "algorithm/exchange.py",
    ("gate=gate & ~swapped,", "gate=gate,", _WINDOWED),
    (
        "else broken[at]",
        "else broken",
        f"{_REPLICAS}::test_a_restart_is_told_by_rung_wherever_replicas_are",
    ),
    ("may_swap = ~settings.tuning.measuring(state.step)", "may_swap = True", _STAGES),
    ("gate = state.gate | schedule.window_opens(attempt)", "gate = state.gate", _WINDOWED),
    (
        "            energy[0],",
        "            energy[1],",
        "algorithm/test_window_correction.py::test_the_energy_of_the_coldest_rung_is_compared",
    ),
    (
        "cold_energy, hot_energy = (energy_of[replica] for replica in pair)",
        "cold_energy, hot_energy = energy[cold], energy[hot]",
        _APE,
    ),
)

MUTATIONS = [
    *SCHEDULE,
    *SWAP,
    *SWAP_NOISE,
    *TUNING,
    *WINDOW_CORRECTION,
    *RANDOMNESS,
    *LADDER,
    *ENERGY_NOISE,
    *KERNELS,
    *TIMED_KERNELS,
    *REPLICAS,
    *STEP,
    *EXCHANGE,
]
