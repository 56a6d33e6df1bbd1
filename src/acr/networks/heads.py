"""Heads: from an embedding to one score a class."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acr.losses import unit


class LinearHead(nn.Linear):
    """Scores w_c·f + b_c."""

    def __init__(self, features: int, num_classes: int) -> None:
        super().__init__(features, num_classes)

    def grow(self, num_classes: int) -> None:
        """Add outputs for new classes, drawn as a new layer's are; the old ones stay as they are."""
        fresh = nn.Linear(self.in_features, num_classes).to(self.weight)
        with torch.no_grad():
            fresh.weight[: self.out_features] = self.weight
            fresh.bias[: self.out_features] = self.bias
        self.weight, self.bias, self.out_features = fresh.weight, fresh.bias, num_classes


class ProxyHead(nn.Module):
    """One learned proxy a class; scores are cosines over a temperature, (f̂·ŵ_c)/τ, with no bias."""

    def __init__(self, features: int, num_classes: int, temperature: float = 0.09) -> None:
        super().__init__()
        self.temperature = temperature
        self.proxies = nn.Linear(features, num_classes, bias=False).weight
        """K x features, initialised as a linear layer's weights."""

    @property
    def out_features(self) -> int:
        """Number of classes."""
        return self.proxies.shape[0]

    def forward(self, features: Tensor) -> Tensor:
        """Scores of all classes."""
        return unit(features) @ unit(self.proxies).T / self.temperature

    def grow(self, num_classes: int) -> None:
        """Add proxies for new classes; the old ones stay as they are."""
        fresh = nn.Linear(self.proxies.shape[1], num_classes, bias=False).to(self.proxies).weight
        with torch.no_grad():
            fresh[: self.out_features] = self.proxies
        self.proxies = fresh
