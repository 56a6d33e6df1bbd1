"""Pictures on a page: many small images in one, so that a page holds hundreds of them in a few hundred kilobytes."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from acr.report.charts.memory import load_arrays
from acr.report.charts.parts import rounded
from acr.report.groups import Comparison, Gathered, Group
from acr.runs.run import Run

Bytes = npt.NDArray[np.uint8]
TILES = 200
"""Tiles of a memory at most."""
SIDE = 32
"""Pixels of a tile's longer side at most; larger images are made smaller."""
SPRITE_BYTES = 1_600_000
"""Characters that the memories of a page take together, about at most; corruptions take a quarter as much."""
SAMPLES = 4
"""Images that show a corruption."""


def sprite(images: Sequence[Bytes], budget: int) -> dict[str, Any]:
    """Images (CHW bytes) side by side in one picture, as a data address, and where each is found.

    Lossless while that fits the budget, then WebP at falling quality; pictures of digits stay exact, photographs of a
    hundred runs stay small.
    """
    tiles = [as_picture(image) for image in images]
    width, height = tiles[0].size
    columns = math.ceil(math.sqrt(len(tiles)))
    sheet = Image.new("RGB", (columns * width, math.ceil(len(tiles) / columns) * height))
    for place, tile in enumerate(tiles):
        sheet.paste(tile, (place % columns * width, place // columns * height))
    if all(image.shape[0] == 1 for image in images):
        sheet = sheet.convert("L")
    kind, content = "png", encoded(sheet, "PNG", optimize=True)
    for quality, shrink in ((85, 1), (65, 1), (45, 1), (25, 1), (25, 2), (10, 2)):
        if len(content) * 4 / 3 <= budget:  # as text a picture takes a third more
            break
        smaller = sheet.convert("RGB").reduce(shrink)
        kind, content = "webp", encoded(smaller, "WEBP", quality=quality)
    return {"src": f"data:image/{kind};base64,{base64.b64encode(content).decode()}", "columns": columns,
            "rows": math.ceil(len(tiles) / columns), "width": width, "height": height}  # fmt: skip


def encoded(picture: Image.Image, kind: str, **options: Any) -> bytes:
    """A picture as a file's content."""
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def as_picture(image: Bytes) -> Image.Image:
    """An image of one channel or three as a picture no larger than a tile."""
    rgb = np.broadcast_to(image[:3] if image.shape[0] >= 3 else image[:1], (3, *image.shape[1:])).transpose(1, 2, 0)
    picture = Image.fromarray(np.ascontiguousarray(rgb))
    longest = max(picture.size)
    if longest > SIDE:
        size = (max(1, round(picture.width * SIDE / longest)), max(1, round(picture.height * SIDE / longest)))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    return picture


def memory_pictures(gathered: Gathered) -> dict[str, dict[str, Any]]:
    """The final memory of one run of each label: its tiles by task and class, in falling order of variance."""
    chosen: dict[str, Group] = {}
    for comparison in gathered.comparisons:
        for group in comparison.groups:
            if group.runs[0].results.memory.size:
                chosen.setdefault(group.label, group)
    budget = SPRITE_BYTES // max(1, len(chosen))
    found = {}
    for label, group in chosen.items():
        picture = memory_of(group.runs[0], budget)
        if picture:
            found[label] = {"run": group.runs[0].folder.name, **picture}
    return found


def memory_of(run: Run, budget: int) -> dict[str, Any] | None:
    """Tiles of one run's memory; None if its file is not there or damaged."""
    stored = load_arrays(run, "memory.npz")
    try:
        images, labels, tasks = stored["images"], stored["labels"], stored["tasks"]
        if images.ndim != 4 or images.dtype != np.uint8 or not len(images):
            return None
        variance = stored.get("confidence_variance", np.full(len(labels), np.nan))
        mean = stored.get("confidence_mean", np.full(len(labels), np.nan))
        names = dict(zip(run.results.classes, run.results.class_names, strict=True))
        parts: dict[tuple[int, int], list[int]] = {}
        for place in np.argsort(-np.nan_to_num(variance), kind="stable").tolist():
            parts.setdefault((int(tasks[place]), int(labels[place])), []).append(place)
        shown = share_out(parts, TILES)
        order = [place for key in sorted(shown) for place in shown[key]]
        groups = [
            {
                "task": task + 1,
                "name": str(names.get(label, label)),
                "stored": len(parts[task, label]),
                "variance": [rounded(float(variance[p]), 4) for p in places],
                "mean": [rounded(float(mean[p]), 3) for p in places],
            }
            for (task, label), places in sorted(shown.items())
        ]
        return {"sprite": sprite([images[place] for place in order], budget), "groups": groups, "stored": len(labels),
                "confidence": "confidence_variance" in stored}  # fmt: skip
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def share_out(parts: dict[tuple[int, int], list[int]], most: int) -> dict[tuple[int, int], list[int]]:
    """As many of each part as fit when all get the same; of a longer part, members spread evenly over its order."""
    room = most
    shown = {}
    left = len(parts)
    for key in sorted(parts, key=lambda key: len(parts[key])):
        members = parts[key]
        n = min(len(members), room // left)
        left -= 1
        room -= n
        if n:
            places = np.unique(np.linspace(0, len(members) - 1, n).round().astype(int))
            shown[key] = [members[i] for i in places]
    return shown


def corruption_pictures(comparison: Comparison, budget: int) -> dict[str, Any] | None:
    """A few test images and their corrupted copies, from the first run that has them."""
    for group in comparison.groups:
        for run in group.runs:
            arrays = load_arrays(run, "samples.npz")
            clean = arrays.get("images")
            if clean is None or clean.ndim != 4 or not len(clean):
                continue
            names = [n for n in arrays if "/" in n and arrays[n].shape == clean.shape]
            n = min(SAMPLES, len(clean))
            places = np.linspace(0, len(clean) - 1, n).round().astype(int)
            copies = [("clean", clean), *((name, arrays[name]) for name in names)]
            tiles = [images[place].astype(np.uint8) for _, images in copies for place in places]
            return {"sprite": sprite(tiles, budget), "names": [name for name, _ in copies], "n": n}
    return None
