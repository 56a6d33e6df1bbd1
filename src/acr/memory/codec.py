"""A fixed-rate code for images: several of them fit into the bytes of one.

Each channel of brightness or colour is cut into blocks of 8 x 8 pixels, and each block becomes its cosine transform. A
coefficient gets as many bits as its frequency deserves, decided once for all images: the frequencies of photographs
have the variances of a first-order Markov process, and every bit goes where it removes most of the squared error. Of
colour images, colour has half the resolution, as in JPEG. Unlike JPEG, every image takes the same number of bytes, so
that a memory can be allocated once and any image in it can be replaced or decoded alone, on any device, without
waiting.

All sums are sums of whole numbers below 2^24, which 32-bit floats hold exactly. So the same image gives the same bytes,
and the same bytes give the same image, on every processor and device, in whatever order it adds up. (On CUDA they are
64-bit floats, since products of 32-bit ones may be shortened there: ``--tf32``. So they are on a CPU where PyTorch was
told that it may.)
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from acr.errors import InputError

BLOCK = 8
"""Side of a block in pixels."""
PIXELS = BLOCK * BLOCK
SCALE = 2**11
"""Real factors are rounded to multiples of 1/SCALE; with finer ones, sums could reach 2^24."""
CORRELATION = 0.9
"""Of neighbouring pixels, in brightness and in colour: an image's coefficient (i, j) has the variance σ² v_i v_j."""
DEVIATION, COLOUR_DEVIATION = 60.0, 18.0
"""Standard deviations σ of brightness and of colour."""
LEAST_BITS, MOST_BITS = 2, 8
"""Bits of a coefficient, if it has any. One bit could not tell more, less and none apart."""
REACHES = {2: 2.5, 3: 3.5, 4: 4.5}
MOST_REACH = 5.5
"""How far a coefficient of so many bits reaches, in standard deviations; with 5 bits and more, the last one."""
LARGEST = PIXELS * 128 // BLOCK
"""How far the mean of a block reaches: as far as it can be."""
TO_LUMA_CHROMA = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
FROM_LUMA_CHROMA = ((1.0, 0.0, 1.402), (1.0, -0.344136, -0.714136), (1.0, 1.772, 0.0))
"""ITU-R BT.601 at full range, as in JPEG; rows are the outputs."""
AT_ONCE = 2**21
"""Bytes of images that are encoded or decoded at a time: the steps between take some fifty times their memory."""


def kind(device: torch.device) -> torch.dtype:
    """The floats that a device computes with: those in which its products are exact."""
    shortened = device.type == "cuda" or (device.type == "cpu" and torch.get_float32_matmul_precision() != "highest")
    return torch.float64 if shortened else torch.float32


def whole(factors: Tensor) -> Tensor:
    """Factors as multiples of 1/SCALE: whole numbers, in 64-bit floats."""
    return (factors.double() * SCALE).round()


def waves() -> Tensor:
    """The orthonormal cosine basis of eight values, in 64 bits: a row per frequency."""
    k = torch.arange(BLOCK, dtype=torch.float64)
    basis = torch.cos((2 * k + 1) * k[:, None] * math.pi / (2 * BLOCK)) * math.sqrt(2 / BLOCK)
    basis[0] /= math.sqrt(2)
    return basis


def variances() -> Tensor:
    """The variance of each of a block's 64 coefficients if pixels have variance 1."""
    k = torch.arange(BLOCK)
    covariance = CORRELATION ** (k[:, None] - k).abs().double()
    one = (waves() @ covariance @ waves().T).diagonal()
    return torch.kron(one, one)


@dataclass(frozen=True)
class Plane:
    """One channel of an image: its size in pixels, and how its coefficients vary."""

    height: int
    width: int
    deviation: float = DEVIATION
    weight: float = 1.0
    """How much a squared error counts: a value of colour stands for four pixels."""

    @property
    def rows(self) -> int:
        """Rows of blocks; the last ones may reach beyond the image."""
        return -(-self.height // BLOCK)

    @property
    def columns(self) -> int:
        """Columns of blocks."""
        return -(-self.width // BLOCK)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.rows * self.columns

    def cut(self, values: Tensor) -> Tensor:
        """n x height x width values as n x blocks x 64; where a block reaches beyond the image, the edge goes on."""
        right, below = self.columns * BLOCK - self.width, self.rows * BLOCK - self.height
        padded = F.pad(values[:, None], (0, right, 0, below), mode="replicate")[:, 0] if right or below else values
        parts = padded.reshape(len(values), self.rows, BLOCK, self.columns, BLOCK).transpose(2, 3)
        return parts.reshape(len(values), self.blocks, PIXELS)

    def join(self, blocks: Tensor) -> Tensor:
        """The inverse of :meth:`cut`."""
        parts = blocks.reshape(len(blocks), self.rows, self.columns, BLOCK, BLOCK).transpose(2, 3)
        return parts.reshape(len(blocks), self.rows * BLOCK, self.columns * BLOCK)[:, : self.height, : self.width]


def shared_bits(planes: Sequence[Plane], room: int) -> list[list[int]]:
    """How many bits each coefficient of each plane gets, of ``room`` bits per image.

    One by one: each bit goes to the coefficient, the same in all blocks of its plane, where it takes most squared error
    away. The first two bits of a coefficient, which only make sense together, leave a third of its variance v, so each
    is worth v/3. A further bit leaves a quarter of what there was, so the third is worth v/4, the fourth v/16.
    """
    bits = [[0] * PIXELS for _ in planes]
    weights = [variances() * plane.deviation**2 * plane.weight for plane in planes]
    queue = [
        (-float(weights[number][place]) / 3, number, place) for number in range(len(planes)) for place in range(PIXELS)
    ]
    heapq.heapify(queue)
    while queue:
        _, number, place = heapq.heappop(queue)
        has = bits[number][place]
        more = 1 if has else LEAST_BITS
        if planes[number].blocks * more <= room and has < MOST_BITS:
            room -= planes[number].blocks * more
            bits[number][place] += more
            heapq.heappush(queue, (-float(weights[number][place]) / 4 ** (has + more - 1), number, place))
    return bits


class Coder:
    """Codes of one plane: its coefficients as whole numbers of so many bits each, bit after bit."""

    def __init__(self, plane: Plane, bits: Sequence[int], device: torch.device, kind: torch.dtype) -> None:
        self.plane = plane
        kept = [place for place in range(PIXELS) if bits[place]]
        deviations = variances().sqrt() * plane.deviation
        reaches = [REACHES.get(bits[p], MOST_REACH) * float(deviations[p]) if p else LARGEST for p in kept]
        # Zero is one of the levels, and there are as many below as above it: a flat image stays flat.
        most = [2 ** (bits[p] - 1) - 1 for p in kept]
        steps = [max(1, round(reach / (number + 0.5))) for reach, number in zip(reaches, most, strict=True)]
        # Made on the host in 64 bits, so that they are the same numbers on every device.
        numbers = torch.tensor([steps, most], dtype=torch.float64)
        basis = whole(torch.kron(waves(), waves())[kept])
        bits_of = [(row, shift) for row, p in enumerate(kept) for shift in range(bits[p])]
        rows, shifts = torch.tensor(bits_of).T
        # What a set bit adds to each pixel of its block, and what a block without one is: 64 values each.
        worth = (basis * numbers[0][:, None])[rows] * (1 << shifts)[:, None]
        ground = (-numbers[1] * numbers[0]) @ basis
        self.steps, self.most = numbers.to(device, kind)
        self.basis, self.worth, self.ground = (part.to(device, kind) for part in (basis, worth, ground))
        self.rows, self.shifts = rows.to(device), shifts.to(device, torch.uint8)
        self.bits = plane.blocks * len(bits_of)
        """Bits of the plane's code."""

    def encode(self, values: Tensor) -> Tensor:
        """The bits, 0 or 1, of the codes of n x height x width whole numbers from -128 to 127."""
        found = self.plane.cut(values) @ self.basis.T
        # Rounded by adding half a step; a division that is rounded down is exact.
        steps = self.steps * SCALE
        numbers = (found * 2 + steps).div_(2 * steps, rounding_mode="floor") + self.most
        numbers = torch.minimum(numbers.clamp_(min=0), 2 * self.most).to(torch.uint8)
        return ((numbers[..., self.rows] >> self.shifts) & 1).reshape(len(values), self.bits)

    def decode(self, bits: Tensor) -> Tensor:
        """The inverse of :meth:`encode`, but for what it has lost; takes and returns floats."""
        blocks = bits.reshape(len(bits), self.plane.blocks, len(self.rows)) @ self.worth + self.ground
        return self.plane.join(blocks.div_(SCALE).round_()).clamp(-128, 127)


@dataclass(frozen=True)
class Codec:
    """Codes of images of one shape, of which ``per_place`` take no more bytes than one image.

    >>> codec = Codec((3, 32, 32), per_place=4)
    >>> codec.nbytes, codec.encode(torch.zeros(5, 3, 32, 32, dtype=torch.uint8)).shape
    (768, torch.Size([5, 768]))
    """

    image_shape: tuple[int, int, int]
    """Channels, height, width."""
    per_place: int

    @cached_property
    def planes(self) -> tuple[Plane, ...]:
        """What is stored of an image: brightness and two of colour, or if there are not three channels, these."""
        channels, height, width = self.image_shape
        if channels != 3:
            return (Plane(height, width),) * channels
        colour = Plane(-(-height // 2), -(-width // 2), COLOUR_DEVIATION, 4.0)
        return Plane(height, width), colour, colour

    @cached_property
    def bits(self) -> list[list[int]]:
        """Bits of each coefficient of each plane."""
        found = shared_bits(self.planes, 8 * (math.prod(self.image_shape) // self.per_place))
        if not all(map(any, found)):
            _, height, width = self.image_shape
            raise InputError(
                f"Images of {height} x {width} pixels are too small for {self.per_place} of them in a place of the "
                "memory: choose fewer with --images-per-place."
            )
        return found

    @cached_property
    def nbytes(self) -> int:
        """Bytes of an image's code."""
        return -(-sum(plane.blocks * sum(bits) for plane, bits in zip(self.planes, self.bits, strict=True)) // 8)

    @cached_property
    def fingerprint(self) -> str:
        """What tells this code from others: a saved memory can be read by the code that wrote it, and by no other."""
        coders, there, back = self._on(torch.device("cpu"))
        numbers = [number.double() for coder in coders for number in (coder.steps, coder.most, coder.worth)]
        told = hashlib.sha256(repr((self.image_shape, self.per_place, self.bits)).encode())
        for part in (*numbers, there.double(), back.double()):
            told.update(part.contiguous().numpy().tobytes())
        return told.hexdigest()[:16]

    @cached_property
    def _known(self) -> dict[tuple[torch.device, torch.dtype], tuple[list[Coder], Tensor, Tensor]]:
        return {}

    def _on(self, device: torch.device) -> tuple[list[Coder], Tensor, Tensor]:
        """The coders of the planes and the two changes of colour, on a device."""
        where = device, kind(device)
        if where not in self._known:
            coders = [Coder(plane, bits, *where) for plane, bits in zip(self.planes, self.bits, strict=True)]
            there, back = (whole(torch.tensor(part)).to(*where) for part in (TO_LUMA_CHROMA, FROM_LUMA_CHROMA))
            self._known[where] = (coders, there, back)
        return self._known[where]

    @property
    def at_once(self) -> int:
        """Images that are encoded or decoded at a time."""
        return max(1, AT_ONCE // math.prod(self.image_shape))

    def encode(self, images: Tensor) -> Tensor:
        """Codes of uint8 images n x C x H x W: n x nbytes, uint8."""
        return torch.cat([self._encode(part) for part in torch.split(images, self.at_once)])

    def decode(self, codes: Tensor) -> Tensor:
        """The images that codes stand for, uint8."""
        return torch.cat([self._decode(part) for part in torch.split(codes, self.at_once)])

    def as_stored(self, images: Tensor) -> Tensor:
        """Images as they come back from a memory."""
        return self.decode(self.encode(images))

    def _encode(self, images: Tensor) -> Tensor:
        coders, there, _ = self._on(images.device)
        values = images.to(there.dtype) - 128
        channels = list(values.unbind(1))
        if len(channels) == 3:
            luma, *colours = _mixed(values, there).unbind(1)
            channels = [luma, *map(_halved, colours)]
        return packed(torch.cat([coder.encode(c) for coder, c in zip(coders, channels, strict=True)], 1))

    def _decode(self, codes: Tensor) -> Tensor:
        coders, _, back = self._on(codes.device)
        bits = unpacked(codes, sum(coder.bits for coder in coders)).to(back.dtype)
        parts = torch.split(bits, [coder.bits for coder in coders], 1)
        channels = [coder.decode(part) for coder, part in zip(coders, parts, strict=True)]
        if len(channels) == 3:
            _, height, width = self.image_shape
            luma, *colours = channels
            doubled = [c.repeat_interleave(2, 1).repeat_interleave(2, 2)[:, :height, :width] for c in colours]
            values = _mixed(torch.stack([luma, *doubled], 1), back)
        else:
            values = torch.stack(channels, 1)
        return (values + 128).clamp_(0, 255).to(torch.uint8)


def packed(bits: Tensor) -> Tensor:
    """n x m whole numbers, 0 or 1, as n x ⌈m/8⌉ bytes, the lowest bit first."""
    eights = F.pad(bits, (0, -bits.shape[1] % 8)).reshape(len(bits), -(-bits.shape[1] // 8), 8)
    return (eights << torch.arange(8, dtype=bits.dtype, device=bits.device)).sum(2, dtype=torch.int32).to(torch.uint8)


def unpacked(octets: Tensor, count: int) -> Tensor:
    """The first ``count`` bits of each row of bytes, 0.0 or 1.0."""
    eight = torch.arange(8, device=octets.device)
    bits_of = ((torch.arange(256, device=octets.device)[:, None] >> eight) & 1).float()
    return bits_of[octets.int()].flatten(1)[:, :count]


def _mixed(values: Tensor, factors: Tensor) -> Tensor:
    """Each pixel's channels multiplied by a matrix, rounded."""
    return (torch.einsum("oc,nchw->nohw", factors, values) / SCALE).round_()


def _halved(values: Tensor) -> Tensor:
    """Means of 2 x 2 pixels, rounded; where a row or column is left over, of those that are there."""
    odd = (0, values.shape[2] % 2, 0, values.shape[1] % 2)
    padded = F.pad(values[:, None], odd, mode="replicate") if any(odd) else values[:, None]
    return F.avg_pool2d(padded, 2)[:, 0].round_()
