"""The infinite-width neural tangent kernel with which SOIF compares images.

Sun, Mu and Hua, "Regularizing second-order influences for continual learning", CVPR 2023, choose stored samples with a
kernel machine. Its kernel is the tangent kernel (Jacot et al. 2018; for convolutions Arora et al. 2019) of a residual
network without batch norm: a 3x3 convolution, groups of pre-activation blocks (ReLU - conv - ReLU - conv, plus a
shortcut, which is a 3x3 convolution in each group's first block), flatten, dense.

Because the network ends in a flatten, only covariances at equal positions matter: each pair of images has one map Σ
(the covariance of the outputs at each position) and one map Θ (their tangent kernel). With weights of variance 1 and
the tangent parametrisation:

* input: Σ_p = mean over the channels of x_p·x'_p at each position p; Θ = 0.
* convolution: Σ ← mean of Σ over the nine taps, zero outside; Θ ← Σ_new + the same mean of Θ; then the stride.
* ReLU, with r = √(Σ_xx Σ_x'x') and cos θ = Σ/r: Σ ← r(sin θ + (π−θ)cos θ)/2π, Θ ← Θ(π−θ)/2π (Cho and Saul 2009).
* shortcut: the maps of the two branches are added.
* flatten: mean over positions.
* dense: Σ ← Σ + bias_std², Θ ← Σ_new + Θ.

The kernel is the final Θ times a scale. Σ_xx depends on one image only (ReLU halves it), so it is computed once per
image. Pairs are processed in tiles that fit the processor's cache, with the pairs as the last axis, so that every shift
of a map is a contiguous copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

STRIDES = (1, 2, 2, 2)
"""Stride of the first block of each group."""
_TILE = 1 << 18  # numbers in one map of a tile: larger ones do not fit the cache, smaller ones need too many calls


def ntk(
    images_a: Tensor,
    images_b: Tensor,
    *,
    strides: Sequence[int] = STRIDES,
    blocks: int = 2,
    bias_std: float = 0.05,
    scale: float = 0.1,
) -> Tensor:
    """The kernel between every image of one set and every image of another.

    An entry depends on its two images only, so a kernel can be computed in parts.

    Args:
        images_a: Na x C x H x W, normalised floats.
        images_b: Nb x C x H x W, likewise.
        strides: stride of each group of blocks.
        blocks: blocks per group.
        bias_std: standard deviation of the dense layer's bias.
        scale: factor on the result.

    Returns Na x Nb values, in the precision of the images.
    """
    _check(images_a, images_b)
    roots_a, roots_b = (_self_roots(images, strides, blocks) for images in (images_a, images_b))
    pixels_a, pixels_b = (images.permute(2, 3, 1, 0).contiguous() for images in (images_a, images_b))
    result = images_a.new_empty(len(images_a), len(images_b))
    height, width, channels, _ = pixels_a.shape
    pairs = max(1, _TILE // (height * width))
    tall = max(1, min(len(images_a), math.isqrt(pairs)))
    wide = max(1, pairs // tall)
    for top in range(0, len(images_a), tall):
        rows = slice(top, top + tall)
        for left in range(0, len(images_b), wide):
            columns = slice(left, left + wide)
            # Input: Σ = mean over channels of x_p·x'_p, Θ = 0.
            covariance = torch.einsum("hwca,hwcb->hwab", pixels_a[..., rows], pixels_b[..., columns]) / channels
            shape = covariance.shape[2:]
            maps = torch.zeros(2, height, width, shape.numel(), dtype=covariance.dtype, device=covariance.device)
            maps[0] = covariance.flatten(2)
            # √(Σ_xx Σ_x'x') of every pair before each ReLU, in the order in which the network reaches them.
            scales = (
                (a[..., rows, None] * b[..., None, columns]).flatten(2) for a, b in zip(roots_a, roots_b, strict=True)
            )
            maps = _network(maps, _convolve, partial(_rectify, scales=scales), strides, blocks)
            # Flatten: mean over positions. Dense: Θ ← (Σ + bias_std²) + Θ.
            sigma, theta = maps.mean((1, 2))
            result[rows, columns] = (sigma + bias_std**2 + theta).view(shape) * scale
    return result


class KernelCache:
    """The kernel among stored samples, kept from one selection to the next.

    Of the kernel of b new and B stored samples only b x (B + b) entries are new. The cache can be dropped at any time:
    the next use computes it again from the stored images, equal up to rounding.

    Entries are computed where the images are, and kept on the host, where the selection is made.
    """

    def __init__(self, kernel: Callable[[Tensor, Tensor], Tensor] = ntk) -> None:
        self._kernel = kernel
        self._joint: Tensor | None = None
        self.stored: Tensor | None = None
        """B x B, on the host, or None if it has not been computed."""

    def joint(self, new: Tensor, stored: Tensor) -> Tensor:
        """The kernel of the b new samples followed by the B stored ones, (b+B) x (b+B), on the host.

        It waits for the device once, for the b x (b+B) new entries, and once more if the stored part is not known.
        """
        if self.stored is None or len(self.stored) != len(stored):
            self.stored = symmetric_kernel(stored, self._kernel).cpu()
        above = torch.cat([symmetric_kernel(new, self._kernel), self._kernel(new, stored)], dim=1).cpu()
        self._joint = torch.cat([above, torch.cat([above[:, len(new) :].T, self.stored], dim=1)])
        return self._joint

    def keep(self, rows: Tensor) -> None:
        """Keep the kernel of these rows of the last joint kernel: the row that each slot holds from now on."""
        if self._joint is None:
            raise RuntimeError("There is no joint kernel to keep rows of: call joint() first.")
        self.stored, self._joint = self._joint[rows][:, rows], None

    def forget(self) -> None:
        """Drop everything, which is needed when stored samples change in any way other than by `keep`."""
        self.stored = self._joint = None


def symmetric_kernel(images: Tensor, kernel: Callable[[Tensor, Tensor], Tensor] = ntk, rows: int = 64) -> Tensor:
    """The kernel of N images with themselves, N x N: the upper triangle, `rows` rows at a time, and its mirror.

    It equals its transpose bit for bit on every processor. A kernel of two sets need not, even if the sets are equal:
    vector instructions may round an entry and its mirror image differently.
    """
    result = images.new_empty(len(images), len(images))
    for top in range(0, len(images), rows):
        block = kernel(images[top : top + rows], images[top:])
        result[top : top + rows, top:] = block
        result[top:, top : top + rows] = block.T
        own = block[:, : len(block)]
        result[top : top + rows, top : top + rows] = own.triu() + own.triu(1).T
    return result


def _check(images_a: Tensor, images_b: Tensor) -> None:
    if images_a.dim() != 4 or images_a.shape[1:] != images_b.shape[1:]:
        shapes = f"{tuple(images_a.shape)} and {tuple(images_b.shape)}"
        raise ValueError(f"The kernel compares images of one size, N x C x H x W; these are {shapes}.")
    if not images_a.is_floating_point() or not images_b.is_floating_point():
        raise ValueError("The kernel needs normalised floating-point images, not bytes.")


def _network(
    maps: Tensor,
    convolve: Callable[[Tensor, int], Tensor],
    rectify: Callable[[Tensor], Tensor],
    strides: Sequence[int],
    blocks: int,
) -> Tensor:
    """The architecture of the network, acting on maps of covariances.

    `convolve(maps, stride)` and `rectify(maps)` are the effects of a convolution and of a ReLU; the maps are
    ... x H x W x pairs.
    """
    maps = convolve(maps, 1)
    for group_stride in strides:
        for block in range(blocks):
            stride = group_stride if block == 0 else 1
            # ReLU - conv(stride) - ReLU - conv, plus a shortcut, which is a convolution in the first block of a group.
            main = convolve(rectify(convolve(rectify(maps), stride)), 1)
            maps = main.add_(convolve(maps, stride) if block == 0 else maps)
    return maps


def _self_covariance(images: Tensor) -> Tensor:
    """Σ_xx of the input: the mean square over channels at each position, H x W x N."""
    return images.square().mean(1).permute(1, 2, 0).contiguous()


def _self_roots(images: Tensor, strides: Sequence[int], blocks: int) -> list[Tensor]:
    """√Σ_xx of every image before each ReLU, in the order of the network: one H x W x N map per ReLU."""
    roots: list[Tensor] = []

    def rectify(variance: Tensor) -> Tensor:
        roots.append(variance[0].sqrt())  # θ = 0, so Σ_xx ← Σ_xx/2 below
        return variance / 2

    def convolve(variance: Tensor, stride: int) -> Tensor:
        return _mean_of_taps(variance, stride)

    _network(_self_covariance(images)[None], convolve, rectify, strides, blocks)
    return roots


def _convolve(maps: Tensor, stride: int) -> Tensor:
    """A convolution's effect on Σ and Θ, stacked as 2 x H x W x pairs."""
    result = _mean_of_taps(maps, stride)
    result[1] += result[0]  # Θ ← Σ_new + mean of Θ
    return result


def _rectify(maps: Tensor, scales: Iterator[Tensor]) -> Tensor:
    """A ReLU's effect on Σ and Θ; each call takes its r = √(Σ_xx Σ_x'x') from `scales`."""
    sigma, theta, scale = maps[0], maps[1], next(scales)
    # cos θ = Σ/r. Where a variance is zero, Σ and Θ are zero too, and any angle will do.
    cosine = (sigma / scale.clamp_min(torch.finfo(sigma.dtype).tiny)).clamp_(-1, 1)
    result = torch.empty_like(maps)
    share = torch.acos(cosine.neg_()).mul_(1 / (2 * math.pi))  # (π − θ)/2π, since arccos(−cos θ) = π − θ
    # Θ ← Θ(π−θ)/2π
    torch.mul(theta, share, out=result[1])
    # Σ ← (r·sin θ + (π−θ)Σ)/2π, since r·cos θ = Σ. r·sin θ = √((r − Σ)(r + Σ)) keeps its precision near θ = 0.
    sine = ((scale - sigma) * (scale + sigma)).clamp_min_(0).sqrt_()
    torch.mul(sigma, share, out=result[0]).add_(sine, alpha=1 / (2 * math.pi))
    return result


def _mean_of_taps(maps: Tensor, stride: int) -> Tensor:
    """The mean over 3x3 taps, zero outside, of maps that are ... x H x W x pairs, at every `stride`-th position.

    Padding is 'same': there are ⌈size/stride⌉ positions, and the padding this needs is split between both ends, with an
    odd one at the far end. So with stride 2 an even size is padded at the far end only.
    """
    return _sum_of_three(_sum_of_three(maps, -3, stride), -2, stride).mul_(1 / 9)


def _sum_of_three(maps: Tensor, axis: int, stride: int) -> Tensor:
    """The sum over three neighbours along one axis, zero outside, at every `stride`-th position."""
    size = maps.shape[axis]
    count = -(-size // stride)
    near = max((count - 1) * stride + 3 - size, 0) // 2  # padding before the first position

    def tap(offset: int, first: int, number: int) -> Tensor:
        # The tap's values at `number` positions, starting at position `first`.
        inside = maps.narrow(axis, first * stride + offset, (number - 1) * stride + 1)
        index = [slice(None)] * maps.dim()
        index[axis] = slice(None, None, stride)
        return inside[tuple(index)]

    # The middle tap is always inside, the near one except at a padded first position, the far one except at the end.
    shape = list(maps.shape)
    shape[axis] = count
    result = maps.new_empty(shape)
    rest = count - near
    if rest > 0:
        torch.add(tap(1 - near, near, rest), tap(-near, near, rest), out=result.narrow(axis, near, rest))
    if near:
        result.narrow(axis, 0, 1).copy_(tap(0, 0, 1))
    number = min((size + near - 3) // stride + 1, count)
    if number > 0:
        result.narrow(axis, 0, number).add_(tap(2 - near, 0, number))
    return result
