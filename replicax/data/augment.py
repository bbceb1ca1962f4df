"""Augmentation on the device, inside the compiled step: crops, flips, erased rectangles.

For each kind `draw_*` draws the random parameters of all images of a batch, a function without
randomness applies them, and `random_*` does both. All work on whole batches, so that a batch costs
few kernels.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from replicax.errors import check_flag, check_number, is_number, is_whole, show

Size = tuple[int, int]  # height, width
Range = tuple[float, float]  # lowest, highest

AREA: Range = (0.02, 0.4)  # fraction of the image
ASPECT: Range = (0.3, 1 / 0.3)  # height over width
ATTEMPTS = 4


def draw_crop(key: Array, num_images: int, pad: int) -> Array:
    """Draw corners of crops in images padded by `pad`: int32 (image, 2), uniform on 0 .. 2 pad."""
    return _to_integers(_draw_uniforms(key, (num_images, 2)), 2 * pad + 1)


def crop_at(images: Array, corners: Array, pad: int) -> Array:
    """Cut a crop of the original size from each image, padded with `pad` pixels of 0."""
    _check_images(images)
    margin = (pad, pad)
    padded = jnp.pad(images, ((0, 0), margin, margin, (0, 0)))

    def cut(image: Array, corner: Array) -> Array:
        return lax.dynamic_slice(image, (corner[0], corner[1], 0), images.shape[1:])

    return jax.vmap(cut)(padded, corners.astype(jnp.int32))


def random_crop(key: Array, images: Array, pad: int = 4) -> Array:
    """Shift every image by up to `pad` pixels each way and fill the border with 0.

    Crop before normalising, as most recipes do: the border is then black.
    """
    return crop_at(images, draw_crop(key, images.shape[0], pad), pad)


def draw_flip(key: Array, num_images: int, probability: float = 0.5) -> Array:
    """Draw which images to mirror: bool (image,)."""
    return _draw_uniforms(key, (num_images,)) < probability


def flip_where(images: Array, flipped: Array) -> Array:
    """Mirror the images marked in `flipped`, left to right."""
    _check_images(images)
    return jnp.where(flipped[:, None, None, None], images[:, :, ::-1], images)


def random_flip(key: Array, images: Array, probability: float = 0.5) -> Array:
    """Mirror each image, left to right, with `probability`."""
    return flip_where(images, draw_flip(key, images.shape[0], probability))


class Rectangles(NamedTuple):
    """A rectangle in each image of a batch; one of height or width 0 covers nothing."""

    top: Array  # int32 (image,)
    left: Array
    height: Array
    width: Array


def draw_erase(
    key: Array,
    num_images: int,
    size: Size,
    probability: float = 0.5,
    area: Range = AREA,
    aspect: Range = ASPECT,
    attempts: int = ATTEMPTS,
) -> Rectangles:
    """Draw rectangles for images of `size`; see `random_erase`."""
    uniforms = _draw_uniforms(key, (num_images, 3 + 2 * attempts))
    return to_rectangles(uniforms, size, probability, area, aspect)


def to_rectangles(
    uniforms: Array,  # (image, 3 + 2 attempts), uniform on [0, 1)
    size: Size,
    probability: float = 0.5,
    area: Range = AREA,
    aspect: Range = ASPECT,
) -> Rectangles:
    """Return the rectangles that uniform random numbers stand for.

    Columns of `uniforms`: whether to erase, top, left, the areas and then the aspect ratios of all
    attempts.
    """
    _check_ranges(area, aspect)
    areas, aspects = jnp.split(uniforms[:, 3:], 2, axis=1)  # (image, attempt)
    num_pixels = size[0] * size[1] * (area[0] + areas * (area[1] - area[0]))
    low, high = math.log(aspect[0]), math.log(aspect[1])
    stretch = jnp.exp(0.5 * (low + aspects * (high - low)))  # root of height / width
    side = jnp.sqrt(num_pixels)
    heights = jnp.round(side * stretch).astype(jnp.int32)
    widths = jnp.round(side / stretch).astype(jnp.int32)
    height, width = _first_that_fits(heights, widths, size)
    erased = uniforms[:, 0] < probability
    return Rectangles(
        top=_to_integers(uniforms[:, 1], size[0] - height + 1),
        left=_to_integers(uniforms[:, 2], size[1] - width + 1),
        height=jnp.where(erased, height, 0),
        width=jnp.where(erased, width, 0),
    )


def _first_that_fits(heights: Array, widths: Array, size: Size) -> tuple[Array, Array]:
    """Return the first attempt lower and narrower than the image, or 0 x 0."""
    fits = (heights < size[0]) & (widths < size[1])  # (image, attempt)
    height = width = jnp.zeros(heights.shape[0], jnp.int32)
    # Unrolled, the choice fuses with its neighbours; a cumulative sum would not.
    for attempt in reversed(range(heights.shape[1])):
        height = jnp.where(fits[:, attempt], heights[:, attempt], height)
        width = jnp.where(fits[:, attempt], widths[:, attempt], width)
    return height, width


def erase_in(images: Array, rectangles: Rectangles, fill: float | Sequence[float] = 0.0) -> Array:
    """Set the pixels in `rectangles` to `fill`, one number or one per channel."""
    _check_images(images)
    rows = _span(rectangles.top, rectangles.height, images.shape[1])[:, :, None, None]
    columns = _span(rectangles.left, rectangles.width, images.shape[2])[:, None, :, None]
    return jnp.where(rows & columns, jnp.asarray(fill, images.dtype), images)


def _span(start: Array, length: Array, size: int) -> Array:
    """Return which of `size` indices lie in start .. start + length - 1: bool (image, index)."""
    indices = jnp.arange(size, dtype=jnp.int32)
    return (indices >= start[:, None]) & (indices < (start + length)[:, None])


def random_erase(
    key: Array,
    images: Array,
    probability: float = 0.5,
    area: Range = AREA,
    aspect: Range = ASPECT,
    fill: float | Sequence[float] = 0.0,
    attempts: int = ATTEMPTS,
) -> Array:
    """Erase a rectangle of each image with `probability` (Zhong et al., 2020).

    Its share of the image is uniform on `area`, height over width log-uniform on `aspect`, and its
    position uniform among those where it fits. At most `attempts` rectangles are drawn until one
    is smaller than the image in both directions; if none is, the image is left as it is. With the
    defaults and images of 32 x 32 one first attempt in 25 is too large, and all four are too large
    for three images in a million.

    The default fill of 0 is the mean colour of normalised images, so normalise first.
    """
    _check_images(images)
    num_images, height, width, _ = images.shape
    size = (height, width)
    rectangles = draw_erase(key, num_images, size, probability, area, aspect, attempts)
    return erase_in(images, rectangles, fill)


def normalise(
    images: Array, mean: Sequence[float], std: Sequence[float], dtype: Any = jnp.float32
) -> Array:
    """Return (pixel / 255 - mean) / std for each channel, from pixels of 0 .. 255."""
    _check_moments(mean, std)
    if images.shape[-1] != len(mean):
        raise ValueError(
            f"Images of shape {images.shape} have {images.shape[-1]} channels, mean has "
            f"{len(mean)}; give the mean and std of the data set of the images."
        )
    mean_, std_ = jnp.asarray(mean, jnp.float32), jnp.asarray(std, jnp.float32)
    return (images.astype(jnp.float32) * (1 / (255 * std_)) - mean_ / std_).astype(dtype)


def augmentation(
    mean: Sequence[float],
    std: Sequence[float],
    *,
    pad: int = 4,
    flip: bool = True,
    erase: float = 0.5,
    fill: float | Sequence[float] = 0.0,
    dtype: Any = jnp.float32,
) -> Callable[[Array, Array], Array]:
    """Return `prepare(key, images)` for training: from uint8 to augmented, normalised floats.

    In this order: crop by up to `pad` pixels, mirror, normalise, erase with probability `erase`;
    `pad=0`, `flip=False` and `erase=0` leave out one of them. `fill` is in normalised units.
    """
    _check_moments(mean, std)
    if not is_whole(pad) or pad < 0:
        raise ValueError(f"pad is {show(pad)}; give a number of pixels, or 0 for no crops.")
    probability = "give the probability of erasing, from 0 to 1"
    check_number("erase", erase, lambda x: 0 <= x <= 1, probability)
    check_flag("flip", flip)

    def prepare(key: Array, images: Array) -> Array:
        _check_images(images)
        num_images, height, width, _ = images.shape
        # One draw for all: separate draws would be separate kernels.
        uniforms = _draw_uniforms(key, (num_images, 6 + 2 * ATTEMPTS))
        if pad:
            images = crop_at(images, _to_integers(uniforms[:, :2], 2 * pad + 1), pad)
        if flip:
            images = flip_where(images, uniforms[:, 2] < 0.5)
        images = normalise(images, mean, std, dtype)
        if erase:
            rectangles = to_rectangles(uniforms[:, 3:], (height, width), erase)
            images = erase_in(images, rectangles, fill)
        return images

    return prepare


def plain(
    mean: Sequence[float], std: Sequence[float], dtype: Any = jnp.float32
) -> Callable[[Array], Array]:
    """Return `prepare(images)` for testing: from uint8 to normalised floats."""
    _check_moments(mean, std)
    return lambda images: normalise(images, mean, std, dtype)


def _draw_uniforms(key: Array, shape: tuple[int, ...]) -> Array:
    return jax.random.uniform(key, shape, jnp.float32)


def _to_integers(uniforms: Array, count: int | Array) -> Array:
    """Turn numbers uniform on [0, 1) into integers uniform on 0 .. count - 1."""
    return jnp.floor(uniforms * jnp.asarray(count, jnp.float32)).astype(jnp.int32)


def _check_images(images: Array) -> None:
    if images.ndim != 4:
        raise ValueError(
            f"Images have shape {images.shape}; the axes must be (image, height, width, channel)."
        )


def _check_ranges(area: Range, aspect: Range) -> None:
    if not 0 < area[0] <= area[1] <= 1:
        raise ValueError(f"area is {area}; give two fractions of the image, the lower first.")
    if not 0 < aspect[0] <= aspect[1]:
        raise ValueError(f"aspect is {aspect}; give two ratios above 0, the lower first.")


def _check_moments(mean: Sequence[float], std: Sequence[float]) -> None:
    sequences = isinstance(mean, Sequence) and isinstance(std, Sequence)
    numbers = sequences and all(is_number(value) for value in (*mean, *std))
    if not numbers or len(mean) != len(std) or not all(value > 0 for value in std):
        raise ValueError(
            f"mean is {show(mean)} and std {show(std)}; give a number of each per channel, and "
            "every std above 0."
        )
