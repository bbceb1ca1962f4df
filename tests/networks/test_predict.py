"""Model averages and their metrics: scikit-learn, sums by hand, and rules broken on purpose."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from replicax.networks import predict
from replicax.torch.average import Averaged

NUM_NETWORKS, NUM_IMAGES, NUM_CLASSES = 7, 40, 5


def make_logits(seed: int = 0) -> np.ndarray:
    shape = (NUM_NETWORKS, NUM_IMAGES, NUM_CLASSES)
    return 3 * np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def make_case(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Normalised log-probabilities (image, class) and labels (image,)."""
    logits = make_logits(seed)[0].astype(np.float64)
    labels = np.random.default_rng(seed + 1).integers(NUM_CLASSES, size=NUM_IMAGES)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), labels


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64))
    return weights / weights.sum(-1, keepdims=True)


def by_hand(logits: np.ndarray, weights: np.ndarray, by: str) -> np.ndarray:
    """The average in one line each, as a sum over networks."""
    weights = weights / weights.sum()
    if by == "probabilities":
        return np.log(np.einsum("n,nic->ic", weights, softmax(logits)))
    return np.log(softmax(np.einsum("n,nic->ic", weights, logits)))


@pytest.mark.parametrize("by", ("probabilities", "logits"))
@pytest.mark.parametrize("order", (1, -1))
def test_running_sums_are_the_average_in_any_order(by, order: int) -> None:
    logits, weights = make_logits(), np.array([1.0, 0.5, 2.0, 0.0, 1.0, 3.0, 0.1])
    total = predict.Average.empty(NUM_IMAGES, NUM_CLASSES)
    for one, weight in zip(logits[::order], weights[::order]):
        total = jax.jit(predict.add)(total, one, weight)
    halves = [predict.average(logits[part], weights[part]) for part in (slice(3), slice(3, None))]
    expected = by_hand(logits, weights, by)
    for average in (total, predict.merge(*halves[::order]), predict.average(logits, weights)):
        np.testing.assert_allclose(predict.log_probabilities(average, by), expected, atol=2e-5)
    other = by_hand(logits, weights, "logits" if by == "probabilities" else "probabilities")
    assert np.abs(other - expected).max() > 0.1  # the two rules cannot be mistaken for each other


def test_weights_are_one_unless_given() -> None:
    logits = make_logits()
    log_probs = predict.log_probabilities(predict.average(logits))
    np.testing.assert_allclose(
        log_probs, by_hand(logits, np.ones(NUM_NETWORKS), "probabilities"), atol=2e-5
    )
    assert float(predict.average(logits).weight) == NUM_NETWORKS


def test_mean_probabilities_are_not_mean_logits() -> None:
    # Odds 3 : 1 and 1 : 1: the mean probability is (3/4 + 1/2) / 2, the geometric odds sqrt(3) : 1.
    total = predict.average(np.log([[[3.0, 1.0]], [[1.0, 1.0]]]))
    probs = np.exp(predict.log_probabilities(total, by="probabilities"))
    np.testing.assert_allclose(probs, [[0.625, 0.375]], rtol=1e-6)
    probs = np.exp(predict.log_probabilities(total, by="logits"))
    np.testing.assert_allclose(probs, [[3**0.5 / (1 + 3**0.5), 1 / (1 + 3**0.5)]], rtol=1e-6)


def test_averages_of_several_chains_at_once() -> None:
    logits = jnp.stack([make_logits(0), make_logits(1)])  # (chain, network, image, class)
    total = jax.jit(jax.vmap(predict.average))(logits)
    log_probs = predict.log_probabilities(total)
    for chain in range(2):
        expected = predict.log_probabilities(predict.average(logits[chain]))
        np.testing.assert_allclose(log_probs[chain], expected, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(predict.log_probabilities)(total), log_probs, rtol=1e-6)


def test_low_precision_logits_are_summed_in_float32() -> None:
    logits = jnp.asarray(make_logits(), jnp.bfloat16)
    total = predict.average(logits)
    assert {leaf.dtype for leaf in total} == {jnp.dtype("float32")}
    expected = by_hand(np.asarray(logits, np.float32), np.ones(NUM_NETWORKS), "probabilities")
    np.testing.assert_allclose(predict.log_probabilities(total), expected, atol=2e-5)


def test_sure_of_the_wrong_class_is_bad_but_finite() -> None:
    log_probs = predict.log_probabilities(predict.average([[[1000.0, 0.0]]]))
    assert 80 < predict.nll(log_probs, [1]) < 100
    assert predict.nll(log_probs, [0]) == 0


def test_metrics_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    log_probs, labels = make_case()
    probs, classes = np.exp(log_probs), np.arange(NUM_CLASSES)
    scores = predict.evaluate(log_probs, labels)
    assert scores.nll == pytest.approx(metrics.log_loss(labels, probs, labels=classes))
    assert scores.nll_sum == pytest.approx(scores.nll * NUM_IMAGES)
    assert scores.accuracy == metrics.accuracy_score(labels, probs.argmax(-1))
    binary = np.stack([probs[:, 0], 1 - probs[:, 0]], axis=-1)
    halves = [metrics.brier_score_loss(labels == c, probs[:, c]) for c in classes]
    assert scores.brier == pytest.approx(sum(halves))
    two = predict.brier(np.log(binary), (labels != 0).astype(int))
    assert two == pytest.approx(2 * metrics.brier_score_loss(labels == 0, probs[:, 0]))


def test_metrics_by_hand() -> None:
    log_probs = np.log([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    scores = predict.evaluate(log_probs, [1, 1, 2])
    assert scores.nll_sum == pytest.approx(-np.log(0.25 * 0.8 * 0.6))
    assert scores.nll == pytest.approx(scores.nll_sum / 3)
    assert scores.accuracy == pytest.approx(2 / 3)
    squares = (0.25 + 0.5625 + 0.0625) + (0.01 + 0.04 + 0.01) + (0.04 + 0.04 + 0.16)
    assert scores.brier == pytest.approx(squares / 3)
    # Each alone in its bin of width 1/15.
    assert scores.calibration_error == pytest.approx((0.5 + 0.2 + 0.4) / 3)
    assert scores.entropy == pytest.approx(predict.entropy(log_probs).mean())
    np.testing.assert_allclose(predict.entropy(log_probs)[0], 1.5 * np.log(2))


def test_certainty_has_no_entropy_and_perfect_scores() -> None:
    with np.errstate(divide="ignore"):
        log_probs = np.log(np.eye(3))
    assert predict.evaluate(log_probs, [0, 1, 2]) == (0, 0, 1, 0, 0, 0)
    assert predict.nll(log_probs, [0, 1, 1]) == np.inf
    assert predict.brier(log_probs, [1, 2, 0]) == 2


def test_there_are_fifteen_bins_unless_others_are_asked_for() -> None:
    log_probs, labels = np.log([[0.6, 0.4], [0.7, 0.3]]), [0, 1]
    assert len(predict.reliability(log_probs, labels).count) == 15
    of_15 = predict.calibration_error(log_probs, labels, num_bins=15)
    assert predict.calibration_error(log_probs, labels) == of_15 == pytest.approx(0.55)


def test_calibration_in_three_bins_by_hand() -> None:
    confidence = np.array([0.5, 0.6, 0.9, 0.8, 1.0])  # none in (0, 1/3]
    labels = np.array([0, 1, 0, 1, 0])
    with np.errstate(divide="ignore"):
        log_probs = np.log(np.stack([confidence, 1 - confidence], axis=-1))
    bins = predict.reliability(log_probs, labels, num_bins=3)
    np.testing.assert_allclose(bins.edges, [0, 1 / 3, 2 / 3, 1])
    assert bins.count.tolist() == [0, 2, 3]
    np.testing.assert_allclose(bins.confidence, [np.nan, 0.55, 0.9])
    np.testing.assert_allclose(bins.accuracy, [np.nan, 0.5, 2 / 3])
    error = predict.calibration_error(log_probs, labels, num_bins=3)
    assert error == pytest.approx((2 * 0.05 + 3 * (0.9 - 2 / 3)) / 5)


@pytest.mark.parametrize(("top", "expected"), [(0.5, 1), (0.51, 2), (0.75, 2), (0.76, 3), (1.0, 3)])
def test_an_edge_belongs_to_the_bin_below(top: float, expected: int) -> None:
    with np.errstate(divide="ignore"):
        log_probs = np.log([[1 - top, top]])
    assert predict.reliability(log_probs, [0], num_bins=4).count.argmax() == expected


def test_rounding_above_one_stays_in_the_last_bin() -> None:
    bins = predict.reliability([[1e-6, -15.0]], [0], num_bins=4)
    assert bins.count.tolist() == [0, 0, 0, 1]


def test_bins_do_not_lose_images() -> None:
    log_probs, labels = make_case(3)
    top, right = np.exp(log_probs.max(-1)), log_probs.argmax(-1) == labels
    for num_bins in (1, 2, 10, 15):
        bins = predict.reliability(log_probs, labels, num_bins)
        for place, (low, high) in enumerate(zip(bins.edges[:-1], bins.edges[1:])):
            inside = (top > low) & (top <= high)
            assert bins.count[place] == inside.sum()
            if inside.any():
                assert bins.accuracy[place] == pytest.approx(right[inside].mean())
                assert bins.confidence[place] == pytest.approx(top[inside].mean())
    one = predict.calibration_error(log_probs, labels, num_bins=1)
    assert one == pytest.approx(abs(top.mean() - right.mean()))


def test_auroc_counts_pairs() -> None:
    assert predict.auroc([0, 1], [2, 3]) == 1
    assert predict.auroc([2, 3], [0, 1]) == 0
    assert predict.auroc([1, 1], [1]) == 0.5
    assert predict.auroc([0.0, 1.0, 2.0], [1.0, 5.0]) == (1.5 + 3) / 6
    assert predict.auroc([0, 1], [np.inf]) == 1


def test_auroc_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    inside, outside = rng.integers(20, size=300), rng.integers(5, 25, size=120)  # many ties
    truth = np.repeat([0, 1], [300, 120])
    expected = metrics.roc_auc_score(truth, np.concatenate([inside, outside]))
    assert predict.auroc(inside, outside) == pytest.approx(expected)


def test_foreign_images_are_known_by_their_entropy() -> None:
    sure, unsure = (np.log(softmax(scale * make_logits()[0])) for scale in (4.0, 0.1))
    sure, unsure = predict.entropy(sure), predict.entropy(unsure)
    assert predict.auroc(sure, unsure) > 0.9
    assert predict.auroc(unsure, sure) < 0.1
    assert predict.auroc(sure, sure) == pytest.approx(0.5)


def test_bad_averages_get_a_sentence() -> None:
    empty, logits = predict.Average.empty(2, 3), np.zeros((4, 2, 3))
    with pytest.raises(ValueError, match="no weight: add at least one network"):
        predict.log_probabilities(empty)
    with pytest.raises(ValueError, match="no weight"):
        predict.log_probabilities(predict.average(logits, np.zeros(4)))
    with pytest.raises(ValueError, match="Did you mean 'logits'"):
        predict.log_probabilities(predict.average(logits), by="logit")  # pyright: ignore
    with pytest.raises(ValueError, match="same images"):
        predict.add(empty, np.zeros((3, 3)))
    with pytest.raises(ValueError, match="can be merged"):
        predict.merge(empty, predict.Average.empty(2, 4))
    with pytest.raises(ValueError, match=r"takes \(network, image, class\)"):
        predict.average(logits[0])
    with pytest.raises(ValueError, match="one weight per network"):
        predict.average(logits, [1.0, 2.0])
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="negative or not finite"):
            predict.average(logits, [1.0, bad, 1.0, 1.0])


@pytest.mark.parametrize(
    "measure", (predict.evaluate, predict.nll, predict.accuracy, predict.brier,
                predict.reliability, predict.calibration_error),
)  # fmt: skip
def test_bad_predictions_get_a_sentence(measure) -> None:
    log_probs, labels = make_case()
    with pytest.raises(ValueError, match="log_softmax"):
        measure(make_logits()[0], labels)
    with pytest.raises(ValueError, match="for probabilities, their logarithm"):
        measure(np.exp(log_probs), labels)
    with pytest.raises(ValueError, match="1 of 40 images are NaN, image 2 first"):
        measure(np.where(np.arange(NUM_IMAGES)[:, None] == 2, np.nan, log_probs), labels)
    with pytest.raises(ValueError, match=r"give \(image, class\)"):
        measure(log_probs[0], labels)
    with pytest.raises(ValueError, match="at least one image"):
        measure(log_probs[:0], labels[:0])
    with pytest.raises(ValueError, match="labels.argmax"):
        measure(log_probs, np.eye(NUM_CLASSES)[labels])
    with pytest.raises(ValueError, match="one integer per image"):
        measure(log_probs, labels[1:])
    with pytest.raises(ValueError, match="between 1 and 5; with 5 classes"):
        measure(log_probs, np.sort(labels) + 1)
    with pytest.raises(ValueError, match="between -1"):
        measure(log_probs, labels - 1)
    with pytest.raises(ValueError, match="give integers"):
        measure(log_probs, labels.astype(float))


def test_other_bad_input_gets_a_sentence() -> None:
    log_probs, labels = make_case()
    with pytest.raises(ValueError, match="num_bins is 0"):
        predict.reliability(log_probs, labels, num_bins=0)
    with pytest.raises(ValueError, match="Did you mean 'mean'"):
        predict.nll(log_probs, labels, reduce="means")  # pyright: ignore
    with pytest.raises(ValueError, match="log_softmax"):
        predict.entropy(make_logits()[0])
    with pytest.raises(ValueError, match="cannot be ranked"):
        predict.auroc([np.nan], [1.0])
    with pytest.raises(ValueError, match="at least one score each"):
        predict.auroc([], [1.0])


@pytest.mark.parametrize("outputs, labels", [(1, [0, 1, 0]), (2, [0.5, 1.0, 0.0])])
def test_regressions_of_pytorch_have_no_probabilities(outputs: int, labels: list) -> None:
    total = predict.add(predict.Average.empty(3, outputs), np.zeros((3, outputs)), 1.0)
    with pytest.raises(ValueError, match="regressions have no probabilities"):
        Averaged(total, np.array(labels)).log_probabilities()
    classes = predict.add(predict.Average.empty(3, 2), np.zeros((3, 2)), 1.0)
    shown = Averaged(classes, np.array([0.0, 1.0, 0.0])).log_probabilities()
    np.testing.assert_allclose(shown, np.log(0.5), atol=1e-6)
