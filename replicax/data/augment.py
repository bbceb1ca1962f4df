"""Augmentation on the device, inside the compiled step: crops, flips, erased rectangles.

Every change comes in two halves: `draw_*` takes a key and says what shall happen to each image of
a batch, and a function without randomness does it. `random_*` is one after the other. Each half
works on the whole batch at once, so that a batch costs a handful of kernels.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

Size = tuple[int, int]  # height, width
Range = tuple[float, float]  # lowest, highest

AREA: Range = (0.02, 0.4)  # of the image
ASPECT: Range = (0.3, 1 / 0.3)  # height over width
ATTEMPTS = 4


def draw_crop(key: Array, num_images: int, pad: int) -> Array:
    """Corners of windows in images padded by `pad`: int32 (image, 2), uniform on 0 .. 2 pad."""
    return _below(_chances(key, (num_images, 2)), 2 * pad + 1)


def crop_at(images: Array, corners: Array, pad: int) -> Array:
    """Cut from every image, padded with `pad` pixels of 0, a window of its own size."""
    _check_images(images)
    margin = (pad, pad)
    padded = jnp.pad(images, ((0, 0), margin, margin, (0, 0)))

    def cut(image: Array, corner: Array) -> Array:
        return lax.dynamic_slice(image, (corner[0], corner[1], 0), images.shape[1:])

    return jax.vmap(cut)(padded, corners.astype(jnp.int32))


def random_crop(key: Array, images: Array, pad: int = 4) -> Array:
    """Shift every image by up to `pad` pixels each way; what comes into view is 0.

    To do what most recipes do, crop pixels before they are normalised: the border is then black.
    """
    return crop_at(images, draw_crop(key, images.shape[0], pad), pad)


def draw_flip(key: Array, num_images: int, probability: float = 0.5) -> Array:
    """Which images to mirror: bool (image,)."""
    return _chances(key, (num_images,)) < probability


def flip_where(images: Array, flipped: Array) -> Array:
    """Swap left and right of the images that `flipped` marks."""
    _check_images(images)
    return jnp.where(flipped[:, None, None, None], images[:, :, ::-1], images)


def random_flip(key: Array, images: Array, probability: float = 0.5) -> Array:
    """Mirror every image, left to right, with a probability."""
    return flip_where(images, draw_flip(key, images.shape[0], probability))


class Rectangles(NamedTuple):
    """A rectangle in each image of a batch; one without height or width covers nothing."""

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
    """Rectangles for images of `size`: see `random_erase`."""
    chances = _chances(key, (num_images, 3 + 2 * attempts))
    return place(chances, size, probability, area, aspect)


def place(
    chances: Array,  # (image, 3 + 2 attempts), uniform on [0, 1)
    size: Size,
    probability: float = 0.5,
    area: Range = AREA,
    aspect: Range = ASPECT,
) -> Rectangles:
    """Turn uniform numbers into rectangles; the columns of `chances` are in this order:

    whether to erase, top, left, then the areas and then the aspect ratios of all attempts.
    """
    _check_ranges(area, aspect)
    areas, aspects = jnp.split(chances[:, 3:], 2, axis=1)  # (image, attempt)
    num_pixels = size[0] * size[1] * (area[0] + areas * (area[1] - area[0]))
    low, high = math.log(aspect[0]), math.log(aspect[1])
    stretch = jnp.exp(0.5 * (low + aspects * (high - low)))  # root of height / width
    side = jnp.sqrt(num_pixels)
    heights = jnp.round(side * stretch).astype(jnp.int32)
    widths = jnp.round(side / stretch).astype(jnp.int32)
    height, width = _first_that_fits(heights, widths, size)
    erased = chances[:, 0] < probability
    return Rectangles(
        top=_below(chances[:, 1], size[0] - height + 1),
        left=_below(chances[:, 2], size[1] - width + 1),
        height=jnp.where(erased, height, 0),
        width=jnp.where(erased, width, 0),
    )


def _first_that_fits(heights: Array, widths: Array, size: Size) -> tuple[Array, Array]:
    """The first attempt that is smaller than the image both ways, or 0 x 0 if none is."""
    fits = (heights < size[0]) & (widths < size[1])  # (image, attempt)
    height = width = jnp.zeros(heights.shape[0], jnp.int32)
    # Unrolled, the choice fuses with what is around it; a cumulative sum would not.
    for attempt in reversed(range(heights.shape[1])):
        height = jnp.where(fits[:, attempt], heights[:, attempt], height)
        width = jnp.where(fits[:, attempt], widths[:, attempt], width)
    return height, width


def erase_in(images: Array, rectangles: Rectangles, fill: float | Sequence[float] = 0.0) -> Array:
    """Put `fill`, one number or one for each channel, wherever a rectangle lies."""
    _check_images(images)
    rows = _span(rectangles.top, rectangles.height, images.shape[1])[:, :, None, None]
    columns = _span(rectangles.left, rectangles.width, images.shape[2])[:, None, :, None]
    return jnp.where(rows & columns, jnp.asarray(fill, images.dtype), images)


def _span(start: Array, length: Array, size: int) -> Array:
    """Which of `size` places lie in `length` from `start` on: bool (image, place)."""
    places = jnp.arange(size, dtype=jnp.int32)
    return (places >= start[:, None]) & (places < (start + length)[:, None])


def random_erase(
    key: Array,
    images: Array,
    probability: float = 0.5,
    area: Range = AREA,
    aspect: Range = ASPECT,
    fill: float | Sequence[float] = 0.0,
    attempts: int = ATTEMPTS,
) -> Array:
    """Erase a rectangle of every image with a probability (Zhong et al., 2020).

    Its share of the image is uniform on `area`, its height over its width log-uniform on
    `aspect`, its place uniform among those where it fits. A rectangle as high or as wide as the
    image is drawn again, `attempts` times at most; if none of them is smaller, the image stays
    as it is. With the values given, and images of 32 x 32, one first attempt in 25 is too large,
    and all four are for three images in a million.

    The fill of 0 is the mean colour once images are normalised, so normalise first.
    """
    _check_images(images)
    num_images, height, width, _ = images.shape
    size = (height, width)
    rectangles = draw_erase(key, num_images, size, probability, area, aspect, attempts)
    return erase_in(images, rectangles, fill)


def normalise(
    images: Array, mean: Sequence[float], std: Sequence[float], dtype: Any = jnp.float32
) -> Array:
    """Pixels of 0 .. 255 as floats, (pixel / 255 - mean) / std in each channel."""
    _check_moments(mean, std)
    if images.shape[-1] != len(mean):
        raise ValueError(
            f"Images of shape {images.shape} have {images.shape[-1]} channels, mean has "
            f"{len(mean)}; give the mean and std of the data set that the images are from."
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
    """How images are prepared for training: `prepare(key, images)`, uint8 to normalised floats.

    Crop by up to `pad` pixels, mirror, normalise, and erase with probability `erase`, in this
    order; `pad=0`, `flip=False` and `erase=0` leave a part out. `fill` is in normalised units.
    """
    _check_moments(mean, std)
    if pad < 0:
        raise ValueError(f"pad is {pad}; write how many pixels to pad, or 0 for no crops.")
    if not 0 <= erase <= 1:
        raise ValueError(f"erase is {erase}; write the probability of erasing, from 0 to 1.")

    def prepare(key: Array, images: Array) -> Array:
        _check_images(images)
        num_images, height, width, _ = images.shape
        # One draw for all: each draw by itself would be a kernel of its own.
        chances = _chances(key, (num_images, 6 + 2 * ATTEMPTS))
        if pad:
            images = crop_at(images, _below(chances[:, :2], 2 * pad + 1), pad)
        if flip:
            images = flip_where(images, chances[:, 2] < 0.5)
        images = normalise(images, mean, std, dtype)
        if erase:
            images = erase_in(images, place(chances[:, 3:], (height, width), erase), fill)
        return images

    return prepare


def plain(
    mean: Sequence[float], std: Sequence[float], dtype: Any = jnp.float32
) -> Callable[[Array], Array]:
    """How images are prepared for testing: `prepare(images)`, uint8 to normalised floats."""
    _check_moments(mean, std)
    return lambda images: normalise(images, mean, std, dtype)


def _chances(key: Array, shape: tuple[int, ...]) -> Array:
    return jax.random.uniform(key, shape, jnp.float32)


def _below(chances: Array, count: int | Array) -> Array:
    """Uniform numbers on [0, 1) as whole numbers, uniform on 0 .. count - 1."""
    return jnp.floor(chances * jnp.asarray(count, jnp.float32)).astype(jnp.int32)


def _check_images(images: Array) -> None:
    if images.ndim != 4:
        raise ValueError(
            f"Images have shape {images.shape}; they need the axes (image, height, width, channel)."
        )


def _check_ranges(area: Range, aspect: Range) -> None:
    if not 0 < area[0] <= area[1] <= 1:
        raise ValueError(f"area is {area}; write two fractions of the image, the lower first.")
    if not 0 < aspect[0] <= aspect[1]:
        raise ValueError(f"aspect is {aspect}; write two ratios above 0, the lower first.")


def _check_moments(mean: Sequence[float], std: Sequence[float]) -> None:
    if len(mean) != len(std) or not all(value > 0 for value in std):
        raise ValueError(
            f"mean is {tuple(mean)} and std {tuple(std)}; give one of each for every channel, and "
            "every std above 0."
        )
