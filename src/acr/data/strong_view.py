"""ACR's strong second view: random resized crop, flip, colour jitter and grey, as in SimCLR (Chen et al. 2020).

The draws of a batch decide more than numbers: in which order an image goes through brightness, contrast, saturation and
hue. Since they are known on the host before anything is computed, the images are put into an order in which each of
these operations acts on neighbours, a slice of the batch. So nothing has to be picked out on the device and put back,
and the device is never asked which images are concerned.

Draws are many operations on few numbers, so they are made in NumPy, where each costs a fraction of what it does in
PyTorch. Only the random numbers themselves come from PyTorch's generator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)
"""ITU-R 601: the weight of each colour in grey."""
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
"""Operations of the colour jitter."""
TURNS = 4
"""An image that is jittered goes through all four, in an order of its own."""


@dataclass(frozen=True)
class BoxDraws:
    """The box that is cut out of each image, along the two axes.

    Both are 4 x n and on the scale of ``grid_sample``, on which an image reaches from -1 to 1: the middle of the box,
    half its length (negative for a mirrored image), and the centres of its first and its last pixel.
    """

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class JitterDraws:
    """What is done to the colours of each image; images are numbered in the order of ``StrongDraws.order``."""

    ends: tuple[int, ...]
    """``ends[t]``: how many images have had their hue shifted after turn t. They come first, in that order; those that
    are not jittered come last."""
    blends: Tensor
    """The blend in each turn, TURNS x 3 x n: its factor, 1 where the turn is the hue shift; whether it is towards the
    pixel's own grey (saturation), 1 or 0; and whether it is towards the image's mean grey (contrast). Neither: towards
    black (brightness)."""
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
    ordered = BoxDraws(box.x[:, order], box.y[:, order])
    return StrongDraws(order, order.argsort(), ordered, jitter, grey[order].nonzero()[:, 0])


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
        # All steps keep 0..1, up to rounding errors. By way of int16, because PyTorch has no fast way to uint8.
        pixels = pixels.mul_(255).round_().to(torch.int16).to(torch.uint8)
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
    pixels = (area[0] + (area[1] - area[0]) * torch.rand(n, tries, generator=generator).numpy()) * height * width
    ratio = torch.exp(low + (high - low) * torch.rand(n, tries, generator=generator)).numpy()
    boxes = np.stack([np.rint(np.sqrt(pixels * ratio)), np.rint(np.sqrt(pixels / ratio))])  # widths and heights
    sides = np.array([width, height], np.float32)[:, None]
    fits: NDArray[np.bool_] = np.all((boxes >= 1) & (boxes <= sides[:, :, None]), axis=0)
    any_fits = fits.any(1)
    length = np.where(any_fits, boxes[:, np.arange(n), fits.argmax(1)], np.float32(min(width, height)))
    place = torch.rand(2, n, generator=generator).numpy()
    start = np.floor(np.where(any_fits, place * (sides - length + 1), (sides - length) / 2))
    middle, half = (2 * start + length) / sides - 1, length / sides
    first, last = (2 * start + 1) / sides - 1, (2 * (start + length) - 1) / sides - 1
    if flip:
        half[0] = np.where(torch.rand(n, generator=generator).numpy() < 0.5, -half[0], half[0])
    x, y = torch.from_numpy(np.stack([middle, half, first, last], 1))
    return BoxDraws(x, y)


def resized_crop(pixels: Tensor, box: BoxDraws) -> Tensor:
    """Cut the drawn box out of every image and enlarge it to the full size (bilinear)."""
    n, _, height, width = pixels.shape

    # Output pixel centres spread over the box, clamped to the box's own pixels as a resize would be.
    def axis(size: int, box: Tensor) -> Tensor:
        centres = torch.arange(1 - size, size, 2, device=pixels.device) / size  # -1..1 over the output
        middle, half, first, last = box[:, :, None].unbind()
        return torch.addcmul(middle, half, centres).clamp_(first, last)

    grid = pixels.new_empty(n, 2, height, width)
    grid[:, 0] = axis(width, box.x)[:, None, :]
    grid[:, 1] = axis(height, box.y)[:, :, None]
    return F.grid_sample(pixels, grid.permute(0, 2, 3, 1), "bilinear", "border", align_corners=False)


# --- the colours ------------------------------------------------------------------------------------------------------


def draw_jitter(chosen: Tensor, generator: torch.Generator, strength: float, hue: float) -> tuple[Tensor, JitterDraws]:
    """The order in which the images are worked on, and what is done to their colours.

    ``chosen`` marks the images that are jittered; ``strength`` and ``hue`` are the largest changes.
    """
    n = len(chosen)
    factors = 1 + strength * (2 * torch.rand(3, n, generator=generator).numpy() - 1)
    shift = hue * (2 * torch.rand(n, generator=generator).numpy() - 1)
    operations = torch.rand(n, TURNS, generator=generator).numpy().argsort(1)
    hue_turn = np.where(chosen.numpy(), (operations == HUE).argmax(1), TURNS)
    order = hue_turn.argsort(kind="stable")
    ends = np.bincount(hue_turn, minlength=TURNS).cumsum()[:TURNS]
    operations = operations[order].T
    with_hue = np.concatenate([factors, np.ones((1, n), np.float32)])[:, order]
    blends = np.stack(
        [np.take_along_axis(with_hue, operations, 0), operations == SATURATION, operations == CONTRAST], 1
    ).astype(np.float32)
    jitter = JitterDraws(tuple(ends.tolist()), torch.from_numpy(blends), torch.from_numpy(shift[order]))
    return torch.from_numpy(order), jitter


def jitter(pixels: Tensor, draws: JitterDraws) -> None:
    """Brightness, contrast, saturation and hue, in the order that was drawn for each image, in place."""
    ends, jittered = (0, *draws.ends), draws.ends[-1]
    blends = draws.blends[..., None, None, None].to(pixels.dtype)
    # An image's turns before its hue shift come first. In turn t these are the images whose hue is shifted after t:
    # behind the first ends[t], and before those that are not jittered at all.
    for turn in range(TURNS - 1):
        concerned = slice(ends[turn + 1], jittered)
        blend_towards_grey(pixels[concerned], blends[turn, :, concerned])
    if jittered:
        shift_hue(pixels[:jittered], draws.shift[:jittered])
    # Then those after it: in turn t the images whose hue was shifted before t.
    for turn in range(1, TURNS):
        concerned = slice(ends[turn])
        blend_towards_grey(pixels[concerned], blends[turn, :, concerned])


def blend_towards_grey(pixels: Tensor, blends: Tensor) -> None:
    """Brightness, contrast or saturation of each image, in place: all are p ← g + f (p - g), for different greys g.

    Brightness: black. Contrast: the image's mean grey. Saturation: the pixel's own grey. ``blends`` is one turn of
    ``JitterDraws.blends``, 3 x n x 1 x 1 x 1.
    """
    if not len(pixels):
        return
    factor, own, mean = blends.unbind()
    grey = luma(pixels)
    average = grey.mean((2, 3), keepdim=True)
    towards = torch.addcmul(average.mul_(mean), own, grey, out=grey)
    torch.lerp(towards, pixels, factor, out=pixels)
    pixels.clamp_(0, 1)


def luma(pixels: Tensor) -> Tensor:
    """Grey value of every pixel, one channel; a tensor of its own, never a part of ``pixels``."""
    if pixels.shape[1] == 1:
        return pixels.clone()
    red, green, blue = pixels.chunk(3, 1)
    return (LUMA[0] * red).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])


def shift_hue(pixels: Tensor, shift: Tensor) -> None:
    """Turn the hue of every pixel by a fraction of the colour circle, value and saturation kept, in place.

    The hue is measured from red, -1/2..1/2, positive towards green. Let u = |green - blue| and t = value - red, both
    divided by the chroma. In sixths of the circle, the hue is u away from red where red is the largest channel (t = 0),
    1 + t where it is the middle one (u = 1) and 3 - u where it is the least (t = 1). All three are u + 3 t - 2 t u, so
    that no pixel has to be told from another, which would cost more than the arithmetic. Back again: red falls from the
    value to the least between 1/6 and 2/6 of the circle away from red; green and blue rise between 1/6 and 2/6 away
    from the colours opposite them, which are at -1/6 and 1/6.
    """
    if pixels.shape[1] == 1:
        return
    red, green, blue = pixels.unbind(1)
    value, least = torch.maximum(red, green), torch.minimum(red, green)
    torch.maximum(value, blue, out=value)
    torch.minimum(least, blue, out=least)
    chroma = value - least
    spare = chroma.clamp(min=1e-12)  # a pixel without colour has no hue, and needs none
    side = (green - blue).div_(spare)
    t = (value - red).div_(spare)
    u = torch.abs(side, out=spare)
    hue = torch.addcmul(u, t, u, value=-2).add_(t, alpha=3)
    torch.copysign(hue, side, out=hue)
    torch.add(shift.view(-1, 1, 1), hue, alpha=1 / 6, out=hue)
    hue.sub_(torch.round(hue, out=spare))  # the short way round
    low, high = 1 / 6, 2 / 6
    value.add_(chroma)
    least.sub_(chroma)
    torch.addcmul(value, chroma, torch.abs(hue, out=spare).clamp_(low, high), value=-6, out=red)
    torch.addcmul(least, chroma, torch.add(hue, low, out=spare).abs_().clamp_(low, high), value=6, out=green)
    torch.addcmul(least, chroma, hue.sub_(low).abs_().clamp_(low, high), value=6, out=blue)
