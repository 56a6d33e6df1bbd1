"""The suite: corrupted copies of a test set, built once and shared by all runs, methods and stages.

Each corruption and severity is an entry of its own in the cache, so that runs that ask for other selections share what
they have in common. An entry's key holds everything its bytes depend on, the test images themselves among them.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from acr.data.cache import Entry, Writer, open_or_build
from acr.data.decoding import usable_cores
from acr.data.images import Images, ImageSet
from acr.data.location import cache_folder
from acr.data.progress import progress
from acr.errors import InputError
from acr.shift.corruptions import corrupt
from acr.shift.severities import PAPER_CORRUPTIONS, constants_for

ALGORITHM = 1
"""Raised when a change of the corruptions changes their bytes, so that old copies are not taken for new ones."""
PART = 250
"""Images a worker corrupts at a time."""
FEW = 4000
"""With fewer corrupted images than this in all, starting workers takes longer than the work."""
SEED = 0
"""Of the draws: one for all runs, so that every method and seed meets the same images."""


@dataclass(frozen=True)
class ShiftSpec:
    """Which corruptions, how severe, by which constants."""

    corruptions: tuple[str, ...]
    severities: tuple[int, ...]
    constants: str

    @classmethod
    def make(cls, corruptions: Sequence[str] | None, severities: Sequence[int], constants: str) -> ShiftSpec:
        """A checked selection; without named corruptions the paper's eleven."""
        chosen = tuple(corruptions) if corruptions is not None else PAPER_CORRUPTIONS
        if not chosen or not severities:
            raise InputError("A shifted test set needs a corruption and a severity or more.")
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
    """Corrupted copies of a test set by scenario (``fog/1``): memory-mapped, opened from the cache or built now."""
    folder = cache_folder(data_cache) / "shift"
    size = len(spec) * test.images.nbytes
    digest = hashlib.blake2b(np.ascontiguousarray(test.images).data, digest_size=16).hexdigest()
    entries: dict[str, Entry] = {}
    told = False

    def tell() -> None:
        nonlocal told
        if not told and not quiet:
            amount = f"{len(spec)} x {len(test):,} images, {size / 2**20:,.0f} MiB"
            print(f"Corrupting the test images of {name} once for all runs: {amount} in {folder}", file=sys.stderr)
        told = True

    many = len(spec) * len(test) >= FEW and usable_cores() > 1
    with progress("corrupting", len(spec) * len(test), quiet=quiet) as advance, _Workers(many) as workers:
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
                tell()
                out = writer.create("images", test.images.shape, np.uint8)
                for start, part in workers.corrupt(test.images, corruption, severity, spec.constants):
                    out[start : start + len(part)] = part
                    advance(len(part))

            title = f"{name}-{corruption}-{severity}-{spec.constants}"
            entries[f"{corruption}/{severity}"] = open_or_build(folder, key, build, name=title)
    return {scenario: entry.arrays["images"] for scenario, entry in entries.items()}


class _Workers:
    """Corrupts a set part by part, in this process or in several. The bytes are the same."""

    def __init__(self, many: bool) -> None:
        self.many = many
        self.pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *problem: object) -> None:
        if self.pool:
            self.pool.shutdown(cancel_futures=True)

    def corrupt(self, images: Images, corruption: str, severity: int, constants: str) -> Iterator[tuple[int, Images]]:
        """Starts of parts with their corrupted images."""
        starts = range(0, len(images), PART)
        if not self.many:
            for start in starts:
                yield start, _corrupt_part(images[start : start + PART], corruption, severity, constants, start)
            return
        if self.pool is None:  # only when something is really built
            self.pool = ProcessPoolExecutor(usable_cores(), mp_context=multiprocessing.get_context("spawn"))
        futures = [
            self.pool.submit(
                _corrupt_part, np.array(images[start : start + PART]), corruption, severity, constants, start
            )
            for start in starts
        ]
        for start, future in zip(starts, futures, strict=True):
            yield start, future.result()


def _corrupt_part(part: Images, corruption: str, severity: int, constants: str, start: int) -> Images:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        indices = np.arange(start, start + len(part))
        return corrupt(np.ascontiguousarray(part), corruption, severity, constants, SEED, indices)
    finally:
        torch.set_num_threads(threads)
