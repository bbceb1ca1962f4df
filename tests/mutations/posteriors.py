"""Mutations of what samples posteriors whose structure is known: kernels, ladders, defaults."""

from mutations import mutations_of

_ADJUSTED = "laws/test_adjusted_kernels.py"
_PRESERVED = f"{_ADJUSTED}::test_the_density_of_the_rung_is_preserved"
_LANGEVIN = "laws/test_langevin.py"
_HEATS = f"{_LANGEVIN}::test_the_noise_of_gradients_heats_as_theory_says_and_is_reported"
_SUBTRACTED = f"{_LANGEVIN}::test_subtracting_the_noise_leaves_the_variance_of_the_step_alone"
_CURVATURE = f"{_LANGEVIN}::test_the_curvature_is_found_while_step_sizes_are_tuned"
_BAYESIAN = "run/test_bayesian.py"
_RUNGS = f"{_BAYESIAN}::test_every_rung_has_the_prior_and_a_part_of_the_likelihood"
_EQUAL = f"{_BAYESIAN}::test_pairs_reject_equally_often"
_CALL = f"{_BAYESIAN}::test_the_only_call_needs_no_choice_and_ends_without_a_warning"
_EVIDENCE = f"{_BAYESIAN}::test_the_evidence_is_that_of_the_conjugate_model"
_WHOLE = f"{_BAYESIAN}::test_energies_of_draws_are_those_of_all_rows"
_PIECES = f"{_BAYESIAN}::test_pieces_of_the_data_add_up"
_OTHERS = f"{_BAYESIAN}::test_other_kernels_temper_the_likelihood_alone"
_ORACLE = "algorithm/test_step.py::test_the_library_equals_the_oracle"
_BARRIER = f"{_ORACLE}[at_most_one-metropolis-momentum-moved]"
_MIXED = "interop/test_numpyro.py::test_models_that_mix_rows_keep_their_density"
_ROUNDS = "algorithm/test_barrier.py::test_every_round_is_that_of_the_equations"

ADJUSTED = mutations_of(
    "algorithm/adjusted_kernels.py",
    (
        "accepted = drawn.log_uniform < log_ratio",
        "accepted = drawn.log_uniform > log_ratio",
        _PRESERVED,
    ),
    (
        "change = slope * (end.energy - start.energy) +",
        "change = (end.energy - start.energy) +",
        _PRESERVED,
    ),
    ("+ (end.prior - start.prior)", "+ 0 * end.prior", _PRESERVED),
    ("(back**2 - drawn.length**2) / 2", "(back**2 - drawn.length**2) / 4", _PRESERVED),
    (
        "(params, kick(velocity, at, 0.5), at)",
        "(params, kick(velocity, at, 1.0), at)",
        _PRESERVED,
    ),
    ("kick(velocity, end, 0.5), end", "kick(velocity, end, 0.0), end", _PRESERVED),
    (
        "jnp.where(jnp.isfinite(end.energy), -change, -jnp.inf)",
        "-change",
        f"{_ADJUSTED}::test_a_proposal_that_is_not_finite_is_rejected",
    ),
    ("acceptance - target_acceptance,", "target_acceptance - acceptance,", _CALL),
)

LANGEVIN = mutations_of(
    "algorithm/langevin.py",
    (
        "rate * jnp.square(d) / 2, 1.0), whitened",
        "rate * jnp.square(d), 1.0), whitened",
        _SUBTRACTED,
    ),
    ("taken = jax.tree.map(jnp.zeros_like, taken)", "pass", _HEATS),
    (
        "heating=rate * along**2 / 2 - _dot(left, left)",
        "heating=rate * along**2 - _dot(left, left)",
        _HEATS,
    ),
    (
        "half = jax.tree.map(lambda d: slope * d, at.half_difference)",
        "half = at.half_difference",
        f"{_HEATS}[4.0]",
    ),
    ("jnp.sqrt(2 * rate * c * (1 - t)) * z", "jnp.sqrt(2 * rate * c) * z", _SUBTRACTED),
    ("turned = jax.tree.map(lambda p: p / length, product)", "turned = direction", _CURVATURE),
    ("return jax.tree.map(lambda u: slope * u, of_energy)", "return of_energy", _CURVATURE),
)

LADDERS = mutations_of(
    "algorithm/rounds.py",
    (
        "rejection = 1.01 - verdicts.wanted / count",
        "rejection = 0.01 + verdicts.wanted / count",
        _BARRIER,
    ),
    (
        "jnp.where(places < rounded, 0.0, places)",
        "places",
        "algorithm/test_barrier.py::test_a_free_ladder_that_reaches_the_prior_is_not_rounded_off_it",
    ),
    ("tuned = tuned.at[0].set(temperature[0])", "tuned = tuned * 1.01", _BARRIER),
    (
        "_is_last(step, tuning.round_ends) & (added.count > 0)",
        "_is_last(step - 1, tuning.round_ends) & (added.count > 0)",
        _BARRIER,
    ),
    (
        "span = jnp.where(end > most, best, jnp.maximum(end, longer))",
        "span = jnp.maximum(end, longer)",
        _ROUNDS,
    ),
    (
        "attempted = attempted & (step >= tuning.first_step)",
        "pass",
        _ROUNDS,
    ),
    (
        "free = step < tuning.free_until",
        "free = step >= 0",
        _ROUNDS,
    ),
)

TARGETS = [
    *mutations_of(
        "algorithm/target.py",
        (
            "prior = jax.tree.map(lambda g: (temperature * g).astype(g.dtype), prior)",
            "pass",
            _OTHERS,
        ),
    ),
    *mutations_of(
        "algorithm/randomness.py",
        (
            "[key] if len(leaves) == 1 else jax.random.split(key, len(leaves))",
            "[key] * len(leaves)",
            "algorithm/test_kernel_rungs.py::test_every_parameter_has_noise_of_its_own",
        ),
    ),
    *mutations_of(
        "run/bayesian.py",
        (
            "return -(num_rows / values.shape[0]) * jnp.sum(values)",
            "return -jnp.sum(values)",
            f"{_BAYESIAN}::test_mini_batches_leave_mean_and_variance_right",
        ),
        ("if rest:", "if False:", _PIECES),
        ("return -total", "return total", _PIECES),
    ),
    *mutations_of(
        "interop/numpyro.py",
        ("return by_row if why is None else", "return by_row if True else", _MIXED),
    ),
    *mutations_of(
        "interop/numpyro_model.py",
        (
            "observed = still_observed(self.numpyro, self.model, self.latent, args, kwargs)",
            "pass",
            "interop/test_numpyro.py::test_predictions_are_never_the_data",
        ),
    ),
    *mutations_of(
        "run/options.py",
        ("burn_in = num_steps // 3 // every * every", "burn_in = num_steps // 3", _WHOLE),
        ('"temperature": AUTO,', '"temperature": (1.0, 2.0),', _RUNGS),
    ),
    *mutations_of(
        "results/evidence.py",
        ("gaps = inverse[:-1] - inverse[1:]", "gaps = inverse[1:] - inverse[:-1]", _EVIDENCE),
        (
            "expit(-hot - middle).sum() > expit(cold + middle).sum()",
            "expit(-hot - middle).sum() < expit(cold + middle).sum()",
            _EVIDENCE,
        ),
        (
            "np.std(blocks, ddof=1) / np.sqrt(len(blocks))",
            "np.std(blocks, ddof=1)",
            f"{_BAYESIAN}::test_the_standard_error_of_the_evidence_is_that_of_repeated_runs",
        ),
    ),
]

MUTATIONS = [*ADJUSTED, *LANGEVIN, *LADDERS, *TARGETS]
