"""Mutations of what a run counts: verdicts, windows, round trips, the best point."""

from mutations import killed_by, mutations_of

_TRIPS = "algorithm/test_ladder.py::test_round_trips_are_those_of_the_oracle"
_COUNTED = (
    "run/test_counters.py::"
    "test_verdicts_count_from_their_first_step_and_windows_when_they_are_whole"
)
_LOWEST = "run/test_counters.py::test_the_best_point_is_the_lowest_finite_energy"
_BROKEN = "run/test_counters.py::test_non_finite_energies_and_restarts"

COUNTERS = mutations_of(
    "run/counters.py",
    (
        "-(-last // swap_every) + -first // swap_every",
        "(last - first) // swap_every",
        "results/test_posterior.py::test_a_pair_that_always_says_yes_has_the_rate_1",
    ),
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

ROUND_TRIPS = [
    *mutations_of(
        "run/round_trips.py",
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
    ),
    *mutations_of(
        "run/counters.py",
        ('return (rung_of == 0).astype("int32")', 'return (rung_of >= 0).astype("int32")', _TRIPS),
        ("(rung_of == (turns % 2) * hottest)", "(rung_of == ((turns + 1) % 2) * hottest)", _TRIPS),
        ("return (turns - (turns > 0)) // 2", "return turns // 2", _TRIPS),
        (
            "if hottest == 0:  # a single rung has no way",
            "if hottest < 0:",
            "run/test_progress.py::test_a_single_rung_has_no_round_trips",
        ),
    ),
]

FORGET = mutations_of(
    "run/counters.py",
    (
        "return (turns > 0) * (2 - turns % 2)",
        "return (turns > 0) * 1",
        "run/test_counters.py::test_round_trips_begin_with_the_counted_steps",
    ),
)

BY_HAND = [
    *killed_by(
        "results/test_diagnostics.py::"
        "test_trips_end_where_replicas_are_back_and_begin_where_they_started",
        "run/round_trips.py",
        (
            "turns = start_turns(jnp.arange(num_replicas))",
            "turns = start_turns(jnp.zeros(num_replicas))",
        ),
    ),
    *killed_by(
        "run/test_counters.py::test_what_kernels_observe_is_summed_over_the_counted_steps",
        "run/counters.py",
        (
            "acceptance = acceptance + jnp.where(counted, info.observed.acceptance, 0)",
            "acceptance = acceptance + info.observed.acceptance",
        ),
        (
            "heating = heating + jnp.where(counted, info.observed.heating, 0)",
            "heating = heating + jnp.where(counted, info.observed.acceptance, 0)",
        ),
    ),
    *killed_by(
        "run/test_counters.py::"
        "test_energies_are_those_of_the_last_attempt_unless_one_is_not_finite",
        "run/counters.py",
        ("jnp.where(info.attempted | ~jnp.isfinite(energy), energy, counters.energy)", "energy"),
    ),
    *killed_by(
        "run/test_counters.py::test_windows_of_rare_attempts_are_counted_in_steps",
        "run/counters.py",
        ("attempt = settings.attempt(before.step)", "attempt = before.step"),
    ),
    *killed_by(
        "results/test_diagnostics.py::test_round_trips_agree_with_a_count_by_hand",
        "run/round_trips.py",
        ("np.asarray(trips[-1]).sum(axis=1)", "np.asarray(trips[-1]).sum(axis=0)"),
    ),
]

MUTATIONS = [
    *COUNTERS,
    *ROUND_TRIPS,
    *FORGET,
    *BY_HAND,
]
