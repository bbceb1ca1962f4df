"""Mutations of problems, methods and options of networks."""

from mutations import mutations_of

_WITHIN_EPOCH = (
    "networks/test_training_runs.py::test_a_run_stopped_within_an_epoch_goes_on_bit_for_bit"
)
_DECAY = "networks/test_problem.py::test_weight_decay_is_felt_always_and_seen_when_asked"
_UNITS = "networks/test_problem.py::test_rates_and_temperatures_are_given_once_for_both_units"
_LOSS = "networks/test_problem.py::test_the_loss_of_a_classification_is_cross_entropy"
_AUGMENTED = "networks/test_augmented.py::test_augmentation_is_on_and_follows_its_key"
_METHODS = "networks/test_methods.py"
_PICKED = f"{_METHODS}::test_which_networks_are_averaged"
_TABLE = f"{_METHODS}::test_temperatures_rates_and_schedules_of_the_methods"
_CYCLES = f"{_METHODS}::test_cycles_hold_their_last_15_percent"
_PRETRAIN = f"{_METHODS}::test_start_networks_are_trained_at_a_fifth_after_70_and_90_percent"
_OPTIONS = "networks/test_train_options.py"
_SCALED = f"{_OPTIONS}::test_buffer_and_gains_are_scaled_to_the_unit"
_HOT = f"{_OPTIONS}::test_which_rungs_have_a_temperature"
_RESTART = f"{_OPTIONS}::test_a_broken_network_restarts_by_default_where_there_is_a_ladder"
_EPOCHS = f"{_OPTIONS}::test_one_network_takes_the_epochs_of_all"
_TENS = f"{_OPTIONS}::test_tests_and_averages_are_ten_epochs_apart"
_DRAWN = f"{_OPTIONS}::test_draws_and_history_are_those_at_the_end_of_an_epoch"
_LAW = "networks/test_tempered.py::test_every_rung_samples_prior_times_tempered_likelihood[full]"
_POSED = "networks/test_tempered.py::test_energies_are_in_the_unit_of_the_posterior"
_GROUPS = "networks/test_weight_decay.py::test_each_group_has_its_own"
_SILENCE = "networks/test_silence.py"
_IN_TIME = "networks/test_choices.py::test_rates_change_in_time_as_their_names_say"
_CLIPPED = "networks/test_choices.py::test_gradients_are_cut_to_their_greatest_length"
_LENGTHS = "networks/test_choices.py::test_lengths_of_gradients_are_per_mean_loss"

PROBLEM = mutations_of(
    "networks/problem.py",
    (
        "jnp.asarray(0.5 * scale * decayed_square(",
        "jnp.asarray(0.5 * decayed_square(",
        _DECAY,
    ),
    ("total = scale * loss", "total = loss", _DECAY),
    ("(total + prior(params) if prior_in_energy else total)", "(total)", _DECAY),
    ("apart = has_decay and not prior_in_energy", "apart = has_decay", _DECAY),
    ("prior=prior if apart else None)", "prior=None)", _DECAY),
    (
        "return np.asarray(per_mean_loss, float) / self.scale",
        "return np.asarray(per_mean_loss, float) * self.scale",
        _UNITS,
    ),
    (
        "np.asarray(of_posterior, float) * self.scale / self.num_rows",
        "np.asarray(of_posterior, float) / self.num_rows",
        _UNITS,
    ),
)

CLASSIFICATION = mutations_of(
    "networks/classification.py",
    (
        'return inputs, as_labels(f"{name}[1]", labels, num_classes)',
        "return inputs, labels",
        "networks/test_classification_sources.py::test_one_hot_labels_and_bytes_are_taken",
    ),
    (
        "if not is_prepared and any(",
        "if any(",
        "networks/test_classification_sources.py::test_one_hot_labels_and_bytes_are_taken",
    ),
    (
        "if pixels and augment else None",
        "if pixels and not augment else None",
        _AUGMENTED,
    ),
    ("augment: bool = True,", "augment: bool = False,", _AUGMENTED),
    (
        "augmented(key, images) if augmented",
        "augmented(jax.random.key(0), images) if augmented",
        _AUGMENTED,
    ),
    (
        "outputs(params, model_state, images, True)",
        "outputs(params, model_state, images, False)",
        _LOSS,
    ),
    ("normalised(images), False)[0]", "normalised(images), True)[0]", _LOSS),
    (
        "logits.astype(jnp.float32), labels)",
        "logits, labels)",
        "networks/test_problem.py::test_cross_entropy_of_low_precision_is_summed_in_float32",
    ),
)

METHODS = mutations_of(
    "networks/methods.py",
    (
        "if np.ndim(getattr(self, name)) and not self.has_ladder:",
        "if np.ndim(getattr(self, name)) and self.is_single:",
        "networks/test_choices.py::test_choices_that_do_not_go_together_are_refused",
    ),
    ("for share in (0.7, 0.9)]", "for share in (0.7, 0.8)]", _PRETRAIN),
    ("for share in (0.7, 0.9)]", "for share in (0.5, 0.9)]", _PRETRAIN),
    ("round(share * clock.epochs)", "int(share * clock.epochs)", _PRETRAIN),
    ("falls, factor=0.2)", "falls, factor=0.1)", _PRETRAIN),
    ("exploitation=0.15, hold=True", "exploitation=0.15, hold=False", _CYCLES),
    ("exploitation=0.15, hold=True", "exploitation=0.05, hold=True", _CYCLES),
    (
        "length = clock.cycle_epochs * clock.steps_per_epoch",
        "length = clock.epochs * clock.steps_per_epoch",
        _CYCLES,
    ),
    ("temperature=1e-3,", "temperature=1e-2,", _TABLE),
    ("temperature=1.0,", "temperature=0.1,", _TABLE),
    (
        'kernel="sgld",',
        'kernel="momentum",',
        f"{_METHODS}::test_sgld_has_no_momentum_and_the_others_have_the_users",
    ),
    ('(0.005, 0.02), schedule="deo_star",', '(0.005, 0.05), schedule="deo_star",', _TABLE),
    ('averages="nothing",', 'averages="coldest",', _PICKED),
    (
        "or self.draws_gaussian or epoch <= burn_in:",
        "or self.draws_gaussian or epoch < burn_in:",
        _PICKED,
    ),
    (
        "return none if epoch % pick_every else",
        "return none if epoch % pick_every == 1 else",
        _PICKED,
    ),
    ("np.eye(num_replicas)[0]", "np.eye(num_replicas)[-1]", _PICKED),
    (
        "last_step = epoch * clock.steps_per_epoch - 1",
        "last_step = epoch * clock.steps_per_epoch",
        _PICKED,
    ),
)

OPTIONS = mutations_of(
    "networks/options.py",
    ("buffer=_scaled(self.buffer, scale),", "buffer=self.buffer,", _SCALED),
    ("buffer_gain=_scaled(self.buffer_gain, scale),", "buffer_gain=self.buffer_gain,", _SCALED),
    (
        "replace(gain, scale=gain.scale * scale, cap=gain.cap * scale)",
        "replace(gain, scale=gain.scale * scale)",
        _SCALED,
    ),
    (
        "replace(gain, scale=gain.scale * scale, cap=gain.cap * scale)",
        "replace(gain, cap=gain.cap * scale)",
        _SCALED,
    ),
    ("return ConstantGain(gain.value * scale)", "return ConstantGain(gain.value)", _SCALED),
    ("return lambda step: scale * gain(step)", "return lambda step: gain(step)", _SCALED),
    ("return scale * gain", "return gain", _SCALED),
    ("alone = method.has_ladder or method.is_single", "alone = True", _HOT),
    ("alone = method.has_ladder or method.is_single", "alone = method.is_single", _HOT),
    ('restart = "restart" if method.has_ladder else "stop"', 'restart = "stop"', _RESTART),
    ('restart = "restart" if method.has_ladder else "stop"', 'restart = "restart"', _RESTART),
    (
        "on_nonfinite=restart if self.on_nonfinite is None else self.on_nonfinite,",
        "on_nonfinite=restart,",
        _RESTART,
    ),
    (
        "self.epochs * self.num_replicas if self.base.is_single else self.epochs",
        "self.epochs",
        _EPOCHS,
    ),
    ("return min(self.cycle_epochs, self.run_epochs)", "return self.cycle_epochs", _EPOCHS),
    (
        "num_replicas=1 if method.is_single else self.num_replicas,",
        "num_replicas=self.num_replicas,",
        _EPOCHS,
    ),
    ("_PICK_EVERY = 10", "_PICK_EVERY = 1", _TENS),
    ("return min(_PICK_EVERY, self.run_epochs)", "return _PICK_EVERY", _TENS),
    ("return min(self.base.test_every, self.run_epochs)", "return self.base.test_every", _TENS),
    (
        "num_steps=self.run_epochs * steps,",
        "num_steps=self.epochs * steps,",
        "networks/test_training_runs.py::test_a_cycle_is_averaged_at_its_end",
    ),
    ("burn_in=steps - 1,", "burn_in=steps,", _DRAWN),
    ("thin=steps,", "thin=1,", _DRAWN),
    ('if self.uses_temperature else "before",', 'if True else "before",', _DRAWN),
    (
        "target_swap_rate: float = 0.005",
        "target_swap_rate: float = 0.05",
        f"{_METHODS}::test_the_defaults_are_the_papers_for_cifar_100",
    ),
    (
        "gain: Any = Gain(600.0, 1000.0)",
        "gain: Any = Gain(60.0, 1000.0)",
        f"{_METHODS}::test_the_defaults_are_the_papers_for_cifar_100",
    ),
)

CONTINUED = mutations_of(
    "networks/continued.py",
    ("evaluation.state = restored.evaluation", "restored.evaluation", f"{_WITHIN_EPOCH}[deo]"),
    (
        "rewind(records, program, restored.step, restored.source)",
        "restored.step",
        "networks/test_resume.py::test_rows_after_the_checkpoint_are_dropped",
    ),
    (
        "if (problem.unit, problem.num_rows) != (metadata.unit, metadata.num_rows):",
        "if problem.num_rows != metadata.num_rows:",
        "networks/test_training_runs.py::test_starts_that_do_not_fit_get_a_sentence",
    ),
)

BUILD = mutations_of(
    "networks/build.py",
    (
        "options.pick_every, options.burn_in)",
        "options.pick_every)",
        "networks/test_training_runs.py::test_an_average_may_begin_after_a_burn_in",
    ),
    (
        "every, posed = options.test_every * problem.steps_per_epoch,",
        "every, posed = problem.steps_per_epoch,",
        _TENS,
    ),
)

TEMPERED = mutations_of(
    "networks/tempered.py",
    ("return ratio * value, model_state", "return value, model_state", _POSED),
    ("prior=lambda params: ratio * prior(params),", "prior=prior,", _POSED),
    ("tempers_likelihood=True,", "tempers_likelihood=False,", _LAW),
    ("return total / num_rows", "return total", _POSED),
    ("total = total + rest * of_rows", "total = total + of_rows", _POSED),
)

TEMPERED_MOVES = mutations_of(
    "algorithm/target.py",
    (
        "self._with_prior(gradient, params, temperature), model_state",
        "self._with_prior(gradient, params, 1.0), model_state",
        _LAW,
    ),
)

CHOICES = [
    *mutations_of(
        "networks/weight_decay.py",
        (
            '"*" not in weight_decay or any(',
            "any(",
            "networks/test_weight_decay.py::test_what_fits_nothing_is_refused",
        ),
        ("if fnmatchcase(name, pattern):", "if True:", _GROUPS),
        ("(decay * square for decay", "(square for decay", _GROUPS),
    ),
    *mutations_of(
        "algorithm/timed_kernels.py",
        ("start = 1 / (warmup_steps + 1)", "start = 0.0", _IN_TIME),
        ("np.flatnonzero(~np.isfinite(factors))", "np.flatnonzero(np.isnan(factors))", _IN_TIME),
        ("np.linspace(0, num_steps - 1, 1000)", "np.linspace(0, 1, 1000)", _IN_TIME),
        (
            "jnp.asarray(factor(count), rung.learning_rate.dtype), _SMALLEST)",
            "jnp.asarray(factor(count), rung.learning_rate.dtype), 0.0)",
            _IN_TIME,
        ),
    ),
    *mutations_of(
        "algorithm/clipping.py",
        ("scale = jnp.minimum(1.0, max_norm", "scale = jnp.maximum(1.0, max_norm", _CLIPPED),
        ("jax.lax.rsqrt(jnp.maximum(square", "(1 / jnp.maximum(square", _CLIPPED),
    ),
    *mutations_of(
        "networks/options.py",
        ("self.clip_norm * self.posed(problem).scale", "self.clip_norm", _LENGTHS),
    ),
    *mutations_of(
        "networks/checks.py",
        (
            "if not has_tested and not np.isfinite(nll).any():",
            "if not has_tested and not np.isfinite(nll).all():",
            f"{_SILENCE}::test_a_test_that_is_not_finite_is_an_error_after_the_first_epoch",
        ),
        (
            'ended = trained.result.code == "finished" and options.base.picks',
            "ended = options.base.picks",
            f"{_SILENCE}::test_an_average_of_nothing_is_a_problem",
        ),
    ),
    *mutations_of(
        "networks/build.py",
        (
            "if peak < _LOW_PEAK:",
            "if peak < 2 * _LOW_PEAK + 1e-9:",
            f"{_SILENCE}::test_a_schedule_of_rates_instead_of_factors_is_told",
        ),
        (
            "if method.picks:",
            "if False:",
            f"{_SILENCE}::test_a_burn_in_after_the_last_average_is_refused",
        ),
        (
            "tested = range(options.test_every, options.run_epochs + 1, options.test_every)",
            "tested = range(1, options.run_epochs + 1)",
            f"{_SILENCE}::test_a_burn_in_after_the_last_average_is_refused",
        ),
    ),
    *mutations_of(
        "networks/checks.py",
        (
            "is_alone or np.any(options.sampler(problem).temperature) or",
            "is_alone or",
            f"{_SILENCE}::test_networks_that_would_stay_the_same_are_refused",
        ),
        (
            "(values > _WORSE * guess)",
            "(values > _WORSE + guess)",
            f"{_SILENCE}::test_networks_that_are_worse_than_a_guess_are_a_problem",
        ),
        (
            "shown = 1 if trained.train_options.base.tempers_likelihood else None",
            "shown = None",
            f"{_SILENCE}::test_networks_that_are_worse_than_a_guess_are_a_problem",
        ),
        (
            "np.std(trained.labels, axis=0)",
            "np.std(trained.labels)",
            f"{_SILENCE}::test_real_numbers_and_losses_that_are_worse_than_a_guess_are_a_problem",
        ),
    ),
    *mutations_of(
        "networks/option_checks.py",
        (
            "if options.base.tempers_likelihood and (not numbers.ndim or not numbers.all()):",
            "if False:",
            "bad_inputs/test_table.py::test_bad_input_gets_a_sentence"
            "[train: one temperature of a tempered likelihood]",
        ),
    ),
]

MUTATIONS = [
    *PROBLEM,
    *CLASSIFICATION,
    *METHODS,
    *OPTIONS,
    *CONTINUED,
    *BUILD,
    *TEMPERED,
    *TEMPERED_MOVES,
    *CHOICES,
]
