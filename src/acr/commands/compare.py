"""``acr compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from acr.errors import InputError
from acr.report.compare import compare_runs
from acr.runs.run import load_run


def compare(
    first: Annotated[Path, Parameter(help="Folder of a finished run.")],
    second: Annotated[Path, Parameter(help="Folder of another finished run.")],
) -> None:
    """Show what differs between two runs: config, results, every task, every corruption."""
    runs = [load_run(folder) for folder in (first, second)]
    for run in runs:
        if not run.finished:
            raise InputError(f"The run in {run.folder} is not finished. Finish it with: acr resume {run.folder}")
    console = Console(highlight=False)
    print(f"first:  {first}\nsecond: {second}")
    for section in compare_runs(*runs):
        console.print(f"\n[bold]{escape(section.title)}")
        if not section.rows:
            console.print(section.empty)
            continue
        table = Table(box=None, pad_edge=False)
        for head in ("", "first", "second", "difference" if any(row[3] for row in section.rows) else ""):
            table.add_column(head, justify="right" if head else "left", overflow="fold")
        for row in section.rows:
            table.add_row(*map(escape, row))
        console.print(table)
