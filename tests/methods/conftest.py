from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn


class SmallNetwork(nn.Module):
    """Convolution, batch norm, a strided residual block and a linear head: every kind of layer, few numbers."""

    def __init__(self, channels: int = 3, classes: int = 4, width: int = 4, inplace: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=inplace)
        self.conv = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(2 * width)
        self.shortcut = nn.Conv2d(width, 2 * width, 1, stride=2, bias=False)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.relu(self.stem_norm(self.stem(images)))
        x = self.relu(self.norm(self.conv(x)) + self.shortcut(x))
        return self.head(x.mean((2, 3)))


@pytest.fixture
def make_network() -> Callable[..., SmallNetwork]:
    """A small double-precision network whose batch norms have something to do."""

    def make(seed: int = 0, **options: int) -> SmallNetwork:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = SmallNetwork(**options).double()
            for module in network.modules():
                if isinstance(module, nn.BatchNorm2d):
                    nn.init.normal_(module.weight, 1, 0.3)
                    nn.init.normal_(module.bias, 0, 0.3)
                    module.running_mean.normal_(0, 0.3)
                    module.running_var.uniform_(0.5, 2)
        return network

    return make


@pytest.fixture
def make_batch() -> Callable[..., tuple[Tensor, Tensor]]:
    def make(count: int, seed: int = 0, side: int = 6, channels: int = 3, classes: int = 4) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        images = torch.randn(count, channels, side, side, dtype=torch.float64, generator=generator)
        return images, torch.randint(classes, (count,), generator=generator)

    return make
