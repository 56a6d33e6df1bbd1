"""Seeded choices of images, class by class. Each depends only on the seed, the purpose and the class."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from acr.data.images import Labels
from acr.randomness import generator

Positions = npt.NDArray[np.int64]


def hold_out(labels: Labels, fraction: float, seed: int, purpose: str) -> tuple[Positions, Positions]:
    """Positions kept and held out, ascending. ``fraction`` of each class is held out, at least one image, never all.

    >>> kept, out = hold_out(np.repeat([3, 7], [10, 2]), 0.2, seed=0, purpose="test")
    >>> len(kept), np.repeat([3, 7], [10, 2])[out].tolist()
    (9, [3, 3, 7])
    """
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        order = _shuffled(labels, int(label), seed, purpose)
        count = min(max(1, round(len(order) * fraction)), len(order) - 1)
        chosen[order[:count]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def at_most(labels: Labels, per_class: int, seed: int, purpose: str) -> Positions:
    """Positions of at most ``per_class`` images of each class, ascending. A larger number only adds to the choice.

    >>> at_most(np.array([5, 5, 5, 9]), 2, seed=0, purpose="train").size
    3
    """
    chosen = [_shuffled(labels, int(label), seed, purpose)[:per_class] for label in np.unique(labels)]
    return np.sort(np.concatenate(chosen)) if chosen else np.empty(0, dtype=np.int64)


def _shuffled(labels: Labels, label: int, seed: int, purpose: str) -> Positions:
    positions = np.flatnonzero(labels == label)
    order = torch.randperm(len(positions), generator=generator(seed, purpose, label))
    return positions[order.numpy()]
