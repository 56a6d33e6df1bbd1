"""Panes of window frost, drawn: crystals that branch at sixty degrees, over a haze, with open glass between them."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from acr.randomness import key_to_seed
from acr.shift.setting import Bytes

PANES = 5
"""Different panes to cut from, for each seed."""

SIDE = 768
"""Pixels of a full-size pane."""

TINT = (0.93, 0.97, 1.0)
"""Ice is a little blue."""


@lru_cache(maxsize=4 * PANES)
def pane(seed: int, number: int, scale: float, at_least: int) -> Bytes:
    """Pane ``number`` of a seed as uint8 3 x S x S: the full pane times ``scale``, enlarged where images need more."""
    side = max(round(SIDE * scale), at_least)
    white = _draw(seed, number).resize((side, side), Image.Resampling.LANCZOS)
    plane = np.asarray(white, np.float32)
    return np.stack([plane * np.float32(tint) for tint in TINT]).astype(np.uint8)


@lru_cache(maxsize=PANES)
def _draw(seed: int, number: int) -> Image.Image:
    """A full pane, grey."""
    rng = np.random.default_rng(key_to_seed(seed, "shift", "frost pane", number))
    haze = _haze(rng)
    canvas = Image.new("L", (SIDE, SIDE), 0)
    pen = ImageDraw.Draw(canvas)
    for _ in range(260):
        place = rng.uniform(0, SIDE, 2)
        ice = haze[int(place[1]), int(place[0])]
        if rng.random() > ice + 0.15:  # crystals grow where there is ice already
            continue
        lean = rng.uniform(0, 2 * math.pi)
        for arm in range(int(rng.integers(1, 7))):
            _grow(pen, rng, place[0], place[1], lean + arm * math.pi / 3, rng.uniform(40, 190) * (0.4 + ice), 3)
    lines = np.asarray(canvas, np.float32)
    glow = np.asarray(canvas.filter(ImageFilter.GaussianBlur(6)), np.float32)
    grain = rng.normal(0, 9, (SIDE, SIDE)).astype(np.float32)
    white = 150 * haze**1.5 + 0.7 * lines * (0.35 + 0.65 * haze) + 0.8 * glow + grain * haze
    return Image.fromarray(white.clip(0, 255).astype(np.uint8))


def _grow(pen: ImageDraw.ImageDraw, rng: np.random.Generator, x: float, y: float, angle: float, length: float, depth: int) -> None:
    """One needle with side needles at sixty degrees, shorter towards its tip."""
    end = x + length * math.cos(angle), y + length * math.sin(angle)
    pen.line((x, y, *end), fill=int(rng.integers(150, 256)), width=max(1, depth - 1))
    if depth == 1 or length < 8:
        return
    joints = int(length / 9)
    for joint in range(1, joints):
        along = joint / joints
        start = x + (end[0] - x) * along, y + (end[1] - y) * along
        for turn in (math.pi / 3, -math.pi / 3):
            _grow(pen, rng, *start, angle + turn, length * (1 - along) * rng.uniform(0.25, 0.6), depth - 1)


def _haze(rng: np.random.Generator) -> np.ndarray:
    """Cloudy noise in [0, 1]: octaves of smooth random fields, stretched so that some glass is clear."""
    total = np.zeros((SIDE, SIDE), np.float32)
    weight = 1.0
    for cells in (3, 6, 12, 24, 48, 96):
        field = Image.fromarray(rng.random((cells, cells), dtype=np.float32))
        total += weight * np.asarray(field.resize((SIDE, SIDE), Image.Resampling.BICUBIC))
        weight *= 0.55
    low, high = np.quantile(total, (0.1, 0.97))
    return ((total - low) / (high - low)).clip(0, 1)
