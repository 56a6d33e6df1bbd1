"""Progress of long work: a bar on a terminal, and durations as text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(
    what: str, total: int | None, *, quiet: bool = False, bytes: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show a progress bar while the block runs; nothing if ``quiet`` or without a terminal.

    Yields a function to be called with the amount of work just done, out of ``total`` (None: unknown). ``bytes``: the
    amounts are bytes.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts: list[ProgressColumn] = [DownloadColumn(), TransferSpeedColumn()] if bytes else [MofNCompleteColumn()]
    columns = [TextColumn("{task.description}"), BarColumn(), *counts, TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda amount: bar.advance(task, amount)


def duration(seconds: float | None) -> str:
    """A length of time as text; a dash if it is not known.

    >>> duration(42), duration(150), duration(9000), duration(200_000), duration(None)
    ('42 s', '2 min 30 s', '2 h 30 min', '2 d 7 h', '–')
    """
    if seconds is None:
        return "–"
    total = round(seconds)
    for size, name, part, part_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if total >= size:
            return f"{total // size} {name} {total % size // part} {part_name}"
    return f"{total} s"
