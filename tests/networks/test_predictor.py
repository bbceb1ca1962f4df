"""Inputs that networks are given: what fits, what is converted, and what is refused; metrics on
their edges, beside SciPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest, mannwhitneyu

from replicax.networks import predict, predictor
from replicax.networks.pairs import check_like, check_pair
from replicax.networks.predictor import Predictor, as_inputs, as_pixels


def row(dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


# Pixels


@pytest.mark.parametrize(
    ("images", "wanted"),
    [
        (np.array([0, 255], np.int64), np.array([0, 255], np.uint8)),
        (np.array([0, 1], np.uint16), np.array([0, 1], np.uint8)),  # whole numbers stay
        (np.array([True, False]), np.array([255, 0], np.uint8)),
        (np.array([0.0, 1.0]), np.array([0, 255], np.float32)),  # up to 1: of 255
        (np.array([0.0, 0.5]), np.array([0, 127.5], np.float32)),
        (np.array([0.0, 1.5]), np.array([0, 1.5], np.float32)),
        (np.array([0.0, 255.0]), np.array([0, 255], np.float32)),
    ],
)
def test_pixels_are_from_0_to_255(images: np.ndarray, wanted: np.ndarray) -> None:
    found = as_pixels(images)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("images", [[-1, 0], [0, 256], [-0.1, 1.0], [0.0, 255.1], [0.0, np.nan]])
def test_what_are_no_pixels_is_refused(images: list) -> None:
    with pytest.raises(ValueError, match="The inputs are"):
        as_pixels(np.array(images))
    with pytest.raises(ValueError, match="complex"):
        as_pixels(np.array([0j, 1j]))


# Inputs


@pytest.mark.parametrize(
    ("given", "like", "taken"),
    [
        (np.zeros((1, 2), np.float64), np.float32, True),
        (np.zeros((1, 2), np.int32), np.float32, True),
        (np.zeros((1, 2), bool), np.float32, True),
        (np.zeros((1, 2), np.uint8), np.float32, False),  # bytes are images
        (np.zeros((1, 2), np.uint8), np.uint8, True),
        (np.zeros((1, 2), np.uint8), np.int32, True),
        (np.array([[-128, 127]]), np.int8, True),
        (np.array([[-129, 127]]), np.int8, False),
        (np.array([[-128, 128]]), np.int8, False),
        (np.array([[127, 127]]), np.int8, True),
        (np.zeros((1, 2), np.float32), np.int32, False),
        (np.zeros((1, 2), complex), np.float32, False),
        (jnp.zeros((1, 2), jnp.bfloat16), np.float32, True),
    ],
)
def test_inputs_get_the_dtype_of_the_training_where_nothing_is_lost(
    given: Any, like: Any, taken: bool
) -> None:
    if taken:
        found = as_inputs(given, row(like, 2))
        assert found.dtype == like and found.shape == (1, 2)
        np.testing.assert_array_equal(found, np.asarray(given, float))
        return
    with pytest.raises(ValueError, match="The inputs are"):
        as_inputs(given, row(like, 2))


def test_inputs_have_rows_of_one_shape_equally_many_and_finite() -> None:
    like = {"a": row(np.float32, 2), "b": row(np.float32)}
    inputs = {"a": np.ones((3, 2)), "b": np.ones(3)}
    assert as_inputs(inputs, like)["a"].dtype == np.float32
    assert len(as_inputs({"a": np.ones((1, 2)), "b": np.ones(1)}, like)["b"]) == 1
    assert as_inputs([[1.0, 2.0]], row(np.float32, 2)).shape == (1, 2)
    for wrong, said in (
        ({"a": np.ones((3, 2)), "b": np.ones(2)}, "equally many"),
        ({"a": np.ones((0, 2)), "b": np.ones(0)}, "at least one row"),
        ({"a": np.ones((3, 3)), "b": np.ones(3)}, "takes .row, 2."),
        ({"a": np.ones((3, 2))}, "a dict of 1 parts a, and the network takes a dict of 2 parts"),
        ({"a": np.full((3, 2), np.inf), "b": np.ones(3)}, "row 0 first"),
        ({"a": np.ones((3, 2)), "b": np.array([1, 1, np.nan])}, "row 2 first"),
        ({}, "give arrays with a row"),
        ({"a": np.ones((3, 2)), "b": np.float32(1)}, "The inputs have shape"),
    ):
        with pytest.raises(ValueError, match=said):
            as_inputs(wrong, like)
    with pytest.raises(ValueError, match=r"write inputs\[None\]"):
        as_inputs(np.ones(2), row(np.float32, 2))
    with pytest.raises(ValueError, match="at least one row"):
        as_inputs({"a": np.ones((3, 2)), "b": np.float32(1)})


def test_a_pair_has_equally_many_rows_of_both() -> None:
    inputs, labels = check_pair("train", [np.ones((1, 2)), [3]], "labels")
    assert inputs.shape == (1, 2) and labels.tolist() == [3]
    for wrong, said in (
        ((np.ones((2, 2)), np.ones(3)), "equally many rows"),
        ((np.ones((0, 2)), np.ones(0)), "at least one"),
        ((np.ones(2), np.float32(1)), "equally many rows"),
        ((np.ones(2),), "give a pair"),
        ((np.ones(2), np.ones(2), np.ones(2), np.ones(2)), "give a pair"),
        ((np.ones(2), np.ones(2), np.ones(3)), "give one number for each row"),
        ((np.ones(2), np.ones(2), np.array([1.0, -1.0])), "finite ones of at least 0"),
        ((np.ones(2), np.ones(2), np.zeros(2)), "not all 0"),
        ((np.ones(2), np.ones(2), np.array([1.0, np.nan])), "finite ones"),
        (np.ones((2, 2)), "give a pair"),
        (({}, np.ones(2)), "equally many rows"),
        ((np.ones(2), {"a": np.ones(2)}), "give one array"),
        ((np.array([1, np.nan]), np.ones(2)), "NaN or infinity"),
        ((np.ones(2), np.array([1, np.inf])), "NaN or infinity"),
        ((np.ones(2, np.uint8), np.ones(2)), "uint8"),
    ):
        with pytest.raises(ValueError, match=said):
            check_pair("train", wrong, "labels")
    assert check_pair("train", (np.ones(2), np.ones(2, np.uint8)), "labels")[1].dtype == np.uint8


def test_test_inputs_have_rows_like_those_of_the_training() -> None:
    check_like("test", np.ones((2, 3)), np.ones((7, 3)))
    check_like("test", {"a": np.ones((2, 3))}, {"a": np.ones((7, 3))})
    with pytest.raises(ValueError, match=r"\[\(3,\)\], the training inputs \[\(4,\)\]"):
        check_like("test", np.ones((2, 3)), np.ones((2, 4)))


# Predictions in pieces


class Sums:
    """A likelihood whose prediction is the weighted sum of the networks' outputs."""

    ways = ("", "other")

    def __init__(self) -> None:
        self.checked: list[Any] = []

    def check(self, shape: Any, rows: int) -> None:
        self.checked.append((shape, rows))

    def combine(self, outputs: Any, weights: Any, by: str, interval: None) -> Any:
        return jnp.tensordot(weights, outputs, 1) * (2 if by else 1)

    def members(self, outputs: Any) -> Any:
        return outputs

    def finished(self, joined: Any) -> Any:
        return joined

    def to_json(self) -> dict:
        return {"kind": "sums"}


def linear(params: Any, state: Any, inputs: Any) -> Any:
    return inputs @ params + state


@pytest.mark.parametrize("num_rows", [1, 2, 5, 513])
@pytest.mark.parametrize("num_networks", [1, 11])
def test_pieces_of_rows_and_networks_are_joined_in_order(num_rows: int, num_networks: int) -> None:
    rng = np.random.default_rng(0)
    params, inputs = rng.normal(size=(num_networks, 2)), rng.normal(size=(num_rows, 2))
    state, weights = np.arange(num_networks) * 10.0, rng.uniform(size=num_networks)
    known: Any = Sums()
    made = Predictor(linear, known, row(np.float32, 2))
    points = (params.astype(np.float32), state.astype(np.float32))
    each = (inputs @ params.T + state).T
    one = made.predict(points, weights, inputs)
    np.testing.assert_allclose(one, weights @ each, rtol=1e-4)
    np.testing.assert_allclose(made.predict(points, weights, inputs, by="other"), 2 * one)
    members = made.predict(points, weights, inputs, members=True)
    np.testing.assert_allclose(members, each, rtol=1e-4)
    assert known.checked[-1] == ((2,), 2)


def test_a_network_is_known_again_by_its_outputs() -> None:
    like: Any = (row(np.float32, 2), row(np.float32))
    about: dict[str, Any] = {}
    made = Predictor(linear, Sums(), row(np.float32, 2), about)  # type: ignore[arg-type]
    probe = made.describe(like).probe  # type: ignore[union-attr]
    numbers = 0.5 * np.cos(1.7 * np.arange(4) + 0.3)
    wanted = numbers.reshape(2, 2) @ numbers[:2] + 1 + numbers[0]
    np.testing.assert_allclose(probe, wanted, rtol=1e-5)
    made.warn_unless(probe, like)
    made.warn_unless(None, like)
    with pytest.warns(UserWarning, match="The network differs from the one that was trained"):
        made.warn_unless(tuple(2 * wanted), like)
    assert Predictor(linear, Sums()).describe(like) is None  # type: ignore[arg-type]
    unknown = Predictor(linear, Sums(), None, about).describe(like)  # type: ignore[arg-type]
    assert unknown is not None and unknown.probe is None


def test_numbers_that_are_made_up_are_the_same_everywhere() -> None:
    np.testing.assert_allclose(
        predictor._made_up((3,), np.float32), 0.5 * np.cos([0.3, 2.0, 3.7]), rtol=1e-6
    )
    assert predictor._made_up((2, 2), np.uint8).tolist() == [[0, 37], [74, 111]]
    assert predictor._made_up((4,), np.int32).tolist() == [0, 1, 0, 1]
    long = tuple(np.ones(3))
    assert predictor._is_close(long, long) and not predictor._is_close(long, long[:2])
    assert predictor._is_close((1.0, 0.0), (1.0, 0.03)) and predictor._is_close((), ())
    assert not predictor._is_close((1.0, 0.0), (1.0, 0.031))


# Metrics


@pytest.mark.parametrize(("number", "total"), [(0, 7), (3, 7), (7, 7), (1, 1), (50, 10_000)])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_intervals_of_a_proportion_are_those_of_wilson(number, total, level) -> None:
    found = predict.proportion_interval(number, total, level)
    wanted = binomtest(number, total).proportion_ci(level, method="wilson")
    np.testing.assert_allclose(found, [wanted.low, wanted.high], atol=1e-12)
    if level == 0.95:
        np.testing.assert_array_equal(predict.proportion_interval(number, total), found)
    assert np.isnan(predict.proportion_interval([0, 1], [0, 2])).tolist() == [
        [True] * 2,
        [False] * 2,
    ]


def test_the_auroc_is_that_of_mann_and_whitney_also_with_ties() -> None:
    rng = np.random.default_rng(0)
    inside, outside = rng.integers(0, 9, 40), rng.integers(2, 12, 25)
    wanted = mannwhitneyu(outside, inside).statistic / (40 * 25)
    assert predict.auroc(inside, outside) == pytest.approx(wanted)
    assert predict.auroc([1.0], [2.0]) == 1 and predict.auroc([1.0], [1.0]) == 0.5
    for wrong in (([1.0, np.nan], [1.0]), ([1.0], [np.nan]), ([], [1.0]), ([1.0], [])):
        with pytest.raises(ValueError):
            predict.auroc(*wrong)


def test_probabilities_may_miss_1_by_two_percent_and_labels_are_classes() -> None:
    """Sums of probabilities of exp(0.019) and exp(0.021)."""
    even = np.log([[0.5, 0.5]])
    for sign in (1, -1):
        predict.check_log_probs(even + sign * 0.019)
        with pytest.raises(ValueError, match="do not sum to 1"):
            predict.check_log_probs(even + sign * 0.021)
    for labels, fine in (([0], True), ([1], True), ([-1], False), ([2], False), ([0.0], False)):
        if fine:
            assert predict.accuracy(even, labels) == (labels == [0])
            continue
        with pytest.raises(ValueError, match="The labels"):
            predict.check(even, labels)
    with pytest.raises(ValueError, match="do not sum to 1"):
        predict.check_log_probs(np.concatenate([even, even + 1]))


def test_weights_are_shares_and_one_of_them_may_be_all() -> None:
    members = np.log([[[0.9, 0.1]], [[0.2, 0.8]]])
    only = predict.uncertainty(members, [0.0, 3.0])
    np.testing.assert_allclose(only.total, predict.entropy(members[1]))
    np.testing.assert_allclose(only.epistemic, 0, atol=1e-12)
    even = predict.uncertainty(members)
    np.testing.assert_allclose(even.total, predict.entropy(np.log([[0.55, 0.45]])))
    for wrong in ([0.0, 0.0], [1.0, -1.0], [1.0], [1.0, np.inf], [1.0, np.nan], "ab", [2.0, -1.0]):
        with pytest.raises(ValueError, match="The weights are"):
            predict.uncertainty(members, wrong)


def test_the_entropy_of_members_is_that_of_their_average() -> None:
    members = np.log([[[0.9, 0.1], [0.5, 0.5]], [[0.2, 0.8], [0.5, 0.5]]])
    mixed = predict.uncertainty(members).total
    average = predict.log_probabilities(predict.average(members))
    np.testing.assert_allclose(mixed, predict.entropy(average), rtol=1e-6)


@pytest.mark.parametrize(("sign", "place"), [(1, 0), (1, 1), (-1, 0), (-1, 1)])
def test_one_row_that_is_farther_out_than_the_training_was_wide_is_told(sign, place) -> None:
    """Of two columns that vary, from -1 to 3 and from 10 to 12, beside one that does not."""
    low, high = np.array([-1.0, 10.0, 5.0]), np.array([3.0, 12.0, 5.0])
    seen = {"low": low, "high": high, "mean": (low + high) / 2, "sd": np.array([1.0, 0.5, 0.0])}
    rows = np.tile((low + high) / 2, (5, 1))
    edge = (high if sign > 0 else low)[place] + sign * (high - low)[place]
    for beyond, told in ((-0.01, False), (0.01, True)):
        rows[2, place] = edge + sign * beyond
        found = predictor._difference(rows, seen)
        assert (found is not None) == told and (not told or f"column {place}" in str(found))


def test_ranges_are_those_of_all_columns() -> None:
    rng = np.random.default_rng(0)
    low, high = np.array([-1.0, 10.0]), np.array([3.0, 12.0])
    seen = {"low": low, "high": high, "mean": (low + high) / 2, "sd": np.array([1.0, 0.5])}
    narrow = (low + high) / 2 + 0.01 * rng.standard_normal((2000, 2))
    found = str(predictor._difference(narrow, seen))
    assert "vary less than a fifth" in found and "from -1 to 12" in found
