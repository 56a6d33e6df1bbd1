"""How sure the model was of each training sample's own class, over the first epochs of a task.

A sample whose confidence varies much lies near a decision boundary; the paper keeps those (its equations for the
mean and the variance of the confidence over E epochs).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class ConfidenceTable:
    """One row a sample of the current task, one column an epoch."""

    def __init__(self, samples: int, epochs: int) -> None:
        self.values = torch.full((samples, epochs), float("nan"), dtype=torch.float32)

    @property
    def epochs(self) -> int:
        """The paper's E: how many epochs are recorded."""
        return self.values.shape[1]

    def record(self, epoch: int, indices: Tensor, confidence: Tensor) -> None:
        """Store the confidence of the samples at ``indices`` in this epoch; epochs past E are not kept."""
        if epoch < self.epochs:
            self.values[indices.cpu(), epoch] = confidence.detach().float().cpu()

    def mean(self) -> Tensor:
        """Mean confidence of each sample."""
        return self.values.double().mean(1)

    def variance(self) -> Tensor:
        """Population variance (divided by E) of each sample's confidence. The ranking is that of any divisor."""
        return self.values.double().var(1, unbiased=False)

    def state_dict(self) -> dict[str, Any]:
        """All there is to it."""
        return {"values": self.values.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to a saved state."""
        self.values = state["values"].clone()
