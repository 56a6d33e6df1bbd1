"""Weather and light: snow, fog, frost, brightness and contrast."""

from __future__ import annotations

import math

import numpy as np

from acr.shift.blur import trail
from acr.shift.frost import PANES, pane
from acr.shift.plasma import Plasma
from acr.shift.resample import zoom_steps
from acr.shift.setting import Bytes, Floats, Setting, unit, words
from acr.shift.severities import FOG_MAP_SIDE, FROST_SCALE


def snow(images: Bytes, setting: Setting) -> Floats:
    """A bleached image under a layer of falling flakes and the same layer rotated by 180°.

    x ← kept·x + (1 − kept)·max(x, 1.5·grey + .5) + flakes + rotated flakes.
    """
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
    specks = (layer.clip(0, 1) * np.float32(255)).astype(np.uint8)
    flakes = trail(specks[..., None], int(radius), sigma, angles)[..., 0]
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
    """Bilinear zoom of N x H x W planes about their centre, cut to the same size."""
    _, height, width = planes.shape
    top, down = zoom_steps(height, factor)
    left, along = zoom_steps(width, factor)
    share = down.astype(np.float32)[:, None]
    upper, lower = planes.take(top, axis=1), planes.take(np.minimum(top + 1, height - 1), axis=1)
    planes = upper + (lower - upper) * share
    share = along.astype(np.float32)
    upper, lower = planes.take(left, axis=2), planes.take(np.minimum(left + 1, width - 1), axis=2)
    return upper + (lower - upper) * share


def grey(x: Floats) -> Floats:
    """ITU-601 luma, N x 1 x H x W; a one-channel image is its own luma."""
    if x.shape[1] == 1:
        return x.copy()
    luma = x[:, 0:1] * np.float32(0.299)
    luma += x[:, 1:2] * np.float32(0.587)
    luma += x[:, 2:3] * np.float32(0.114)
    return luma


def fog(images: Bytes, setting: Setting) -> Floats:
    """(x + amount·cloud) · m/(m + amount), with m the brightest value of the image, so that no value exceeds m."""
    amount, decay = setting.values
    batch, _, height, width = images.shape
    side = max(FOG_MAP_SIDE[setting.table], 1 << (max(height, width) - 1).bit_length())
    plasma = Plasma(side, batch)
    draws = np.empty((batch, plasma.draws), np.int16)
    for row, stream in zip(draws, setting.streams(), strict=True):
        row[:] = words(stream, row.size, np.int16)
    cloud = plasma.corners(draws, decay, height, width)
    cloud *= np.float32(amount)
    x = unit(images)
    brightest = x.reshape(batch, -1).max(axis=1)
    x += cloud[:, None]
    x *= (brightest / (brightest + np.float32(amount)))[:, None, None, None]
    return x.clip(0, 1, out=x)


def frost(images: Bytes, setting: Setting) -> Floats:
    """A weighted sum of the image and a random crop of one of the frosted panes of this seed."""
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
    """HSV value raised by a constant; hue and saturation stay, so a pixel is multiplied by new value / old value."""
    (added,) = setting.values
    x = unit(images)
    value = x.max(axis=1, keepdims=True)
    raised = np.minimum(value + np.float32(added), 1)
    black = value == 0
    x *= raised / np.where(black, 1, value)
    return np.where(black, raised, x).clip(0, 1)


def contrast(images: Bytes, setting: Setting) -> Floats:
    """(x − mean)·factor + mean, with the mean of each channel of the image."""
    (factor,) = setting.values
    _, _, height, width = images.shape
    # A sum of integers does not depend on the order of additions.
    mean = images.sum(axis=(2, 3), keepdims=True, dtype=np.int64) / (255 * height * width)
    mean = mean.astype(np.float32)
    x = unit(images)
    x -= mean
    x *= np.float32(factor)
    x += mean
    return x.clip(0, 1, out=x)
