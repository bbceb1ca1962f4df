"""Augmentation against loops over pixels, fed the same random numbers; laws of what is drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from replicax.data import augment, augmentation, normalise, plain
from replicax.data.augment import (
    Rectangles,
    crop_at,
    draw_crop,
    draw_erase,
    draw_flip,
    erase_in,
    flip_where,
    place,
    random_crop,
    random_erase,
    random_flip,
)

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
PAD = 4
SHAPE = (12, 9, 7, 3)  # no two axes alike, so that none is taken for another


def batch(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.RandomState(0).randint(1, 256, shape).astype(np.uint8)


def cropped(images: np.ndarray, corners: np.ndarray, pad: int) -> np.ndarray:
    out = np.zeros_like(images)
    for image, row, column in np.ndindex(images.shape[:3]):
        from_row, from_column = corners[image] + (row, column) - pad
        if 0 <= from_row < images.shape[1] and 0 <= from_column < images.shape[2]:
            out[image, row, column] = images[image, from_row, from_column]
    return out


def mirrored(images: np.ndarray, flipped: np.ndarray) -> np.ndarray:
    return np.stack([image[:, ::-1] if turn else image for image, turn in zip(images, flipped)])


def placed(chances: np.ndarray, size, probability, area, aspect) -> list[tuple[int, ...]]:
    """For each image top, left, height and width, with the attempts made one after another."""
    attempts = (chances.shape[1] - 3) // 2
    found = []
    for gate, up, across, *rest in chances.astype(np.float64):
        rectangle = (0, 0, 0, 0)
        for share, stretch in zip(rest[:attempts], rest[attempts:], strict=True):
            target = size[0] * size[1] * (area[0] + share * (area[1] - area[0]))
            ratio = aspect[0] * (aspect[1] / aspect[0]) ** stretch
            height, width = round((target * ratio) ** 0.5), round((target / ratio) ** 0.5)
            if height < size[0] and width < size[1]:
                top, left = int(up * (size[0] - height + 1)), int(across * (size[1] - width + 1))
                rectangle = (top, left, height, width)
                break
        found.append(rectangle if gate < probability else (0, 0, 0, 0))
    return found


def erased(images: np.ndarray, rectangles, fill) -> np.ndarray:
    out = images.copy()
    for image, (top, left, height, width) in zip(out, rectangles):
        image[top : top + height, left : left + width] = fill
    return out


def by_image(rectangles: Rectangles) -> list[tuple[int, ...]]:
    """Rectangles as a list, those that cover nothing all alike."""
    rows = [tuple(map(int, row)) for row in zip(*rectangles)]
    return [row if row[2] * row[3] else (0, 0, 0, 0) for row in rows]


def normalised(images: np.ndarray) -> np.ndarray:
    return (images / 255.0 - np.array(MEAN)) / np.array(STD)


@pytest.mark.parametrize("pad", (1, 4))
def test_crops_are_those_of_a_loop(pad: int) -> None:
    images, corners = batch(), np.asarray(draw_crop(jax.random.key(1), SHAPE[0], pad))
    found = crop_at(jnp.asarray(images), jnp.asarray(corners), pad)
    assert found.dtype == jnp.uint8 and len(np.unique(corners, axis=0)) > 3
    np.testing.assert_array_equal(found, cropped(images, corners, pad))
    np.testing.assert_array_equal(found, random_crop(jax.random.key(1), jnp.asarray(images), pad))


def test_a_crop_at_the_centre_changes_nothing() -> None:
    images = jnp.asarray(batch())
    np.testing.assert_array_equal(crop_at(images, jnp.full((SHAPE[0], 2), PAD), PAD), images)


def test_flips_are_those_of_a_loop() -> None:
    images, flipped = batch(), np.asarray(draw_flip(jax.random.key(2), SHAPE[0]))
    assert 0 < flipped.sum() < len(flipped)
    found = random_flip(jax.random.key(2), jnp.asarray(images))
    np.testing.assert_array_equal(found, mirrored(images, flipped))
    np.testing.assert_array_equal(found, flip_where(jnp.asarray(images), jnp.asarray(flipped)))


ERASURES = {
    "as given": (0.5, (0.02, 0.4), (0.3, 1 / 0.3)),
    "always": (1.0, (0.1, 0.2), (0.5, 1.0)),
    "mostly too large": (0.9, (0.5, 1.0), (0.1, 10.0)),
}


@pytest.mark.parametrize("size", ((32, 32), (9, 7)))
@pytest.mark.parametrize("case", ERASURES)
def test_rectangles_are_those_of_a_loop(case: str, size: tuple[int, int]) -> None:
    # Numbers on a coarse grid, so that no side is so near a half that precision decides.
    chances = (np.random.RandomState(3).randint(0, 64, (400, 11)) / 64 + 1 / 257).astype(np.float32)
    found = by_image(place(jnp.asarray(chances), size, *ERASURES[case]))
    wanted = placed(chances, size, *ERASURES[case])
    assert found == wanted
    assert len(set(wanted)) > 20, "too few different ones to prove anything"


@pytest.mark.parametrize("fill", (0.0, (1.0, 2.0, 3.0)))
def test_erasing_is_that_of_a_loop(fill) -> None:
    images = normalised(batch()).astype(np.float32)
    key, size = jax.random.key(4), SHAPE[1:3]
    rectangles = draw_erase(key, SHAPE[0], size)
    wanted = erased(images, by_image(rectangles), fill)
    assert not np.array_equal(wanted, images)
    np.testing.assert_array_equal(erase_in(jnp.asarray(images), rectangles, fill), wanted)
    np.testing.assert_array_equal(random_erase(key, jnp.asarray(images), fill=fill), wanted)


def test_normalising() -> None:
    found = normalise(jnp.asarray(batch()), MEAN, STD)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, normalised(batch()), atol=1e-6)
    np.testing.assert_array_equal(plain(MEAN, STD)(jnp.asarray(batch())), found)
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
def test_the_whole_is_its_parts_in_order(options: dict) -> None:
    """Crop and mirror pixels, so that borders are black; then normalise; erase last."""
    images = batch()
    pad, share = options.get("pad", 4), options.get("erase", 0.5)
    chances = np.asarray(jax.random.uniform(jax.random.key(5), (SHAPE[0], 14)))
    wanted = images
    if pad:
        wanted = cropped(wanted, np.floor(chances[:, :2] * (2 * pad + 1)).astype(int), pad)
    if options.get("flip", True):
        wanted = mirrored(wanted, chances[:, 2] < 0.5)
    rectangles = placed(chances[:, 3:], SHAPE[1:3], share, augment.AREA, augment.ASPECT)
    wanted = erased(normalised(wanted), rectangles, options.get("fill", 0.0))
    found = jax.jit(augmentation(MEAN, STD, **options))(jax.random.key(5), jnp.asarray(images))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_corners_are_uniform() -> None:
    corners = np.asarray(draw_crop(jax.random.key(6), 40_000, PAD))
    counts = np.zeros((9, 9))
    np.add.at(counts, (corners[:, 0], corners[:, 1]), 1)
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3


@pytest.mark.parametrize("probability", (0.5, 0.2))
def test_flips_and_erasures_come_as_often_as_asked(probability: float) -> None:
    flipped = draw_flip(jax.random.key(7), 20_000, probability)
    rectangles = draw_erase(jax.random.key(8), 20_000, (32, 32), probability)
    for marks in (flipped, rectangles.height > 0):
        assert stats.binomtest(int(marks.sum()), 20_000, probability).pvalue > 1e-3


def test_the_law_of_rectangles() -> None:
    """On images so large that rounding is nothing, and areas so small that all attempts fit."""
    size, area, aspect = (3000, 3000), (0.02, 0.25), (0.3, 1 / 0.3)
    rectangles = draw_erase(jax.random.key(9), 20_000, size, 1.0, area, aspect)
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
    rectangles = draw_erase(jax.random.key(10), 20_000, (32, 32), 1.0)
    top, left, height, width = (np.asarray(side) for side in rectangles)
    assert np.all((top >= 0) & (left >= 0) & (top + height <= 32) & (left + width <= 32))
    assert np.all((height < 32) & (width < 32))
    some = height > 0
    assert some.mean() > 0.9995
    # A side is at most half a pixel from what its area and ratio ask for.
    assert np.all((height - 0.5) * (width - 0.5) <= 0.4 * 1024)
    assert np.all(((height + 0.5) * (width + 0.5) >= 0.02 * 1024)[some])
    for edge, length in ((top, height), (left, width)):
        assert edge.min() == 0 and (edge + length).max() == 32


def test_a_key_decides_everything() -> None:
    images, prepare = jnp.asarray(batch()), jax.jit(augmentation(MEAN, STD))
    once, again = (prepare(jax.random.key(11), images) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert not np.array_equal(once, prepare(jax.random.key(12), images))


def test_mapped_over_replicas_it_is_the_same() -> None:
    images = jnp.asarray(np.stack([batch(), batch()[::-1]]))
    keys, prepare = jax.random.split(jax.random.key(13), 2), jax.jit(augmentation(MEAN, STD))
    wanted = np.stack([prepare(key, part) for key, part in zip(keys, images)])
    with jax.numpy_dtype_promotion("strict"):
        found = jax.vmap(prepare)(keys, images)
        shared = jax.vmap(prepare, (0, None))(keys, images[0])
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    np.testing.assert_allclose(shared[0], wanted[0], atol=1e-6)
    assert not np.array_equal(shared[0], shared[1])


def test_bad_input_gets_a_sentence() -> None:
    key, images = jax.random.key(0), jnp.asarray(batch())
    with pytest.raises(ValueError, match="need the axes"):
        random_crop(key, images[0], PAD)
    with pytest.raises(ValueError, match="need the axes"):
        augmentation(MEAN, STD)(key, images[0])
    with pytest.raises(ValueError, match="3 channels, mean has 1"):
        plain((0.5,), (0.2,))(images)
    with pytest.raises(ValueError, match="every std above 0"):
        plain(MEAN, (0.2, 0.0, 0.2))
    with pytest.raises(ValueError, match="pad is -1"):
        augmentation(MEAN, STD, pad=-1)
    with pytest.raises(ValueError, match="erase is 2"):
        augmentation(MEAN, STD, erase=2)
    with pytest.raises(ValueError, match="the lower first"):
        random_erase(key, images, area=(0.4, 0.02))
    with pytest.raises(ValueError, match="the lower first"):
        random_erase(key, images, aspect=(0.0, 1.0))
