"""Picture sheets: what the network is given to learn, for people to look at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw, ImageFont

from acr.data.images import DataSet, ImageSet
from acr.data.readers.decoding import to_picture
from acr.data.splits import at_most
from acr.data.views import Views
from acr.errors import InputError
from acr.randomness import generator

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
    """One row of random images per class, labelled with its name; or one row per task, if ``tasks`` are given.

    ``tasks`` lists the labels of each task; the row of a task shows its classes in turn. ``columns`` is the number of
    images per row: by default 12, or, for tasks, the number of classes of the largest task if that is more. Images are
    enlarged to ``tile`` pixels without smoothing, so that the original pixels remain visible.
    """
    images, title = _part(dataset, split, columns), f"{dataset.name}, {split}"
    if tasks is None:
        return draw_classes(images, title, columns=columns or 12, seed=seed, tile=tile)
    columns = columns or max(12, *(len(task) for task in tasks))
    pictures = [images.images[_pick(images, task, columns, seed)] for task in tasks]
    return _paint([f"task {i + 1}" for i in range(len(tasks))], pictures, columns, title, tile)


def draw_classes(images: ImageSet, title: str, *, columns: int = 12, seed: int = 0, tile: int = 48) -> Image.Image:
    """One row of images per class, labelled with its name: all of them, or a random choice if there are more."""
    pictures = [images.images[_pick(images, [label], columns, seed)] for label in images.classes]
    return _paint([images.class_names[label] for label in images.classes], pictures, columns, title, tile)


def draw_views(
    dataset: DataSet, views: Views, *, columns: int | None = None, split: str = "train", seed: int = 0, tile: int = 48
) -> Image.Image:
    """One row of random images as they are stored, then one row per kind of random view that methods train on.

    The strong view is made from the augmented one, as in ACR. The other arguments are those of :func:`draw`.
    """
    images = _part(dataset, split, columns)
    columns = columns or 12
    plain = torch.from_numpy(np.asarray(images.images[_pick(images, images.classes, columns, seed)]))
    augmented = views.crop_flip(plain, generator(seed, "sheet", "augmented"))
    rows = {
        "stored": plain,
        "augmented": augmented,
        "second, strong": views.strong(augmented, generator(seed, "sheet", "strong")),
        "replayed": views.replay(plain, generator(seed, "sheet", "replayed")),
    }
    return _paint(list(rows), [row.numpy() for row in rows.values()], columns, f"{dataset.name}, {split}", tile)


def _part(dataset: DataSet, split: str, columns: int | None) -> ImageSet:
    if split not in ("train", "test"):
        raise InputError(f"There is no split {split!r}; expected train or test.")
    if columns is not None and columns < 1:
        raise InputError(f"A sheet needs at least one column; got {columns}.")
    return dataset.train if split == "train" else dataset.test


def _pick(images: ImageSet, labels: Sequence[int], columns: int, seed: int) -> list[int]:
    """Positions of the images of a row: one per class in turn, until the row is full or there are no more images."""
    each = -(-columns // max(1, len(labels)))  # images per class that fill the row, rounded up
    groups = []
    for label in labels:
        positions = images.of_classes([label])
        groups.append(positions[at_most(images.labels[positions], each, seed, "sheet")].tolist())
    turns = [group[turn] for turn in range(each) for group in groups if turn < len(group)]
    return turns[:columns]


def _paint(
    names: Sequence[str], rows: Sequence[npt.NDArray[np.uint8]], columns: int, title: str, tile: int
) -> Image.Image:
    """Rows of pictures, each with its name on the left; pictures are scaled to ``tile`` pixels."""
    font = ImageFont.load_default(size=14)
    shown = [name if len(name) <= 28 else name[:27] + "…" for name in names]
    gutter = int(max(font.getlength(name) for name in shown)) + MARGIN
    step, top = tile + GAP, 32
    width = max(2 * MARGIN + gutter + columns * step, 2 * MARGIN + int(font.getlength(title)) + 1)
    sheet = Image.new("RGB", (width, top + len(names) * step + MARGIN), "white")
    pen = ImageDraw.Draw(sheet)
    pen.text((MARGIN, top // 2), title, fill="black", font=font, anchor="lm")
    for row, (name, pictures) in enumerate(zip(shown, rows, strict=True)):
        y = top + row * step
        pen.text((gutter, y + tile // 2), name, fill="black", font=font, anchor="rm")
        for column, pixels in enumerate(pictures):
            smooth = Image.Resampling.BILINEAR if pixels.shape[1] > tile else Image.Resampling.NEAREST
            picture = to_picture(pixels).resize((tile, tile), smooth).convert("RGB")
            sheet.paste(picture, (MARGIN + gutter + column * step, y))
    return sheet
