"""Augmentation on the device, inside the compiled step: crops, flips, erased rectangles.

All functions work on whole batches, so that a batch costs few kernels, and are given their random
numbers.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from replicax.data.dataset import check_moments
from replicax.errors import at_least, check_flag, check_number

# Of erased rectangles (Zhong et al., 2020).
AREA = (0.02, 0.4)  # lowest and highest fraction of the image
ASPECT = (0.3, 1 / 0.3)  # height over width
ATTEMPTS = 4  # until one is smaller than the image: all are too large for 3 images in a million


def augmentation(
    mean: Sequence[float],
    std: Sequence[float],
    *,
    pad: int = 4,
    flip: bool = True,
    erase: float = 0.5,
    fill: float | Sequence[float] = 0.0,
    dtype: DTypeLike = jnp.float32,
) -> Callable[[Array, Array], Array]:
    """Return `prepare(key, images)` for training: from uint8 to augmented, normalised floats.

    In this order: crop by up to `pad` pixels, so that borders are black; mirror; normalise; and
    erase a rectangle with probability `erase`. `pad=0`, `flip=False` and `erase=0` leave out one of
    them. `fill` is in normalised units: 0 is the mean colour.
    """
    check_moments("augmentation", mean, std, len(mean) if isinstance(mean, Sequence) else 1)
    at_least("pad", pad, 0)
    probability = "give the probability of erasing, from 0 to 1"
    check_number("erase", erase, lambda x: 0 <= x <= 1, probability)
    check_flag("flip", flip)

    def prepare(key: Array, images: Array) -> Array:
        if images.ndim != 4:
            raise ValueError(
                f"Images have shape {images.shape}; the axes must be (image, height, width, "
                "channel)."
            )
        num_images, height, width, _ = images.shape
        # One draw for all: separate draws would be separate kernels.
        uniforms = jax.random.uniform(key, (num_images, 6 + 2 * ATTEMPTS), jnp.float32)
        if pad:
            images = crop(images, to_integers(uniforms[:, :2], 2 * pad + 1), pad)
        if flip:
            images = mirror(images, uniforms[:, 2] < 0.5)
        images = normalise(images, mean, std, dtype)
        if erase:
            rectangles = to_rectangles(uniforms[:, 3:], (height, width), erase)
            images = erase_in(images, rectangles, fill)
        return images

    return prepare


def normalise(
    images: Array, mean: Sequence[float], std: Sequence[float], dtype: DTypeLike = jnp.float32
) -> Array:
    """Return (pixel / 255 - mean) / std for each channel, from pixels of 0 .. 255."""
    check_moments("The images", mean, std, images.shape[-1])
    mean_, std_ = jnp.asarray(mean, jnp.float32), jnp.asarray(std, jnp.float32)
    return (images.astype(jnp.float32) * (1 / (255 * std_)) - mean_ / std_).astype(dtype)


def crop(images: Array, corners: Array, pad: int) -> Array:
    """Cut a crop of the original size from each image, padded with `pad` pixels of 0; corners are
    int32 (image, 2) in the padded image."""
    margin = (pad, pad)
    padded = jnp.pad(images, ((0, 0), margin, margin, (0, 0)))

    def cut(image: Array, corner: Array) -> Array:
        return lax.dynamic_slice(image, (corner[0], corner[1], 0), images.shape[1:])

    return jax.vmap(cut)(padded, corners.astype(jnp.int32))


def mirror(images: Array, flipped: Array) -> Array:
    """Mirror the images marked in `flipped`, left to right."""
    return jnp.where(flipped[:, None, None, None], images[:, :, ::-1], images)


class Rectangles(NamedTuple):
    """A rectangle in each image of a batch; one of height or width 0 covers nothing."""

    top: Array  # int32 (image,)
    left: Array
    height: Array
    width: Array


def to_rectangles(uniforms: Array, size: tuple[int, int], probability: float) -> Rectangles:
    """Return the rectangles that random numbers stand for, for images of this height and width.

    Their share of the image is uniform on `AREA`, height over width log-uniform on `ASPECT`, and
    the position uniform among those where they fit; they are empty if all attempts are too large.
    `uniforms` (image, 3 + 2 ATTEMPTS) has whether to erase, top, left, the areas and then the
    aspect ratios of all attempts.
    """
    areas, aspects = jnp.split(uniforms[:, 3:], 2, axis=1)  # (image, attempt)
    num_pixels = size[0] * size[1] * (AREA[0] + areas * (AREA[1] - AREA[0]))
    low, high = math.log(ASPECT[0]), math.log(ASPECT[1])
    stretch = jnp.exp(0.5 * (low + aspects * (high - low)))  # root of height / width
    side = jnp.sqrt(num_pixels)
    heights = jnp.round(side * stretch).astype(jnp.int32)
    widths = jnp.round(side / stretch).astype(jnp.int32)
    height, width = _first_that_fits(heights, widths, size)
    erased = uniforms[:, 0] < probability
    return Rectangles(
        top=to_integers(uniforms[:, 1], size[0] - height + 1),
        left=to_integers(uniforms[:, 2], size[1] - width + 1),
        height=jnp.where(erased, height, 0),
        width=jnp.where(erased, width, 0),
    )


def _first_that_fits(heights: Array, widths: Array, size: tuple[int, int]) -> tuple[Array, Array]:
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
    rows = _span(rectangles.top, rectangles.height, images.shape[1])[:, :, None, None]
    columns = _span(rectangles.left, rectangles.width, images.shape[2])[:, None, :, None]
    return jnp.where(rows & columns, jnp.asarray(fill, images.dtype), images)


def _span(start: Array, length: Array, size: int) -> Array:
    """Return which of `size` indices lie in start .. start + length - 1: bool (image, index)."""
    indices = jnp.arange(size, dtype=jnp.int32)
    return (indices >= start[:, None]) & (indices < (start + length)[:, None])


def to_integers(uniforms: Array, count: int | Array) -> Array:
    """Turn numbers uniform on [0, 1) into integers uniform on 0 .. count - 1."""
    return jnp.floor(uniforms * jnp.asarray(count, jnp.float32)).astype(jnp.int32)
