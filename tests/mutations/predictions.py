"""Mutations of the predictions of networks: which are kept, averages, uncertainty, regression."""

from mutations import mutations_of

_EVALUATION = "networks/test_evaluate.py::test_an_evaluation_by_hand"
_SPACED = "networks/test_kept.py::test_kept_networks_are_evenly_spaced_and_few"
_PART = "networks/test_kept.py::test_of_a_pick_above_the_limit_a_part_is_kept"
_PIECES = "networks/test_trained_predict.py::test_pieces_are_padded_and_compiled_once"
_FLOATS = "networks/test_trained_predict.py::test_floats_and_bytes_are_not_the_same"
_COPY = (
    "networks/test_trained_predict.py::test_a_copy_and_a_folder_predict_once_they_have_the_network"
)
_ALONE = "networks/test_regression.py::test_a_folder_predicts_with_the_network_alone[{}]"
_SPLIT = "networks/test_regression.py::test_standard_deviations_split_into_noise_and_spread"
_GREY = "networks/test_trained_predict.py::test_shades_of_grey_are_recognised"

KEPT = mutations_of(
    "networks/kept.py",
    ("while number // stride > most:", "while number // stride > 2 * most:", _SPACED),
    ("kept = pick % stride[-1] == 0", "kept = pick > 0", _SPACED),
    ("count = min(self.limit, len(weights))", "count = self.limit and len(weights)", _PART),
    ('"bytes": _pack(points())[:count],', '"bytes": _pack(points())[-count:],', _PART),
    (
        "start = stop",
        "start = stop - 1",
        "networks/test_kept.py::test_networks_come_back_bit_for_bit",
    ),
)

PREDICTIONS = [
    *mutations_of(
        "networks/predictor.py",
        (
            "if outputs is None or _is_close(outputs, probe):",
            "if True:",
            "networks/test_trained_predict.py::test_a_network_that_computes_something_else_is_told",
        ),
        ("for start in range(0, num_rows, size):", "for start in [0]:", _PIECES),
        ("min(_PIECE, 1 << (num_rows - 1).bit_length())", "num_rows", _PIECES),
        (
            "return self.likelihood.members(outputs)",
            "return outputs",
            "networks/test_trained_predict.py::test_members_average_to_the_prediction",
        ),
    ),
    *mutations_of(
        "networks/inputs.py",
        ("factor = _WHITE if high <= 1 else 1", "factor = 1", _GREY),
        ("jnp.floating) and array.dtype == np.uint8:", "jnp.floating) and False:", _FLOATS),
        ('and array.dtype.kind in "biuf":', "and True:", _FLOATS),
        (
            "if array.shape[1:] != row.shape:",
            "if array.ndim != len(row.shape) + 1:",
            "networks/test_trained_predict.py::test_inputs_that_do_not_fit_are_refused",
        ),
    ),
    *mutations_of(
        "networks/likelihoods/classes.py",
        (
            "right = jnp.argmax(outputs, axis=1) == targets",
            "right = jnp.argmin(outputs, axis=1) == targets",
            _EVALUATION,
        ),
    ),
]

_ENTROPIES = "networks/test_uncertainty.py::test_entropies_by_hand"
_AGREED = "networks/test_uncertainty.py::test_agreement_and_total_variation"
_OUTSIDE = "networks/test_uncertainty.py::test_images_that_networks_disagree_about_are_outside"

UNCERTAINTY = [
    *mutations_of(
        "networks/predict/uncertainty.py",
        (
            "aleatoric = np.tensordot(weights, entr(np.exp(members)).sum(axis=-1), 1)",
            "aleatoric = entr(np.exp(members)).sum(axis=-1).mean(axis=0)",
            _ENTROPIES,
        ),
        ("logsumexp(members, axis=0, b=weights[:, None, None])", "members[0]", _ENTROPIES),
        ("noise = np.tensordot(shares, sd**2, 1)", "noise = np.tensordot(shares, sd, 1)", _SPLIT),
        ("np.tensordot(shares, mean, 1)) ** 2, 1)", "mean.mean(axis=0)) ** 2, 1)", _SPLIT),
        (".sum(axis=-1) / 2))", ".sum(axis=-1)))", _AGREED),
        ("one.argmax(axis=-1) == other", "one.argmin(axis=-1) == other", _AGREED),
        (
            'if by == "mutual_information":',
            'if by == "entropy" and np.ndim(log_probs) == 3:',
            _OUTSIDE,
        ),
    ),
    *mutations_of(
        "networks/trained.py",
        (
            "if self.run_dir is None and isinstance(self._target, Supervised):",
            "if False:",
            "networks/test_trained_predict.py::test_a_saved_run_of_no_folder_knows_its_network",
        ),
    ),
    *mutations_of(
        "networks/predict/calibration.py",
        (
            "number * (1 - number / total)",
            "number",
            "networks/test_uncertainty.py::test_intervals_of_accuracy_are_wilsons",
        ),
    ),
]

_MIXTURE = "networks/test_regression.py::test_a_mixture_of_two_by_hand"
_SCIPY = "networks/test_regression.py::test_densities_are_those_of_scipy[student]"
_EXACT = "networks/test_regression.py::test_the_energy_is_that_of_the_exact_posterior"
_SEVERAL = "networks/test_regression.py::test_noise_of_the_network_and_several_targets"

REGRESSION = [
    *mutations_of(
        "networks/likelihoods/real.py",
        ("deviation**2 + self.variance(scale), 1),", "deviation**2, 1),", _MIXTURE),
        ("logsumexp(densities, axis=0, b=weights[:, None])", "logsumexp(densities, 0)", _MIXTURE),
        ("losses = self._log_volume + weight - np", "losses = weight - np", _MIXTURE),
        ("nll = self._log_volume - jnp.mean(sums.log", "nll = -jnp.mean(sums.log", _MIXTURE),
        ("jnp.logaddexp(one.log_density, other.log_density)", "one.log_density", _MIXTURE),
        ("return scale**2 * (self.degrees / (self.degrees - 2))", "return scale**2", _SCIPY),
        ("jnp.where(z > 0, 1 - tail, tail)", "jnp.where(z > 0, tail, 1 - tail)", _SCIPY),
        (
            "off_centre = 2 * np.abs",
            "off_centre = np.abs",
            "networks/test_regression.py::test_coverage_counts_targets_in_central_intervals",
        ),
        (
            "(mean - middle) ** 2 + self.variance(scale), 1)",
            "self.variance(scale), 1)",
            "networks/test_regression.py::test_predictions_are_those_of_the_exact_posterior",
        ),
    ),
    *mutations_of(
        "networks/regression.py",
        ("np.asarray(given, np.float64) / spread", "np.asarray(given, np.float64)", _EXACT),
        (
            "jnp.sum(law.log_density(predicted, targets), axis=-1)",
            "law.log_density(predicted, targets)",
            _SEVERAL,
        ),
        ("return mean, jnp.exp(values[:, self.num_targets :])", "return mean, mean", _SEVERAL),
    ),
]

MUTATIONS = [*KEPT, *PREDICTIONS, *UNCERTAINTY, *REGRESSION]
