"""A picture of what the corruptions do: one row per corruption, with the original and its severities in columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from acr.errors import InputError
from acr.shift.corruptions import corrupt
from acr.shift.setting import Bytes
from acr.shift.severities import CORRUPTIONS, SEVERITIES

CELL = 64
"""Smallest side of an image on the sheet; smaller images are enlarged by a whole factor, with sharp pixels."""

GAP = 4
MARGIN = 10


def draw(
    images: Bytes,
    corruptions: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    constants: str = "imagenet-c",
    seed: int = 0,
) -> Image.Image:
    """A labelled sheet of uint8 N x C x H x W images; the other arguments are as in ``corrupt``.

    Row r shows image r modulo the number of images, with its position as its index.
    """
    if not len(corruptions) or not len(severities):
        raise InputError("A sheet needs at least one corruption and one severity.")
    if len(images) == 0:
        raise InputError("A sheet needs at least one image.")
    height, width = images.shape[2:]
    factor = max(1, -(-CELL // max(height, width)))
    tall, wide = height * factor, width * factor
    font = ImageFont.load_default(size=14)
    labels = max(int(font.getlength(name)) for name in corruptions) + 2 * MARGIN
    header = 14 + 2 * MARGIN
    size = labels + (len(severities) + 1) * (wide + GAP) + MARGIN, header + len(corruptions) * (tall + GAP) + MARGIN
    sheet = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(sheet)
    pen.text((MARGIN, MARGIN), constants, fill="black", font=font)
    for column, title in enumerate(["original", *(str(severity) for severity in severities)]):
        middle = labels + column * (wide + GAP) + wide // 2
        pen.text((middle, MARGIN), title, fill="black", font=font, anchor="ma")
    for row, name in enumerate(corruptions):
        top = header + row * (tall + GAP)
        pen.text((labels - MARGIN, top + tall // 2), name, fill="black", font=font, anchor="rm")
        index = row % len(images)
        one = images[index : index + 1]
        cells = [one, *(corrupt(one, name, severity, constants, seed, [index]) for severity in severities)]
        for column, cell in enumerate(cells):
            sheet.paste(_picture(cell[0], factor), (labels + column * (wide + GAP), top))
    return sheet


def _picture(image: Bytes, factor: int) -> Image.Image:
    rgb = np.broadcast_to(image, (3, *image.shape[1:])).transpose(1, 2, 0)
    picture = Image.fromarray(np.ascontiguousarray(rgb))
    return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
