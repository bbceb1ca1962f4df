"""Mutations of predictions: averages, metrics, likelihoods, regressions."""

from mutations import killed_by

MUTATIONS = [
    *killed_by(
        "networks/test_evaluate.py::test_an_evaluation_by_hand[500]",
        "networks/likelihoods/classes.py",
        ("jnp.argmax(outputs, axis=1) == targets", "jnp.argmin(outputs, axis=1) == targets"),
    ),
    *killed_by(
        "networks/test_likelihoods.py::test_sums_of_parts_are_those_of_all[classes]",
        "networks/likelihoods/classes.py",
    ),
    *killed_by(
        "networks/test_regression.py::test_coverage_counts_targets_in_central_intervals",
        "networks/likelihoods/real.py",
        (
            "off_centre = 2 * np.abs(np.ravel(below) - 0.5)",
            "off_centre = np.abs(np.ravel(below) - 0.5)",
        ),
        ("np.mean(off_centre <= level)", "np.mean(off_centre < level)"),
    ),
    *killed_by(
        "networks/test_regression.py::test_a_mixture_of_two_by_hand",
        "networks/likelihoods/real.py",
        (
            "variance = np.asarray(sums.square, float) / sums.weight - deviation**2",
            "variance = np.asarray(sums.square, float) / sums.weight",
        ),
        (
            "jnp.tensordot(weights, deviation**2 + self.variance(scale), 1)",
            "jnp.tensordot(weights, deviation**2, 1)",
        ),
    ),
    *killed_by(
        "networks/test_likelihoods.py::test_one_network_is_judged_as_an_average_of_one[gaussian]",
        "networks/likelihoods/real.py",
        ("nll = self._log_volume - jnp.mean(jnp.sum(", "nll = -jnp.mean(jnp.sum("),
    ),
    *killed_by(
        "networks/test_likelihoods.py::"
        "test_the_calibration_error_is_over_levels_of_5_to_95_percent",
        "networks/likelihoods/real.py",
        ("_LEVELS = np.linspace(0.05, 0.95, 19)", "_LEVELS = np.linspace(0.1, 0.9, 9)"),
    ),
    *killed_by(
        "networks/test_predict.py::test_running_sums_are_the_average_in_any_order[1-logits]",
        "networks/predict/averages.py",
        ("average.logits + weight * logits", "average.logits + logits"),
        (
            "jax.nn.log_softmax(average.logits / weight, axis=-1)",
            "jax.nn.log_softmax(average.logits, axis=-1)",
        ),
    ),
    *killed_by(
        "networks/test_predict.py::test_running_sums_are_the_average_in_any_order[1-probabilities]",
        "networks/predict/averages.py",
        (
            "average.probabilities + weight * jax.nn.softmax(logits, axis=-1)",
            "average.probabilities + weight * jax.nn.softmax(logits, axis=0)",
        ),
        ("average.weight + weight,", "average.weight + 1,"),
    ),
    *killed_by(
        "networks/test_predict.py::test_sure_of_the_wrong_class_is_bad_but_finite",
        "networks/predict/averages.py",
        (
            "jnp.log(jnp.maximum(probabilities, jnp.finfo(probabilities.dtype).tiny))",
            "jnp.log(probabilities)",
        ),
    ),
    *killed_by(
        "networks/test_predict.py::test_low_precision_logits_are_summed_in_float32",
        "networks/predict/averages.py",
        ("logits = logits.astype(average.logits.dtype)", "logits = logits"),
    ),
    *killed_by(
        "networks/test_predict.py::test_weights_are_one_unless_given",
        "networks/predict/averages.py",
        (
            "weights = jnp.ones(len(logits)) if weights is None",
            "weights = jnp.ones(len(logits)) / len(logits) if weights is None",
        ),
    ),
    *killed_by(
        "networks/test_predict.py::test_an_edge_belongs_to_the_bin_below[0.5-1]",
        "networks/predict/calibration.py",
        (
            "np.digitize(confidence, edges[1:-1], right=True)",
            "np.digitize(confidence, edges[1:-1], right=False)",
        ),
    ),
    *killed_by(
        "networks/test_predict.py::test_there_are_fifteen_bins_unless_others_are_asked_for",
        "networks/predict/calibration.py",
        ("num_bins: int = 15) -> Reliability", "num_bins: int = 10) -> Reliability"),
    ),
    *killed_by(
        "networks/test_predict.py::test_calibration_in_three_bins_by_hand",
        "networks/predict/calibration.py",
    ),
    *killed_by(
        "networks/test_uncertainty.py::test_intervals_of_accuracy_are_wilsons",
        "networks/predict/calibration.py",
        (
            "reliability: Reliability, level: float = 0.95)",
            "reliability: Reliability, level: float = 0.9)",
        ),
    ),
    *killed_by(
        "networks/test_predict.py::test_metrics_are_those_of_scikit_learn",
        "networks/predict/metrics.py",
        ("np.mean(np.sum(error**2, axis=-1))", "np.mean(np.mean(error**2, axis=-1))"),
        ('losses.mean() if reduce == "mean" else losses.sum()', "losses.mean()"),
        ("error[np.arange(len(labels)), labels] -= 1", "error[np.arange(len(labels)), 0] -= 1"),
    ),
    *killed_by(
        "networks/test_predict.py::test_metrics_by_hand",
        "networks/predict/metrics.py",
        ("entropy=float(entropy(log_probs).mean())", "entropy=float(entropy(log_probs).sum())"),
    ),
    *killed_by(
        "networks/test_uncertainty.py::test_networks_that_agree_leave_no_epistemic_part",
        "networks/predict/uncertainty.py",
        ("np.maximum(total - aleatoric, 0.0)", "total - aleatoric"),
    ),
    *killed_by(
        "networks/test_predict.py::test_auroc_counts_pairs",
        "networks/predict/uncertainty.py",
        ("outside.size * (outside.size + 1) / 2", "outside.size * (outside.size - 1) / 2"),
    ),
    *killed_by(
        "networks/test_uncertainty.py::test_entropies_by_hand",
        "networks/predict/uncertainty.py",
        (
            "logsumexp(members, axis=0, b=weights[:, None, None])",
            "logsumexp(members, axis=0, b=1 / len(members))",
        ),
        ("return values / values.sum()", "return values"),
    ),
    *killed_by(
        "networks/test_regression.py::test_noise_of_the_network_and_several_targets",
        "networks/regression.py",
        (
            "return mean, jnp.exp(values[:, self.num_targets :])",
            "return mean, values[:, self.num_targets :]",
        ),
    ),
    *killed_by(
        "networks/test_regression.py::test_means_and_scales_by_kind_of_noise",
        "networks/regression.py",
        (
            'scale = jnp.exp(params["log_noise"]) if self.is_learned',
            'scale = params["log_noise"] if self.is_learned',
        ),
        ("jnp.zeros((*lead, self.num_targets))}", "jnp.ones((*lead, self.num_targets))}"),
    ),
    *killed_by(
        "networks/test_regression.py::test_the_energy_is_that_of_the_exact_posterior[True]",
        "networks/regression.py",
        ("(targets - centre) / spread).astype", "(targets - centre)).astype"),
    ),
    *killed_by(
        "networks/test_regression.py::test_equal_targets_have_a_spread_of_one",
        "networks/regression.py",
        ("np.where(differ, targets.std(axis=0), 1.0)", "targets.std(axis=0)"),
    ),
    *killed_by(
        "networks/test_regression.py::test_a_source_is_standardised_as_one_says",
        "networks/regression.py",
        ("return inputs, _standard(targets, centre, spread)", "return inputs, targets"),
        ("or not np.isfinite(targets).all():", "or False:"),
        ("if targets.shape[1] != len(centre)", "if False"),
    ),
    *killed_by(
        "networks/test_regression.py::test_moments_that_are_given",
        "networks/regression.py",
        ("and (spread > 0).all()", "and True"),
        ("if len(centre) != targets.shape[1]:", "if False:"),
    ),
    *killed_by(
        "networks/test_regression.py::test_networks_know_whether_they_are_trained",
        "networks/regression.py",
        (
            "return values(params, model_state, inputs, False)[0]",
            "return values(params, model_state, inputs, True)[0]",
        ),
    ),
]
