"""Mutations of how replicas move: kernels, restarts, the step."""

from mutations import killed_by, mutations_of

_ORACLE = "algorithm/test_step.py::test_the_library_equals_the_oracle"
_DEO = f"{_ORACLE}[deo-deterministic-momentum-moved]"
_RUNGS = "algorithm/test_kernel_rungs.py"
_MOMENTUM = f"{_RUNGS}::test_momentum_takes_the_law_of_its_new_rung"
_CYCLE = f"{_RUNGS}::test_a_cycle_is_a_cosine_with_noise_at_its_end"
_PRECONDITIONED = f"{_ORACLE}[at_most_one-deterministic-preconditioned-moved-weight_decay]"
_REPLICAS = "algorithm/test_replicas.py"
_RESTARTS = "algorithm/test_restarts.py"
_COPIED = f"{_RESTARTS}::test_a_copy_has_the_momentum_of_the_rung_that_it_comes_to[metropolis]"
_NEIGHBOUR = f"{_RESTARTS}::test_a_broken_replica_takes_all_of_its_nearest_sound_colder_neighbour"

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

REPLICAS = mutations_of(
    "algorithm/restarts.py",
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
    ("in (replica_at[source], source, rungs)", "in (source, source, rungs)", _NEIGHBOUR),
    ("in (replica_at[source], source, rungs)", "in (replica_at[source], rungs, rungs)", _COPIED),
    ("in (replica_at[source], source, rungs)", "in (replica_at[source], rungs, source)", _COPIED),
    (
        "return ~(jnp.isfinite(energy_of) & jnp.isfinite(total))",
        "return ~jnp.isfinite(energy_of)",
        f"{_RESTARTS}::test_energies_and_parameters_are_looked_at",
    ),
    (
        "return ~(jnp.isfinite(energy_of) & jnp.isfinite(total))",
        "return ~jnp.isfinite(total)",
        f"{_RESTARTS}::test_energies_and_parameters_are_looked_at",
    ),
    (
        "jax.tree.leaves((replicas.params, model_state))",
        "jax.tree.leaves(replicas.params)",
        f"{_RESTARTS}::test_statistics_that_break_are_caught",
    ),
    (
        "jnp.where(swaps, new, old), fresh, replica)",
        "jnp.where(swaps, old, new), fresh, replica)",
        f"{_REPLICAS}::test_a_swap_costs_the_momentum_of_those_that_swapped[reset]",
    ),
    (
        "row.shape[1] > _SMALL]",
        "row.shape[1] > 2 * _SMALL]",
        f"{_RESTARTS}::test_large_arrays_are_looked_at_too",
    ),
)

MOVE = mutations_of(
    "algorithm/move.py",
    ("rung_of = spread.here(state.rung_of)", "rung_of = spread.here(state.replica_at)", _DEO),
    (
        "spread.whole(jnp.where(broken, jnp.nan, energy_of))",
        "spread.whole(energy_of)",
        f"{_RESTARTS}::test_parameters_that_break_in_the_move_are_caught",
    ),
    (
        "return restarts.change_rungs(kernel, copies[0], state.ladder, *rungs), copies[1]",
        "return copies",
        _COPIED,
    ),
)

STEP = mutations_of(
    "algorithm/step.py",
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
        "if not settings.rule.uses_temperature:",
        "if settings.rule.uses_temperature:",
        f"{_RUNGS}::test_a_swap_gives_momentum_the_law_of_the_new_rung",
    ),
)

BY_HAND = [
    *killed_by(
        "networks/test_choices.py::test_gradients_are_cut_to_their_greatest_length",
        "algorithm/clipping.py",
        ("caveat=kernel.caveat or caveat)", "caveat=kernel.caveat)"),
    ),
    *killed_by(
        "algorithm/test_kernel_rungs.py::test_clipping_cuts_gradients_and_not_energies",
        "algorithm/clipping.py",
        (
            "return energy, jax.tree.map(lambda g: g * scale",
            "return scale * energy, jax.tree.map(lambda g: g * scale",
        ),
    ),
    *killed_by(
        "algorithm/test_step.py::"
        "test_the_library_equals_the_oracle[at_most_one-deterministic-preconditioned-moved-weight_decay]",
        "algorithm/kernels.py",
        (
            "optax.add_decayed_weights(weight_decay) if weight_decay else optax.identity()",
            "optax.identity()",
        ),
        ("lambda nu: jax.lax.rsqrt(nu + eps), square", "lambda nu: 1 / (nu + eps), square"),
    ),
    *killed_by(
        "algorithm/test_kernel_rungs.py::"
        "test_a_prior_and_a_weight_decay_of_the_kernel_are_added_to_the_gradient",
        "algorithm/kernels.py",
        (
            "jnp.add, gradient, jax.grad(prior)(replica.params)",
            "jnp.subtract, gradient, jax.grad(prior)(replica.params)",
        ),
        (
            "has_own_prior=bool(weight_decay) or prior is not None, spec=spec",
            "has_own_prior=bool(weight_decay), spec=spec",
        ),
        ("spec = None if prior is not None else", "spec = spec if prior is not None else"),
    ),
    *killed_by(
        "algorithm/test_kernel_rungs.py::"
        "test_a_preconditioned_move_has_the_newest_squares_of_its_gradient[3]",
        "algorithm/kernels.py",
        (
            "square = memory.nu if freeze_after is None else memory.inner.nu",
            "square = memory.nu if freeze_after is None else replica.memory.inner.nu",
        ),
    ),
    *killed_by(
        "algorithm/test_kernel_rungs.py::test_parameters_of_low_precision_stay_so[kernel0]",
        "algorithm/kernels.py",
        ("lambda x, y: x.astype(y.dtype), tree, like", "lambda x, y: x, tree, like"),
    ),
    *killed_by(
        "algorithm/test_kernel_rungs.py::test_rates_of_an_optax_chain_are_multiplied",
        "algorithm/kernels.py",
        ('product *= abs(float(inside["step_size"]))', 'product = abs(float(inside["step_size"]))'),
    ),
    *killed_by(
        "algorithm/test_kernel_rungs.py::test_which_kernels_count_their_steps",
        "algorithm/kernels.py",
        ("return kernel._replace(keeps_time=True)", "return kernel"),
    ),
    *killed_by(
        "algorithm/test_step.py::"
        "test_the_library_equals_the_oracle[deo-deterministic-momentum-moved]",
        "algorithm/kernels.py",
        ("lambda x, z: x + std.astype(x.dtype) * z", "lambda x, z: x - std.astype(x.dtype) * z"),
    ),
    *killed_by(
        "algorithm/test_kernel_rungs.py::test_swaps_are_judged_on_another_batch",
        "algorithm/move.py",
        (
            "energy = target.energy_at(point, judging_batch, energy_noise)",
            "energy = target.energy_at(point, batch, energy_noise)",
        ),
    ),
    *killed_by(
        "algorithm/test_step.py::"
        "test_the_library_equals_the_oracle[deo-deterministic-momentum-moved]",
        "algorithm/move.py",
        (
            "energy = target.energy_at(point, judging_batch, energy_noise)",
            "energy = target.energy_at(point, judging_batch, gradient_noise)",
        ),
    ),
    *killed_by(
        "algorithm/test_replicas.py::"
        "test_replicas_that_swap_get_a_momentum_of_their_new_rung[plain]",
        "algorithm/restarts.py",
        ("jax.vmap(change_rung)(replicas, old, new)", "jax.vmap(change_rung)(replicas, new, old)"),
    ),
    *killed_by(
        "algorithm/test_restarts.py::test_counts_and_keys_of_a_state_are_not_looked_at",
        "algorithm/restarts.py",
        ("for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]", "for leaf in leaves]"),
    ),
    *killed_by(
        "algorithm/test_kernel_rungs.py::test_a_stepwise_rate_falls_at_its_steps",
        "algorithm/timed_kernels.py",
        ("factor**passed)", "factor ** jnp.minimum(passed, 1))"),
    ),
    *killed_by(
        "algorithm/test_kernel_rungs.py::test_annealing_ends_where_it_was_told",
        "algorithm/timed_kernels.py",
        (
            "temperature=rung.temperature * temperature**done",
            "temperature=rung.temperature * learning_rate**done",
        ),
    ),
    *killed_by(
        "algorithm/test_kernel_rungs.py::test_a_timed_kernel_changes_rungs_as_they_are_at_its_time",
        "algorithm/timed_kernels.py",
        (
            "return Replica(inner.params, TimedMemory(count, inner.memory))",
            "return Replica(inner.params, TimedMemory(count + 1, inner.memory))",
        ),
    ),
    *killed_by(
        "algorithm/test_kernel_rungs.py::test_a_short_cycle_exploits_its_last_step",
        "algorithm/timed_kernels.py",
        ("exploitation: float = 0.05", "exploitation: float = 0.5"),
    ),
    *killed_by(
        "algorithm/test_kernel_rungs.py::test_a_cosine_rises_in_its_warm_up_and_falls_to_its_end",
        "algorithm/timed_kernels.py",
        ("num_steps, final)", "num_steps, 0.0)"),
    ),
]

MUTATIONS = [
    *BY_HAND,
    *KERNELS,
    *TIMED_KERNELS,
    *REPLICAS,
    *MOVE,
    *STEP,
]
