"""Mutations of averages over networks: tests, SWAG."""

from mutations import killed_by, mutations_of

_EVALUATION = "networks/test_evaluate.py::test_an_evaluation_by_hand"
_PREDICTED = "networks/test_trained_predict.py::test_the_test_is_predicted_as_it_was_judged"
_MOMENTS = "networks/test_swag.py::test_moments_are_those_of_numpy"
_COVARIANCE = "networks/test_swag.py::test_draws_have_the_mean_and_covariance_of_the_formula"
_STATISTICS = "networks/test_swag.py::test_statistics_are_those_of_the_batches[array]"
_CYCLE_ENDS = (
    "networks/test_swag_cycles.py::test_a_cycle_draws_ten_networks_around_those_of_its_slow_end"
)
_SEEDS = "networks/test_swag_cycles.py::test_draws_follow_from_seed_and_cycle"

EVALUATE = mutations_of(
    "networks/evaluate.py",
    (
        "jnp.where(sampled.weight > 0, x, jnp.nan)",
        "x",
        "networks/test_evaluate.py::test_an_average_of_nothing_has_no_scores",
    ),
    (
        "epoch = every * (int(averages.count) + 1)",
        "epoch = every * int(averages.count)",
        _EVALUATION,
    ),
    ("epoch = every * (int(averages.count) + 1)", "epoch = int(averages.count) + 1", _EVALUATION),
    (
        "self._score(sums, outputs[replica_at], weight)",
        "self._score(sums, outputs, weight)",
        _EVALUATION,
    ),
    (
        "jnp.where(has_weight, outputs, 1.0)",
        "outputs",
        "networks/test_training_runs.py::test_a_network_without_weight_cannot_spoil_the_average",
    ),
    (
        "sampled = likelihood.merge(sampled, likelihood.average(weighed, targets, weight))",
        "sampled = likelihood.average(weighed, targets, weight)",
        _EVALUATION,
    ),
    ("count=averages.count + 1)", "count=averages.count)", _EVALUATION),
    ("jnp.moveaxis(jax.lax.map(of_batch, rows), 1, 0)", "jax.lax.map(of_batch, rows)", _EVALUATION),
    ("size = -(-num_rows // num_batches)", "size = num_rows // num_batches", _EVALUATION),
    ('row["weight"] = sampled.weight', 'row["weight"] = jnp.sum(weight)', _EVALUATION),
    (
        "take = lambda: kept.take(points, replica_at[rungs])",
        "take = lambda: kept.take(points, rungs)",
        _PREDICTED,
    ),
    (
        "number = 1 + round(float(averages.sampled.weight) / max(float(weight.sum()), 1.0))",
        "number = epoch",
        "networks/test_evaluate.py::test_epochs_without_a_pick_take_no_room",
    ),
)

SWAG = mutations_of(
    "networks/swag.py",
    ("gain = 1 / (moments.count + 1)", "gain = 1 / (moments.count + 2)", _MOMENTS),
    (
        "total + (1 - gain).astype(total.dtype) * jnp.square(new - mean)",
        "total + jnp.square(new - mean)",
        _MOMENTS,
    ),
    (
        "slot = moments.count % _rank(moments)",
        "slot = (moments.count + 1) % _rank(moments)",
        _MOMENTS,
    ),
    ("moments.deviations, params, mean", "moments.deviations, params, moments.mean", _MOMENTS),
    (
        "total / jnp.maximum(moments.count, 1), moments.squares",
        "total / jnp.maximum(moments.count - 1, 1), moments.squares",
        _MOMENTS,
        _COVARIANCE,
    ),
    (
        "scale / (2 * jnp.maximum(num_deviations - 1, 1))",
        "scale / jnp.maximum(num_deviations - 1, 1)",
        _COVARIANCE,
    ),
    ("num_deviations = jnp.minimum(moments.count, rank)", "num_deviations = rank", _COVARIANCE),
    ("std = jnp.sqrt(variance * scale / 2)", "std = jnp.sqrt(variance * scale)", _COVARIANCE),
    (
        "noise = jax.random.normal(key, mean.shape, mean.dtype)",
        "noise = jax.random.normal(low_key, mean.shape, mean.dtype)",
        _COVARIANCE,
    ),
    (
        "sums, count = _only_averages(jnp.zeros_like, state), 0",
        "sums, count = state, 0",
        _STATISTICS,
    ),
    (
        "jnp.where(is_constant, 1.0, count * momentum)",
        "jnp.where(is_constant, 1.0, count * 0.1)",
        "networks/test_swag.py::test_every_average_has_a_momentum_of_its_own",
    ),
    (
        "def start(params: Any, rank: int = 20)",
        "def start(params: Any, rank: int = 2)",
        "networks/test_methods.py::test_the_constants_of_swag",
    ),
)

SWAG_CYCLES = mutations_of(
    "networks/swag_cycles.py",
    ("NUM_DRAWS = 10", "NUM_DRAWS = 5", _CYCLE_ENDS),
    ("epoch = int(averages.count) + 1", "epoch = int(averages.count)", _CYCLE_ENDS),
    (
        "exploits(epoch * clock.steps_per_epoch - 1)",
        "exploits(epoch * clock.steps_per_epoch)",
        _CYCLE_ENDS,
    ),
    (
        "if epoch > burn_in and",
        "if epoch >= burn_in and",
        "networks/test_swag_cycles.py::test_networks_of_the_burn_in_are_not_collected",
    ),
    (
        "averages._replace(sampled=sampled), no_moments()",
        "averages._replace(sampled=sampled), moments",
        _CYCLE_ENDS,
    ),
    ("key = jax.random.fold_in(jax.random.key(seed), epoch)", "key = jax.random.key(seed)", _SEEDS),
    (
        "key = jax.random.fold_in(jax.random.key(seed), epoch)",
        "key = jax.random.fold_in(jax.random.key(0), epoch)",
        _SEEDS,
    ),
    ("params = swag.draw(moments, draw_key)", "params = moments.mean", _CYCLE_ENDS),
    (
        "_REFRESH_BATCHES = 50",
        "_REFRESH_BATCHES = 1",
        "networks/test_methods.py::test_the_constants_of_swag",
    ),
)


BY_HAND = [
    *killed_by(
        "networks/test_kept.py::test_kept_networks_are_evenly_spaced_and_few[3-3]",
        "networks/kept.py",
        ("while number // stride > most:", "while number // stride >= most:"),
    ),
    *killed_by(
        "networks/test_kept.py::test_kept_networks_are_evenly_spaced_and_few[3-1]",
        "networks/kept.py",
        ("kept = pick % stride[-1] == 0", "kept = pick % stride[0] == 0"),
    ),
    *killed_by(
        "networks/test_kept.py::test_a_limit_of_none_and_of_bytes",
        "networks/kept.py",
        ("max(1, MAX_BYTES // max(num_bytes, 1))", "MAX_BYTES // max(num_bytes, 1)"),
    ),
    *killed_by(
        "networks/test_methods.py::test_sgld_has_no_momentum_and_the_others_have_the_users",
        "networks/methods.py",
        (
            "kernels.momentum(momentum) if momentum else kernels.sgld()",
            "kernels.momentum(momentum)",
        ),
    ),
    *killed_by(
        "networks/test_choices.py::test_rates_change_in_time_as_their_names_say",
        "networks/methods.py",
        (
            "kernels.cosine(kernel, clock.epochs * clock.steps_per_epoch, warmup)",
            "kernels.cosine(kernel, clock.epochs * clock.steps_per_epoch)",
        ),
    ),
    *killed_by(
        "networks/test_methods.py::test_which_rates_depend_on_the_length_of_a_run",
        "networks/methods.py",
        (
            'return self.rate_schedule in ("stepwise", "cosine")',
            'return self.rate_schedule in ("stepwise",)',
        ),
    ),
    *killed_by(
        "networks/test_methods.py::test_the_defaults_are_the_papers_for_cifar_100",
        "networks/methods.py",
        ("MOMENTUM = 0.9", "MOMENTUM = 0.99"),
    ),
    *killed_by(
        "networks/test_tempered.py::test_temperatures_must_suit_the_rule",
        "networks/methods.py",
        ("swap_every=10,", "swap_every=1,"),
    ),
    *killed_by(
        "networks/test_swag.py::test_moments_are_those_of_numpy[3]",
        "networks/swag.py",
        (
            "return old + gain.astype(old.dtype) * (new - old)",
            "return old + gain.astype(old.dtype) * new",
        ),
    ),
    *killed_by(
        "networks/test_swag.py::test_statistics_are_those_of_the_batches[array]",
        "networks/swag.py",
        ("_NO_MOMENTUM = 1e-6", "_NO_MOMENTUM = 1.0"),
    ),
    *killed_by(
        "networks/test_swag.py::test_every_average_has_a_momentum_of_its_own[True]",
        "networks/swag.py",
        ("jnp.where(is_constant, before, total / scale)", "total / scale"),
    ),
    *killed_by(
        "networks/test_tempered.py::test_energies_are_in_the_unit_of_the_posterior[mean]",
        "networks/tempered.py",
        ("problem.num_rows / problem.scale", "problem.scale / problem.num_rows"),
        ("total = size * jnp.sum(", "total = jnp.sum("),
        ("num_rows=problem.num_rows,", "num_rows=None,"),
    ),
    *killed_by(
        "networks/test_tempered.py::test_what_is_no_posterior_is_refused",
        "networks/tempered.py",
        ("if any(not np.array_equal(a, b) for a, b in leaves):", "if False:"),
        ("if problem.is_random(like):", "if False:"),
    ),
]

MUTATIONS = [
    *BY_HAND,
    *EVALUATE,
    *SWAG,
    *SWAG_CYCLES,
]
