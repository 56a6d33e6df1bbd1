"""How GDumb fits a network to its memory: learning rates with warm restarts, and CutMix.

* GDumb: Prabhu, Torr and Dokania, "GDumb: a simple approach that questions our progress in continual learning",
  ECCV 2020.
* Warm restarts: Loshchilov and Hutter, "SGDR", ICLR 2017.
* CutMix: Yun, Han, Oh, Chun, Choe and Yoo, ICCV 2019.
"""

from __future__ import annotations

import math

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


def cutmix(images: Tensor, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, float]:
    """Paste a box from a random partner into each image; the box is the same for the whole batch.

    Args:
        images: n x C x H x W, of any type; they are not changed.
        labels: n classes.
        generator: source of the draws.

    Returns the mixed images, their own labels, their partners' labels, and the share λ of an image that is its own. The
    loss is then λ·CE(own) + (1−λ)·CE(partner).
    """
    count, _, height, width = images.shape
    share = float(torch.rand((), generator=generator))
    partners = torch.randperm(count, generator=generator).to(labels.device)
    # λ ~ Beta(1, 1), which is uniform; the sides of the box are √(1−λ) of the image's, and its centre is uniform.
    side = math.sqrt(1 - share)
    top, bottom = _span(height, side, generator)
    left, right = _span(width, side, generator)
    mixed = images.clone()
    mixed[:, :, top:bottom, left:right] = images[partners, :, top:bottom, left:right]
    # The box is clipped at the border, so λ is recomputed from its area.
    return mixed, labels, labels[partners], 1 - (bottom - top) * (right - left) / (height * width)


def _span(size: int, share: float, generator: torch.Generator) -> tuple[int, int]:
    """Start and end of the box along one axis, clipped to 0..size."""
    length = int(size * share)
    centre = int(torch.randint(size, (), generator=generator))
    return max(0, centre - length // 2), min(size, centre + length // 2)
