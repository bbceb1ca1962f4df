"""Augmentation against loops over pixels with the same random numbers; laws of the draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from replicax.data import augment, augmentation, normalise
from replicax.data.augment import (
    ATTEMPTS,
    Rectangles,
    crop,
    erase_in,
    mirror,
    to_integers,
    to_rectangles,
)

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
PAD = 4
SHAPE = (12, 9, 7, 3)  # all axes different, so that none can be mistaken for another


def corners_of(seed: int, num_images: int, pad: int) -> np.ndarray:
    return np.asarray(
        to_integers(jax.random.uniform(jax.random.key(seed), (num_images, 2)), 2 * pad + 1)
    )


def rectangles_of(
    seed: int, num_images: int, size: tuple[int, int], probability: float
) -> Rectangles:
    uniforms = jax.random.uniform(jax.random.key(seed), (num_images, 3 + 2 * ATTEMPTS))
    return to_rectangles(uniforms, size, probability)


def batch(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.RandomState(0).randint(1, 256, shape).astype(np.uint8)


def crop_by_loop(images: np.ndarray, corners: np.ndarray, pad: int) -> np.ndarray:
    out = np.zeros_like(images)
    for image, row, column in np.ndindex(images.shape[:3]):
        from_row, from_column = corners[image] + (row, column) - pad
        if 0 <= from_row < images.shape[1] and 0 <= from_column < images.shape[2]:
            out[image, row, column] = images[image, from_row, from_column]
    return out


def flip_by_loop(images: np.ndarray, flipped: np.ndarray) -> np.ndarray:
    return np.stack([image[:, ::-1] if turn else image for image, turn in zip(images, flipped)])


def rectangles_by_loop(
    uniforms: np.ndarray, size, probability, area, aspect
) -> list[tuple[int, ...]]:
    """Top, left, height and width for each image, trying one attempt after another."""
    attempts = (uniforms.shape[1] - 3) // 2
    rectangles = []
    for gate, up, across, *rest in uniforms.astype(np.float64):
        rectangle = (0, 0, 0, 0)
        for share, stretch in zip(rest[:attempts], rest[attempts:], strict=True):
            target = size[0] * size[1] * (area[0] + share * (area[1] - area[0]))
            ratio = aspect[0] * (aspect[1] / aspect[0]) ** stretch
            height, width = round((target * ratio) ** 0.5), round((target / ratio) ** 0.5)
            if height < size[0] and width < size[1]:
                top, left = int(up * (size[0] - height + 1)), int(across * (size[1] - width + 1))
                rectangle = (top, left, height, width)
                break
        rectangles.append(rectangle if gate < probability else (0, 0, 0, 0))
    return rectangles


def erase_by_loop(images: np.ndarray, rectangles, fill) -> np.ndarray:
    out = images.copy()
    for image, (top, left, height, width) in zip(out, rectangles):
        image[top : top + height, left : left + width] = fill
    return out


def by_image(rectangles: Rectangles) -> list[tuple[int, ...]]:
    """Rectangles as a list; those that cover nothing are all zeros."""
    rows = [tuple(map(int, row)) for row in zip(*rectangles)]
    return [row if row[2] * row[3] else (0, 0, 0, 0) for row in rows]


def normalised(images: np.ndarray) -> np.ndarray:
    return (images / 255.0 - np.array(MEAN)) / np.array(STD)


@pytest.mark.parametrize("pad", (1, 4))
def test_crops_are_those_of_a_loop(pad: int) -> None:
    images, corners = batch(), corners_of(1, SHAPE[0], pad)
    result = crop(jnp.asarray(images), jnp.asarray(corners), pad)
    assert result.dtype == jnp.uint8 and len(np.unique(corners, axis=0)) > 3
    np.testing.assert_array_equal(result, crop_by_loop(images, corners, pad))


def test_a_crop_at_the_centre_changes_nothing() -> None:
    images = jnp.asarray(batch())
    np.testing.assert_array_equal(crop(images, jnp.full((SHAPE[0], 2), PAD), PAD), images)


def test_flips_are_those_of_a_loop() -> None:
    images, flipped = batch(), np.arange(SHAPE[0]) % 3 == 0
    result = mirror(jnp.asarray(images), jnp.asarray(flipped))
    np.testing.assert_array_equal(result, flip_by_loop(images, flipped))


ERASURES = {
    "as given": (0.5, (0.02, 0.4), (0.3, 1 / 0.3)),
    "always": (1.0, (0.1, 0.2), (0.5, 1.0)),
    "mostly too large": (0.9, (0.5, 1.0), (0.1, 10.0)),
}


@pytest.mark.parametrize("size", ((32, 32), (9, 7)))
@pytest.mark.parametrize("case", ERASURES)
def test_rectangles_are_those_of_a_loop(monkeypatch, case: str, size: tuple[int, int]) -> None:
    probability, area, aspect = ERASURES[case]
    monkeypatch.setattr(augment, "AREA", area)
    monkeypatch.setattr(augment, "ASPECT", aspect)
    # Numbers on a coarse grid, so that no side is close enough to a half to round differently.
    uniforms = (np.random.RandomState(3).randint(0, 64, (400, 11)) / 64 + 1 / 257).astype(
        np.float32
    )
    result = by_image(to_rectangles(jnp.asarray(uniforms), size, probability))
    expected = rectangles_by_loop(uniforms, size, *ERASURES[case])
    assert result == expected
    assert len(set(expected)) > 20, "too few different rectangles"


@pytest.mark.parametrize("fill", (0.0, (1.0, 2.0, 3.0)))
def test_erasing_is_that_of_a_loop(fill) -> None:
    images = normalised(batch()).astype(np.float32)
    rectangles = rectangles_of(4, SHAPE[0], SHAPE[1:3], 0.5)
    expected = erase_by_loop(images, by_image(rectangles), fill)
    assert not np.array_equal(expected, images)
    np.testing.assert_array_equal(erase_in(jnp.asarray(images), rectangles, fill), expected)


def test_normalising() -> None:
    result = normalise(jnp.asarray(batch()), MEAN, STD)
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, normalised(batch()), atol=1e-6)
    assert normalise(jnp.asarray(batch()), MEAN, STD, jnp.bfloat16).dtype == jnp.bfloat16


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pad": 2, "erase": 1.0, "fill": (1.0, 2.0, 3.0)},
        {"pad": 0},
        {"flip": False},
        {"erase": 0.0},
    ],
    ids=str,
)
def test_augmentation_is_its_parts_in_order(options: dict) -> None:
    """Crops and flips come before normalising, so that borders are black; erasing comes last."""
    images = batch()
    pad, share = options.get("pad", 4), options.get("erase", 0.5)
    uniforms = np.asarray(jax.random.uniform(jax.random.key(5), (SHAPE[0], 14)))
    expected = images
    if pad:
        expected = crop_by_loop(
            expected, np.floor(uniforms[:, :2] * (2 * pad + 1)).astype(int), pad
        )
    if options.get("flip", True):
        expected = flip_by_loop(expected, uniforms[:, 2] < 0.5)
    rectangles = rectangles_by_loop(
        uniforms[:, 3:], SHAPE[1:3], share, augment.AREA, augment.ASPECT
    )
    expected = erase_by_loop(normalised(expected), rectangles, options.get("fill", 0.0))
    result = jax.jit(augmentation(MEAN, STD, **options))(jax.random.key(5), jnp.asarray(images))
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_corners_are_uniform() -> None:
    corners = corners_of(6, 40_000, PAD)
    counts = np.zeros((9, 9))
    np.add.at(counts, (corners[:, 0], corners[:, 1]), 1)
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3


@pytest.mark.parametrize("probability", (0.5, 0.2))
def test_erasures_have_their_probability(probability: float) -> None:
    marks = rectangles_of(8, 20_000, (32, 32), probability).height > 0
    assert stats.binomtest(int(marks.sum()), 20_000, probability).pvalue > 1e-3


def test_half_of_the_images_are_mirrored() -> None:
    halves = np.broadcast_to(np.array([0, 255], np.uint8)[:, None], (20_000, 1, 2, 1))
    prepare = jax.jit(augmentation((0.5,), (0.25,), pad=0, erase=0))
    flipped = prepare(jax.random.key(7), jnp.asarray(halves))[:, 0, 0, 0] > 0
    assert stats.binomtest(int(flipped.sum()), 20_000, 0.5).pvalue > 1e-3


def test_the_law_of_rectangles(monkeypatch: pytest.MonkeyPatch) -> None:
    """On images so large that rounding is negligible, and areas so small that all attempts fit."""
    area = (0.02, 0.25)
    monkeypatch.setattr(augment, "AREA", area)
    rectangles = rectangles_of(9, 20_000, (3000, 3000), 1.0)
    top, left, height, width = (np.asarray(side, np.float64) for side in rectangles)
    share, ratio = height * width / 9e6, np.log(height / width)
    laws = {
        "area": (share - area[0]) / (area[1] - area[0]),
        "aspect": (ratio - np.log(0.3)) / (-2 * np.log(0.3)),
        "top": top / (3000 - height),
        "left": left / (3000 - width),
    }
    for name, values in laws.items():
        assert stats.kstest(values, "uniform").pvalue > 1e-3, name
    assert np.all(np.abs(np.corrcoef(list(laws.values())) - np.eye(4)) < 0.04)


def test_rectangles_lie_within_the_image_and_the_bounds() -> None:
    rectangles = rectangles_of(10, 20_000, (32, 32), 1.0)
    top, left, height, width = (np.asarray(side) for side in rectangles)
    assert np.all((top >= 0) & (left >= 0) & (top + height <= 32) & (left + width <= 32))
    assert np.all((height < 32) & (width < 32))
    some = height > 0
    assert some.mean() > 0.9995
    # Rounding changes a side by at most half a pixel.
    assert np.all((height - 0.5) * (width - 0.5) <= 0.4 * 1024)
    assert np.all(((height + 0.5) * (width + 0.5) >= 0.02 * 1024)[some])
    for edge, length in ((top, height), (left, width)):
        assert edge.min() == 0 and (edge + length).max() == 32


def test_the_key_determines_the_result() -> None:
    images, prepare = jnp.asarray(batch()), jax.jit(augmentation(MEAN, STD))
    once, again = (prepare(jax.random.key(11), images) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert not np.array_equal(once, prepare(jax.random.key(12), images))


def test_vmap_over_replicas_gives_the_same() -> None:
    images = jnp.asarray(np.stack([batch(), batch()[::-1]]))
    keys, prepare = jax.random.split(jax.random.key(13), 2), jax.jit(augmentation(MEAN, STD))
    expected = np.stack([prepare(key, part) for key, part in zip(keys, images)])
    with jax.numpy_dtype_promotion("strict"):
        result = jax.vmap(prepare)(keys, images)
        shared = jax.vmap(prepare, (0, None))(keys, images[0])
    np.testing.assert_allclose(result, expected, atol=1e-6)
    np.testing.assert_allclose(shared[0], expected[0], atol=1e-6)
    assert not np.array_equal(shared[0], shared[1])


def test_bad_arguments_are_refused() -> None:
    key, images = jax.random.key(0), jnp.asarray(batch())
    with pytest.raises(ValueError, match="axes must be"):
        augmentation(MEAN, STD)(key, images[0])
    for moments in (((0.5,), (0.2,)), (MEAN, (0.2, 0.0, 0.2))):
        with pytest.raises(ValueError, match="of each for each of the 3 channels"):
            normalise(images, *moments)
    with pytest.raises(ValueError, match="pad is -1"):
        augmentation(MEAN, STD, pad=-1)
    with pytest.raises(ValueError, match="erase is 2"):
        augmentation(MEAN, STD, erase=2)


def test_the_defaults_are_the_authors() -> None:
    assert augment.AREA == (0.02, 0.4) and augment.ATTEMPTS == 4
    np.testing.assert_allclose(augment.ASPECT, (0.3, 1 / 0.3))


def test_rectangles_without_erasure_are_empty() -> None:
    rectangles = rectangles_of(14, 200, (32, 32), 0.0)
    assert not np.any(rectangles.height) and not np.any(rectangles.width)
