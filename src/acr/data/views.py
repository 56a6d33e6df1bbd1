"""Random views of a batch of images: crops, flips, and ACR's strong second view, drawn separately for every image.

All of it runs on whole batches (one ``grid_sample`` instead of one PIL call per image), and every draw is taken from
the generator that is passed in. uint8 images come back as uint8, floats in 0..1 as floats in 0..1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)
"""ITU-R 601: the weights of red, green and blue in grey."""
HUE, NOTHING = 3, 4
"""Numbers of operations of the colour jitter: 0 is brightness, 1 contrast, 2 saturation, then these two."""


@dataclass(frozen=True)
class Views:
    """The random views of one data set: how far crops may move, and whether images may be mirrored."""

    padding: int
    flip: bool
    replay_padding: int | None = None
    """Padding of replayed images; None: as for training images."""
    replay_border: tuple[float, ...] | None = None
    """Colour of the border of replayed images, on the scale 0..1; None: black."""

    @classmethod
    def for_side(cls, side: int, flip: bool) -> Views:
        """Crops move by an eighth of the side: 4 pixels at 32."""
        return cls(max(1, side // 8), flip)

    def crop_flip(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The view of a training image: padded with black, cropped at random, mirrored at random if ``flip``."""
        images = random_crop(images, self.padding, generator)
        return random_flip(images, generator) if self.flip else images

    def replay(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The view of an image from the memory."""
        padding = self.padding if self.replay_padding is None else self.replay_padding
        images = random_crop(images, padding, generator, self.replay_border)
        return random_flip(images, generator) if self.flip else images

    def strong(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """ACR's second view: resized crop, flip, colour jitter, grey."""
        return strong_view(images, generator, self.flip)


def join(*batches: Tensor) -> Tensor:
    """Concatenate batches of images; if their types differ, all become floats in 0..1."""
    if len({batch.dtype for batch in batches}) > 1:
        batches = tuple(batch.float() / 255 if batch.dtype == torch.uint8 else batch for batch in batches)
    return torch.cat(batches)


def random_crop(
    images: Tensor, padding: int, generator: torch.Generator, border: Sequence[float] | None = None
) -> Tensor:
    """Pad on all sides, then crop back to the original size at a random place.

    ``border`` is the colour of the padding, on the scale 0..1; it makes the result float. None: black.
    """
    n, channels, height, width = images.shape
    if border is None:
        padded = F.pad(images, [padding] * 4)
    else:
        pixels = images.float() / 255 if images.dtype == torch.uint8 else images
        colour = torch.tensor(border).view(1, -1, 1, 1)
        padded = F.pad(pixels - colour, [padding] * 4) + colour
    top, left = torch.randint(0, 2 * padding + 1, (2, n), generator=generator)
    # One gather over flattened pixels does all crops at once.
    rows, columns = top[:, None] + torch.arange(height), left[:, None] + torch.arange(width)
    place = rows[:, :, None] * (width + 2 * padding) + columns[:, None, :]
    chosen = place.view(n, 1, -1).expand(n, channels, -1)
    return padded.flatten(2).gather(2, chosen).view(n, channels, height, width)


def random_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror every image left to right with probability one half."""
    flip = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(flip[:, None, None, None], images.flip(-1), images)


def strong_view(
    images: Tensor,
    generator: torch.Generator,
    flip: bool = True,
    area: tuple[float, float] = (0.2, 1.0),
    aspect: tuple[float, float] = (3 / 4, 4 / 3),
    jitter_probability: float = 0.8,
    strength: float = 0.4,
    hue: float = 0.1,
    grey_probability: float = 0.2,
) -> Tensor:
    """Random resized crop, flip, colour jitter (with probability .8) and grey (.2), as in SimCLR (Chen et al. 2020).

    Single-channel images have no saturation, hue or grey: those draws change nothing.
    """
    as_bytes = images.dtype == torch.uint8
    pixels = images.float() / 255 if as_bytes else images
    pixels = random_resized_crop(pixels, generator, area, aspect, flip)
    n = len(pixels)
    pixels = colour_jitter(pixels, torch.rand(n, generator=generator) < jitter_probability, generator, strength, hue)
    grey = torch.rand(n, generator=generator) < grey_probability
    pixels[grey] = luma(pixels[grey]).expand(-1, pixels.shape[1], -1, -1)
    return (pixels * 255).round_().clamp_(0, 255).to(torch.uint8) if as_bytes else pixels


def random_resized_crop(
    pixels: Tensor,
    generator: torch.Generator,
    area: tuple[float, float],
    aspect: tuple[float, float],
    flip: bool = False,
    tries: int = 10,
) -> Tensor:
    """Cut a box of random area and aspect out of every image and enlarge it to the full size (bilinear).

    ``area`` and ``aspect`` are ranges: the share of the image's area, and width by height. A box that does not fit is
    drawn again, up to ``tries`` draws in all; then the largest square in the middle of the image is taken.
    """
    n, _, height, width = pixels.shape
    low, high = math.log(aspect[0]), math.log(aspect[1])
    # All tries of all images are drawn at once, so that the number of draws does not depend on their outcome.
    share = area[0] + (area[1] - area[0]) * torch.rand(n, tries, generator=generator)
    ratio = torch.exp(low + (high - low) * torch.rand(n, tries, generator=generator))
    boxes_w = (share * height * width * ratio).sqrt().round()
    boxes_h = (share * height * width / ratio).sqrt().round()
    fits = (boxes_w >= 1) & (boxes_w <= width) & (boxes_h >= 1) & (boxes_h <= height)
    first = fits.float().argmax(1, keepdim=True)  # the first try that fits
    any_fits = fits.any(1)
    box_w = torch.where(any_fits, boxes_w.gather(1, first).squeeze(1), torch.tensor(float(min(width, height))))
    box_h = torch.where(any_fits, boxes_h.gather(1, first).squeeze(1), torch.tensor(float(min(width, height))))
    place = torch.rand(2, n, generator=generator)
    left = (place[0] * (width - box_w + 1)).floor()
    top = (place[1] * (height - box_h + 1)).floor()
    left = torch.where(any_fits, left, ((width - box_w) / 2).floor())
    top = torch.where(any_fits, top, ((height - box_h) / 2).floor())
    mirror = torch.where(torch.rand(n, generator=generator) < 0.5, -1.0, 1.0) if flip else torch.ones(n)

    # Output pixel centres in box coordinates, clamped to the box's own pixels as a resize would be.
    def axis(size: int, start: Tensor, length: Tensor, sign: Tensor) -> Tensor:
        centre = (2 * torch.arange(size) + 1) / size - 1  # -1..1 over the output
        inside = (sign[:, None] * centre + 1) / 2 * length[:, None] - 0.5
        inside = torch.minimum(inside.clamp(min=0), length[:, None] - 1)
        return (2 * (start[:, None] + inside) + 1) / size - 1

    x = axis(width, left, box_w, mirror)[:, None, :].expand(n, height, width)
    y = axis(height, top, box_h, torch.ones(n))[:, :, None].expand(n, height, width)
    return F.grid_sample(pixels, torch.stack([x, y], -1), "bilinear", "border", align_corners=False)


def luma(pixels: Tensor) -> Tensor:
    """Grey value of every pixel, in one channel; always a new tensor, never a view of ``pixels``."""
    if pixels.shape[1] == 1:
        return pixels.clone()
    red, green, blue = pixels[:, 0:1], pixels[:, 1:2], pixels[:, 2:3]
    return LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue


def colour_jitter(pixels: Tensor, chosen: Tensor, generator: torch.Generator, strength: float, hue: float) -> Tensor:
    """Random brightness, contrast, saturation (factors in 1 ± strength) and hue, in a random order for each image.

    Only images that are ``chosen`` change.
    """
    n = len(pixels)
    factors = 1 + strength * (2 * torch.rand(3, n, generator=generator) - 1)
    shift = hue * (2 * torch.rand(n, generator=generator) - 1)
    order = torch.rand(n, 4, generator=generator).argsort(1)
    order[~chosen] = NOTHING
    pixels = pixels.clone()
    hue_turn = (order == HUE).float().argmax(1)
    # Shifting the hue is the most expensive operation, so it is done once, for all chosen images together. What comes
    # before it and after it in the order of each image is done in turns.
    for turn in range(3):
        blend_towards_grey(pixels, torch.where(turn < hue_turn, order[:, turn], NOTHING), factors)
    rows = chosen.nonzero()[:, 0]
    pixels.index_copy_(0, rows, shift_hue(pixels.index_select(0, rows), shift[rows]))
    for turn in range(1, 4):
        blend_towards_grey(pixels, torch.where(turn > hue_turn, order[:, turn], NOTHING), factors)
    return pixels


def blend_towards_grey(pixels: Tensor, operations: Tensor, factors: Tensor) -> None:
    """Apply one of three operations, or none, to each image, in place: p ← g + f (p - g), with different greys g.

    Brightness: g is black. Contrast: the image's mean grey. Saturation: the pixel's own grey. ``factors`` holds f, one
    row per operation and one column per image.
    """
    rows = (operations < HUE).nonzero()[:, 0]
    if not len(rows):
        return
    operation = operations[rows]
    part = pixels.index_select(0, rows)
    grey = luma(part)
    grey[operation == 0] = 0
    contrast = operation == 1
    grey[contrast] = grey[contrast].mean((2, 3), keepdim=True)
    part.sub_(grey).mul_(factors[operation, rows].view(-1, 1, 1, 1)).add_(grey).clamp_(0, 1)
    pixels.index_copy_(0, rows, part)


def shift_hue(pixels: Tensor, shift: Tensor) -> Tensor:
    """Rotate the hue of every pixel by a fraction of the colour circle; value and saturation stay the same.

    The hue is a number on a circle of length 6; a channel falls below the value by the chroma times how far the hue is
    from that channel's own sector. In place where possible: this is half the cost of a strong view.
    """
    if pixels.shape[1] == 1:
        return pixels
    red, green, blue = pixels.unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    inverse = chroma.clamp(min=1e-12).reciprocal_()
    hue = torch.where(
        value == red,
        (green - blue).mul_(inverse),
        torch.where(value == green, (blue - red).mul_(inverse).add_(2), (red - green).mul_(inverse).add_(4)),
    ).add_(6 * shift.view(-1, 1, 1))
    turned = torch.empty_like(pixels)
    for channel, offset in enumerate((5.0, 3.0, 1.0)):
        place = hue + offset
        place.sub_(torch.floor(place / 6).mul_(6))  # 0..6
        away = place.sub_(2).abs_().neg_().add_(2).clamp_(0, 1)
        torch.addcmul(value, chroma, away, value=-1, out=turned[:, channel])
    return turned
