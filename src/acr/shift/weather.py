"""Weather and light: snow, fog, frost, brightness and contrast."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from acr.shift.blur import trail
from acr.shift.frost import PANES, pane
from acr.shift.resample import zoom_steps
from acr.shift.setting import Bytes, Floats, Setting, unit, words
from acr.shift.severities import FOG_MAP_SIDE, FROST_SCALE


def snow(images: Bytes, setting: Setting) -> Floats:
    """A bleached image under a layer of falling flakes and the same layer turned by 180°."""
    mean, std, zoom, threshold, radius, sigma, kept = setting.values
    batch, _, height, width = images.shape
    layer = np.empty((batch, height, width), np.float32)
    angles = []
    for row, stream in zip(layer, setting.streams(), strict=True):
        stream.standard_normal(out=row, dtype=np.float32)
        angles.append(float(stream.uniform(-135, -45)))
    layer *= np.float32(std)
    layer += np.float32(mean)
    layer = _stretch(layer, zoom)
    layer[layer < threshold] = 0
    flakes = unit((layer.clip(0, 1) * np.float32(255)).astype(np.uint8))
    flakes = trail(flakes[..., None], int(radius), sigma, angles)[..., 0]
    flakes = flakes + flakes[:, ::-1, ::-1]

    x = unit(images)
    pale = grey(x)
    pale *= np.float32(1.5)
    pale += np.float32(0.5)
    white = np.maximum(x, pale)
    white *= np.float32(1 - kept)
    x *= np.float32(kept)
    x += white
    x += flakes[:, None]
    return x.clip(0, 1, out=x)


def _stretch(planes: Floats, factor: float) -> Floats:
    """Zoom of N x H x W planes about their centre, bilinear, cut to the same size."""
    _, height, width = planes.shape
    top, down = zoom_steps(height, factor)
    left, along = zoom_steps(width, factor)
    share = down.astype(np.float32)[:, None]
    upper, lower = planes[:, top], planes[:, np.minimum(top + 1, height - 1)]
    planes = upper + (lower - upper) * share
    share = along.astype(np.float32)
    upper, lower = planes[:, :, left], planes[:, :, np.minimum(left + 1, width - 1)]
    return upper + (lower - upper) * share


def grey(x: Floats) -> Floats:
    """ITU-601 luma as one plane; a grey image is its own luma."""
    if x.shape[1] == 1:
        return x.copy()
    luma = x[:, 0:1] * np.float32(0.299)
    luma += x[:, 1:2] * np.float32(0.587)
    luma += x[:, 2:3] * np.float32(0.114)
    return luma


def fog(images: Bytes, setting: Setting) -> Floats:
    """x plus a cloud, scaled so that the brightest pixel m of the image stays within m: times m / (m + amount)."""
    amount, decay = setting.values
    batch, channels, height, width = images.shape
    side = max(FOG_MAP_SIDE[setting.table], 1 << (max(height, width) - 1).bit_length())
    draws = np.empty((batch, side * side - 1), np.int16)
    for row, stream in zip(draws, setting.streams(), strict=True):
        row[:] = words(stream, row.size, np.int16)
    cloud = plasma(draws, side, decay, height, width)
    cloud *= np.float32(amount)
    x = unit(images)
    brightest = x.reshape(batch, -1).max(axis=1)
    x += cloud[:, None]
    x *= (brightest / (brightest + np.float32(amount)))[:, None, None, None]
    return x.clip(0, 1, out=x)


def plasma(draws: NDArray[np.int16], side: int, decay: float, height: int, width: int) -> Floats:
    """Corners of diamond-square clouds on a torus, each scaled to [0, 1] by the extremes of its whole map.

    A level of the map doubles the grid: the middle of each square, then the middle of each edge, is the mean of its
    four neighbours plus a · U[-a, a]; a = 100 at first and is divided by ``decay`` at each level. A signed 16-bit draw
    stands for U[-1, 1]; the draws of a level are those of squares, of horizontal edges, of vertical edges.
    """
    batch = len(draws)
    grid = np.zeros((batch, 1, 1), np.float32)
    roughness, used, cells = 100.0, 0, 1
    low = high = np.zeros(batch, np.float32)
    while cells < side:
        noise = draws[:, used : used + 3 * cells * cells].reshape(batch, 3, cells, cells)
        noise = np.multiply(noise, np.float32(roughness**2 / 32768), dtype=np.float32)
        around = np.empty((batch, cells + 1, cells + 1), np.float32)  # the torus, with its seam repeated
        around[:, :-1, :-1] = grid
        around[:, -1, :-1] = grid[:, 0]
        around[:, :, -1] = around[:, :, 0]
        across = around[:, :, :-1] + around[:, :, 1:]
        squares = across[:, :-1] + across[:, 1:]
        squares *= np.float32(0.25)
        squares += noise[:, 0]
        flat = across[:, :-1] + squares
        flat[:, 1:] += squares[:, :-1]
        flat[:, 0] += squares[:, -1]
        flat *= np.float32(0.25)
        flat += noise[:, 1]
        steep = around[:, :-1, :-1] + around[:, 1:, :-1]
        steep += squares
        steep[:, :, 1:] += squares[:, :, :-1]
        steep[:, :, 0] += squares[:, :, -1]
        steep *= np.float32(0.25)
        steep += noise[:, 2]
        for part in (squares, flat, steep):
            part_of_image = part.reshape(batch, -1)
            low = np.minimum(low, part_of_image.min(axis=1))
            high = np.maximum(high, part_of_image.max(axis=1))
        used += 3 * cells * cells
        cells *= 2
        roughness /= decay
        # The last level is three quarters of the map; beyond the corner only its extremes matter.
        tall, wide = (cells, cells) if cells < side else (height, width)
        merged = np.empty((batch, tall, wide), np.float32)
        up, down, left, right = (tall + 1) // 2, tall // 2, (wide + 1) // 2, wide // 2
        merged[:, 0::2, 0::2] = grid[:, :up, :left]
        merged[:, 1::2, 1::2] = squares[:, :down, :right]
        merged[:, 0::2, 1::2] = flat[:, :up, :right]
        merged[:, 1::2, 0::2] = steep[:, :down, :left]
        grid = merged
    span = np.where(high > low, high - low, 1).astype(np.float32)
    return (grid - low[:, None, None]) / span[:, None, None]


def frost(images: Bytes, setting: Setting) -> Floats:
    """A weighted sum of the image and a random cut of one of the frosted panes of this seed."""
    kept, ice = setting.values
    _, channels, height, width = images.shape
    scale = FROST_SCALE[setting.table]
    x = unit(images)
    x *= np.float32(kept)
    for picture, stream in zip(x, setting.streams(), strict=True):
        glass = pane(setting.seed, int(stream.integers(PANES)), scale, math.ceil(1.1 * max(height, width)))
        top = int(stream.integers(glass.shape[1] - height + 1))
        left = int(stream.integers(glass.shape[2] - width + 1))
        cut = unit(glass[:, top : top + height, left : left + width])
        picture += np.float32(ice) * (cut if channels == 3 else grey(cut[None])[0])
    return x.clip(0, 1, out=x)


def brightness(images: Bytes, setting: Setting) -> Floats:
    """The value of HSV raised; hue and saturation stay, so a pixel is multiplied by new value / old value."""
    (added,) = setting.values
    x = unit(images)
    value = x.max(axis=1, keepdims=True)
    raised = np.minimum(value + np.float32(added), 1)
    black = value == 0
    x *= raised / np.where(black, 1, value)
    return np.where(black, raised, x).clip(0, 1)


def contrast(images: Bytes, setting: Setting) -> Floats:
    """Distances from the mean of each channel multiplied by a factor."""
    (factor,) = setting.values
    _, _, height, width = images.shape
    # A sum of whole numbers is the same in every order.
    mean = images.sum(axis=(2, 3), keepdims=True, dtype=np.int64) / (255 * height * width)
    mean = mean.astype(np.float32)
    x = unit(images)
    x -= mean
    x *= np.float32(factor)
    x += mean
    return x.clip(0, 1, out=x)
