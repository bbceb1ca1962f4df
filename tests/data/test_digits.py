"""The digits of scikit-learn: a fixed split, and pixels from 0 to 255."""

import sys

import numpy as np
import pytest

from replicax.data import load
from replicax.data.table import stratified


def test_the_split_is_fixed_and_complete() -> None:
    sklearn = pytest.importorskip("sklearn.datasets")
    counts, labels = sklearn.load_digits(return_X_y=True)
    digits = load("digits")
    assert digits.train_images.shape == (1297, 8, 8, 1) and len(digits.test_labels) == 500
    images = np.concatenate([digits.train_images, digits.test_images])
    assert images.max() == 255 and images.min() == 0
    # Every digit occurs once, with its label, in any order.
    pixels_and_labels = np.c_[
        np.round(images.reshape(-1, 64) * (16 / 255)), [*digits.train_labels, *digits.test_labels]
    ]
    expected = np.c_[counts, labels]
    np.testing.assert_array_equal(
        *(rows[np.lexsort(rows.T)] for rows in (pixels_and_labels, expected))
    )
    for again, once in zip(load("digits"), digits):
        np.testing.assert_array_equal(again, once)
    # Digits of one writer are adjacent in the file: a split by position would separate writers.
    assert digits.test_labels[:10].tolist() != labels[:10].tolist()


def test_mean_and_std_are_those_of_the_training_part() -> None:
    pytest.importorskip("sklearn")
    digits = load("digits")
    shades = digits.train_images.astype(np.float64) / 255
    assert digits.mean == pytest.approx((shades.sum() / shades.size,))
    assert digits.std == pytest.approx((np.sqrt((shades**2).mean() - shades.mean() ** 2),))


def test_both_parts_have_the_same_proportions() -> None:
    pytest.importorskip("sklearn")
    digits = load("digits")
    train, test = (np.bincount(x, minlength=10) for x in (digits.train_labels, digits.test_labels))
    np.testing.assert_array_less(np.abs(test - (train + test) * 500 / 1797), 1)


def test_stratified_quotas_add_up() -> None:
    labels = np.repeat([0, 1, 2], (50, 30, 19))
    for number in (1, 10, 33, 98):
        mask = stratified(labels, number)
        assert mask.sum() == number
        shares = np.array((50, 30, 19)) * number / 99
        np.testing.assert_array_less(np.abs(np.bincount(labels[mask], minlength=3) - shares), 1)
    assert not np.array_equal(stratified(labels, 33), stratified(labels, 33, seed=1))


def test_without_scikit_learn_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ValueError, match=r"pip install replicax\[data\]"):
        load("digits")
