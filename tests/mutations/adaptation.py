"""Mutations of what adapts: ladder, buffer, window correction."""

from mutations import killed_by, mutations_of

_STAGES = "algorithm/test_exchange.py::test_ladder_and_buffer_are_measured_then_adapted_then_frozen"
_SORTED = "algorithm/test_ladder.py::test_an_adapted_ladder_is_sorted_between_its_fixed_ends"
_UNIT = "algorithm/test_ladder.py::test_ties_and_non_finite_energies_say_nothing_of_the_unit"
_WHEN = (
    "algorithm/test_ladder.py::test_nothing_is_tuned_while_the_unit_is_measured_or_after_the_end"
)
_GAIN = "algorithm/test_step.py::test_the_gain_of_the_library_is_that_of_the_oracle"
_GEOMETRIC = "algorithm/test_ladder.py::test_a_geometric_ladder_has_equal_ratios_and_exact_ends"
_EQUAL_REJECTION = "algorithm/test_ladder.py::test_equal_rejection_by_hand"
_BY_HAND = "algorithm/test_correction_by_hand.py::test_every_step_is_that_of_the_recursion"

RECURSIONS = mutations_of(
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
)

TUNING = mutations_of(
    "algorithm/tuning.py",
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

LADDER = mutations_of(
    "algorithm/ladder.py",
    ("return np.array([cold])", "return np.array([hot])", _GEOMETRIC),
    ("np.clip(np.geomspace(cold, hot,", "np.clip(np.linspace(cold, hot,", _GEOMETRIC),
)

THEORY_OF_BARRIERS = mutations_of(
    "theory/barrier.py",
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

BY_HAND = [
    *killed_by(
        "algorithm/test_barrier.py::test_every_round_is_that_of_the_equations",
        "algorithm/rounds.py",
        ("_BEST_REJECTION = 0.5", "_BEST_REJECTION = 0.3"),
        ("_POWER = 0.25", "_POWER = 1.0"),
        ("verdicts.wanted + (wanted & attempted)", "verdicts.wanted + wanted"),
        (
            "return tuned if tuning.free_until else tuned.at[-1].set(temperature[-1])",
            "return tuned",
        ),
    ),
    *killed_by(
        "algorithm/test_barrier.py::test_every_round_is_that_of_the_equations[9-right]",
        "algorithm/rounds.py",
        (
            "slope = (place[-2] - place[-1]) / jnp.maximum(rejection[-1], 0.1)",
            "slope = (place[-2] - place[-1]) / rejection[0]",
        ),
    ),
    *killed_by(
        "algorithm/test_ladder.py::test_equal_rejection_by_hand",
        "theory/barrier.py",
        ("return float(np.sum(rejection_rate))", "return float(np.mean(rejection_rate))"),
        ("tuned[0], tuned[-1] = temperature[0], temperature[-1]", "tuned[0] = temperature[0]"),
    ),
    *killed_by(
        "algorithm/test_ladder.py::test_a_constant_gain_is_its_value_at_every_step",
        "algorithm/tuning.py",
        (
            "jnp.full(jnp.shape(step), self.value, jnp.float32)",
            "jnp.full(jnp.shape(step), 2 * self.value, jnp.float32)",
        ),
    ),
    *killed_by(
        "algorithm/test_ladder.py::test_an_adapted_ladder_is_sorted_between_its_fixed_ends",
        "algorithm/tuning.py",
        ("rank = jnp.sum(before, axis=1)", "rank = jnp.sum(before, axis=0)"),
    ),
    *killed_by(
        "algorithm/test_ladder.py::"
        "test_before_anything_is_measured_the_unit_is_one_and_two_of_five_swap",
        "algorithm/tuning.py",
        ("target_swap_rate: float = 0.4", "target_swap_rate: float = 0.5"),
    ),
    *killed_by(
        "algorithm/test_ladder.py::"
        "test_before_anything_is_measured_the_unit_is_one_and_two_of_five_swap",
        "algorithm/tuning.py",
        ("jnp.where(self.count > 0, spread, 1.0)", "spread"),
    ),
    *killed_by(
        "algorithm/test_correction_by_hand.py::test_every_step_is_that_of_the_recursion[1000]",
        "algorithm/window_correction.py",
        (
            "tunes & (place >= half), correction.tuned.add(value)",
            "tunes & (place > half), correction.tuned.add(value)",
        ),
        ("(step < rule.reference_steps)", "(step <= rule.reference_steps)"),
    ),
    *killed_by(
        "algorithm/test_correction_by_hand.py::"
        "test_few_steps_of_tuning_are_blocks_of_one_step_and_end",
        "algorithm/window_correction.py",
        (
            "length = jnp.maximum(1, rule.tuning_steps // _BLOCKS)",
            "length = jnp.maximum(2, rule.tuning_steps // _BLOCKS)",
        ),
        (
            "(place >= 0) & (place < rule.tuning_steps)",
            "(place >= 0) & (place <= rule.tuning_steps)",
        ),
    ),
    *killed_by(
        "algorithm/test_correction_by_hand.py::test_windows_begin_where_the_reference_ends",
        "algorithm/window_correction.py",
        (
            "replace(rule, window_correction=correction.value)",
            "replace(rule, window_correction=-correction.value)",
        ),
    ),
]

MUTATIONS = [
    *BY_HAND,
    *RECURSIONS,
    *TUNING,
    *WINDOW_CORRECTION,
    *LADDER,
    *THEORY_OF_BARRIERS,
]
