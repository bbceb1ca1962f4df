"""Mutations of who swaps: schedules, rules, noise of energies, decisions, random numbers."""

from mutations import killed_by, mutations_of

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
_DRAWN_TWICE = "algorithm/test_randomness.py::test_no_number_is_drawn_twice"
_NOISE = "algorithm/test_energy_noise.py"
_WEIGHTS = f"{_NOISE}::test_an_estimate_is_by_rung_and_its_weight_falls_to_a_twentieth"
_MEET = f"{_NOISE}::test_noise_is_that_of_the_replicas_that_meet"
_ATTEMPT = f"{_NOISE}::test_the_two_of_an_attempt_share_its_batch"
_BY_ROW = f"{_NOISE}::test_noise_by_row_is_that_of_a_mean_over_the_batch"
_RESTARTS = "algorithm/test_restarts.py"

SCHEDULE = mutations_of(
    "algorithm/schedule/at_once.py",
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

SEQUENTIAL = mutations_of(
    "algorithm/schedule/sequential.py",
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
)

SWAP = mutations_of(
    "algorithm/swap/rules.py",
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

SWAP_NOISE = mutations_of(
    "algorithm/swap/rules.py",
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

EXCHANGE = mutations_of(
    "algorithm/exchange.py",
    ("gate=gate & ~swapped,", "gate=gate,", _WINDOWED),
    (
        "else broken[at]",
        "else broken",
        f"{_RESTARTS}::test_a_restart_is_told_by_rung_wherever_replicas_are",
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

DRAWS = mutations_of(
    "algorithm/step.py",
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
)

RANDOMNESS = mutations_of(
    "algorithm/randomness.py",
    (
        "return -jax.random.exponential(key, (count,))",
        "return -jax.random.uniform(key, (count,))",
        "algorithm/test_randomness.py::test_log_uniforms_are_logarithms_of_uniform_numbers",
    ),
)

BY_HAND = [
    *killed_by(
        "algorithm/test_energy_noise.py::"
        "test_further_energies_have_one_batch_and_noise_of_their_own",
        "algorithm/energy_noise.py",
        (
            "noise = jax.vmap(self.target.draw)(self.spread.here(keys))",
            "noise = jax.vmap(lambda key: self.target.draw(keys[0]))(self.spread.here(keys))",
        ),
    ),
    *killed_by(
        "algorithm/test_energy_noise.py::test_the_two_of_an_attempt_share_its_batch",
        "algorithm/energy_noise.py",
        (
            "return self.batch if self.fresh_batch is None else self.fresh_batch(key)",
            "return self.batch",
        ),
        ("lambda leaf: leaf[side], attempt.energy", "lambda leaf: leaf[0], attempt.energy"),
    ),
    *killed_by(
        "algorithm/test_energy_noise.py::test_the_batch_that_judges_is_none_of_an_estimate",
        "algorithm/energy_noise.py",
        ("_BATCH = 2**32 - 1", "_BATCH = 0"),
    ),
    *killed_by(
        "algorithm/test_energy_noise.py::"
        "test_energies_that_judge_are_of_one_batch_and_those_of_all_rows_of_all",
        "algorithm/energy_noise.py",
        ("evaluate(point, rows.whole))(self.points)", "evaluate(point, self.batch))(self.points)"),
        (
            "return self.spread.whole(evaluate(self.points, self.batch, noise))",
            "return self.spread.whole(evaluate(self.points, self.batch, noise))[::-1]",
        ),
    ),
    *killed_by(
        "algorithm/test_energy_noise.py::"
        "test_an_estimate_is_by_rung_and_its_weight_falls_to_a_twentieth",
        "algorithm/energy_noise.py",
        ("jnp.mean(energies, axis=0)", "jnp.mean(energies)"),
    ),
    *killed_by(
        "algorithm/test_exchange.py::"
        "test_swaps_are_attempted_every_so_many_steps_by_a_clock_of_attempts",
        "algorithm/exchange.py",
        ("none = jnp.zeros(state.gate.shape, bool)", "none = jnp.ones(state.gate.shape, bool)"),
        ("attempted = settings.attempts_swap(state.step)", "attempted = True"),
    ),
    *killed_by(
        "algorithm/test_decisions.py::test_what_is_observed_of_replicas_is_told_by_rung",
        "algorithm/exchange.py",
        ("lambda by_replica: by_replica[at], observed", "lambda by_replica: by_replica, observed"),
    ),
    *killed_by(
        "algorithm/test_decisions.py::test_an_estimate_of_noise_is_kept_from_step_to_step",
        "algorithm/exchange.py",
        ("if noise is None else noise.by_rung,", "if noise is None else state.energy_noise_var,"),
    ),
    *killed_by(
        "algorithm/test_decisions.py::test_no_swap_is_forced_while_the_unit_of_energy_is_measured",
        "algorithm/exchange.py",
        (
            "finite = may_swap & jnp.isfinite(energy[:-1]) & jnp.isfinite(energy[1:])",
            "finite = jnp.isfinite(energy[:-1]) & jnp.isfinite(energy[1:])",
        ),
    ),
    *killed_by(
        "algorithm/test_exchange.py::test_ladder_and_buffer_are_measured_then_adapted_then_frozen",
        "algorithm/exchange.py",
        (
            "energy, cold = energy_of[state.replica_at], jnp.arange(num_pairs)",
            "energy, cold = energy_of, jnp.arange(num_pairs)",
        ),
    ),
    *killed_by(
        "algorithm/test_decisions.py::"
        "test_verdicts_of_temperatures_count_where_swaps_were_attempted",
        "algorithm/exchange.py",
        ("verdicts, wanted, info.attempted", "verdicts, wanted, True"),
    ),
    *killed_by(
        "algorithm/test_properties.py::test_pairs_that_are_active_by_schedule",
        "algorithm/schedule/at_once.py",
        ("return jnp.zeros(num_pairs, bool)", "return jnp.ones(num_pairs, bool)"),
        ("return pairs_of_parity(drawn, num_pairs)", "return pairs_of_parity(~drawn, num_pairs)"),
    ),
    *killed_by(
        "algorithm/test_properties.py::test_sweeps_attempt_the_pairs_they_promise[2]",
        "algorithm/schedule/sequential.py",
        ("jnp.stack([cold, cold + 1], axis=1)", "jnp.stack([cold + 1, cold], axis=1)"),
        ("return num_replicas - 1", "return num_replicas"),
    ),
    *killed_by(
        "algorithm/test_properties.py::test_sweeps_attempt_the_pairs_they_promise[5]",
        "algorithm/schedule/sequential.py",
        ("return jax.random.permutation(key, pairs)", "return pairs"),
    ),
    *killed_by(
        "algorithm/test_properties.py::test_corrections_only_lower_the_probability",
        "algorithm/swap/rules.py",
        ("return jnp.minimum(0.0, exponent)", "return exponent"),
    ),
    *killed_by(
        "algorithm/test_kernel_rungs.py::test_swaps_are_judged_on_another_batch",
        "algorithm/swap/rules.py",
        (
            "return self.uses_temperature and not self.assumes_exact_energies",
            "return self.uses_temperature",
        ),
        (
            "return self.uses_temperature and not self.assumes_exact_energies",
            "return not self.assumes_exact_energies",
        ),
    ),
    *killed_by(
        "algorithm/test_energy_noise.py::"
        "test_noise_is_estimated_every_hundred_steps_from_eight_draws_unless_it_is_told",
        "algorithm/swap/corrected.py",
        ("estimate_every: int = 100", "estimate_every: int = 10"),
        ("estimate_draws: int = 8", "estimate_draws: int = 2"),
    ),
]

MUTATIONS = [
    *BY_HAND,
    *SCHEDULE,
    *SEQUENTIAL,
    *SWAP,
    *SWAP_NOISE,
    *ENERGY_NOISE,
    *EXCHANGE,
    *DRAWS,
    *RANDOMNESS,
]
