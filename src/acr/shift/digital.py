"""Digital corruptions: elastic transform, pixelate and JPEG."""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import grid_sample

from acr.shift.resample import Reals, doubled, gaussian_kernel
from acr.shift.setting import Bytes, Floats, Setting, unit, words


def elastic_transform(images: Bytes, setting: Setting) -> Floats:
    """A random affine map, then a smooth random displacement of every pixel, both bilinear."""
    batch, _, height, width = images.shape
    side = min(height, width)
    strength, sigma, shift = (value * side for value in setting.values)
    points = np.empty((batch, 3, 2))
    noise = np.empty((batch, 2, height, width), np.int16)
    for point, field, stream in zip(points, noise, setting.streams(), strict=True):
        point[:] = stream.uniform(-shift, shift, size=(3, 2))
        if strength:
            field[:] = words(stream, field.size, np.int16).reshape(field.shape)
    x, y = affine_positions(points, height, width)
    # The first sampling reflects about the edge pixels, the second about the border of the image.
    warped = _sample(torch.from_numpy(unit(images)), x, y, about_pixels=True)
    if strength:
        move = smooth(noise, sigma) * strength
        warped = _sample(warped, np.arange(width) + move[:, 0], np.arange(height)[:, None] + move[:, 1], False)
    return warped.clamp_(0, 1).numpy()


def affine_positions(moved_by: Reals, height: int, width: int) -> tuple[Reals, Reals]:
    """The source of each pixel under the affine map that moves three points by ``moved_by``.

    The points are a third of the shorter side from the centre along both axes: lower right, upper right, upper left.
    ``moved_by`` is N x 3 x 2, (x, y) in pixels. Returns the x and the y positions, N x height x width each, in pixels.
    """
    reach = max(min(height, width) // 3, 1)
    corner = np.array([width // 2, height // 2]) + reach * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = corner + moved_by
    first, second = moved[:, 1] - moved[:, 0], moved[:, 2] - moved[:, 0]
    area = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
    area = np.where(np.abs(area) < 1e-6, 1e-6, area)  # three points in a line: anything finite will do
    from_first, from_second = corner[1] - corner[0], corner[2] - corner[0]
    positions = []
    for axis in (0, 1):
        by_x = (from_first[axis] * second[:, 1] - from_second[axis] * first[:, 1]) / area
        by_y = (from_second[axis] * first[:, 0] - from_first[axis] * second[:, 0]) / area
        start = corner[0, axis] - by_x * moved[:, 0, 0] - by_y * moved[:, 0, 1]
        down = start[:, None] + by_y[:, None] * np.arange(height)
        positions.append(down[:, :, None] + by_x[:, None, None] * np.arange(width))
    return positions[0], positions[1]


def smooth(noise: NDArray[np.int16], sigma: float) -> Reals:
    """Signed 16-bit noise, read as U[-1, 1], smoothed by a Gaussian; the border is reflected.

    ``noise`` is ... x H x W, ``sigma`` is in pixels, and the Gaussian is truncated at 3σ. The weights are multiples of
    2^-18, so all products and sums fit the 53 bits of a float64 and the matrix product is exact: the order of
    additions, and so the number of threads, cannot change it.
    """
    height, width = noise.shape[-2:]
    rows, columns = _smoothing(height, sigma), _smoothing(width, sigma)
    return np.matmul(np.matmul(rows, noise.astype(np.float64)), columns.T) / 32768


@lru_cache(maxsize=16)
def _smoothing(side: int, sigma: float) -> Reals:
    """Gaussian smoothing of one axis as a side x side matrix."""
    reach = int(3 * sigma + 0.5)
    kernel = np.rint(gaussian_kernel(sigma, reach) * 2**18) / 2**18
    matrix = np.zeros((side, side))
    for offset, weight in zip(range(-reach, reach + 1), kernel, strict=True):
        np.add.at(matrix, (np.arange(side), doubled(np.arange(side) + offset, side)), weight)
    return matrix


def _sample(x: torch.Tensor, columns: Reals, rows: Reals, about_pixels: bool) -> torch.Tensor:
    """Bilinear samples of N x C x H x W images at the given columns and rows, in pixels.

    Positions outside are reflected about the centres of the edge pixels (``about_pixels``) or about the border.
    """
    height, width = x.shape[-2:]
    grid = np.empty((len(x), height, width, 2), np.float32)
    for axis, (position, side) in enumerate(((columns, width), (rows, height))):
        if about_pixels:
            grid[..., axis] = position * (2 / max(side - 1, 1)) - 1
        else:
            grid[..., axis] = (position * 2 + 1) / side - 1
    return grid_sample(x, torch.from_numpy(grid), padding_mode="reflection", align_corners=about_pixels)


def pixelate(images: Bytes, setting: Setting) -> Floats:
    """Box resize to a fraction of the side and back.

    Resizing along one axis treats all lines independently, so the lines of all images are placed side by side, and
    Pillow resizes the batch in two calls, horizontally and then vertically, with the rounding it uses for one image.
    """
    (share,) = setting.values
    batch, channels, height, width = images.shape
    short, narrow = max(int(height * share), 1), max(int(width * share), 1)
    small = _shorten(images.transpose(3, 0, 1, 2).reshape(width, -1), narrow)
    small = small.reshape(narrow, batch, channels, height).transpose(3, 1, 2, 0).reshape(height, -1)
    small = _shorten(small, short).reshape(short, batch, channels, narrow).transpose(1, 2, 0, 3)
    down = (np.arange(height) * 2 + 1) * short // (2 * height)
    along = (np.arange(width) * 2 + 1) * narrow // (2 * width)
    return unit(small[:, :, down][..., along])


def _shorten(lines: Bytes, count: int) -> Bytes:
    """Box resize of the first axis to ``count`` lines."""
    picture = Image.fromarray(np.ascontiguousarray(lines))
    return np.asarray(picture.resize((picture.width, count), Image.Resampling.BOX))


def jpeg_compression(images: Bytes, setting: Setting) -> Floats:
    """JPEG at a given quality, otherwise with Pillow's defaults; one-channel images are saved as greyscale."""
    quality = int(setting.values[0])
    batch, channels, height, width = images.shape
    mode = "RGB" if channels == 3 else "L"
    size = width, height
    # All pictures pass one step before the next, which lets the codec reuse its memory.
    pictures = [Image.frombytes(mode, size, image.tobytes()) for image in images.transpose(0, 2, 3, 1)]
    files = [BytesIO() for _ in pictures]
    for picture, file in zip(pictures, files, strict=True):
        picture.save(file, "JPEG", quality=quality)
    # The decoder is called directly: opening a file parses its headers in Python, which takes longer than decoding.
    pictures = [Image.frombytes(mode, size, file.getvalue(), "jpeg", mode, "") for file in files]
    decoded = np.frombuffer(b"".join(picture.tobytes() for picture in pictures), np.uint8)
    return unit(decoded.reshape(batch, height, width, channels).transpose(0, 3, 1, 2))
