"""Tables of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from acr.runs.run import Run

COLUMNS: dict[str, tuple[str, str]] = {
    "acc": ("ACC %", "mean accuracy over all tasks at the end"),
    "bwt": ("BWT %", "change of old tasks' accuracy since they were learned"),
    "ood_acc": ("shifted ACC %", "the same as ACC on corrupted images"),
    "ood_bwt": ("shifted BWT %", "the same as BWT on corrupted images"),
    "relative_robustness": ("robust", "shifted ACC over clean ACC"),
    "mean_corruption_error": ("mCE %", "error on corrupted images relative to a baseline run, 100 is equal"),
    "cv_classes": ("class CV %", "imbalance of the classes in the memory, 0 is exact balance"),
    "cv_tasks": ("task CV %", "imbalance of the tasks in the memory"),
    "seconds": ("seconds", "wall-clock time"),
}
"""Figures of a summary that tables show: heading, and what it means."""

PERCENT = {"acc", "bwt", "ood_acc", "ood_bwt"}


def cell(name: str, value: float | None) -> str:
    """A figure as text; percent at the edge only.

    >>> cell("acc", 0.5), cell("bwt", float("nan")), cell("seconds", 12.34)
    ('50.0', '–', '12.3')
    """
    if value is None or math.isnan(value):
        return "–"
    if name in PERCENT:
        value *= 100
    return f"{value:.2f}" if name == "relative_robustness" else f"{value:.1f}"


def summary_rows(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the overview; a column nobody has a figure for is left out."""
    summaries = [run.summary() for run in runs]
    shown = [name for name in COLUMNS if any(not math.isnan(s.get(name, math.nan)) for s in summaries)]
    heads = ["method", "data set", "buffer", "seed", *(COLUMNS[name][0] for name in shown)]
    rows = [
        [s["method"], s["dataset"], str(s["buffer_size"] or "–"), str(s["seed"]), *(cell(n, s.get(n)) for n in shown)]
        for s in summaries
    ]
    return heads, rows


def print_summary(runs: Sequence[Run]) -> None:
    """The overview in the terminal."""
    heads, rows = summary_rows(runs)
    table = Table(box=None, pad_edge=False)
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place < 2 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(console.width, 160))
    console.print(table)
