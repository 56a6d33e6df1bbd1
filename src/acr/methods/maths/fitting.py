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
    """One rate an epoch: a tenth in epoch 0, then cosines from `max_lr` to `min_lr` that restart at 1, 2, 4, 8, ...

    >>> [round(rate, 5) for rate in learning_rates(9)]
    [0.005, 0.05, 0.05, 0.02525, 0.05, 0.04275, 0.02525, 0.00775, 0.05]
    """
    rates = []
    for epoch in range(epochs):
        if epoch == 0:
            rates.append(max_lr / 10)
            continue
        period = 1 << (epoch.bit_length() - 1)  # the last restart was at this epoch, and the cosine is as long
        phase = (epoch - period) / period
        rates.append(min_lr + (max_lr - min_lr) * (1 + math.cos(math.pi * phase)) / 2)
    return rates


def cutmix(images: Tensor, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, float]:
    """Paste one box of each image's partner into it: (images, own labels, partners' labels, share λ of the own).

    λ is uniform on [0, 1] (Beta(1, 1)); the box's sides are √(1-λ) of the image's, its centre is uniform, what lies
    outside is cut off, and λ is then what is truly left. The loss is λ CE(own) + (1-λ) CE(partner). Any type of pixel
    will do; the images given are not changed.
    """
    count, _, height, width = images.shape
    share = float(torch.rand((), generator=generator))
    partners = torch.randperm(count, generator=generator).to(labels.device)
    side = math.sqrt(1 - share)
    top, bottom = _span(height, side, generator)
    left, right = _span(width, side, generator)
    mixed = images.clone()
    mixed[:, :, top:bottom, left:right] = images[partners, :, top:bottom, left:right]
    return mixed, labels, labels[partners], 1 - (bottom - top) * (right - left) / (height * width)


def _span(size: int, share: float, generator: torch.Generator) -> tuple[int, int]:
    length = int(size * share)
    centre = int(torch.randint(size, (), generator=generator))
    return max(0, centre - length // 2), min(size, centre + length // 2)
