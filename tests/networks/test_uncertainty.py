"""Uncertainty of predictions, and how far two predictions agree."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from replicax.networks import predict


def log_probs(*shape: int, seed: int = 0) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(0, 2, shape)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_entropies_by_hand() -> None:
    """The mutual information is the mean divergence of the networks from their average."""
    members, weights = log_probs(4, 6, 3), np.array([1.0, 2.0, 0.0, 5.0])
    total, aleatoric, epistemic = predict.uncertainty(members, weights)
    share = weights / 8
    mean = np.einsum("n,nic->ic", share, np.exp(members))
    assert_allclose(total, -(mean * np.log(mean)).sum(axis=-1))
    assert_allclose(aleatoric, -np.einsum("n,nic,nic->i", share, np.exp(members), members))
    divergence = np.einsum("n,nic,nic->i", share, np.exp(members), members - np.log(mean))
    assert_allclose(epistemic, divergence, atol=1e-12)
    assert_allclose(predict.uncertainty(members[[0, 1, 3]], weights[[0, 1, 3]]).total, total)
    equal = predict.uncertainty(members)
    assert_allclose(equal.total, predict.uncertainty(members, np.full(4, 3.0)).total)


def test_networks_that_agree_leave_no_epistemic_part() -> None:
    same = np.repeat(log_probs(1, 5, 3), 4, axis=0)
    assert np.all(predict.uncertainty(same).epistemic < 1e-12)
    many = np.repeat(log_probs(1, 400, 5), 7, axis=0)  # rounding leaves some of them below 0
    assert np.all(predict.uncertainty(many).epistemic >= 0)


def test_agreement_and_total_variation() -> None:
    one = np.log([[0.7, 0.3], [0.4, 0.6], [0.9, 0.1]])
    other = np.log([[0.6, 0.4], [0.7, 0.3], [0.9, 0.1]])
    assert predict.agreement(one, other) == pytest.approx(2 / 3)
    assert predict.total_variation(one, other) == pytest.approx((0.1 + 0.3 + 0) / 3)
    assert predict.agreement(one, one) == 1 and predict.total_variation(one, one) == 0
    certain = np.log(np.array([[1.0, 1e-30]] * 2))
    assert predict.total_variation(certain, certain[:, ::-1]) == pytest.approx(1)


def test_images_that_networks_disagree_about_are_outside() -> None:
    """Both sets have the same total entropy; only the disagreement tells them apart."""
    unsure = np.full((2, 50, 2), np.log(0.5))
    sure = np.log(np.array([1 - 1e-12, 1e-12]))
    disagreeing = np.stack([np.tile(sure, (50, 1)), np.tile(sure[::-1], (50, 1))])
    inside, outside = map(predict.uncertainty, (unsure, disagreeing))
    assert predict.auroc(inside.epistemic, outside.epistemic) == 1
    assert predict.auroc(outside.epistemic, inside.epistemic) == 0
    assert_allclose(inside.total, outside.total, atol=1e-6)


def test_intervals_of_accuracy_are_wilsons() -> None:
    """40 of 50 right: Wilson's interval by its formula."""
    predicted = np.log(np.tile([0.75, 0.25], (50, 1)))
    bins = predict.reliability(predicted, [0] * 40 + [1] * 10, num_bins=4)
    z, p, n = 1.959964, 0.8, 50
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    found = predict.accuracy_interval(bins)
    assert_allclose(found[2], [middle - half, middle + half], rtol=1e-5)
    assert np.isnan(found[[0, 1, 3]]).all()
    narrow = predict.accuracy_interval(bins, level=0.5)
    assert found[2, 0] < narrow[2, 0] < narrow[2, 1] < found[2, 1]


WRONG = {
    "members": (lambda: predict.uncertainty(log_probs(4, 3)), "of every network"),
    "ragged": (lambda: predict.uncertainty([[[0.0]], [[0.0], [0.0]]]), "unequal lengths"),
    "weights": (lambda: predict.uncertainty(log_probs(4, 3, 2), [1.0]), "weights are .* for 4"),
    "weights of text": (lambda: predict.uncertainty(log_probs(1, 3, 2), ["a"]), "weights are"),
    "infinite weight": (lambda: predict.uncertainty(log_probs(1, 3, 2), [np.inf]), "weights are"),
    "no weight": (lambda: predict.uncertainty(log_probs(2, 3, 2), [0.0, 0.0]), "not all 0"),
    "logits": (lambda: predict.uncertainty(np.ones((2, 3, 2))), "not log-probabilities"),
    "shapes": (lambda: predict.agreement(log_probs(3, 2), log_probs(4, 2)), "same images"),
    "level": (
        lambda: predict.accuracy_interval(predict.reliability(log_probs(3, 2), [0, 1, 1]), 95),
        "level is 95",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_gets_a_sentence(case: str) -> None:
    call, sentence = WRONG[case]
    with pytest.raises(ValueError, match=sentence):
        call()
