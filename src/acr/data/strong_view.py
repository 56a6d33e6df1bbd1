"""ACR's strong second view: random resized crop, flip, colour jitter and grey, as in SimCLR (Chen et al. 2020).

The draws of a batch decide more than numbers: in which order an image goes through brightness, contrast, saturation and
hue. Since they are known on the host before anything is computed, the images are put into an order in which each of
these operations acts on neighbours, a slice of the batch. So nothing has to be picked out on the device and put back,
and the device is never asked which images are concerned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)
"""ITU-R 601: the weight of each colour in grey."""
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
"""Operations of the colour jitter."""
TURNS = 4
"""An image that is jittered goes through all four, in an order of its own."""


@dataclass(frozen=True)
class BoxDraws:
    """The box that is cut out of each image, in pixels, and the direction in which it is read."""

    left: Tensor
    top: Tensor
    width: Tensor
    height: Tensor
    mirror: Tensor
    """-1 for a mirrored image, 1 otherwise."""


@dataclass(frozen=True)
class JitterDraws:
    """What is done to the colours of each image; images are numbered in the order of ``StrongDraws.order``."""

    ends: tuple[int, ...]
    """``ends[t]``: how many images have had their hue shifted after turn t. They come first, in that order; those that
    are not jittered come last."""
    factor: Tensor
    """The factor of the blend in each turn, TURNS x n; 1 where the turn is the hue shift."""
    own_grey: Tensor
    """Whether it is towards the pixel's own grey (saturation), TURNS x n, 1 or 0."""
    mean_grey: Tensor
    """Whether it is towards the image's mean grey (contrast); neither: towards black (brightness)."""
    shift: Tensor
    """The shift of the hue, in fractions of the colour circle, n."""


@dataclass(frozen=True)
class StrongDraws:
    """All draws of the strong view of a batch."""

    order: Tensor
    """The images in the order in which they are worked on, n."""
    back: Tensor
    """The way back: where each image is in that order, n."""
    box: BoxDraws
    jitter: JitterDraws
    grey: Tensor
    """Numbers, in that order, of the images that lose their colours."""


def draw_strong_view(
    shape: Sequence[int],
    generator: torch.Generator,
    flip: bool = True,
    area: tuple[float, float] = (0.2, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
    jitter_probability: float = 0.8,
    strength: float = 0.4,
    hue: float = 0.1,
    grey_probability: float = 0.2,
) -> StrongDraws:
    """Draws for images of ``shape`` n x C x H x W, on the host.

    Args:
        shape: of the batch.
        generator: where the draws come from.
        flip: whether images may be mirrored.
        area: smallest and largest share of the image that a box covers.
        aspect: smallest and largest ratio of a box's width to its height.
        jitter_probability: of the colour jitter.
        strength: brightness, contrast and saturation are multiplied by 1 ± this.
        hue: the hue moves by ± this fraction of the colour circle.
        grey_probability: of losing the colours.
    """
    n, _, height, width = shape
    box = draw_boxes(n, height, width, generator, area, aspect, flip)
    chosen = torch.rand(n, generator=generator) < jitter_probability
    order, jitter = draw_jitter(chosen, generator, strength, hue)
    grey = torch.rand(n, generator=generator) < grey_probability
    parts = (part[order] for part in (box.left, box.top, box.width, box.height, box.mirror))
    return StrongDraws(order, order.argsort(), BoxDraws(*parts), jitter, grey[order].nonzero()[:, 0])


def strong_view(images: Tensor, draws: StrongDraws) -> Tensor:
    """Apply the draws. Single-channel images have no saturation, hue or grey: those draws change nothing."""
    as_bytes = images.dtype == torch.uint8
    pixels = images.index_select(0, draws.order)
    pixels = torch.div(pixels, 255) if as_bytes else pixels  # one pass: bytes to floats
    pixels = resized_crop(pixels, draws.box)
    jitter(pixels, draws.jitter)
    if pixels.shape[1] > 1:
        colourless = luma(pixels.index_select(0, draws.grey)).expand(-1, pixels.shape[1], -1, -1)
        pixels.index_copy_(0, draws.grey, colourless.contiguous())
    if as_bytes:
        pixels = pixels.mul_(255).round_().to(torch.uint8)  # all steps keep 0..1, up to rounding errors
    return pixels.index_select(0, draws.back)


# --- the box ----------------------------------------------------------------------------------------------------------


def draw_boxes(
    n: int,
    height: int,
    width: int,
    generator: torch.Generator,
    area: tuple[float, float],
    aspect: tuple[float, float],
    flip: bool = False,
    tries: int = 10,
) -> BoxDraws:
    """A box of random area and aspect for each image. One that does not fit is drawn again, up to ``tries`` times; then
    the middle of the image is taken."""
    low, high = math.log(aspect[0]), math.log(aspect[1])
    share = area[0] + (area[1] - area[0]) * torch.rand(n, tries, generator=generator)
    ratio = torch.exp(low + (high - low) * torch.rand(n, tries, generator=generator))
    boxes_w = (share * height * width * ratio).sqrt().round()
    boxes_h = (share * height * width / ratio).sqrt().round()
    fits = (boxes_w >= 1) & (boxes_w <= width) & (boxes_h >= 1) & (boxes_h <= height)
    first = fits.float().argmax(1, keepdim=True)
    any_fits = fits.any(1)
    square = torch.tensor(float(min(width, height)))
    box_w = torch.where(any_fits, boxes_w.gather(1, first).squeeze(1), square)
    box_h = torch.where(any_fits, boxes_h.gather(1, first).squeeze(1), square)
    place = torch.rand(2, n, generator=generator)
    left = torch.where(any_fits, (place[0] * (width - box_w + 1)).floor(), ((width - box_w) / 2).floor())
    top = torch.where(any_fits, (place[1] * (height - box_h + 1)).floor(), ((height - box_h) / 2).floor())
    mirror = torch.where(torch.rand(n, generator=generator) < 0.5, -1.0, 1.0) if flip else torch.ones(n)
    return BoxDraws(left, top, box_w, box_h, mirror)


def resized_crop(pixels: Tensor, box: BoxDraws) -> Tensor:
    """Cut the drawn box out of every image and enlarge it to the full size (bilinear)."""
    n, _, height, width = pixels.shape

    # Output pixel centres in box coordinates, clamped to the box's own pixels as a resize would be.
    def axis(size: int, start: Tensor, length: Tensor, sign: Tensor | None) -> Tensor:
        centre = (2 * torch.arange(size, device=pixels.device) + 1) / size - 1  # -1..1 over the output
        turned = centre if sign is None else sign[:, None] * centre
        inside = (turned + 1) / 2 * length[:, None] - 0.5
        inside = torch.minimum(inside.clamp(min=0), length[:, None] - 1)
        return (2 * (start[:, None] + inside) + 1) / size - 1

    x = axis(width, box.left, box.width, box.mirror)[:, None, :].expand(n, height, width)
    y = axis(height, box.top, box.height, None)[:, :, None].expand(n, height, width)
    grid = torch.stack([x, y], -1).to(pixels.dtype)
    return F.grid_sample(pixels, grid, "bilinear", "border", align_corners=False)


# --- the colours ------------------------------------------------------------------------------------------------------


def draw_jitter(chosen: Tensor, generator: torch.Generator, strength: float, hue: float) -> tuple[Tensor, JitterDraws]:
    """The order in which the images are worked on, and what is done to their colours.

    ``chosen`` marks the images that are jittered; ``strength`` and ``hue`` are the largest changes.
    """
    n = len(chosen)
    factors = 1 + strength * (2 * torch.rand(3, n, generator=generator) - 1)
    shift = hue * (2 * torch.rand(n, generator=generator) - 1)
    operations = torch.rand(n, TURNS, generator=generator).argsort(1)
    hue_turn = torch.where(chosen, (operations == HUE).float().argmax(1), TURNS)
    order = hue_turn.argsort(stable=True)
    ends = tuple(int((hue_turn <= turn).sum()) for turn in range(TURNS))
    operations, factors = operations[order].T, factors[:, order]
    blends = operations != HUE
    factor = torch.where(blends, factors.gather(0, operations.clamp(max=SATURATION)), 1.0)
    own, mean = (operations == SATURATION).float(), (operations == CONTRAST).float()
    return order, JitterDraws(ends, factor, own, mean, shift[order])


def jitter(pixels: Tensor, draws: JitterDraws) -> None:
    """Brightness, contrast, saturation and hue, in the order that was drawn for each image, in place."""
    ends, jittered = (0, *draws.ends), draws.ends[-1]
    # An image's turns before its hue shift come first. In turn t these are the images whose hue is shifted after t:
    # behind the first ends[t], and before those that are not jittered at all.
    for turn in range(TURNS - 1):
        blend_towards_grey(pixels[ends[turn + 1] : jittered], draws, turn, ends[turn + 1])
    if jittered:
        shift_hue(pixels[:jittered], draws.shift[:jittered])
    # Then those after it: in turn t the images whose hue was shifted before t.
    for turn in range(1, TURNS):
        blend_towards_grey(pixels[: ends[turn]], draws, turn, 0)


def blend_towards_grey(pixels: Tensor, draws: JitterDraws, turn: int, first: int) -> None:
    """Brightness, contrast or saturation of each image, in place: all are p ← g + f (p - g), for different greys g.

    Brightness: black. Contrast: the image's mean grey. Saturation: the pixel's own grey. ``first`` is the number of the
    first image of the slice.
    """
    n = len(pixels)
    if not n:
        return
    factor, own, mean = (
        part[turn, first : first + n].view(n, 1, 1, 1).to(pixels.dtype)
        for part in (draws.factor, draws.own_grey, draws.mean_grey)
    )
    grey = luma(pixels)
    average = grey.mean((2, 3), keepdim=True)
    towards = torch.addcmul(mean * average, own, grey)
    torch.lerp(towards, pixels, factor, out=pixels)
    pixels.clamp_(0, 1)


def luma(pixels: Tensor) -> Tensor:
    """Grey value of every pixel, one channel; a tensor of its own, never a part of ``pixels``."""
    if pixels.shape[1] == 1:
        return pixels.clone()
    red, green, blue = pixels[:, 0:1], pixels[:, 1:2], pixels[:, 2:3]
    return (LUMA[0] * red).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])


def shift_hue(pixels: Tensor, shift: Tensor) -> None:
    """Turn the hue of every pixel by a fraction of the colour circle, value and saturation kept, in place.

    The hue is a number on a circle of length 6, on which red is 0, green 2 and blue 4. A channel falls below the value
    (the largest channel) by the chroma times its distance from the hue beyond 1, but at most by the whole chroma. The
    hue before the shift is in -1..5, and shifts are small, so that a distance is less than 6 before it is taken the
    short way round.
    """
    if pixels.shape[1] == 1:
        return
    red, green, blue = pixels.unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    inverse = chroma.clamp(min=1e-12).reciprocal_()
    hue = torch.where(
        value == red,
        (green - blue).mul_(inverse),
        torch.where(value == green, (blue - red).mul_(inverse).add_(2), (red - green).mul_(inverse).add_(4)),
    ).add_(6 * shift.view(-1, 1, 1))
    for channel, centre in enumerate((0.0, 2.0, 4.0)):
        distance = (hue - centre).abs_()
        short = distance.sub_(3).abs_().neg_().add_(2).clamp_(0, 1)  # min(d, 6 - d) - 1, between 0 and 1
        torch.addcmul(value, chroma, short, value=-1, out=pixels[:, channel])
