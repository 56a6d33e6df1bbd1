"""ResNet-18 (He et al. 2016), by default for small images: 3x3 stem, no max pool, strides 1-2-2-2.

At width 64 it is the paper's network. Any width, any image side of 8 pixels or more, 1 or 3 channels. The original's
stem, a 7x7 convolution of stride 2 and a max pool, is for images of 64 pixels and more: a sixteenth of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acr.errors import InputError
from acr.networks.network import Head, Network, assemble

Stem = Literal["cifar", "imagenet"]

NARROWEST_CHANNELS_LAST = 8
"""Smallest width that uses the channels-last layout. It is 1.1 to 1.25 times faster; narrower networks gain little."""

NARROWEST_STRIDED_1X1 = 16
"""Fewest input channels with which a 1x1 convolution may have a stride in the channels-last layout.

In oneDNN 3.12, which computes convolutions on the CPU in PyTorch 2.13, the gradient of the weights is faulty if there
are fewer input channels than numbers in a vector register (8 with AVX2, 16 with AVX-512) and the stride divides the
sides of the images: it writes past the end of a workspace, and the process crashes, hangs or computes wrong gradients
(uxlfoundation/oneDNN#6035). Without a stride, in the contiguous layout or with other kernel sizes it does not.
"""


def strided_1x1_is_safe(inputs: int, layout: torch.memory_format) -> bool:
    """Whether a 1x1 convolution of ``inputs`` channels with a stride can be trained on every processor.

    >>> strided_1x1_is_safe(8, torch.channels_last), strided_1x1_is_safe(16, torch.channels_last)
    (False, True)
    """
    return layout != torch.channels_last or inputs >= NARROWEST_STRIDED_1X1


class BatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation that uses its running averages where a batch has a single value per channel.

    One 8x8 image ends in a 1x1 map, which has no variance to normalise by.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalise by the statistics of the batch in training mode, if it has more than one value per channel."""
        single = input.shape[0] * input.shape[2] * input.shape[3] == 1
        if self.training and single:
            return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, False, 0, self.eps)
        return super().forward(input)


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """3x3 convolution without bias."""
    return nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)


class Conv1x1(nn.Conv2d):
    """1x1 convolution without bias, of every ``stride``-th pixel in both directions.

    Where PyTorch cannot be trusted with the stride, the pixels are selected first and convolved without one. Both ways
    compute the same sums.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, layout: torch.memory_format) -> None:
        super().__init__(inputs, outputs, 1, stride, bias=False)
        self.selects_first = not strided_1x1_is_safe(inputs, layout)

    def forward(self, input: Tensor) -> Tensor:
        """n x outputs x ⌈H/stride⌉ x ⌈W/stride⌉."""
        if not self.selects_first:
            return super().forward(input)
        # The mean of one pixel is that pixel: input[:, :, ::stride, ::stride], with a faster backward pass.
        return F.conv2d(F.avg_pool2d(input, 1, self.stride), self.weight)


class BasicBlock(nn.Module):
    """conv-BN-ReLU-conv-BN plus shortcut, then ReLU. ``inputs`` and ``outputs`` are numbers of channels."""

    def __init__(self, inputs: int, outputs: int, stride: int, layout: torch.memory_format) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3x3(inputs, outputs, stride), BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv3x3(outputs, outputs), BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(Conv1x1(inputs, outputs, stride, layout), BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """ReLU of the residual sum, n x outputs x ⌈H/stride⌉ x ⌈W/stride⌉."""
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x), inplace=True)


class ResNet18(nn.Module):
    """The encoder: maps images to vectors of 8·width non-negative features.

    ``width`` is the number of channels of the first stage, ``channels`` that of the images; ``stem`` is ``cifar`` (3x3)
    or ``imagenet`` (7x7 of stride 2, then a max pool). ``layout`` is the memory layout to use it in.
    """

    def __init__(self, width: int = 64, channels: int = 3, stem: Stem = "cifar") -> None:
        super().__init__()
        if width < 1:
            raise InputError(f"The width of a network must be 1 or more; got {width}.")
        self.features = 8 * width
        self.layout = torch.channels_last if width >= NARROWEST_CHANNELS_LAST else torch.contiguous_format
        self.stem = stem
        self.conv = conv3x3(channels, width) if stem == "cifar" else nn.Conv2d(channels, width, 7, 2, 3, bias=False)
        self.bn = BatchNorm2d(width)
        stages: list[nn.Module] = []
        inputs = width
        for outputs, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
            first = BasicBlock(inputs, outputs, stride, self.layout)
            stages.append(nn.Sequential(first, BasicBlock(outputs, outputs, 1, self.layout)))
            inputs = outputs
        self.stages = nn.Sequential(*stages)

    def forward(self, x: Tensor) -> Tensor:
        """The mean over the last map, n x features, for normalised images."""
        x = F.relu(self.bn(self.conv(x)), inplace=True)
        return self.stages(x if self.stem == "cifar" else F.max_pool2d(x, 3, 2, 1)).mean((2, 3))


def resnet18(
    num_classes: int,
    width: int = 64,
    head: Head = "linear",
    channels: int = 3,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    temperature: float = 0.09,
    stem: Stem = "cifar",
) -> Network:
    """ResNet-18 with a linear or a proxy head; 11,168,832 encoder parameters at width 64.

    Args:
        num_classes: number of outputs.
        width: channels of the first stage.
        head: ``linear`` (w_c·f + b_c) or ``proxy`` (cosines over a temperature).
        channels: channels of the images.
        mean: of each channel on the scale 0..1, for normalisation; 0 if None.
        std: likewise; 1 if None.
        temperature: τ of the proxy head.
        stem: ``cifar``, or ``imagenet`` for images of 64 pixels and more.

    >>> resnet18(10, width=4, channels=1)(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape
    torch.Size([2, 10])
    """
    encoder = ResNet18(width, channels, stem)
    network = assemble(
        encoder, encoder.features, num_classes, head, mean or [0.0] * channels, std or [1.0] * channels, temperature
    )
    network.layout = encoder.layout
    return network.to(memory_format=encoder.layout)  # type: ignore[call-overload]
