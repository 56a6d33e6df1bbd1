"""Random views of a batch of images: crops, flips, and ACR's strong second view. Every image has draws of its own.

All of it runs on whole batches, on the device that holds the images. The draws are made on the host, from the generator
that is passed in, so that every device sees the same views: ``draw_…`` makes them, and the view applies them. Whoever
needs several views in one step draws them all, sends them together (:func:`acr.transfer.send`), and applies them.
uint8 images come back as uint8, floats in 0..1 as floats in 0..1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from acr.data.strong_view import StrongDraws, draw_strong_view, strong_view
from acr.transfer import send


@dataclass(frozen=True)
class CropDraws:
    """Where each image is cut out of its padded copy, and whether it is mirrored."""

    top: Tensor
    left: Tensor
    flip: Tensor | None
    """None: no image is mirrored."""


@dataclass(frozen=True)
class Views:
    """The random views of one data set: how far crops may move, and whether images may be mirrored."""

    padding: int
    flip: bool
    replay_padding: int | None = None
    """Padding of replayed images where it differs."""
    replay_border: tuple[float, ...] | None = None
    """Colour of the border of replayed images, on the scale 0..1; None: black."""

    @classmethod
    def for_side(cls, side: int, flip: bool) -> Views:
        """Crops move by an eighth of the side: 4 pixels at 32."""
        return cls(max(1, side // 8), flip)

    def draw_crop_flip(self, n: int, generator: torch.Generator) -> CropDraws:
        """Draws of :meth:`crop_flip` for ``n`` images."""
        return draw_crop(n, self.padding, generator, self.flip)

    def crop_flip(self, images: Tensor, draws: CropDraws | torch.Generator) -> Tensor:
        """The view of a training image: padded with black, cropped at random, perhaps mirrored."""
        if isinstance(draws, torch.Generator):
            draws = send(self.draw_crop_flip(len(images), draws), images.device)
        return crop(images, self.padding, draws)

    def draw_replay(self, n: int, generator: torch.Generator) -> CropDraws:
        """Draws of :meth:`replay` for ``n`` images."""
        return draw_crop(n, self._replay_padding, generator, self.flip)

    def replay(self, images: Tensor, draws: CropDraws | torch.Generator) -> Tensor:
        """The view of an image from the memory."""
        if isinstance(draws, torch.Generator):
            draws = send(self.draw_replay(len(images), draws), images.device)
        return crop(images, self._replay_padding, draws, self.replay_border)

    @property
    def _replay_padding(self) -> int:
        return self.padding if self.replay_padding is None else self.replay_padding

    def draw_strong(self, shape: Sequence[int], generator: torch.Generator) -> StrongDraws:
        """Draws of :meth:`strong` for images of this shape, n x C x H x W."""
        return draw_strong_view(shape, generator, self.flip)

    def strong(self, images: Tensor, draws: StrongDraws | torch.Generator) -> Tensor:
        """ACR's second view: resized crop, flip, colour jitter, grey."""
        if isinstance(draws, torch.Generator):
            draws = send(self.draw_strong(images.shape, draws), images.device)
        return strong_view(images, draws)


def join(*batches: Tensor) -> Tensor:
    """Concatenate batches of images; where one of them is in floats, all become floats in 0..1."""
    if len({batch.dtype for batch in batches}) > 1:
        batches = tuple(batch.float() / 255 if batch.dtype == torch.uint8 else batch for batch in batches)
    return torch.cat(batches)


def draw_crop(n: int, padding: int, generator: torch.Generator, flip: bool) -> CropDraws:
    """A corner for each of ``n`` images inside its padded copy, and, with ``flip``, a coin for mirroring it."""
    top, left = torch.randint(0, 2 * padding + 1, (2, n), generator=generator)
    return CropDraws(top, left, torch.rand(n, generator=generator) < 0.5 if flip else None)


def crop(images: Tensor, padding: int, draws: CropDraws, border: Sequence[float] | None = None) -> Tensor:
    """Pad all round, then cut the old size out at the drawn place. A ``border`` colour makes the result float."""
    n, channels, height, width = images.shape
    if border is None:
        padded = F.pad(images, [padding] * 4)
    else:
        pixels = images.float() / 255 if images.dtype == torch.uint8 else images
        colour = torch.tensor(border, device=images.device).view(1, -1, 1, 1)
        padded = F.pad(pixels - colour, [padding] * 4) + colour
    across = torch.arange(width, device=images.device)
    columns = draws.left[:, None] + across
    if draws.flip is not None:  # a mirrored image is the same crop, its columns read from right to left
        columns = torch.where(draws.flip[:, None], draws.left[:, None] + (width - 1 - across), columns)
    rows = draws.top[:, None] + torch.arange(height, device=images.device)
    place = rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]
    chosen = place.view(n, 1, -1).expand(n, channels, -1)
    return padded.flatten(2).gather(2, chosen).view(n, channels, height, width)
