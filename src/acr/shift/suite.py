"""The suite: corrupted copies of a test set, built once and shared by all runs, methods and stages.

Each corruption and severity has its own entry in the cache, so that runs with different selections share what they have
in common. The key of an entry contains everything that its bytes depend on, including the test images themselves.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from acr.console import say
from acr.data.images import Images, ImageSet
from acr.errors import InputError
from acr.shift.corruptions import corrupt
from acr.shift.severities import PAPER_CORRUPTIONS, constants_for
from acr.storage.cache import Entry, Writer, open_or_build
from acr.storage.location import cache_folder
from acr.storage.progress import progress
from acr.storage.workers import WorkerPool, cores

ALGORITHM = 1
"""Increased when a change to the corruptions changes their bytes, so that old copies are not used as new ones."""
PART = 250
"""Number of images that a worker corrupts at a time."""
FEW = 4000
"""With fewer corrupted images than this in total, starting workers takes longer than the work itself."""
SEED = 0
"""Seed of the draws: one for all runs, so that every method and seed is tested on the same images."""


@dataclass(frozen=True)
class ShiftSpec:
    """Which corruptions, at which severities, with which table of constants."""

    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    constants: str

    @classmethod
    def make(cls, corruptions: Sequence[str] | None, severities: Sequence[int], constants: str) -> ShiftSpec:
        """A checked selection; the paper's eleven corruptions if None are named."""
        chosen = tuple(corruptions) if corruptions is not None else PAPER_CORRUPTIONS
        if not chosen or not severities:
            raise InputError("A shifted test set needs at least a corruption and a severity.")
        for name in chosen:
            for severity in severities:
                constants_for(name, severity, constants)
        return cls(chosen, tuple(severities), constants)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((name, severity) for name in self.corruptions for severity in self.severities)

    def __len__(self) -> int:
        return len(self.corruptions) * len(self.severities)


def build_suite(
    test: ImageSet, name: str, spec: ShiftSpec, data_cache: Path | None = None, quiet: bool = False
) -> dict[str, Images]:
    """Corrupted copies of a test set, opened from the cache or built now.

    Args:
        test: the clean test set.
        name: of the data set, for messages and file names.
        spec: which copies.
        data_cache: folder of the cache; the default one if None.
        quiet: print nothing.

    Returns memory-mapped uint8 images by scenario (``fog/1``), each of the shape of the test set.
    """
    folder = cache_folder(data_cache) / "shift"
    size = len(spec) * test.images.nbytes
    digest = hashlib.blake2b(np.ascontiguousarray(test.images).data, digest_size=16).hexdigest()
    entries: dict[str, Entry] = {}
    announced = False

    def announce() -> None:
        nonlocal announced
        if not announced and not quiet:
            amount = f"{len(spec)} x {len(test):,} images, {size / 2**20:,.0f} MiB"
            say(f"Corrupting the test images of {name} once for all runs: {amount} in {folder}", error=True)
        announced = True

    many = len(spec) * len(test) >= FEW and cores() > 1
    with (
        progress("corrupting", len(spec) * len(test), quiet=quiet) as advance,
        _Corrupter(test.images, many) as corrupter,
    ):
        for corruption, severity in spec:
            key = {
                "test": digest,
                "shape": list(test.images.shape),
                "corruption": corruption,
                "severity": severity,
                "constants": spec.constants,
                "seed": SEED,
                "algorithm": ALGORITHM,
                "versions": {package: version(package) for package in ("numpy", "torch", "pillow", "scipy")},
            }

            def build(writer: Writer, corruption: str = corruption, severity: int = severity) -> None:
                announce()
                writer.create("images", test.images.shape, np.uint8)
                corrupter.corrupt(writer.path("images"), (corruption, severity, spec.constants), advance)

            title = f"{name}-{corruption}-{severity}-{spec.constants}"
            entries[f"{corruption}/{severity}"] = open_or_build(folder, key, build, name=title)
    return {scenario: entry.arrays["images"] for scenario, entry in entries.items()}


class _Corrupter:
    """Corrupts a set part by part into an array file, in this or in other processes, with the same bytes.

    ``many`` uses a pool of worker processes.
    """

    def __init__(self, images: Images, many: bool) -> None:
        self.images = images
        self.pool = WorkerPool(_corrupt_elsewhere, "corrupts images") if many else None
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> _Corrupter:
        return self

    def __exit__(self, *problem: object) -> None:
        if self.pool is not None:
            self.pool.__exit__(*problem)
        if self.folder is not None:
            self.folder.cleanup()

    def corrupt(self, out: Path, how: tuple[str, int, str], advance: Callable[[int], None]) -> None:
        """Fill the array file ``out`` with the corrupted images.

        ``how`` is corruption, severity and constants; ``advance`` is called with the number of images of each part.
        """
        starts = range(0, len(self.images), PART)
        if self.pool is None:
            for start in starts:
                advance(_corrupt_part(self.images, out, start, how))
            return
        source = self.source()
        for done in self.pool.map([source, str(out), start, how] for start in starts):
            advance(done)

    def source(self) -> str:
        """Path of a file with the images, for the workers to read."""
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="acr-shift-")
            np.save(Path(self.folder.name) / "images.npy", self.images)
        return str(Path(self.folder.name) / "images.npy")


def _corrupt_elsewhere(job: Sequence[Any]) -> int:
    """Corrupt one part in a worker; ``job`` is the path of the images and the other arguments of ``_corrupt_part``."""
    source, out, start, how = job
    return _corrupt_part(np.load(source, mmap_mode="r", allow_pickle=False), Path(out), start, how)


def _corrupt_part(images: Images, out: Path, start: int, how: Sequence[Any]) -> int:
    """Corrupt the next ``PART`` images from ``start`` into the array file ``out``; returns their number."""
    part = np.ascontiguousarray(images[start : start + PART])
    target = np.load(out, mmap_mode="r+", allow_pickle=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        corruption, severity, constants = how
        indices = np.arange(start, start + len(part))
        target[start : start + len(part)] = corrupt(part, corruption, severity, constants, SEED, indices)
        target.flush()
    finally:
        torch.set_num_threads(threads)
    return len(part)
