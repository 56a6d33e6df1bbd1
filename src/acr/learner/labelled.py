"""Labelled images as commands are given them: class folders, a CSV file, or arrays. Their labels are text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from acr.data.readers.decoding import list_broken, resize
from acr.data.readers.file_tree import FolderTree
from acr.data.readers.table import read_table, without_repetitions
from acr.data.sources import arrays
from acr.data.sources.folder import list_files
from acr.errors import InputError
from acr.learner.images import Batch, read_files, with_channels

Part = Literal["train", "test"]
Reasons = list[tuple[str, str]]
"""Files or folders, each with the reason why it is not used."""


@dataclass(frozen=True)
class Labelled:
    """Images with one label each."""

    batch: Batch
    labels: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    """What was left out, with the reasons."""

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, rows: Sequence[int]) -> Labelled:
        """The images at these positions."""
        return Labelled(self.batch.select(rows), tuple(self.labels[row] for row in rows), self.skipped)


def read_labelled(
    data: Path,
    size: int,
    channels: int | None = None,
    *,
    part: Part = "train",
    skip_broken: bool = False,
    quiet: bool = True,
) -> Labelled:
    """Labelled images from a folder of class folders, a CSV file (path, label) or an ``.npz`` file (images, labels).

    Args:
        data: the folder or file.
        size: side to which images are resized, in pixels.
        channels: 1 or 3; None: as they are.
        part: which images to take if there are parts for training and test. ``test`` takes all images of a source
            without a test part.
        skip_broken: leave out files that cannot be read and folders without images; otherwise they are an error.
        quiet: show no progress.
    """
    if not data.exists():
        raise InputError(f"There is no file or folder {data}.")
    if data.suffix.lower() == ".npz":
        return _from_arrays(data, size, channels, part)
    if data.is_dir():
        named, left_out = _in_folders(data, part)
    elif data.suffix.lower() in (".csv", ".tsv"):
        named, left_out = _in_table(data, part)
    else:
        raise InputError(
            f"{data} is not a folder, a .csv or an .npz file. Give a folder with one folder of images per class, a "
            "table with the columns path and label, or the arrays images and labels."
        )
    batch, broken = read_files([file for file, _ in named], size, channels, quiet=quiet)
    problems = [(str(named[row][0]), reason) for row, reason in sorted(broken.items())] + left_out
    if problems and not skip_broken:
        raise InputError(
            f"{data}: {len(problems)} files or folders cannot be used:{list_broken(problems)}\n"
            "Repair or remove them, or leave them out with --skip-broken."
        )
    if not len(batch):
        raise InputError(f"{data} holds no image that can be read:{list_broken(problems)}")
    labels = tuple(label for row, (_, label) in enumerate(named) if row not in broken)
    return Labelled(batch, labels, tuple(problems))


def _in_folders(folder: Path, part: Part) -> tuple[list[tuple[Path, str]], Reasons]:
    listing = list_files(FolderTree(folder))
    rows = listing.test if part == "test" and listing.test else listing.train
    named = [(folder / name, listing.class_names[number]) for name, number in rows]
    return named, [(str(folder / name), reason) for name, reason in listing.left_out]


def _in_table(table: Path, part: Part) -> tuple[list[tuple[Path, str]], Reasons]:
    rows, again = without_repetitions(read_table(table))
    parts = {row.split for row in rows}
    wanted = {"", "train"}
    if part == "test" and parts != {""}:
        wanted = {next((name for name in ("test", "val", "train") if name in parts), "")}
    chosen = [row for row in rows if row.split in wanted]
    if not chosen:
        raise InputError(f"{table} has no rows with the split train, only {' and '.join(sorted(parts))}.")
    return [(row.path, row.label) for row in chosen], [
        (f"line {row.line}", f"{row.path} was named before") for row in again
    ]


def _from_arrays(file: Path, size: int, channels: int | None, part: Part) -> Labelled:
    found = arrays.read(file)
    chosen = found.test if part == "test" and found.test is not None else found.train
    pixels = resize(chosen.images, size)
    if channels is not None:
        pixels = with_channels(pixels, channels)
    labels = tuple(chosen.class_names[int(label)] for label in chosen.labels)
    return Labelled(Batch(pixels, ("",) * len(pixels)), labels)
