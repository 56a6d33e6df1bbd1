"""Interpolation shared by the corruptions: spline zooms of order one, borders, Gaussian kernels."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Whole = NDArray[np.intp]


def mirrored(positions: Whole, side: int) -> Whole:
    """Fold positions into 0..side-1 by reflection about the edge pixels (c b | a b c | b a), from any distance.

    >>> mirrored(np.arange(-3, 6), 3).tolist()
    [1, 2, 1, 0, 1, 2, 1, 0, 1]
    """
    if side == 1:
        return np.zeros_like(positions)
    folded = np.abs(positions) % (2 * side - 2)
    return np.minimum(folded, 2 * side - 2 - folded)


def doubled(positions: Whole, side: int) -> Whole:
    """Fold positions into 0..side-1 by reflection about the image's border (b a | a b c | c b).

    >>> doubled(np.arange(-3, 6), 3).tolist()
    [2, 1, 0, 0, 1, 2, 2, 1, 0]
    """
    folded = positions % (2 * side)
    return np.minimum(folded, 2 * side - 1 - folded)


def clamped(positions: Whole, side: int) -> Whole:
    """Positions outside take the nearest edge pixel."""
    return np.clip(positions, 0, side - 1)


def gaussian_kernel(sigma: float, radius: int) -> Reals:
    """Samples of a Gaussian at -radius..radius, with sum 1; ``sigma`` and ``radius`` are in pixels."""
    if radius == 0:
        return np.ones(1)
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    return kernel / kernel.sum()


def zoom_steps(side: int, factor: float) -> tuple[Whole, Reals]:
    """A zoom of one axis about its centre, cut to the same length.

    The central n = ceil(side / factor) pixels are stretched to round(n · factor) pixels, with the first and the last
    one kept in place (a spline zoom of order one), and the middle ``side`` pixels are cut out. Returns for each of
    these the index of its left neighbour and the weight of the right one.
    """
    inner = math.ceil(side / factor)
    outer = max(side, round(inner * factor))
    start = (side - inner) // 2
    trim = (outer - side) // 2
    scale = (inner - 1) / (outer - 1) if outer > 1 else 0.0
    position = np.minimum((trim + np.arange(side)) * scale, inner - 1)
    left = np.minimum(position.astype(np.intp), max(inner - 2, 0))
    return left + start, position - left


def zoom_matrix(side: int, factor: float) -> Reals:
    """``zoom_steps`` as a side x side matrix."""
    left, fraction = zoom_steps(side, factor)
    matrix = np.zeros((side, side))
    rows = np.arange(side)
    matrix[rows, left] += 1 - fraction
    matrix[rows, np.minimum(left + 1, side - 1)] += fraction
    return matrix
