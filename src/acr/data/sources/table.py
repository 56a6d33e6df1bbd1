"""The user's own images, named one by one in a CSV file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from acr.data.catalog import CATALOG, Request
from acr.data.images import DataSet
from acr.data.readers.file_tree import FileList, natural
from acr.data.readers.table import Row, read_table, without_repetitions
from acr.data.sources.build import Listing, from_files
from acr.errors import InputError

WHOLE = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


def load(request: Request) -> DataSet:
    """The images of ``csv:PATH``; :mod:`acr.data.readers.table` describes the file."""
    path = request.path
    assert path is not None
    rows, again = without_repetitions(read_table(path))
    if not any(row.path.exists() for row in rows):
        raise InputError(
            f"None of the {len(rows):,} files that {path} names exists, such as {rows[0].path} (line {rows[0].line}). "
            "Relative paths must be relative to the folder of the CSV file."
        )
    folder = Path(os.path.abspath(path.parent))
    named = sorted(((_name(row.path, folder), row) for row in rows), key=lambda pair: natural(pair[0]))
    left_out = [(f"line {row.line}", f"{_name(row.path, folder)} was named before") for row in again]
    tree = FileList(folder, [name for name, _ in named])
    return from_files(CATALOG["csv:PATH"], request, tree, list_rows(path, named, left_out))


def list_rows(path: Path, named: Iterable[tuple[str, Row]], left_out: Sequence[tuple[str, str]]) -> Listing:
    """The rows by part. Those of ``val`` are the test images if no row is in ``test``; otherwise they are not used.

    Args:
        path: the table, for messages.
        named: its rows, each with the name of its file.
        left_out: lines that are not used, with the reason.
    """
    parts: dict[str, list[tuple[str, str]]] = {}
    for name, row in named:
        parts.setdefault(row.split or "train", []).append((name, row.label))
    if "train" not in parts:
        raise InputError(f"{path} has no rows with the split train, only {' and '.join(sorted(parts))}.")
    held = next((split for split in ("test", "val") if split in parts), None)
    train, test = parts["train"], parts[held] if held else []
    number = number_classes(label for _, label in (*train, *test))
    return Listing(
        f"CSV file with the parts train and {held}" if held else "CSV file",
        {number[label]: label for label in number},
        [(name, number[label]) for name, label in train],
        [(name, number[label]) for name, label in test],
        left_out,
    )


def number_classes(labels: Iterable[str]) -> dict[str, int]:
    """The number of each label. Whole numbers keep their values; other labels are numbered in natural order.

    >>> number_classes(["7", "10", "7"]), number_classes(["class10", "class2"])
    ({'7': 7, '10': 10}, {'class2': 0, 'class10': 1})
    """
    names = sorted(set(labels), key=natural)
    if all(WHOLE.fullmatch(name) for name in names):
        return {name: int(name) for name in names}
    return {name: number for number, name in enumerate(names)}


def _name(path: Path, folder: Path) -> str:
    """How an image file is called: relative to the table's folder if it is below it, so that both can be moved."""
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)
