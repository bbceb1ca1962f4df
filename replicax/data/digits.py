"""The handwritten digits of scikit-learn: a data set without a download."""

import numpy as np

from replicax.data.dataset import Dataset

NUM_TEST = 500
_WHITE = 16  # the digits are counts of inked pixels in blocks of 4 x 4


def load_digits() -> Dataset:
    """Return 1,797 digits of 8 x 8 pixels in a fixed split: 1,297 for training, 500 for testing.

    Both parts have the ten digits in nearly the same proportions.
    """
    try:
        from sklearn.datasets import load_digits as load_from_sklearn
    except ImportError:
        raise ValueError(
            "The digits come with scikit-learn: run `pip install replicax[data]`."
        ) from None
    counts, labels = load_from_sklearn(return_X_y=True)
    pixels = np.round(np.asarray(counts) * (255 / _WHITE)).astype(np.uint8)
    images, labels = pixels.reshape(-1, 8, 8, 1), np.asarray(labels, np.int32)
    is_test = stratified(labels, NUM_TEST)
    train_images = images[~is_test]
    shades = train_images / 255
    return Dataset(
        name="digits",
        train_images=train_images,
        train_labels=labels[~is_test],
        test_images=images[is_test],
        test_labels=labels[is_test],
        num_classes=10,
        mean=(float(shades.mean()),),
        std=(float(shades.std()),),
        class_names=tuple("0123456789"),
    ).check()


def stratified(labels: np.ndarray, num_chosen: int, seed: int = 0) -> np.ndarray:
    """Choose rows at random in proportion to class sizes: a mask (row,), `num_chosen` True."""
    classes, sizes = np.unique(labels, return_counts=True)
    shares = sizes * num_chosen / len(labels)
    quotas = np.floor(shares).astype(int)
    # The remainder goes to the classes that lost most by rounding down.
    remainder = num_chosen - quotas.sum()
    quotas[np.argsort(quotas - shares, kind="stable")[:remainder]] += 1
    # NumPy guarantees the numbers of RandomState for ever, unlike those of its newer generators.
    random = np.random.RandomState(seed)
    mask = np.zeros(len(labels), bool)
    for number, quota in zip(classes, quotas):
        mask[random.permutation(np.flatnonzero(labels == number))[:quota]] = True
    return mask
