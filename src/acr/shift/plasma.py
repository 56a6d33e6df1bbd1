"""Clouds by the diamond-square algorithm, for fog."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from acr.shift.setting import Floats


class Plasma:
    """Diamond-square clouds on a torus, of which only the top left corner is needed.

    Each level doubles the grid: the middle of each square, then the middle of each edge, is the mean of its four
    neighbours plus a · U[-a, a]; a = 100 at first and is divided by ``decay`` at each level. A signed 16-bit draw is
    read as U[-1, 1]; a level uses those of the squares, of the horizontal edges and of the vertical edges, in this
    order. ``side`` is the side of a map in pixels, a power of two, and ``maps`` the largest number of maps at a time.

    The arrays are allocated once for all levels: allocating new memory would cost more than the arithmetic.
    """

    def __init__(self, side: int, maps: int) -> None:
        self.side = side
        half = max(side // 2, 1)
        quarter = max(side // 4, 1)
        self._noise = np.empty(3 * maps * quarter**2, np.float32)
        self._parts = np.empty(3 * maps * quarter**2, np.float32)
        self._across = np.empty(maps * (quarter + 1) * quarter, np.float32)
        self._grids = [np.empty(maps * (half + 1) ** 2, np.float32) for _ in range(2)]

    @property
    def draws(self) -> int:
        """Number of draws per map."""
        return self.side**2 - 1

    def corners(self, draws: NDArray[np.int16], decay: float, height: int, width: int) -> Floats:
        """The top left corners of maps, maps x height x width, scaled to [0, 1] by the extremes of the whole maps.

        ``draws`` has one row of ``self.draws`` numbers per map; ``decay`` divides the roughness at each level.
        """
        maps = len(draws)
        low = np.zeros((maps, 1, 1), np.float32)  # the first point of every map is 0
        high = np.zeros((maps, 1, 1), np.float32)
        corner = np.zeros((maps, height, width), np.float32)
        grid = _view(self._grids[0], maps, 2, 2)  # the torus, with its first row and column repeated at the end
        grid[:] = 0
        cells, used, roughness, level = 1, 0, 100.0, 1
        while 2 * cells < self.side:
            parts = self._level(grid, draws[:, used : used + 3 * cells**2], roughness)
            np.minimum(low, parts.min(axis=(0, 2, 3))[:, None, None], out=low)
            np.maximum(high, parts.max(axis=(0, 2, 3))[:, None, None], out=high)
            used += 3 * cells**2
            roughness /= decay
            finer = _view(self._grids[level % 2], maps, 2 * cells + 1, 2 * cells + 1)
            _merge(finer[:, :-1, :-1], grid[:, :-1, :-1], *parts)
            finer[:, -1, :-1] = finer[:, 0, :-1]
            finer[:, :, -1] = finer[:, :, 0]
            grid = finer
            cells, level = 2 * cells, level + 1
        if cells < self.side:
            _last_level(corner, grid, draws[:, used:].reshape(maps, 3, cells, cells), roughness, low, high)
        span = high - low
        corner -= low
        corner /= np.where(span > 0, span, np.float32(1))
        return corner

    def _level(self, grid: Floats, draws: NDArray[np.int16], roughness: float) -> Floats:
        """Middles of squares, of horizontal edges and of vertical edges: 3 x maps x cells x cells."""
        maps, cells = len(grid), grid.shape[1] - 1
        quarter = np.float32(0.25)
        parts = _view(self._parts, 3, maps, cells, cells)
        across = _view(self._across, maps, cells + 1, cells)
        noise = _view(self._noise, 3, maps, cells, cells)
        np.copyto(noise, draws.reshape(maps, 3, cells, cells).transpose(1, 0, 2, 3))
        noise *= np.float32(roughness**2 / 32768)
        squares, flat, steep = parts
        np.add(grid[:, :, :-1], grid[:, :, 1:], out=across)
        np.add(across[:, :-1], across[:, 1:], out=squares)
        squares *= quarter
        squares += noise[0]
        np.add(across[:, :-1], squares, out=flat)
        flat[:, 1:] += squares[:, :-1]
        flat[:, 0] += squares[:, -1]
        np.add(grid[:, :-1, :-1], grid[:, 1:, :-1], out=steep)
        steep += squares
        steep[:, :, 1:] += squares[:, :, :-1]
        steep[:, :, 0] += squares[:, :, -1]
        parts[1:] *= quarter
        parts[1:] += noise[1:]
        return parts


def _view(buffer: Floats, *shape: int) -> Floats:
    """The start of a flat buffer, viewed in this shape."""
    return buffer[: math.prod(shape)].reshape(shape)


def _merge(target: Floats, grid: Floats, squares: Floats, flat: Floats, steep: Floats) -> None:
    """Interleave the points of a level with the new ones between them, up to the size of the target."""
    height, width = target.shape[-2:]
    up, down, left, right = (height + 1) // 2, height // 2, (width + 1) // 2, width // 2
    target[..., 0::2, 0::2] = grid[..., :up, :left]
    target[..., 1::2, 1::2] = squares[..., :down, :right]
    target[..., 0::2, 1::2] = flat[..., :up, :right]
    target[..., 1::2, 0::2] = steep[..., :down, :left]


def _last_level(
    corner: Floats, grid: Floats, draws: NDArray[np.int16], roughness: float, low: Floats, high: Floats
) -> None:
    """Fill ``corner``, and update the extremes ``low`` and ``high``, without computing the rest of the finest level.

    The finest level is three quarters of a map, and outside the corner only its extremes matter. No new point can
    exceed its neighbours on the grid by more than 2a², so rows farther than this from both extremes cannot change them.
    """
    maps, height, width = corner.shape
    cells = grid.shape[1] - 1
    tall, wide = (height + 1) // 2, (width + 1) // 2
    scale = np.float32(roughness**2 / 32768)
    rows, columns = np.arange(-1, tall + 1)[:, None] % cells, np.arange(-1, wide + 1) % cells
    top_left = grid[:, rows, columns]
    parts = _between(
        top_left,
        draws[:, 0, rows[:-1], columns[:-1]] * scale,
        draws[:, 1, :tall, :wide] * scale,
        draws[:, 2, :tall, :wide] * scale,
    )
    _merge(corner, top_left[:, 1:-1, 1:-1], *parts)

    near = np.float32(2.001 * roughness**2)
    points = grid[:, :-1]
    hot = (points.max(axis=2) > high[:, 0] - near) | (points.min(axis=2) < low[:, 0] + near)
    hot |= np.roll(hot, 1, axis=1) | np.roll(hot, -1, axis=1)
    number, row = np.nonzero(hot)  # sorted by map; every map has a highest row, so none is missing
    first = np.searchsorted(number, np.arange(maps))
    three_rows = np.stack([row - 1, row, row + 1], axis=1) % cells
    around = np.arange(-1, cells + 1) % cells
    parts = _between(
        grid[number[:, None], three_rows].take(around, axis=2),
        draws[number[:, None], 0, three_rows[:, :2]].take(around[:-1], axis=2) * scale,
        draws[number, 1, row][:, None] * scale,
        draws[number, 2, row][:, None] * scale,
    )
    for part in parts:
        np.minimum(low, np.minimum.reduceat(part.min(axis=(1, 2)), first)[:, None, None], out=low)
        np.maximum(high, np.maximum.reduceat(part.max(axis=(1, 2)), first)[:, None, None], out=high)


def _between(grid: Floats, for_squares: Floats, for_flat: Floats, for_steep: Floats) -> tuple[Floats, Floats, Floats]:
    """New points of patches of R x C grid points; ``grid`` has one more point on each side.

    The other arguments are the noise of the squares, with one more row above and one more column to the left, and that
    of the horizontal and the vertical edges. Returns the middles of the squares, of the horizontal and of the vertical
    edges to the lower right of each point.
    """
    quarter = np.float32(0.25)
    across = grid[..., :-1] + grid[..., 1:]
    squares = across[:, :-1] + across[:, 1:]
    squares *= quarter
    squares += for_squares
    flat = across[:, 1:-1, 1:] + squares[:, 1:, 1:]
    flat += squares[:, :-1, 1:]
    flat *= quarter
    flat += for_flat
    steep = grid[:, 1:-1, 1:-1] + grid[:, 2:, 1:-1]
    steep += squares[:, 1:, 1:]
    steep += squares[:, 1:, :-1]
    steep *= quarter
    steep += for_steep
    return squares[:, 1:, 1:], flat, steep
