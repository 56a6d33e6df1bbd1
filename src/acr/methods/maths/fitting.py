"""How GDumb fits a network to its memory: learning rates with warm restarts, batches, and CutMix.

* GDumb: Prabhu, Torr and Dokania, "GDumb: a simple approach that questions our progress in continual learning",
  ECCV 2020.
* Warm restarts: Loshchilov and Hutter, "SGDR", ICLR 2017.
* CutMix: Yun, Han, Oh, Chun, Choe and Yoo, ICCV 2019.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


def learning_rates(epochs: int, max_lr: float = 0.05, min_lr: float = 5e-4) -> list[float]:
    """One learning rate per epoch: a tenth of `max_lr` in epoch 0, then cosines that restart at epochs 1, 2, 4, 8, ...

    With T the length of the current cosine and t the epochs since its restart, the rate is
    min_lr + (max_lr − min_lr)(1 + cos(πt/T))/2.

    >>> [round(rate, 5) for rate in learning_rates(9)]
    [0.005, 0.05, 0.05, 0.02525, 0.05, 0.04275, 0.02525, 0.00775, 0.05]
    """
    rates = []
    for epoch in range(epochs):
        if epoch == 0:
            rates.append(max_lr / 10)
            continue
        period = 1 << (epoch.bit_length() - 1)  # T; the last restart was also at this epoch
        phase = (epoch - period) / period
        rates.append(min_lr + (max_lr - min_lr) * (1 + math.cos(math.pi * phase)) / 2)
    return rates


def batches(order: Tensor, size: int) -> list[Tensor]:
    """A permutation in batches of ``size``; a last one of less than half that size joins the one before it.

    Batch norm takes its statistics from the batch. Over a handful of images these are noise, and a step that is made
    with them at the end of every epoch, with the same learning rate as the others, can undo the epoch.

    >>> [[len(batch) for batch in batches(torch.arange(n), 32)] for n in (100, 48)]
    [[32, 32, 36], [32, 16]]
    """
    parts = list(torch.split(order, size))
    if len(parts) > 1 and 2 * len(parts[-1]) < size:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


@dataclass(frozen=True)
class CutMixDraws:
    """The draws of CutMix for one batch."""

    partners: Tensor
    """The row of each image's partner."""
    rows: slice
    """Rows of pixels inside the box."""
    columns: slice
    """Columns of pixels inside the box."""
    share: float
    """λ, the share of an image that is outside the box, its own."""


def draw_cutmix(shape: torch.Size, generator: torch.Generator) -> CutMixDraws:
    """Draw a partner for each image of a batch, n x C x H x W, and one box for the whole batch, on the host."""
    count, _, height, width = shape
    share = float(torch.rand((), generator=generator))
    partners = torch.randperm(count, generator=generator)
    # λ ~ Beta(1, 1), which is uniform; the sides of the box are √(1−λ) of the image's, and its centre is uniform.
    side = math.sqrt(1 - share)
    rows, columns = _span(height, side, generator), _span(width, side, generator)
    # The box is clipped at the border, so λ is recomputed from its area.
    area = (rows.stop - rows.start) * (columns.stop - columns.start)
    return CutMixDraws(partners, rows, columns, 1 - area / (height * width))


def cutmix(
    images: Tensor, labels: Tensor, draws: CutMixDraws | torch.Generator
) -> tuple[Tensor, Tensor, Tensor, float]:
    """Paste a box from a random partner into each image; the box is the same for the whole batch.

    Args:
        images: n x C x H x W, of any type; they are not changed.
        labels: n classes, on the device of the images.
        draws: the draws, or where they come from. The partners are copied to the device if they are on the host;
            nothing waits for it.

    Returns the mixed images, their own labels, their partners' labels, and the share λ of an image that is its own. The
    loss is then λ·CE(own) + (1−λ)·CE(partner).
    """
    if isinstance(draws, torch.Generator):
        draws = draw_cutmix(images.shape, draws)
    partners = draws.partners.to(images.device, non_blocking=True)
    mixed = images.clone()
    mixed[:, :, draws.rows, draws.columns] = images[partners, :, draws.rows, draws.columns]
    return mixed, labels, labels[partners], draws.share


def _span(size: int, share: float, generator: torch.Generator) -> slice:
    """The box along one axis, clipped to 0..size."""
    length = int(size * share)
    centre = int(torch.randint(size, (), generator=generator))
    return slice(max(0, centre - length // 2), min(size, centre + length // 2))
