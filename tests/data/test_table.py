"""Arrays of one's own, from a file or by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replicax.data import Dataset
from replicax.data.table import as_table, read_table

X = np.arange(24.0).reshape(8, 3)
LABELS, TARGETS = np.array([0, 1, 2, 0, 1, 2, 0, 1]), np.linspace(-1, 1, 8)
IMAGES = np.arange(8 * 4, dtype=np.uint8).reshape(8, 2, 2, 1)


def test_names_say_what_is_learnt(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=X, targets=TARGETS, test_inputs=X[:2], test_targets=[1, 2])
    table = read_table(tmp_path / "a.npz")
    assert not table.has_classes and table.num_outcomes == 1 and table.name == "a.npz"
    assert table.test is not None and table.test[1].tolist() == [1, 2]
    np.testing.assert_array_equal(table.train[0], X)
    assert as_table("b", {"inputs": X, "targets": X}).num_outcomes == 3
    classes = as_table("b", {"inputs": X, "labels": LABELS})
    assert classes.has_classes and classes.num_outcomes == 3 and classes.test is None
    assert as_table("b", {"inputs": X, "labels": np.eye(4)[LABELS]}).num_outcomes == 4
    held = as_table("b", {"inputs": X, "labels": LABELS, "weights": TARGETS}).validation_split(3)
    assert [len(part[2]) for part in (held.train, held.test)] == [len(X) - 3, 3]  # type: ignore


def test_rows_are_held_out() -> None:
    split = as_table("b", {"inputs": X, "targets": TARGETS}).validation_split(3)
    assert split.test is not None
    both = np.concatenate([split.train[0], split.test[0]])
    assert len(split.test[1]) == 3 and sorted(both[:, 0]) == X[:, 0].tolist()
    for inputs, targets in (split.train, split.test):
        np.testing.assert_array_equal(targets, TARGETS[(inputs[:, 0] / 3).astype(int)])
    with pytest.raises(ValueError, match="b has 8 training rows; num_rows of the validation is 8"):
        as_table("b", {"inputs": X, "targets": TARGETS}).validation_split(8)


def test_images_of_bytes_become_a_data_set() -> None:
    table = as_table("b", {"inputs": IMAGES, "labels": LABELS.astype(np.int64)})
    assert table.has_images and not as_table("b", {"inputs": X, "labels": LABELS}).has_images
    with pytest.raises(ValueError, match="no test: add test_inputs and test_labels, or hold out"):
        table.dataset()
    dataset = table.validation_split(2).dataset()
    assert isinstance(dataset, Dataset) and dataset.num_classes == 3
    weighted = as_table("b", {"inputs": IMAGES, "labels": LABELS, "weights": LABELS + 1})
    with pytest.raises(ValueError, match="images of bytes and weights: give the images as float"):
        weighted.validation_split(2).dataset()
    shades = dataset.train_images / 255
    assert dataset.mean == pytest.approx((shades.mean(),))
    assert dataset.std == pytest.approx((shades.std(),))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "holds nothing; it needs inputs"),
    "no outcomes": ({"inputs": X}, "either labels"),
    "both": ({"inputs": X, "labels": LABELS, "targets": TARGETS}, "either labels"),
    "too few weights": ({"inputs": X, "labels": LABELS, "weights": [1.0]}, "weights an array of"),
    "misspelt": ({"input": X, "labels": LABELS}, "Did you mean 'inputs'"),
    "half a test": ({"inputs": X, "labels": LABELS, "test_inputs": X}, "has no test_labels"),
    "a test of others": (
        {"inputs": X, "labels": LABELS, "test_inputs": X, "test_targets": X},
        "has no test_labels",
    ),
    "unequal": ({"inputs": X[:3], "labels": LABELS}, "equally many rows"),
    "empty": ({"inputs": X[:0], "labels": LABELS[:0]}, "at least one"),
    "one number": ({"inputs": 1.0, "labels": 2}, "equally many rows"),
    "labels from 1": ({"inputs": X, "labels": LABELS + 1}, "labels go from 1 to 3, and none is 0"),
    "labels without a number": ({"inputs": X, "labels": LABELS * np.nan}, "give whole numbers"),
    "labels between": ({"inputs": X, "labels": LABELS + 0.5}, "give whole numbers"),
    "words": ({"inputs": X, "labels": np.array(list("abcabcab"))}, "give whole numbers"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_table_is_refused(case: str) -> None:
    arrays, sentence = WRONG[case]
    with pytest.raises(ValueError, match=sentence):
        as_table("b", arrays)


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no arrays")
    np.save(tmp_path / "one.npy", X)
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    np.savez(tmp_path / "objects.npz", inputs=np.array([{}]), labels=LABELS)
    for name in ("text.npz", "one.npz", "objects.npz"):
        with pytest.raises(ValueError, match="is not a .npz file of numbers"):
            read_table(tmp_path / name)
    with pytest.raises(ValueError, match="There is no file .*Did you mean 'text.npz'"):
        read_table(tmp_path / "test.npz")
