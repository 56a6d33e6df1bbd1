"""A picture sheet: what the network is given to learn, for eyes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from acr.data.decoding import to_picture
from acr.data.images import DataSet, ImageSet
from acr.data.splits import at_most
from acr.errors import InputError

MARGIN, GAP = 8, 2


def draw(
    dataset: DataSet,
    *,
    tasks: Sequence[Sequence[int]] | None = None,
    columns: int | None = None,
    split: str = "train",
    seed: int = 0,
    tile: int = 48,
) -> Image.Image:
    """A row of random images for each class, its name before it; or a row for each task, if ``tasks`` are given.

    ``tasks`` lists the labels of each task. A row of a task shows its classes in turn. ``columns`` images a row: 12
    for classes; for tasks as many as the largest task has classes, at least 12. Images are enlarged to ``tile``
    pixels without smoothing, so that one sees the pixels there are.
    """
    if split not in ("train", "test"):
        raise InputError(f"There is no split {split!r}: train or test.")
    if columns is not None and columns < 1:
        raise InputError(f"A sheet has at least one column; got {columns}.")
    images = dataset.train if split == "train" else dataset.test
    if tasks is None:
        columns = columns or 12
        rows = [(images.class_names[label], [label]) for label in images.classes]
    else:
        columns = columns or max(12, *(len(task) for task in tasks))
        rows = [(f"task {i}", list(task)) for i, task in enumerate(tasks, start=1)]
    picks = [_pick(images, labels, columns, seed) for _, labels in rows]
    return _paint(images, [name for name, _ in rows], picks, columns, f"{dataset.name}, {split}", tile)


def _pick(images: ImageSet, labels: Sequence[int], columns: int, seed: int) -> list[int]:
    """Positions of the images of a row: one of each class in turn, until the row is full or all are shown."""
    each = -(-columns // max(1, len(labels)))
    groups = []
    for label in labels:
        positions = images.of_classes([label])
        groups.append(positions[at_most(images.labels[positions], each, seed, "sheet")].tolist())
    turns = [group[turn] for turn in range(each) for group in groups if turn < len(group)]
    return turns[:columns]


def _paint(
    images: ImageSet, names: Sequence[str], picks: Sequence[Sequence[int]], columns: int, title: str, tile: int
) -> Image.Image:
    font = ImageFont.load_default(size=14)
    shown = [name if len(name) <= 28 else name[:27] + "…" for name in names]
    gutter = int(max(font.getlength(name) for name in shown)) + MARGIN
    step, top = tile + GAP, 32
    width = max(2 * MARGIN + gutter + columns * step, 2 * MARGIN + int(font.getlength(title)) + 1)
    sheet = Image.new("RGB", (width, top + len(names) * step + MARGIN), "white")
    pen = ImageDraw.Draw(sheet)
    pen.text((MARGIN, top // 2), title, fill="black", font=font, anchor="lm")
    for row, (name, positions) in enumerate(zip(shown, picks, strict=True)):
        y = top + row * step
        pen.text((gutter, y + tile // 2), name, fill="black", font=font, anchor="rm")
        for column, position in enumerate(positions):
            pixels = np.asarray(images.images[position])
            smooth = Image.Resampling.BILINEAR if pixels.shape[1] > tile else Image.Resampling.NEAREST
            picture = to_picture(pixels).resize((tile, tile), smooth).convert("RGB")
            sheet.paste(picture, (MARGIN + gutter + column * step, y))
    return sheet
