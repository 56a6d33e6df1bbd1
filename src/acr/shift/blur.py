"""The four blurs: defocus, motion, zoom and glass.

Every result is a sum of shifted images in a fixed order, or a sum that is exact. A library routine whose order of
additions depends on the batch size or the number of threads could make an image depend on its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from acr.shift.resample import clamped, gaussian_kernel, mirrored, zoom_matrix
from acr.shift.setting import Bytes, Floats, Setting, unit

NEGLIGIBLE = 1e-7
"""A weight below this share of the total cannot change a float32 in [0, 1] by a unit in its last place."""


def defocus_blur(images: Bytes, setting: Setting) -> Floats:
    """Correlation with a smoothed disk; the image is reflected about its edge pixels."""
    radius, alias = setting.values
    kernel = disk(radius, alias)
    reach = len(kernel) // 2
    batch, channels, height, width = images.shape
    # Pixels first, images last: a shifted view is then contiguous, and one addition serves all images of the batch.
    planes = np.ascontiguousarray(images.reshape(-1, height, width).transpose(1, 2, 0), np.float32)
    planes = planes[mirrored(np.arange(-reach, height + reach), height)]
    planes = planes[:, mirrored(np.arange(-reach, width + reach), width)]
    total = np.zeros((height, width, batch * channels), np.float32)
    scratch = np.empty_like(total)
    for row in range(reach + 1):  # the kernel is symmetric: opposite rows and columns have equal weights
        if kernel[reach + row].max() <= NEGLIGIBLE:
            continue
        pair = planes[reach + row : reach + row + height]
        if row:
            pair = pair + planes[reach - row : reach - row + height]
        for column in range(reach + 1):
            weight = kernel[reach + row, reach + column]
            if weight <= NEGLIGIBLE:
                continue
            view = pair[:, reach + column : reach + column + width]
            if column:
                view = np.add(view, pair[:, reach - column : reach - column + width], out=scratch)
            total += np.multiply(view, np.float32(weight / 255), out=scratch)
    return total.transpose(2, 0, 1).reshape(images.shape).clip(0, 1)


def disk(radius: float, alias: float) -> NDArray[np.float64]:
    """A disk of sum 1 on a grid (17 x 17, larger for radii above 8), smoothed against aliasing.

    ``radius`` and ``alias``, the σ of the Gaussian that smooths it, are in pixels.
    """
    small = radius <= 8
    reach = 8 if small else int(radius)
    line = np.arange(-reach, reach + 1)
    filled = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    filled /= filled.sum()
    smooth = gaussian_kernel(alias, 1 if small else 2)
    border = len(smooth) // 2
    fold = mirrored(np.arange(-border, len(line) + border), len(line))
    spread = np.zeros((len(line), len(line)))  # smoothing of one axis as a matrix
    for tap, weight in enumerate(smooth):
        np.add.at(spread, (np.arange(len(line)), fold[tap : tap + len(line)]), weight)
    return spread @ filled @ spread.T


def motion_blur(images: Bytes, setting: Setting) -> Floats:
    """Motion blur at an angle from U[-45°, 45°], as in ImageMagick."""
    radius, sigma = setting.values
    angles = [float(stream.uniform(-45, 45)) for stream in setting.streams()]
    return trail(images.transpose(0, 2, 3, 1), int(radius), sigma, angles).transpose(0, 3, 1, 2).clip(0, 1)


def trail(planes: Bytes, radius: int, sigma: float, angles: Sequence[float]) -> Floats:
    """ImageMagick's motion blur: a weighted mean along a line, with the weights of a one-sided Gaussian.

    There are 2·radius + 1 taps. Tap i is i pixels along the angle, with each coordinate rounded half down; positions
    outside take the edge pixel.

    Args:
        planes: N x H x W x C bytes.
        radius: half the number of taps, rounded down.
        sigma: of the Gaussian, in pixels.
        angles: one per image, in degrees.

    Returns N x H x W x C floats in [0, 1].
    """
    kernel = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    kernel /= kernel.sum()
    kernel = kernel[kernel > NEGLIGIBLE]
    order = np.argsort(np.asarray(angles), kind="stable")
    steps = trail_offsets(len(kernel), [angles[image] for image in order])
    _, height, width, _ = planes.shape
    (top, left), (bottom, right) = np.maximum(-steps.min(axis=(0, 2)), 0), np.maximum(steps.max(axis=(0, 2)), 0)
    padded = np.pad(planes[order], ((0, 0), (top, bottom), (left, right), (0, 0)), mode="edge").astype(np.float32)
    total = np.zeros(planes.shape, np.float32)
    scratch = np.empty_like(total)
    # Images with similar angles have a tap in the same place, so one addition serves them all.
    for tap, weight in enumerate((kernel / 255).astype(np.float32)):
        place = steps[:, :, tap]
        changes = np.flatnonzero((place[1:] != place[:-1]).any(axis=1)) + 1
        for start, stop in pairwise([0, *changes.tolist(), len(planes)]):
            row, column = top + place[start, 0], left + place[start, 1]
            view = padded[start:stop, row : row + height, column : column + width]
            total[start:stop] += np.multiply(view, weight, out=scratch[: stop - start])
    result = np.empty_like(total)
    result[order] = total
    return result


def trail_offsets(taps: int, angles: Sequence[float]) -> NDArray[np.intp]:
    """Offsets (row, column) of ``taps`` taps along each angle, in degrees: angles x 2 x taps.

    >>> trail_offsets(4, [-45]).tolist()
    [[[0, -1, -1, -2], [0, 1, 1, 2]]]
    """
    radians = [math.radians(angle) for angle in angles]
    step = np.array([(math.sin(angle), math.cos(angle)) for angle in radians])
    return np.ceil(step[:, :, None] * np.arange(taps) - 0.5).astype(np.intp)


def zoom_blur(images: Bytes, setting: Setting) -> Floats:
    """The mean of the image and its zooms about the centre."""
    batch, channels, height, width = images.shape
    weights = _zoom_weights(height, width, setting.values)
    pixels = np.ascontiguousarray(images.reshape(batch * channels, -1).T, np.float32)
    mean = weights @ pixels
    mean *= np.float32(1 / (255 * WEIGHT_UNIT))
    return np.ascontiguousarray(mean.T).reshape(images.shape).clip(0, 1, out=None)


WEIGHT_UNIT = 1 << 16
"""Zoom weights are multiples of 1/65536, so that with 8-bit pixels every partial sum is an exact float32."""


@lru_cache(maxsize=8)
def _zoom_weights(height: int, width: int, steps: tuple[float, float, float]) -> sparse.csr_array:
    """The whole zoom blur as one sparse matrix over pixels: near the centre all zooms read the same few pixels."""
    factors = np.arange(*steps)
    total = sparse.diags_array(np.ones(height * width), format="csr")
    for factor in factors:
        rows, columns = (sparse.csr_array(zoom_matrix(side, factor)) for side in (height, width))
        total = total + sparse.kron(rows, columns, format="csr")
    total = total * (WEIGHT_UNIT / (len(factors) + 1))
    total.data = np.rint(total.data)
    # After rounding, a row may not add up to the total; the rest goes to its own pixel, which always has a weight.
    total = total + sparse.diags_array(WEIGHT_UNIT - total.sum(axis=1), format="csr")
    return total.astype(np.float32)


def glass_blur(images: Bytes, setting: Setting) -> Floats:
    """Gaussian blur, sweeps that swap each pixel with a random neighbour, Gaussian blur.

    A sweep runs from the lower right to the upper left, and each swap acts on the result of those before it. The swaps
    are applied to indices of pixels, for all images at once; the pixels are then read once.
    """
    sigma, shift, sweeps = setting.values[0], int(setting.values[1]), int(setting.values[2])
    batch, channels, height, width = images.shape
    rows, columns = range(height - shift, shift, -1), range(width - shift, shift, -1)
    places = [row * width + column for _ in range(sweeps) for row in rows for column in columns]
    moves = np.empty((batch, len(places), 2), np.int8)
    for move, stream in zip(moves, setting.streams(), strict=True):
        move[:] = stream.integers(-shift, shift, size=move.shape, dtype=np.int8)
    jumps = np.ascontiguousarray((moves[..., 0].astype(np.int32) * width + moves[..., 1]).T)
    order = np.repeat(np.arange(height * width, dtype=np.int32)[:, None], batch, axis=1)
    flat, lanes = order.ravel(), np.arange(batch)
    here = np.empty(batch, np.int32)
    for place, jump in zip(places, jumps, strict=True):
        there = jump * batch + (lanes + place * batch)
        here[:] = order[place]
        flat.take(there, out=order[place], mode="clip")  # all are inside; this spares numpy the check
        flat[there] = here
    soft = _soften(unit(images), sigma).reshape(batch, channels, -1)
    mixed = np.take_along_axis(soft, order.T[:, None, :], axis=2).reshape(images.shape)
    return _soften(mixed, sigma).clip(0, 1)


def _soften(planes: Floats, sigma: float) -> Floats:
    """Gaussian blur of the last two axes with ``sigma`` in pixels, truncated at 4σ, edge pixels repeated."""
    reach = int(4 * sigma + 0.5)
    if reach == 0:
        return planes
    kernel = gaussian_kernel(sigma, reach).astype(np.float32)
    _, _, height, width = planes.shape
    result = np.empty_like(planes)
    for start in range(0, len(planes), 16):  # the sums of a few images stay in the cache
        part = planes[start : start + 16]
        padded = part.take(clamped(np.arange(-reach, height + reach), height), axis=2)
        down = padded[:, :, :height] * kernel[0]
        scratch = np.empty_like(down)
        for tap in range(1, len(kernel)):
            down += np.multiply(padded[:, :, tap : tap + height], kernel[tap], out=scratch)
        padded = np.pad(down, ((0, 0), (0, 0), (0, 0), (reach, reach)), mode="edge")
        total = result[start : start + 16]
        np.multiply(padded[..., :width], kernel[0], out=total)
        for tap in range(1, len(kernel)):
            total += np.multiply(padded[..., tap : tap + width], kernel[tap], out=scratch)
    return result
