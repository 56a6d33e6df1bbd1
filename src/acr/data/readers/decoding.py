"""From image files of any kind to square uint8 RGB images.

The steps for every image, in this order: the first frame of an animation is taken; the EXIF orientation is applied;
16-bit grey is scaled to 8 bits; transparent images are laid on white; palettes, grey, CMYK and the rest become RGB;
the shorter side is resized to the requested size (bilinear, antialiased) and the image is cropped to the centre square.

Many small files are decoded by several processes, which write into the memory-mapped result: Pillow holds Python's lock
for most of the time that a small image takes, so threads gain nothing (two threads 0.85 to 1.05x, two processes 1.8x,
on 64 and 84 pixel JPEGs).
"""

from __future__ import annotations

import io
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from posixpath import splitext
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from acr.data.readers.file_tree import FolderTree, Tree, by_class, natural, open_tree
from acr.errors import InputError
from acr.storage.progress import progress
from acr.storage.workers import WorkerPool, cores

Images = npt.NDArray[np.uint8]


DECODER = 1
"""Increased when the same file would give different pixels; cached images of another decoder are made again."""

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM")
"""The formats that people bring, by Pillow's names. It knows forty more, each with a decoder that may have faults."""

MOST_PIXELS = 1 << 26
"""Most pixels of an image: 67 million, which take about 1 GiB while they are converted."""
MOST_ASPECT = 64
"""Most times that one side of an image may be as long as the other; enlarging the shorter side enlarges both."""
MOST_FILE_BYTES = 1 << 29
"""Most bytes of an image file."""

SIDE_FILES = frozenset(
    (
        *(".txt", ".md", ".rst", ".csv", ".tsv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".toml", ".html", ".htm"),
        *(".db", ".ini", ".log", ".py", ".sh", ".m", ".ipynb", ".url", ".lnk", ".aae", ".bak", ".sha256", ".md5"),
    )
)
"""Endings of files that lie beside images in data sets: notes, tables, labels, thumbnail databases."""

SHOWN = 20
"""How many file names an error lists; the others are only counted."""
FEW = 256
"""With fewer files than this, starting other processes takes longer than decoding in this one."""
PART = 32
"""Files per job of a worker."""


@cache
def endings() -> frozenset[str]:
    """The file name endings of the supported formats (``.jpg``, ...), in lower case."""
    return frozenset(ending for ending, name in Image.registered_extensions().items() if name in FORMATS)


class CappedReader(io.BufferedReader):
    """A file that is asked for no more than it holds.

    A damaged image may announce a part of 4 GiB. Python would allocate as much before it finds that the file is short.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        """At most ``size`` bytes; all that are left if it is negative or None."""
        left = max(0, os.fstat(self.fileno()).st_size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left))


def decode(file: IO[bytes] | Path, size: int) -> Images:
    """The image in a file as uint8 ``3 x size x size``. If it cannot be read, Pillow's error is raised.

    Its size is checked when only its header has been read. Pillow's own limit is higher, and only gives a warning; its
    warnings, which are about oddities of the metadata, too, are not shown.
    """
    if isinstance(file, io.BufferedReader):
        file = CappedReader(file.raw)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Image.open(file, formats=FORMATS) as image:
            check_size(image.size)
            return to_array(fit(to_rgb(image), size))


def check_size(size: tuple[int, int]) -> None:
    """Refuse an image of too many pixels, or one that is far longer than wide."""
    width, height = size
    if width * height > MOST_PIXELS:
        raise InputError(f"it has {width:,} x {height:,} pixels; at most {MOST_PIXELS / 1e6:.0f} million are read")
    if max(size) > MOST_ASPECT * min(size):
        raise InputError(f"it has {width:,} x {height:,} pixels; one side may be {MOST_ASPECT} times the other at most")


def to_rgb(image: Image.Image) -> Image.Image:
    """An upright 8-bit RGB image."""
    image = ImageOps.exif_transpose(image)
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image = Image.fromarray(_to_8_bit(np.asarray(image)))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert("RGB")


def fit(image: Image.Image, size: int) -> Image.Image:
    """The shorter side resized to ``size``, then the centre square."""
    check_size(image.size)
    width, height = image.size
    shorter = min(width, height)
    if shorter != size:
        width, height = (size if side == shorter else int(size * side / shorter) for side in (width, height))
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    if width != height:
        left, top = round((width - size) / 2), round((height - size) / 2)
        image = image.crop((left, top, left + size, top + size))
    return image


def to_array(image: Image.Image) -> Images:
    """Channels first: ``3 x H x W``, or ``1 x H x W`` for a grey image."""
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def to_picture(pixels: Images) -> Image.Image:
    """The inverse of :func:`to_array`."""
    return Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))


def resize(images: Images, size: int, *, quiet: bool = True) -> Images:
    """Images ``N x C x H x W`` resized and cropped as by :func:`fit`; returned unchanged if they have that size."""
    if images.shape[2:] == (size, size):
        return images
    out = np.empty((len(images), images.shape[1], size, size), np.uint8)
    with progress("Resizing", len(images), quiet=quiet) as advance:
        for i, pixels in enumerate(images):
            out[i] = to_array(fit(to_picture(pixels), size))
            advance(1)
    return out


def floats_to_bytes(values: np.ndarray[Any, Any]) -> Images:
    """From [0, 1] to 0..255 by floor(255 x), which restores exactly the bytes that were divided by 255."""
    return np.floor(values * np.asarray(255, values.dtype)).astype(np.uint8)


def to_images(values: np.ndarray[Any, Any], where: str) -> Images:
    """Bytes ``N x C x H x W`` from bytes or from floats in 0..1: N x H x W, N x H x W x C or N x C x H x W, C = 1 or 3.

    Floats become bytes by floor(255 x). ``where`` names the array in errors.
    """
    if np.issubdtype(values.dtype, np.floating):
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
        if not (low >= 0 and high <= 1):
            raise InputError(
                f"{where}: floats must be in 0..1; these range from {low:g} to {high:g}. Leave normalisation out: the "
                "network normalises its input itself."
            )
        values = floats_to_bytes(values)
    if values.dtype != np.uint8:
        raise InputError(f"{where}: images must be uint8 or floats in 0..1; got {values.dtype}.")
    if values.ndim == 3:
        return values[:, None]
    if values.ndim == 4 and values.shape[1] in (1, 3):
        return values
    if values.ndim == 4 and values.shape[3] in (1, 3):
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2))
    raise InputError(
        f"{where}: images must have the shape N x H x W, N x H x W x C or N x C x H x W with 1 or 3 channels C; got "
        f"{values.shape}."
    )


def _to_8_bit(values: np.ndarray[Any, Any]) -> Images:
    if np.issubdtype(values.dtype, np.floating):
        if not np.isfinite(values).all() or values.min() < 0 or values.max() > 255:
            raise ValueError("its values are floats outside 0..1 and 0..255")
        return floats_to_bytes(values) if values.max() <= 1 else np.rint(values).astype(np.uint8)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("it has more than 16 bits per pixel")
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)


def image_files(names: Iterable[str]) -> list[str]:
    """The names that end like an image's. Other files (notes, thumbnail databases) are not part of a data set."""
    known = endings()
    return [name for name in names if splitext(name)[1].lower() in known]


def left_out(tree: Tree, part: str, *, empty_only: bool = False) -> list[tuple[str, str]]:
    """What below a folder would vanish without a word: class folders without an image, files of unknown types.

    ``part`` is the folder that holds the class folders (``""``: the root). Returns pairs (folder, reason). Notes,
    tables and the like beside images are expected, and not listed; with ``empty_only``, no single files are.
    """
    prefix = f"{part.rstrip('/')}/" if part else ""
    with_images = {label for label, _ in by_class(image_files(tree.names), part.rstrip("/"))}
    others: dict[str, Counter[str]] = {
        name.removeprefix(prefix): Counter()
        for name in tree.folders
        if name.startswith(prefix) and "/" not in name.removeprefix(prefix)
    }
    known = endings()
    for label, name in by_class(tree.names, part.rstrip("/")):
        ending = splitext(name)[1].lower()
        if ending not in known:
            others.setdefault(label, Counter())[ending] += 1
    rows = []
    for label in sorted(others, key=natural):
        unknown = {end: count for end, count in others[label].items() if end not in SIDE_FILES}
        if label not in with_images:
            what = f"{in_words(others[label])}, none of which is an image" if others[label] else "it is empty"
            rows.append((prefix + label, f"a class without images: {what}"))
        elif unknown and not empty_only:
            rows.append((prefix + label, f"files that are not read: {in_words(unknown)}"))
    return rows


def in_words(endings: Mapping[str, int]) -> str:
    """Numbers of files by ending, for people.

    >>> in_words({".heic": 40, "": 1})
    '40 .heic files, 1 file without an ending'
    """
    rows = sorted(endings.items(), key=lambda item: -item[1])
    words = [
        f"{count:,} {ending[:20] + ' ' if ending else ''}file{'' if count == 1 else 's'}"
        f"{'' if ending else ' without an ending'}"
        for ending, count in rows[:5]
    ]
    return ", ".join(words) + (f" and {sum(count for _, count in rows[5:]):,} more" if len(rows) > 5 else "")


def list_broken(broken: Sequence[Sequence[str]]) -> str:
    """Pairs (file, reason), one per line; beyond the first ``SHOWN``, only their number. Odd bytes become printable."""
    lines = [f"\n  {file}: {reason}" for file, reason in broken[:SHOWN]]
    if len(broken) > SHOWN:
        lines.append(f"\n  and {len(broken) - SHOWN} more")
    return "".join(lines).encode("utf-8", "backslashreplace").decode()


def decode_files(
    tree: Tree, names: Sequence[str], out: Path, size: int, *, quiet: bool = False, workers: int | None = None
) -> dict[int, str]:
    """Decode files of a tree into the rows of an ``.npy`` file.

    Args:
        tree: where the files are.
        names: the files, one per row.
        out: the file to fill: uint8, ``len(names) x 3 x size x size``.
        size: side of the images.
        quiet: show no progress.
        workers: number of processes that share the work; by default one per core.

    Returns the rows that could not be read, each with the reason; these rows of the file are left as they were.
    """
    workers = workers or cores()
    jobs = list(enumerate(names))
    with progress("Decoding images", len(names), quiet=quiet) as advance:
        if workers == 1 or len(jobs) < FEW:
            return _decode(tree, jobs, out, size, advance)
        broken: dict[int, str] = {}
        parts = [jobs[start : start + PART] for start in range(0, len(jobs), PART)]
        with WorkerPool(_decode_part, "decodes images", workers) as pool:
            for part, unread in zip(parts, pool.map([[str(tree.root), str(out), size, p] for p in parts]), strict=True):
                broken.update((int(row), str(reason)) for row, reason in unread)
                advance(len(part))
        return broken


def _decode(
    tree: Tree, jobs: Sequence[tuple[int, str]], out: Path, size: int, advance: Callable[[int], None]
) -> dict[int, str]:
    broken: dict[int, str] = {}
    pixels = np.load(out, mmap_mode="r+", allow_pickle=False) if jobs else np.empty(0)
    for row, name in jobs:
        try:
            if tree.size(name) > MOST_FILE_BYTES:
                raise InputError(f"the file is larger than {MOST_FILE_BYTES >> 20} MiB")
            with tree.open(name) as file:
                pixels[row] = decode(file, size)
        except Exception as error:  # Pillow's readers fail in many ways, all of which mean an unreadable file
            broken[row] = _reason(error)
        advance(1)
    return broken


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if text.startswith("cannot identify image file"):
        return "not an image format that is read"
    return " ".join(text.split())[:200]


def _decode_part(job: Sequence[Any]) -> list[tuple[int, str]]:
    """One job of a worker: decode some of the files. Returns the rows that could not be read, with the reasons."""
    root, out, size, rows = job
    broken = _decode(_opened(root), [(int(row), str(name)) for row, name in rows], Path(out), size, lambda n: None)
    return list(broken.items())


@lru_cache(maxsize=1)
def _opened(root: str) -> Tree:
    """The tree of a worker, opened once: the directory of a large zip takes some time to read."""
    path = Path(root)
    return FolderTree(path, listed=False) if path.is_dir() else open_tree(path)
