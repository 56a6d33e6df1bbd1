"""Heads: from an embedding to one score per class."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acr.losses import unit


class LinearHead(nn.Linear):
    """Scores w_c·f + b_c, with f the embedding of ``features`` values."""

    def __init__(self, features: int, num_classes: int) -> None:
        super().__init__(features, num_classes)

    def grow(self, num_classes: int) -> None:
        """Extend the head to ``num_classes`` outputs; new ones are initialised like a new layer, old ones are kept."""
        fresh = nn.Linear(self.in_features, num_classes).to(self.weight)
        with torch.no_grad():
            fresh.weight[: self.out_features] = self.weight
            fresh.bias[: self.out_features] = self.bias
        self.weight, self.bias, self.out_features = fresh.weight, fresh.bias, num_classes


class ProxyHead(nn.Module):
    """One learned proxy w_c per class; the scores are s_c = (f̂·ŵ_c)/τ, cosines over a temperature, without bias."""

    def __init__(self, features: int, num_classes: int, temperature: float = 0.09) -> None:
        super().__init__()
        self.temperature = temperature
        self.proxies = nn.Linear(features, num_classes, bias=False).weight
        """K x features, initialised like the weights of a linear layer."""

    @property
    def out_features(self) -> int:
        """Number of classes."""
        return self.proxies.shape[0]

    def forward(self, features: Tensor) -> Tensor:
        """Scores of all classes, n x K, for n x features embeddings."""
        return unit(features) @ unit(self.proxies).T / self.temperature

    def grow(self, num_classes: int) -> None:
        """Extend the head to ``num_classes`` proxies; new ones are initialised like a new layer, old ones are kept."""
        fresh = nn.Linear(self.proxies.shape[1], num_classes, bias=False).to(self.proxies).weight
        with torch.no_grad():
            fresh[: self.out_features] = self.proxies
        self.proxies = fresh
