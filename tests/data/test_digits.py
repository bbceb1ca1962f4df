"""The digits of scikit-learn: a split that stays, and pixels from 0 to 255."""

import sys

import numpy as np
import pytest

from replicax.data import load
from replicax.data.digits import stratified


def test_digits_are_split_once_and_for_all() -> None:
    sklearn = pytest.importorskip("sklearn.datasets")
    counts, labels = sklearn.load_digits(return_X_y=True)
    digits = load("digits")
    assert digits.train_images.shape == (1297, 8, 8, 1) and len(digits.test_labels) == 500
    images = np.concatenate([digits.train_images, digits.test_images])
    assert images.max() == 255 and images.min() == 0
    # Every digit is there once, with its label: pixels and label side by side, in any order.
    found = np.c_[
        np.round(images.reshape(-1, 64) * (16 / 255)), [*digits.train_labels, *digits.test_labels]
    ]
    wanted = np.c_[counts, labels]
    np.testing.assert_array_equal(*(rows[np.lexsort(rows.T)] for rows in (found, wanted)))
    for again, once in zip(load("digits"), digits):
        np.testing.assert_array_equal(again, once)
    # Digits of one writer stand together in the file: a split by place would separate writers.
    assert digits.test_labels[:10].tolist() != labels[:10].tolist()


def test_digits_have_the_moments_of_their_training_part() -> None:
    pytest.importorskip("sklearn")
    digits = load("digits")
    shades = digits.train_images.astype(np.float64) / 255
    assert digits.mean == pytest.approx((shades.sum() / shades.size,))
    assert digits.std == pytest.approx((np.sqrt((shades**2).mean() - shades.mean() ** 2),))


def test_digits_are_in_proportion() -> None:
    pytest.importorskip("sklearn")
    digits = load("digits")
    train, test = (np.bincount(x, minlength=10) for x in (digits.train_labels, digits.test_labels))
    np.testing.assert_array_less(np.abs(test - (train + test) * 500 / 1797), 1)


def test_shares_add_up() -> None:
    labels = np.repeat([0, 1, 2], (50, 30, 19))
    for number in (1, 10, 33, 98):
        mask = stratified(labels, number)
        assert mask.sum() == number
        shares = np.array((50, 30, 19)) * number / 99
        np.testing.assert_array_less(np.abs(np.bincount(labels[mask], minlength=3) - shares), 1)
    assert not np.array_equal(stratified(labels, 33), stratified(labels, 33, seed=1))


def test_without_scikit_learn_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ValueError, match=r"pip install replicax\[data\]"):
        load("digits")
