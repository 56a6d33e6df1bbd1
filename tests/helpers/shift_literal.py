"""Slow corruptions of one image at a time, written as their definitions read, for the fast ones to be compared with.

Each takes an H x W x C image in [0, 1], the corruption's constants and the image's random stream.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.ndimage import correlate1d, gaussian_filter, map_coordinates, zoom


def centre_zoom(image: np.ndarray, factor: float) -> np.ndarray:
    side = image.shape[0]
    inner = math.ceil(side / factor)
    start = (side - inner) // 2
    large = zoom(image[start : start + inner, start : start + inner], (factor, factor, 1), order=1)
    trim = (large.shape[0] - side) // 2
    return large[trim : trim + side, trim : trim + side]


def zoom_blur(x: np.ndarray, constants: tuple, stream: np.random.Generator) -> np.ndarray:
    layers = [x] + [centre_zoom(x, factor) for factor in np.arange(*constants)]
    return np.clip(np.mean(layers, axis=0), 0, 1)


def whole_plasma(noise: np.ndarray, side: int, decay: float) -> np.ndarray:
    """Diamond-square, point by point; ``noise`` holds the draws of U[-1, 1] in order."""
    cloud = np.zeros((side, side))
    draws = iter(noise)
    step, a = side, 100.0
    while step >= 2:
        half = step // 2
        corners = [(r, c) for r in range(0, side, step) for c in range(0, side, step)]
        square = {}
        for r, c in corners:
            four = [cloud[(r + i) % side, (c + j) % side] for i in (0, step) for j in (0, step)]
            square[r + half, c + half] = sum(four) / 4 + a * (a * next(draws))
        for place, value in square.items():
            cloud[place] = value
        for offset in ((0, half), (half, 0)):
            for r, c in corners:
                y, x = r + offset[0], c + offset[1]
                near = [(y - half, x), (y + half, x), (y, x - half), (y, x + half)]
                cloud[y, x] = sum(cloud[p % side, q % side] for p, q in near) / 4 + a * (a * next(draws))
        step, a = half, a / decay
    return (cloud - cloud.min()) / (cloud.max() - cloud.min())


def int16(stream: np.random.Generator, count: int) -> np.ndarray:
    raw = stream.bit_generator.random_raw(-(-count // 4))
    return raw.view(np.int16)[:count] / 32768


def fog(x: np.ndarray, constants: tuple, stream: np.random.Generator, side: int) -> np.ndarray:
    amount, decay = constants
    cloud = whole_plasma(int16(stream, side * side - 1), side, decay)[: x.shape[0], : x.shape[1], None]
    brightest = x.max()
    return np.clip((x + amount * cloud) * brightest / (brightest + amount), 0, 1)


def motion(plane: np.ndarray, radius: int, sigma: float, angle: float) -> np.ndarray:
    width = 2 * radius + 1
    kernel = np.array([math.exp(-(i**2) / (2 * sigma**2)) / (math.sqrt(2 * math.pi) * sigma) for i in range(width)])
    kernel /= kernel.sum()
    down, along = width * math.sin(math.radians(angle)), width * math.cos(math.radians(angle))
    length = math.hypot(down, along)
    height, breadth = plane.shape[:2]
    result = np.zeros(plane.shape)
    for i in range(width):
        row, column = math.ceil(i * down / length - 0.5), math.ceil(i * along / length - 0.5)
        rows = np.clip(np.arange(height) + row, 0, height - 1)
        columns = np.clip(np.arange(breadth) + column, 0, breadth - 1)
        result += kernel[i] * plane[rows][:, columns]
    return result


def motion_blur(x: np.ndarray, constants: tuple, stream: np.random.Generator) -> np.ndarray:
    return motion(x, constants[0], constants[1], stream.uniform(-45, 45))


def snow(x: np.ndarray, constants: tuple, stream: np.random.Generator) -> np.ndarray:
    mean, std, factor, threshold, radius, sigma, kept = constants
    layer = mean + std * stream.standard_normal(x.shape[:2], dtype=np.float32)
    layer = centre_zoom(layer[..., None], factor)[..., 0]
    layer[layer < threshold] = 0
    layer = np.floor(np.clip(layer, 0, 1) * 255) / 255
    layer = motion(layer, radius, sigma, stream.uniform(-135, -45))[..., None]
    grey = (x @ [0.299, 0.587, 0.114])[..., None] if x.shape[2] == 3 else x
    x = kept * x + (1 - kept) * np.maximum(x, 1.5 * grey + 0.5)
    return np.clip(x + layer + np.rot90(layer, 2), 0, 1)


def elastic_transform(x: np.ndarray, constants: tuple, stream: np.random.Generator) -> np.ndarray:
    height, width, channels = x.shape
    side = min(height, width)
    strength, sigma, shift = (value * side for value in constants)
    centre, reach = np.array([width // 2, height // 2]), side // 3
    points = np.array([centre + reach, centre + np.array([reach, -reach]), centre - reach])
    moved = points + stream.uniform(-shift, shift, size=(3, 2))
    inverse = np.linalg.solve(np.column_stack([moved, np.ones(3)]), points)  # (x, y, 1) of the result to (x, y) before
    ys, xs = np.mgrid[:height, :width]
    before = np.stack([xs, ys, np.ones_like(xs)], axis=-1) @ inverse
    at = before[..., 1], before[..., 0]
    x = np.stack([map_coordinates(x[..., c], at, order=1, mode="mirror") for c in range(channels)], axis=-1)
    if strength:
        noise = int16(stream, 2 * height * width).reshape(2, height, width)
        dx, dy = (strength * gaussian_filter(field, sigma, mode="reflect", truncate=3) for field in noise)
        at = ys + dy, xs + dx
        x = np.stack([map_coordinates(x[..., c], at, order=1, mode="reflect") for c in range(channels)], axis=-1)
    return np.clip(x, 0, 1)


def soften(x: np.ndarray, sigma: float) -> np.ndarray:
    return gaussian_filter(x, (sigma, sigma, 0), mode="nearest", truncate=4)


def glass_blur(x: np.ndarray, constants: tuple, stream: np.random.Generator) -> np.ndarray:
    sigma, shift, sweeps = constants
    height, width, _ = x.shape
    x = soften(x, sigma)
    places = [(r, c) for r in range(height - shift, shift, -1) for c in range(width - shift, shift, -1)]
    moves = stream.integers(-shift, shift, size=(sweeps * len(places), 2), dtype=np.int8)
    for (r, c), (down, along) in zip(places * sweeps, moves.tolist(), strict=True):
        here, there = x[r, c].copy(), x[r + down, c + along].copy()
        x[r, c], x[r + down, c + along] = there, here
    return np.clip(soften(x, sigma), 0, 1)


def frost(x: np.ndarray, constants: tuple, stream: np.random.Generator, panes: list[np.ndarray]) -> np.ndarray:
    kept, ice = constants
    pane = panes[stream.integers(len(panes))]
    top = stream.integers(pane.shape[0] - x.shape[0] + 1)
    left = stream.integers(pane.shape[1] - x.shape[1] + 1)
    cut = pane[top : top + x.shape[0], left : left + x.shape[1]]
    if x.shape[2] == 1:
        cut = (cut @ [0.299, 0.587, 0.114])[..., None]
    return np.clip(kept * x + ice * cut, 0, 1)


def defocus_blur(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Correlation by a kernel, row by row, with borders reflected about the edge pixels."""
    reach = len(kernel) // 2
    total = np.zeros(x.shape)
    for row, weights in enumerate(kernel):
        positions = np.abs(np.arange(x.shape[0]) + row - reach)
        period = 2 * x.shape[0] - 2
        positions = np.minimum(positions % period, period - positions % period)
        total += correlate1d(x[positions], weights, axis=1, mode="mirror")
    return np.clip(total, 0, 1)
