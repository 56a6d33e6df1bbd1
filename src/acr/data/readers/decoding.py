"""From image files of any kind to uint8 RGB squares.

What is done to every image, in this order: the first frame of an animation is taken; the EXIF orientation is applied;
16-bit grey is scaled to 8 bits; what is transparent is laid on white; palettes, grey, CMYK and the rest become RGB;
the shorter side is resized to the size asked for (bilinear, antialiased) and the centre is cut out.

Many small files are decoded by several processes: Pillow holds Python's lock for most of the time a small image
takes, so that threads gain nothing (two threads 0.85 to 1.05x, two processes 1.8x, on 64 and 84 pixel JPEGs). The
workers are plain child interpreters that write into the memory-mapped result: unlike ``multiprocessing`` they need no
guard in the user's script, and unlike ``fork`` they are safe beside the threads of PyTorch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image, ImageOps

from acr.data.images import Images
from acr.data.readers.file_tree import FolderTree, Tree, open_tree
from acr.errors import AcrError
from acr.storage.progress import progress

DECODER = 1
"""Raised when the same file would give other pixels; cached images of another decoder are made anew."""

NOT_PICTURES = frozenset({"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "PDF", "WMF"})
"""Formats that Pillow names but cannot read by itself (EPS would start Ghostscript)."""

_SMALL_JOB = 256
_REPORT_EVERY = 32


@cache
def formats() -> tuple[str, ...]:
    """The formats that are read, the usual ones first."""
    Image.init()
    usual = ("JPEG", "PNG", "GIF", "WEBP", "BMP")
    return (*usual, *(name for name in Image.OPEN if name not in usual and name not in NOT_PICTURES))


@cache
def endings() -> frozenset[str]:
    """The file name endings of these formats (``.jpg``, ...), in lower case."""
    readable = set(formats())
    return frozenset(ending for ending, name in Image.registered_extensions().items() if name in readable)


def decode(file: IO[bytes] | Path, size: int) -> Images:
    """The image in a file as uint8 ``3 x size x size``. Raises what Pillow raises if it cannot be read."""
    with Image.open(file, formats=formats()) as image:
        return to_array(fit(to_rgb(image), size))


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
    """Images ``N x C x H x W`` by the rule of :func:`fit`; as they are if they have that size."""
    if images.shape[2:] == (size, size):
        return images
    out = np.empty((len(images), images.shape[1], size, size), np.uint8)
    with progress("Resizing", len(images), quiet=quiet) as advance:
        for i, pixels in enumerate(images):
            out[i] = to_array(fit(to_picture(pixels), size))
            advance(1)
    return out


def floats_to_bytes(values: np.ndarray[Any, Any]) -> Images:
    """From [0, 1] to 0..255 by floor(255 x), which gives back exactly what was divided by 255."""
    return np.floor(values * np.asarray(255, values.dtype)).astype(np.uint8)


def _to_8_bit(values: np.ndarray[Any, Any]) -> Images:
    if np.issubdtype(values.dtype, np.floating):
        if not np.isfinite(values).all() or values.min() < 0 or values.max() > 255:
            raise ValueError("its values are floats outside 0..1 and 0..255")
        return floats_to_bytes(values) if values.max() <= 1 else np.rint(values).astype(np.uint8)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("it has more than 16 bits a pixel")
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)


def decode_files(
    tree: Tree, names: Sequence[str], out: Path, size: int, *, quiet: bool = False, workers: int | None = None
) -> dict[int, str]:
    """Decode the files into the rows of the ``.npy`` file ``out`` (uint8, ``len(names) x 3 x size x size``).

    Returns the rows that could not be read, with the reason; those rows are left as they were.
    """
    workers = workers or usable_cores()
    with progress("Decoding images", len(names), quiet=quiet) as advance:
        jobs = list(enumerate(names))
        if workers == 1 or len(jobs) < _SMALL_JOB or not sys.executable:
            return _decode_here(tree, jobs, out, size, advance)
        return _decode_elsewhere(tree, [jobs[i::workers] for i in range(workers)], out, size, advance)


def usable_cores() -> int:
    """The cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _decode_here(tree: Tree, jobs: Sequence[tuple[int, str]], out: Path, size: int, advance: Any) -> dict[int, str]:
    broken: dict[int, str] = {}
    pixels = np.load(out, mmap_mode="r+", allow_pickle=False) if jobs else np.empty(0)
    for row, name in jobs:
        try:
            with tree.open(name) as file:
                pixels[row] = decode(file, size)
        except Exception as error:  # Pillow's readers fail in many ways; whichever it was, this file is unreadable
            broken[row] = _reason(error)
        advance(1)
    return broken


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return "not an image Pillow knows" if text.startswith("cannot identify image file") else text


def _decode_elsewhere(
    tree: Tree, shares: Sequence[Sequence[tuple[int, str]]], out: Path, size: int, advance: Any
) -> dict[int, str]:
    start = (
        "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from acr.data.readers.decoding import work; work()"
    )
    command = [sys.executable, "-c", start, json.dumps(sys.path)]
    broken: dict[int, str] = {}
    processes: list[subprocess.Popen[bytes]] = []

    def feed_and_listen(process: subprocess.Popen[bytes], share: Sequence[tuple[int, str]]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        job = {"root": str(tree.root), "out": str(out), "size": size, "jobs": share}
        try:
            process.stdin.write(json.dumps(job).encode())
            process.stdin.close()
        except OSError:  # it died; its exit code says so below
            return
        for line in process.stdout:
            report = json.loads(line)
            broken.update({int(row): reason for row, reason in report["broken"]})
            advance(report["done"])

    try:
        threads = []
        for share in shares:
            processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            threads.append(threading.Thread(target=feed_and_listen, args=(processes[-1], share), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join()
        if failed := [code for process in processes if (code := process.wait())]:
            raise AcrError(f"A process that decodes images ended with code {failed[0]}: out of memory, perhaps.")
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
    return broken


def work() -> None:
    """What a child process does: its share of the files, telling its parent how far it is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it ends us
    job = json.loads(sys.stdin.buffer.read())
    root = Path(job["root"])
    tree: Tree = FolderTree(root, listed=False) if root.is_dir() else open_tree(root)
    jobs, out = [(int(row), str(name)) for row, name in job["jobs"]], Path(job["out"])
    for start in range(0, len(jobs), _REPORT_EVERY):
        part = jobs[start : start + _REPORT_EVERY]
        broken = _decode_here(tree, part, out, job["size"], lambda amount: None)
        try:
            print(json.dumps({"done": len(part), "broken": list(broken.items())}), flush=True)
        except BrokenPipeError:  # nobody waits for us any more
            os._exit(1)
