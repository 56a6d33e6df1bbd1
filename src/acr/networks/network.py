"""Network: 8-bit images in, scores out. Normalisation is its first layer, so it cannot be forgotten or repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from acr.errors import InputError
from acr.networks.heads import LinearHead, ProxyHead

Head = Literal["linear", "proxy"]


class Network(nn.Module):
    """Normalise, encode, score.

    Takes uint8 images, or floats on the scale 0..1, n x C x H x W. ``mean`` and ``std`` have one value per channel, on
    the scale 0..1; they are buffers, so they are saved with the weights.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, encoder: nn.Module, head: LinearHead | ProxyHead, mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.autocast: torch.dtype | None = None
        """Type in which the encoder computes where that is safe (mixed precision); None: its own."""
        self.layout = torch.contiguous_format
        """Memory layout of the images in the encoder."""
        self.draws = False
        """Whether the encoder draws from PyTorch's global generator in training mode, as dropout does."""
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(1, -1, 1, 1))

    @property
    def num_classes(self) -> int:
        """Number of outputs."""
        return self.head.out_features

    def normalise(self, images: Tensor) -> Tensor:
        """(x − mean)/std with x on the scale 0..1, in the encoder's memory layout and on its device."""
        pixels = images.to(self.mean.device, non_blocking=True)
        scale = 255.0 if pixels.dtype == torch.uint8 else 1.0
        pixels = pixels.to(self.mean.dtype).contiguous(memory_format=self.layout)
        return (pixels / scale - self.mean) / self.std

    def features(self, images: Tensor) -> Tensor:
        """Embeddings f(x), n x features; in the type of the weights, whatever the encoder computes in."""
        pixels = self.normalise(images)
        if self.autocast is None:
            return self.encoder(pixels)
        with torch.autocast(pixels.device.type, self.autocast):
            return self.encoder(pixels).to(pixels.dtype)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of all classes, n x K."""
        return self.head(self.features(images))


def assemble(
    encoder: nn.Module,
    features: int,
    num_classes: int,
    head: Head,
    mean: Sequence[float],
    std: Sequence[float],
    temperature: float = 0.09,
) -> Network:
    """A network with a newly initialised head on top of an encoder that gives vectors of ``features`` numbers.

    The other arguments are those of :func:`acr.networks.resnet18`.
    """
    if num_classes < 1:
        raise InputError(f"A network must have one class or more; got {num_classes}.")
    if head not in ("linear", "proxy"):
        raise InputError(f"The head must be 'linear' or 'proxy'; got {head!r}.")
    linear = head == "linear"
    top = LinearHead(features, num_classes) if linear else ProxyHead(features, num_classes, temperature)
    return Network(encoder, top, mean, std)
