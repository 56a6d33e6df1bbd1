"""Panes of window frost, generated: feathery crystals that branch at sixty degrees, over a haze, on dark glass."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from acr.randomness import key_to_seed
from acr.shift.setting import Bytes

PANES = 5
"""Number of panes per seed."""

SIDE = 768
"""Side of a full-size pane, in pixels."""

TINT = (0.84, 0.95, 1.0)
"""Factors on red, green and blue: ice is slightly blue."""

FULL_LENGTH = 120
"""Mean length of a crystal's arm, in pixels of the full pane."""


@lru_cache(maxsize=4 * PANES)
def pane(seed: int, number: int, scale: float, at_least: int) -> Bytes:
    """Pane ``number`` of a seed, uint8 3 x S x S: a full pane resized by ``scale``, to ``at_least`` pixels or more."""
    side = max(round(SIDE * scale), at_least)
    white = _draw(seed, number).resize((side, side), Image.Resampling.LANCZOS)
    plane = np.asarray(white, np.float32)
    glass = np.stack([plane * np.float32(tint) for tint in TINT]).astype(np.uint8)
    glass.setflags(write=False)  # the cache hands out this one array to all callers
    return glass


@lru_cache(maxsize=2 * PANES)
def _draw(seed: int, number: int) -> Image.Image:
    """Pane ``number`` of a seed at full size, in grey."""
    rng = np.random.default_rng(key_to_seed(seed, "shift", "frost pane", number))
    haze = _haze(rng)
    canvas = Image.new("L", (SIDE, SIDE), 0)
    pen = ImageDraw.Draw(canvas)
    drift = rng.uniform(0, 2 * math.pi)  # crystals of one pane lean in about the same direction
    for _ in range(110):
        x, y = rng.uniform(0, SIDE, 2)
        ice = float(haze[int(y), int(x)])
        length = FULL_LENGTH * rng.uniform(0.4, 1.6) * (0.3 + ice)
        lean = drift + rng.normal(0, 0.5)
        for arm in range(int(rng.integers(1, 4))):
            _grow(pen, rng, (x, y), lean + arm * math.pi / 3, length, 3)
    feathers = np.asarray(canvas.filter(ImageFilter.GaussianBlur(0.8)), np.float32)
    glow = np.asarray(canvas.filter(ImageFilter.GaussianBlur(9)), np.float32)
    # Feathers are brightened relative to their own glow, so that thick ice keeps its texture instead of turning white.
    light = 40 + 110 * haze + 0.55 * glow + 1.5 * feathers * 60 / (40 + glow)
    light += rng.normal(0, 8, light.shape) * (0.3 + haze)
    light = 255 * (1 - np.exp(-np.maximum(light, 0) / 150))
    return Image.fromarray(light.astype(np.uint8))


def _grow(
    pen: ImageDraw.ImageDraw, rng: np.random.Generator, at: tuple[float, float], angle: float, length: float, depth: int
) -> None:
    """Draw one needle with fainter side needles at sixty degrees, shorter towards its tip.

    ``at`` and ``length`` are in pixels, ``angle`` in radians; ``depth`` counts levels of needles, this one included.
    """
    (x, y), (along, down) = at, (math.cos(angle), math.sin(angle))
    pen.line((x, y, x + length * along, y + length * down), fill=60 + 65 * depth, width=max(depth, 1))
    if depth == 1 or length < 10:
        return
    spacing = 5 + 3 * depth
    for joint in range(spacing, int(length), spacing):
        for turn in (math.pi / 3, -math.pi / 3):
            reach = (length - joint) * rng.uniform(0.3, 0.6)
            _grow(pen, rng, (x + joint * along, y + joint * down), angle + turn, reach, depth - 1)


def _haze(rng: np.random.Generator) -> NDArray[np.float32]:
    """Cloudy noise in [0, 1]: octaves of smooth random fields, stretched so that some glass is clear."""
    total = np.zeros((SIDE, SIDE), np.float32)
    weight = 1.0
    for cells in (4, 8, 16, 32, 64, 128):
        field = Image.fromarray(rng.random((cells, cells), dtype=np.float32))
        total += np.float32(weight) * np.asarray(field.resize((SIDE, SIDE), Image.Resampling.BICUBIC))
        weight *= 0.6
    low, high = np.quantile(total, (0.05, 0.99))
    return np.asarray(((total - low) / (high - low)).clip(0, 1), np.float32)
