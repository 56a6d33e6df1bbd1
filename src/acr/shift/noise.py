"""The three noises: Gaussian, shot (Poisson) and impulse (salt and pepper)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from acr.shift.setting import Bytes, Floats, Setting, unit, words


def gaussian_noise(images: Bytes, setting: Setting) -> Floats:
    """x + N(0, std²) on every sub-pixel."""
    (std,) = setting.values
    noise = np.empty(images.shape, np.float32)
    for row, stream in zip(noise, setting.streams(), strict=True):
        stream.standard_normal(out=row, dtype=np.float32)
    noise *= np.float32(std)
    noise += unit(images)
    return noise.clip(0, 1, out=noise)


def shot_noise(images: Bytes, setting: Setting) -> Floats:
    """Poisson(rate · x) / rate: the noise of counting photons.

    A byte has 256 brightnesses, so one alias table per brightness (Walker 1977) gives Poisson counts, exact up to the
    22 bits or more of its thresholds, from one 32-bit word and two look-ups.
    """
    (rate,) = setting.values
    lowest, threshold, alias = _poisson_tables(float(rate))
    bits = threshold.shape[1].bit_length() - 1
    draws = np.empty((len(images), images[0].size), np.uint32)
    for row, stream in zip(draws, setting.streams(), strict=True):
        row[:] = words(stream, row.size, np.uint32)
    levels = images.reshape(draws.shape)
    column = (draws & np.uint32((1 << bits) - 1)).astype(np.int32)
    cell = column + (levels.astype(np.int32) << bits)
    draws >>= np.uint32(bits)
    own = draws < threshold.ravel().take(cell)
    count = np.where(own, column, alias.ravel().take(cell)) + lowest.take(levels)
    noisy = count.astype(np.float32)
    noisy *= np.float32(1 / rate)
    return noisy.clip(0, 1, out=noisy).reshape(images.shape)


@lru_cache(maxsize=8)
def _poisson_tables(rate: float) -> tuple[NDArray[np.int32], NDArray[np.uint32], NDArray[np.int32]]:
    """Alias tables of Poisson(rate · level / 255) for the 256 levels: first count (256), thresholds and aliases.

    Thresholds and aliases are 256 x columns. The counts of a level cover about eight standard deviations on either
    side of its mean; the probability outside is less than a threshold can express.
    """
    mean = rate * np.arange(256) / 255
    spread = 8 * np.sqrt(mean) + 8
    lowest = np.maximum(np.floor(mean - spread), 0)
    columns = 1 << int(np.ceil(np.log2(np.max(np.ceil(mean + spread) - lowest + 1))))
    count = lowest[:, None] + np.arange(columns)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = count * np.log(mean)[:, None] - mean[:, None] - gammaln(count + 1)
    mass = np.exp(log)
    mass[0] = np.arange(columns) == 0  # a black pixel emits no photons
    mass *= columns / mass.sum(axis=1, keepdims=True)

    # Vose's algorithm, for all levels at once: a column below 1 is filled up by the current rich column; a rich column
    # that falls below 1 is the next to be filled up.
    level = np.arange(256)
    order = np.argsort(mass, axis=1, kind="stable")
    rich = np.sum(mass < 1, axis=1)
    first_rich = rich.copy()
    poor = np.zeros(256, int)
    threshold = np.ones_like(mass)
    alias = np.tile(np.arange(columns, dtype=np.int32), (256, 1))
    current = order[level, poor]
    for _ in range(columns):
        active = (rich < columns) & (mass[level, current] < 1)
        at, cell = level[active], current[active]
        giver = order[at, rich[active]]
        threshold[at, cell] = mass[at, cell]
        alias[at, cell] = giver
        mass[at, giver] -= 1 - mass[at, cell]
        spent = mass[at, giver] < 1
        poor[at[~spent]] += 1
        rich[at[spent]] += 1
        following = order[at, np.minimum(poor[at], first_rich[at] - 1)]
        current[at] = np.where(spent, giver, following)
        finished = at[~spent & (poor[at] >= first_rich[at])]
        rich[finished] = columns
    scale = 2.0 ** (32 - (columns.bit_length() - 1))
    return lowest.astype(np.int32), np.rint(threshold * scale).astype(np.uint32), alias


def impulse_noise(images: Bytes, setting: Setting) -> Floats:
    """A fraction of the sub-pixels set to 0 or 1, half each."""
    (fraction,) = setting.values
    draw = np.empty(images.shape, np.float32)
    for row, stream in zip(draw, setting.streams(), strict=True):
        stream.random(out=row, dtype=np.float32)
    noisy = unit(images)
    noisy[draw < fraction] = 1
    noisy[draw < fraction / 2] = 0
    return noisy
