"""Scenarios: the test images, unchanged or shifted, which the evaluator requests by their position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from acr.randomness import key_to_seed
from acr.shift import corrupt, corrupt_float, wrapped_bytes
from acr.transfer import send

Positions = npt.NDArray[np.int64]


class Scenario(Protocol):
    """Test images under one condition."""

    name: str
    """``clean``, or ``corruption/severity``."""

    def images(self, positions: Positions, stage: int) -> Tensor:
        """The images at these positions of the test set, for the evaluation after task ``stage``."""
        ...


class StoredImages:
    """Images stored in an array, one row per test image."""

    def __init__(self, name: str, stored: npt.NDArray[np.uint8], device: torch.device | None = None) -> None:
        self.name = name
        self.stored = stored
        self.device = device
        """Where a copy of all images is kept from the first evaluation on; None: they are read from the array."""
        self._there: Tensor | None = None

    def images(self, positions: Positions, stage: int) -> Tensor:
        """Rows of the array, on the device that keeps them."""
        if self.device is None or self.device.type == "cpu":
            return torch.from_numpy(self.stored[positions])
        if self._there is None:
            self._there = torch.from_numpy(np.ascontiguousarray(self.stored)).to(self.device)
        return self._there.index_select(0, send(torch.from_numpy(positions), self.device))


class DrawnAtEvaluation:
    """Test images corrupted while they are evaluated, as the published protocol does; nothing is stored.

    ``wrapped`` and ``fresh`` are its quirks: to corrupt wrapped bytes, and to draw again at every evaluation.
    ``mean`` and ``std`` are the constants of normalisation, which the wrapped bytes depend on.
    """

    def __init__(
        self,
        test: npt.NDArray[np.uint8],
        corruption: str,
        severity: int,
        constants: str,
        seed: int,
        mean: Sequence[float],
        std: Sequence[float],
        wrapped: bool,
        fresh: bool,
    ) -> None:
        self.name = f"{corruption}/{severity}"
        self.test, self.corruption, self.severity, self.constants = test, corruption, severity, constants
        self.seed, self.mean, self.std, self.wrapped, self.fresh = seed, mean, std, wrapped, fresh

    def images(self, positions: Positions, stage: int) -> Tensor:
        """The images, corrupted now; if the draws are to be fresh, they depend on the seed and the stage."""
        seed = key_to_seed(self.seed, "ood", stage) if self.fresh else 0
        plain = torch.from_numpy(self.test[positions])
        how = (self.corruption, self.severity, self.constants, seed)
        if self.wrapped:
            return released_ood_images(plain, *how, positions.tolist(), self.mean, self.std)
        return corrupt(plain, *how, positions)


def released_ood_images(
    images: Tensor,
    corruption: str,
    severity: int,
    constants: str,
    seed: int,
    indices: Sequence[int],
    mean: Sequence[float],
    std: Sequence[float],
) -> Tensor:
    """Test images as the released evaluation shifts them: wrapped bytes, corrupted, not normalised afterwards.

    The network normalises whatever it is given, so it is given w·std + mean, where w is the wrapped, corrupted image.
    """
    shifted = corrupt_float(wrapped_bytes(images, mean, std), corruption, severity, constants, seed, indices)
    return shifted * torch.tensor(std).view(1, -1, 1, 1) + torch.tensor(mean).view(1, -1, 1, 1)
