"""A table of images: a CSV file whose rows name an image file, its label and, if there is such a column, its part.

The first line names the columns. Of each kind, the first that is there is used: ``path``, ``file``, ``filename`` or
``image``; ``label`` or ``class``; ``split``. Other columns are ignored. Values are separated by commas, semicolons or
tabs, whichever the first line has most of; the text is UTF-8, or UTF-16 with a byte order mark.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from acr.data.readers.decoding import endings
from acr.data.readers.file_tree import MOST_TEXT, TEST, TRAIN, VALIDATION
from acr.errors import InputError, shown
from acr.storage import files

PATH = ("path", "file", "filename", "image")
LABEL = ("label", "class")
SPLIT = ("split",)
"""Names of the columns."""

MOST_ROWS = 1_000_000
"""Most rows of a table."""
MOST_COLUMNS = 1_000
"""Most columns of a table."""
LONGEST_LABEL = 255
"""Most characters of a label, which becomes the name of a class."""


@dataclass(frozen=True, slots=True)
class Row:
    """One image of a table."""

    path: Path
    """Absolute; a relative path in the table is relative to the table's folder."""
    label: str
    split: str
    """``train``, ``test`` or ``val``; empty if the table has no parts."""
    line: int
    """Line of the file on which the row begins, for messages."""


def read_table(path: Path) -> list[Row]:
    """The rows of a CSV file, in its order. The image files themselves are not looked at.

    A row may be there twice, but a file with two labels or in two parts is an :class:`InputError`, as is everything
    else that cannot be meant. Each error names the file and the line.
    """
    records = _records(path)
    try:
        _, header = next(records)
    except StopIteration:
        raise InputError(f"{path} is empty. {EXAMPLE}") from None
    columns = _columns(path, header)
    folder = Path(os.path.abspath(path.parent))
    rows: list[Row] = []
    for line, cells in records:
        if len(rows) == MOST_ROWS:
            raise InputError(f"{path} is refused: it has more than {MOST_ROWS:,} rows.")
        if len(cells) > len(header) or len(cells) <= max(columns.values()):
            raise InputError(
                f"{path}, line {line}: it has {len(cells)} value{'' if len(cells) == 1 else 's'}, but the first line "
                f"names {len(header)} columns. A value that contains the separator must be in double quotes."
            )
        rows.append(_row(f"{path}, line {line}", line, folder, {what: cells[at] for what, at in columns.items()}))
    if not rows:
        raise InputError(f"{path} names its columns, but it has no rows.")
    _check_consistent(path, rows)
    return rows


EXAMPLE = "The first line must name the columns, for example: path,label"


def without_repetitions(rows: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """The rows that name a file for the first time, and those that name one again."""
    seen: set[Path] = set()
    first: list[Row] = []
    again: list[Row] = []
    for row in rows:
        (again if row.path in seen else first).append(row)
        seen.add(row.path)
    return first, again


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV file that are not empty, each with the line on which it begins; their cells are stripped."""
    text = _read(path)
    header = text.lstrip().partition("\n")[0]
    delimiter = max(",;\t", key=header.count)
    # Strict, so that a quotation mark that is never closed is an error and does not swallow the rest of the file.
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    line = 1
    while True:
        try:
            cells = [cell.strip() for cell in next(reader)]
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(
                f"{path}, line {line}: it is not valid CSV ({error}). A quotation mark may be missing."
            ) from None
        if any(cells):
            yield line, cells
        line = reader.line_num + 1


def _read(path: Path) -> str:
    """The text of the file."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a CSV file. For images in class folders, use folder:{path}.")
    try:
        content = files.read_bytes(path, MOST_TEXT, follow=True)
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise InputError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}.") from None
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: it is not UTF-8 text. Save the file as CSV in UTF-8.") from None
    if (position := text.find("\0")) >= 0:
        line = text.count("\n", 0, position) + 1
        raise InputError(f"{path}, line {line}: it has a null byte, so it is no text. Save the file as CSV in UTF-8.")
    return text


def _columns(path: Path, header: Sequence[str]) -> dict[str, int]:
    """Where the columns are: ``path``, ``label`` and, if there is one, ``split``."""
    if len(header) > MOST_COLUMNS:
        raise InputError(f"{path} is refused: it has {len(header):,} columns, and at most {MOST_COLUMNS:,} are read.")
    names = [name.casefold() for name in header]
    found: dict[str, int] = {}
    for what, known in (("path", PATH), ("label", LABEL), ("split", SPLIT)):
        name = next((name for name in known if name in names), None)
        if name is not None and names.count(name) > 1:
            raise InputError(f"{path} has {names.count(name)} columns named {name}.")
        if name is not None:
            found[what] = names.index(name)
        elif known is not SPLIT:
            is_row = any(os.path.splitext(cell)[1].lower() in endings() for cell in header)
            hint = f"Its first line is a row, not a header. {EXAMPLE}" if is_row else EXAMPLE
            raise InputError(
                f"{path} has no column named {' or '.join(known)}; its first line is {shown(','.join(header))}. {hint}"
            )
    return found


def _row(where: str, line: int, folder: Path, cells: dict[str, str]) -> Row:
    """One row from the cells of its columns; ``where`` names its place in errors."""
    for what in ("path", "label"):
        if not cells[what]:
            raise InputError(f"{where}: the {what} is empty.")
        if "\n" in cells[what] or "\r" in cells[what]:
            raise InputError(f"{where}: the {what} has a line break in it; a quotation mark may be missing.")
    if "://" in cells["path"]:
        raise InputError(f"{where}: {shown(cells['path'])} is an address, not a file. Download the images first.")
    if len(cells["label"]) > LONGEST_LABEL:
        raise InputError(f"{where}: the label is longer than {LONGEST_LABEL} characters: {shown(cells['label'], 40)}.")
    path = Path(os.path.abspath(folder / cells["path"]))
    return Row(path, cells["label"], _split(where, cells["split"]) if "split" in cells else "", line)


def _split(where: str, cell: str) -> str:
    """The part that a cell names."""
    for split, names in (("train", TRAIN), ("test", TEST), ("val", VALIDATION)):
        if cell.casefold() in names:
            return split
    raise InputError(f"{where}: the split is {shown(cell) if cell else 'empty'}; it must be train, test or val.")


def _check_consistent(path: Path, rows: Iterable[Row]) -> None:
    """Refuse a file that has two labels, or that is in two parts."""
    first: dict[Path, Row] = {}
    for row in rows:
        known = first.setdefault(row.path, row)
        for what, before, now in (("labels", known.label, row.label), ("splits", known.split, row.split)):
            if before != now:
                raise InputError(
                    f"{path}, lines {known.line} and {row.line}: {row.path} has two {what}, {shown(before)} and "
                    f"{shown(now)}. An image has one."
                )
