"""Scenarios: the test images as they are, or shifted. An evaluator asks one for images by their position."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Positions = npt.NDArray[np.int64]


class Scenario(Protocol):
    """Test images under one condition."""

    name: str
    """``clean``, or ``corruption/severity``."""

    def images(self, positions: Positions, stage: int) -> Tensor:
        """The images at these positions of the test set, for the evaluation after this stage."""
        ...


class StoredImages:
    """Images that lie in an array, a row a test image."""

    def __init__(self, name: str, stored: npt.NDArray[np.uint8]) -> None:
        self.name = name
        self.stored = stored

    def images(self, positions: Positions, stage: int) -> Tensor:
        """Rows of the array."""
        return torch.from_numpy(self.stored[positions])
