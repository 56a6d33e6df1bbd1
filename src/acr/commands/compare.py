"""``acr compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from acr.console import Console, say
from acr.errors import InputError, command
from acr.report.compare import compare_runs
from acr.runs.data_record import same_data
from acr.runs.run import load_run, successor


def compare(
    first: Annotated[Path, Parameter(help="Folder of a finished run.")],
    second: Annotated[Path, Parameter(help="Folder of another finished run.")],
    /,
) -> None:
    """Show what differs between two runs: config, results, every task, every corruption."""
    runs = [load_run(folder) for folder in (first, second)]
    for run in runs:
        if not run.finished:
            resume = command("acr", "resume", run.folder)
            raise InputError(f"The run in {run.folder} is not finished. Finish it with: {resume}")
    console = Console(highlight=False)
    say(f"first:  {first}\nsecond: {second}")
    for run in runs:
        newer = successor(run)
        if newer is not None:
            say(f"{run.folder} is superseded: {newer.folder}, a newer run of the same config, is the one that counts.")
    if same_data(*runs) is False:
        say("They were made from different images: a difference in results need not be one of methods or settings.")
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
