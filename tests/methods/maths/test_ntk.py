from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from acr.methods.maths import ntk as module
from acr.methods.maths.ntk import STRIDES, KernelCache, ntk, symmetric_kernel

BIAS_STD = 0.05


def pictures(count: int, side: int = 8, channels: int = 3, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, channels, side, side, dtype=torch.float64, generator=generator)


class FiniteNetwork:
    """A random network of finite width in the tangent parametrisation, as its layers are drawn on the way."""

    def __init__(self, width: int, seed: int) -> None:
        self.width = width
        self.generator = torch.Generator().manual_seed(seed)
        self.weights: list[Tensor] = []

    def draw(self, *shape: int) -> Tensor:
        self.weights.append(torch.randn(*shape, generator=self.generator, dtype=torch.float32).requires_grad_())
        return self.weights[-1]

    def conv(self, x: Tensor, stride: int = 1) -> Tensor:
        channels, size = x.shape[1:3]
        total = max((math.ceil(size / stride) - 1) * stride + 3 - size, 0)
        pads = (total // 2, total - total // 2)
        return F.conv2d(F.pad(x, pads * 2), self.draw(self.width, channels, 3, 3), stride=stride) / math.sqrt(
            9 * channels
        )

    def block(self, x: Tensor, stride: int, mismatch: bool) -> Tensor:
        main = self.conv(self.conv(x.relu(), stride).relu())
        return main + (self.conv(x, stride) if mismatch else x)

    def head(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        return flat @ self.draw(flat.shape[1]) / math.sqrt(flat.shape[1]) + BIAS_STD * self.draw(1)


def residual(strides: Sequence[int], blocks: int) -> Callable[[FiniteNetwork, Tensor], Tensor]:
    def forward(network: FiniteNetwork, x: Tensor) -> Tensor:
        x = network.conv(x)
        for stride in strides:
            for block in range(blocks):
                x = network.block(x, stride if block == 0 else 1, mismatch=block == 0)
        return network.head(x)

    return forward


def sampled_kernel(
    forward: Callable[[FiniteNetwork, Tensor], Tensor], images: Tensor, width: int, draws: int
) -> Tensor:
    """Empirical tangent kernels of several random networks: draws x N x N."""
    kernels = []
    for seed in range(draws):
        network = FiniteNetwork(width, seed)
        outputs = forward(network, images.float())
        rows = []
        for output in outputs:
            gradients = torch.autograd.grad(output, network.weights, retain_graph=True)
            rows.append(torch.cat([g.flatten() for g in gradients]))
        matrix = torch.stack(rows)
        kernels.append((matrix @ matrix.T).double())
    return torch.stack(kernels)


def agrees(kernel: Tensor, samples: Tensor) -> None:
    """Within four standard errors, and what a finite width biases by."""
    error = samples.std(0) / math.sqrt(len(samples))
    assert (error < 0.03 * kernel.diagonal().mean()).all(), "the test itself is too coarse"
    assert ((samples.mean(0) - kernel).abs() < 4 * error + 0.02 * kernel.diagonal().mean()).all()


@pytest.mark.parametrize(
    ("strides", "blocks", "side"),
    [((), 2, 8), ((1,), 1, 8), ((1,), 2, 8), ((2,), 2, 8), ((2,), 2, 7), ((1, 2), 2, 8)],
    ids=["conv", "block", "identity", "strided group", "odd size", "two groups"],
)
def test_equals_wide_random_networks(strides: Sequence[int], blocks: int, side: int) -> None:
    images = pictures(3, side)
    images[1] = images[0] + 0.5 * images[1]  # one similar pair
    kernel = ntk(images, images, strides=strides, blocks=blocks, scale=1)
    agrees(kernel, sampled_kernel(residual(strides, blocks), images, width=128, draws=24))


@pytest.mark.parametrize("stride", [1, 2])
def test_relu_and_convolution_alone(stride: int) -> None:
    images = pictures(3)
    images[1] = images[0] + 0.5 * images[1]
    count = len(images)
    covariance = torch.einsum("acp,bcp->pab", images.flatten(2), images.flatten(2)).view(8, 8, count * count) / 3
    maps = module._convolve(torch.stack([covariance, torch.zeros_like(covariance)]), 1)
    root = module._mean_of_taps(module._self_covariance(images)[None], 1)[0].sqrt()
    maps = module._rectify(maps, iter([(root[..., :, None] * root[..., None, :]).flatten(2)]))
    sigma, theta = module._convolve(maps, stride).mean((1, 2)).view(2, count, count)

    def forward(network: FiniteNetwork, x: Tensor) -> Tensor:
        return network.head(network.conv(network.conv(x).relu(), stride))

    agrees(sigma + BIAS_STD**2 + theta, sampled_kernel(forward, images, width=128, draws=24))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
def test_mean_of_taps_pads_as_same_padding_does(size: int, stride: int) -> None:
    values = pictures(1, size, 1)
    total = max((math.ceil(size / stride) - 1) * stride + 3 - size, 0)
    padded = F.pad(values, (total // 2, total - total // 2) * 2)
    expected = F.avg_pool2d(padded, 3, stride)[0, 0]
    torch.testing.assert_close(module._mean_of_taps(values[0, 0, :, :, None], stride)[..., 0], expected)


def kernel_of_each_with_itself(images: Tensor) -> Tensor:
    """The diagonal of the kernel: the angle of an image with itself is 0, so a ReLU halves both Σ and Θ."""

    def convolved(sigma: Tensor, theta: Tensor, stride: int = 1) -> tuple[Tensor, Tensor]:
        total = max((math.ceil(sigma.shape[-1] / stride) - 1) * stride + 3 - sigma.shape[-1], 0)
        pads = (total // 2, total - total // 2) * 2
        sigma, theta = (F.avg_pool2d(F.pad(maps, pads), 3, stride) for maps in (sigma, theta))
        return sigma, sigma + theta

    def halved(sigma: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        return sigma / 2, theta / 2

    variance = images.square().mean(1, keepdim=True)
    maps = convolved(variance, torch.zeros_like(variance))
    for stride in STRIDES:
        for first in (True, False):
            main = convolved(*halved(*convolved(*halved(*maps), stride if first else 1)))
            beside = convolved(*maps, stride) if first else maps
            maps = main[0] + beside[0], main[1] + beside[1]
    return 0.1 * (sum(maps).mean((1, 2, 3)) + BIAS_STD**2)


@pytest.mark.parametrize(("side", "channels"), [(8, 1), (8, 3), (11, 3), (32, 3)])
def test_symmetric_positive_and_consistent_on_the_diagonal(side: int, channels: int) -> None:
    images = pictures(6, side, channels)
    images[3] = images[2]
    images[4] = -images[2]
    images[5, :, : side // 2] = 0
    kernel = symmetric_kernel(images)
    assert torch.equal(kernel, kernel.T)
    torch.testing.assert_close(ntk(images, images), kernel, rtol=1e-6, atol=0)
    torch.testing.assert_close(kernel.diagonal(), kernel_of_each_with_itself(images), rtol=1e-6, atol=0)
    assert torch.linalg.eigvalsh(kernel).min() > -1e-6 * kernel.max()
    torch.testing.assert_close(kernel[2], kernel[3])
    single = symmetric_kernel(images.float())
    assert torch.equal(single, single.T)
    torch.testing.assert_close(single.double(), kernel, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 4, 64])
def test_symmetry_does_not_depend_on_how_a_processor_rounds(rows: int) -> None:
    draws = torch.Generator().manual_seed(0)

    def drawn(a: Tensor, b: Tensor) -> Tensor:
        return torch.rand(len(a), len(b), generator=draws)

    kernel = symmetric_kernel(pictures(9), drawn, rows)
    assert torch.equal(kernel, kernel.T)
    assert len(kernel.unique()) == 9 * 10 // 2
    cache = KernelCache(drawn)
    joint = cache.joint(pictures(3), pictures(9))
    assert torch.equal(joint, joint.T)
    cache.keep(torch.tensor([0, 2, 5, 11]))
    assert cache.stored is not None
    assert torch.equal(cache.stored, cache.stored.T)


def test_black_images_have_only_the_bias() -> None:
    kernel = ntk(torch.zeros(2, 3, 8, 8), pictures(2).float(), scale=1)
    torch.testing.assert_close(kernel, torch.full((2, 2), BIAS_STD**2))


def test_parts_equal_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(9)
    whole = ntk(images, images)
    parts = torch.cat([ntk(row[None], images) for row in images])
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(symmetric_kernel(images, rows=4), whole, rtol=1e-12, atol=1e-12)
    monkeypatch.setattr(module, "_TILE", 300)
    torch.testing.assert_close(ntk(images, images), whole, rtol=1e-12, atol=1e-12)
    assert ntk(images[:0], images).shape == (0, 9)


def test_cache_computes_only_new_rows() -> None:
    computed: list[int] = []

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        computed.append(len(a) * len(b))
        return ntk(a, b, strides=(2,), blocks=1)

    generator = torch.Generator().manual_seed(0)
    cache, stored = KernelCache(kernel), pictures(7)
    for step in range(3):
        new = pictures(2 + step, seed=step + 1)
        rows = torch.cat([new, stored])
        joint = cache.joint(new, stored)
        torch.testing.assert_close(joint, ntk(rows, rows, strides=(2,), blocks=1), rtol=1e-12, atol=1e-12)
        kept = torch.randperm(len(rows), generator=generator)[:7]
        stored = rows[kept]
        cache.keep(kept)
        assert cache.stored is not None
        assert cache.stored.shape == (7, 7)
        if step:
            assert sum(computed) == len(new) * (len(new) + 7)
        computed.clear()
    cache.forget()
    torch.testing.assert_close(cache.joint(new, stored)[-7:, -7:], ntk(stored, stored, strides=(2,), blocks=1))
    cache.forget()
    with pytest.raises(RuntimeError, match="joint"):
        cache.keep(kept)


def test_refuses_bytes_and_unequal_sizes() -> None:
    with pytest.raises(ValueError, match="one size"):
        ntk(pictures(1, 8), pictures(1, 9))
    with pytest.raises(ValueError, match="bytes"):
        ntk(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
