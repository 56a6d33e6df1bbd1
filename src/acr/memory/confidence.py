"""The model's confidence in each training sample's own class, over the first epochs of a task.

Γ_e = softmax(s(x))_y is the confidence of a sample (x, y) in epoch e. A sample whose confidence varies much is near a
decision boundary; the paper keeps those, by the variance σ² of Γ_1..Γ_E.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class ConfidenceTable:
    """Γ_e, one row per sample of the current task and one column per epoch; NaN where nothing was recorded."""

    def __init__(self, samples: int, epochs: int, device: torch.device | None = None) -> None:
        self.device = device or torch.device("cpu")
        self.values = torch.full((samples, epochs), float("nan"), dtype=torch.float32, device=self.device)

    @property
    def epochs(self) -> int:
        """E, the number of epochs that are recorded."""
        return self.values.shape[1]

    def record(self, epoch: int, indices: Tensor, confidence: Tensor) -> None:
        """Store Γ_e of the samples at ``indices``; epochs count from 0, and those after the first E are ignored.

        Both tensors are on the table's device.
        """
        if epoch < self.epochs:
            self.values[:, epoch].index_copy_(0, indices, confidence.detach().float())

    def mean(self) -> Tensor:
        """(1/E) Σ_e Γ_e, one value per sample, on the host."""
        return self.values.cpu().double().mean(1)

    def variance(self) -> Tensor:
        """σ² = (1/E) Σ_e (Γ_e − mean)², one value per sample. Any other divisor would give the same ranking."""
        return self.values.cpu().double().var(1, unbiased=False)

    def state_dict(self) -> dict[str, Any]:
        """The whole table."""
        return {"values": self.values.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        self.values = state["values"].to(self.device, copy=True)
