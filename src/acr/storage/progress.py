"""Progress of long work: a bar on a terminal, a line in a notebook, and durations as text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def watched() -> bool:
    """Whether a person sees progress as it happens: standard error is a terminal, or the program is a notebook."""
    return sys.stderr.isatty() or in_notebook()


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")  # a notebook has imported it; nothing else needs it
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


class NotebookLine:
    """One line of a cell's output that is replaced as work goes on; needs no widgets."""

    def __init__(self) -> None:
        display: Any = sys.modules["IPython"].display
        self._handle = display.display({"text/plain": ""}, raw=True, display_id=True)

    def show(self, text: str) -> None:
        """Replace the line."""
        self._handle.update({"text/plain": text}, raw=True)


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

    from acr.console import Console

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
