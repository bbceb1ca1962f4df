"""Checks of data sets, and their validation parts."""

import numpy as np
import pytest

from replicax.data import Dataset


def small(**changed) -> Dataset:
    """Twenty and ten images, each filled with its own number."""
    numbers = np.arange(30, dtype=np.uint8)
    images = np.broadcast_to(numbers[:, None, None, None], (30, 4, 5, 2)).copy()
    labels = (numbers % 3).astype(np.int32)
    good = Dataset(
        name="small",
        train_images=images[:20],
        train_labels=labels[:20],
        test_images=images[20:],
        test_labels=labels[20:],
        num_classes=3,
        mean=(0.04, 0.04),
        std=(0.02, 0.02),
    )
    return good._replace(**changed)


def test_a_valid_data_set_passes() -> None:
    dataset = small()
    assert dataset.check() is dataset


good = small()
CONVERTED = {
    "wide labels": {"train_labels": good.train_labels.astype(np.int64)},
    "one-hot": {"train_labels": np.eye(3)[good.train_labels]},
    "one-hot of bools": {"test_labels": np.eye(3, dtype=bool)[good.test_labels]},
}


@pytest.mark.parametrize("case", CONVERTED)
def test_labels_of_other_kinds_are_converted(case: str) -> None:
    checked = small(**CONVERTED[case]).check()
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        one, other = getattr(checked, name), getattr(good, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


WRONG = {
    "floats": ({"train_images": good.train_images / 255}, "train_images is .* float64.*np.round"),
    "wide": ({"test_images": good.test_images.astype(np.int64)}, "test_images is .* int64"),
    "names of classes": (
        {"train_labels": good.train_labels.astype(str)},
        "array of <U.*For names that is np.unique",
    ),
    "no channels": ({"test_images": good.test_images[..., 0]}, "test_images is .*shape .10, 4, 5."),
    "a list": ({"test_images": [1, 2]}, r"test_images is \[1, 2\]"),
    "labels of floats": ({"train_labels": good.train_labels / 2}, "array of float64"),
    "not one-hot": ({"train_labels": np.eye(20, 3, dtype=np.int32)}, r"with shape \(20, 3\)"),
    "too few": ({"train_labels": good.train_labels[1:]}, "20 train images and 19 train labels"),
    "none": (
        {"test_images": good.test_images[:0], "test_labels": good.test_labels[:0]},
        "give at least one image",
    ),
    "too high": ({"num_classes": 2}, "go from 0 to 2, but 2 classes count from 0 to 1"),
    "negative": ({"test_labels": good.test_labels - 1}, "test_labels go from -1 to 1"),
    "unlike sizes": ({"test_images": good.test_images[:, 1:]}, "test images .3, 5, 2.; bring both"),
    "one mean": ({"mean": (0.5,)}, "for each of the 2 channels"),
    "mean of bytes": ({"mean": (125.0, 125.0)}, "divide them by 255"),
    "no spread": ({"std": (0.2, 0.0)}, "leave out constant channels"),
    "not a number": ({"std": (0.2, float("nan"))}, "a number of each"),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_data_sets_are_refused(case: str) -> None:
    changed, message = WRONG[case]
    with pytest.raises(ValueError, match=f"small: .*{message}"):
        small(**changed).check()


def numbers(images: np.ndarray) -> list[int]:
    return images[:, 0, 0, 0].tolist()


def test_a_validation_part_is_held_out_of_the_training_images() -> None:
    whole = small()
    split = whole.validation_split(6).check()
    train, held = numbers(split.train_images), numbers(split.test_images)
    assert len(held) == 6 and sorted(train + held) == list(range(20))
    assert train == sorted(train) and held == sorted(held)
    assert held != list(range(6)) and held != list(range(14, 20)), "not a random choice"
    np.testing.assert_array_equal(split.train_labels, np.array(train) % 3)
    np.testing.assert_array_equal(split.test_labels, np.array(held) % 3)
    assert held != numbers(whole.validation_split(6, seed=1).test_images)
    for count in (0, 20, 2.5):
        with pytest.raises(ValueError, match="small has 20 training images; num_images .*is"):
            whole.validation_split(count)
