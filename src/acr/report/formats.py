"""A table of results as terminal text, CSV and Markdown. Best bold, second underlined, as in the paper."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from itertools import groupby

from rich.markup import escape
from rich.table import Table

from acr.console import Console
from acr.report.screen import GAP, fitting
from acr.report.statistics import FEWEST_SEEDS
from acr.report.tables import Cell, ResultTable
from acr.report.wording import UNKNOWN

MISSING = "missing"
CSV_HEAD = ("table", "protocol", "row_group", "row", "column_group", "column", "seeds", "mean", "interval95", "printed",
            "difference", "p_against_reference", "reference", "rank", "values")  # fmt: skip

Show = Callable[[ResultTable, Cell], str]


def mean_and_interval(table: ResultTable, cell: Cell) -> str:
    """Mean and what goes with it, without marks."""
    return MISSING if cell.missing else f"{cell.mean:.{table.digits}f}{spread(table, cell)}"


def spread(table: ResultTable, cell: Cell) -> str:
    """Half the interval of a mean; with two seeds their values, as an interval would say nothing."""
    if not math.isnan(cell.half_width):
        return f" ±{cell.half_width:.{table.digits}f}"
    each = cell.over_seeds.each
    return f" ({', '.join(f'{value:.{table.digits}f}' for value in each)})" if len(each) > 1 else ""


def beside(table: ResultTable, cell: Cell) -> str:
    """What the paper printed, and how far ours is from it."""
    if cell.printed is None:
        return UNKNOWN
    difference = MISSING if cell.missing else f"{cell.difference:+.{table.digits}f}"
    return f"{cell.printed:.{table.digits}f} ({difference})"


def p_value(table: ResultTable, cell: Cell) -> str:
    """The p of the paired test."""
    return UNKNOWN if math.isnan(cell.p) else ("<0.001" if cell.p < 0.001 else f"{cell.p:.3f}")


def parts(table: ResultTable) -> list[tuple[str, Show]]:
    """What there is to show of a table: our numbers, then what was printed, then the tests."""
    shown: list[tuple[str, Show]] = [(table.title, mean_and_interval)]
    if table.has_printed:
        shown.append(("Printed in the paper (ours minus printed)", beside))
    if table.has_tests:
        shown.append((f"p of the paired t test against {table.reference}, over seeds", p_value))
    return shown


def legend(table: ResultTable) -> list[str]:
    """What the marks and numbers mean, and what is special about this table."""
    counts = sorted({len(cell.by_seed) for cell in table.cells.values() if not cell.missing})
    seeds = "" if not counts else f" over {counts[0] if len(counts) == 1 else f'{counts[0]} to {counts[-1]}'} seeds"
    lines = [f"Mean{seeds}{'; '.join(['', *spreads(counts)])}. Best bold, second underlined."]
    if table.missing:
        lines.append(f"{table.missing} of {len(table.cells)} cells are missing: no finished run has that number.")
    return [*lines, *table.notes]


def spreads(counts: Sequence[int]) -> list[str]:
    """What stands beside means over these numbers of seeds."""
    values = ["in brackets the values of two seeds"] if 2 in counts else []
    interval = ["± is half the 95 % interval by Student's t"] if any(n >= FEWEST_SEEDS for n in counts) else []
    return [*interval, *values]


# --- terminal --------------------------------------------------------------------------------------------------------


def print_table(table: ResultTable, console: Console) -> None:
    """In the terminal; where all columns are too wide, by groups of columns, and a group that is too wide in parts."""
    for title, show in parts(table):
        text = {place: show(table, cell) for place, cell in table.cells.items()}
        widths = [
            max([len(label), *(len(t) for (_, j), t in text.items() if j == column)])
            for column, (_, label) in enumerate(table.columns)
        ]
        for column, (group, _) in enumerate(table.columns):  # a group's name is above its first column
            if column == 0 or table.columns[column - 1][0] != group:
                widths[column] = max(widths[column], len(group))
        room = console.width - max(len(label) for _, label in table.rows) - GAP
        everything = list(range(len(table.columns)))
        groups = [everything]
        if sum(widths) + GAP * (len(widths) - 1) > room:
            groups = [list(g) for _, g in groupby(everything, key=lambda column: table.columns[column][0])]
        console.print(f"\n{title}", style="bold", markup=False)
        for columns in groups:
            for part in fitting([widths[column] for column in columns], room):
                console.print(_rich(table, [columns[i] for i in part], text, show is mean_and_interval))
    for line in legend(table):
        console.print(line, markup=False, style="dim")


def _rich(table: ResultTable, columns: Sequence[int], text: dict[tuple[int, int], str], marks: bool) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 1))
    grid.add_column("")
    for column in columns:
        group, label = table.columns[column]
        head = f"{group}\n{label}" if column == columns[0] or table.columns[column - 1][0] != group else f"\n{label}"
        grid.add_column(escape(head), justify="right", no_wrap=True)
    before = ""
    for i, (group, label) in enumerate(table.rows):
        if group != before:
            grid.add_row(f"[italic]{escape(group)}")
            before = group
        line = []
        for column in columns:
            word = escape(text.get((i, column), ""))
            rank = table.cells[i, column].rank if marks and (i, column) in table.cells else 0
            line.append({1: f"[bold]{word}[/]", 2: f"[underline]{word}[/]"}.get(rank, word))
        grid.add_row(escape(label), *line)
    return grid


# --- CSV -------------------------------------------------------------------------------------------------------------


def to_csv(tables: Sequence[tuple[str, ResultTable]]) -> str:
    """One line per cell, for every protocol and table; a number that is not known is left empty.

    ``tables``: protocol and table."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    for protocol, table in tables:
        for (i, j), cell in sorted(table.cells.items()):
            numbers = (cell.mean, cell.half_width, math.nan if cell.printed is None else cell.printed, cell.difference,
                       cell.p)  # fmt: skip
            mean, interval, known, difference, p = ("" if math.isnan(n) else f"{n:.6g}" for n in numbers)
            each = ";".join(f"{seed}:{value:.6g}" for seed, value in cell.by_seed.items())
            writer.writerow([table.name, protocol, *table.rows[i], *table.columns[j], len(cell.by_seed), mean, interval,
                             known, difference, p, table.reference, cell.rank or "", each])  # fmt: skip
    return buffer.getvalue()


# --- Markdown --------------------------------------------------------------------------------------------------------


def to_markdown(table: ResultTable) -> str:
    """One Markdown table each for our numbers, the printed ones and the tests."""
    lines = []
    for title, show in parts(table):
        lines += [f"### {title}", ""]
        heads = [" ".join(part for part in column if part) for column in table.columns]
        lines += ["| | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
        before = ""
        for i, (group, label) in enumerate(table.rows):
            if group != before:
                lines.append(f"| *{group}* |" + " |" * len(heads))
                before = group
            words = []
            for column in range(len(heads)):
                cell = table.cells.get((i, column))
                word = "" if cell is None else show(table, cell)
                rank = cell.rank if cell is not None and show is mean_and_interval else 0
                words.append({1: f"**{word}**", 2: f"<u>{word}</u>"}.get(rank, word))
            lines.append(f"| {label} | " + " | ".join(words) + " |")
        lines.append("")
    return "\n".join([*lines, *(f"{line}  " for line in legend(table)), ""])
