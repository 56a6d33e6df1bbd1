"""A progress bar for long work, where somebody is looking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(
    what: str, total: int | None, *, quiet: bool = False, bytes: bool = False
) -> Iterator[Callable[[int], None]]:
    """Yields a function that is told how much more is done. Draws nothing if ``quiet`` or without a terminal."""
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
