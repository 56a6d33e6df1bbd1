"""Network: 8-bit images in, scores out. Normalisation is its first layer: it is neither forgotten nor repeated."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from acr.networks.heads import LinearHead, ProxyHead


class Network(nn.Module):
    """Normalise, encode, score.

    Takes uint8 images, or floats on the scale 0..1. ``mean`` and ``std`` are buffers: they travel with the weights.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, encoder: nn.Module, head: LinearHead | ProxyHead, mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.layout = torch.contiguous_format
        """Memory layout of the images on their way through the encoder."""
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(1, -1, 1, 1))

    @property
    def num_classes(self) -> int:
        """Number of outputs."""
        return self.head.out_features

    def normalise(self, images: Tensor) -> Tensor:
        """To zero mean and unit deviation, in the encoder's memory layout."""
        pixels = images.to(self.mean.device, non_blocking=True)
        scale = 255.0 if pixels.dtype == torch.uint8 else 1.0
        pixels = pixels.to(self.mean.dtype).contiguous(memory_format=self.layout)
        return (pixels / scale - self.mean) / self.std

    def features(self, images: Tensor) -> Tensor:
        """Embeddings f(x)."""
        return self.encoder(self.normalise(images))

    def forward(self, images: Tensor) -> Tensor:
        """Scores of all classes."""
        return self.head(self.features(images))
