"""Tables in a terminal of any width: names may be folded, numbers are never cut.

Columns that do not fit beside each other are continued below, each part with the columns that name its rows. Output
that is not a terminal, such as a file or a pipe, has every column on one line.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.markup import escape
from rich.table import Table

from acr.console import Console
from acr.report.wording import UNKNOWN

GAP = 2
"""Blanks between two columns."""
SHORTEST = 8
"""Width below which a column of names is not folded."""


def screen(least: int = 0) -> Console:
    """The terminal; or, for output that is not one, a console of at least this width."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=max(console.width, least))


def fitting(widths: Sequence[int], room: int) -> list[list[int]]:
    """Consecutive columns of these widths in parts that fit into ``room``, at least one column in each.

    >>> fitting([5, 5, 5], 12), fitting([5, 5, 5], 19), fitting([50], 12)
    ([[0, 1], [2]], [[0, 1, 2]], [[0]])
    """
    parts: list[list[int]] = []
    used = 0
    for column, width in enumerate(widths):
        if parts and used + GAP + width <= room:
            parts[-1].append(column)
            used += GAP + width
        else:
            parts.append([column])
            used = width
    return parts


def width_of(head: str, cells: Sequence[str]) -> int:
    """Width of a column whose heading may have several lines."""
    return max(cell_len(line) for text in (head, *cells) for line in (text.split("\n") or [""]))


def print_columns(heads: Sequence[str], rows: Sequence[Sequence[str]], names: int = 1) -> None:
    """Print a table on standard output.

    Args:
        heads: headings; one may have several lines.
        rows: cells as plain text, one per heading.
        names: how many columns at the left name a row. Long ones are folded, and each part below the first repeats
            those that tell the rows apart.
    """
    widths = [width_of(head, [row[i] for row in rows]) for i, head in enumerate(heads)]
    console = screen(sum(widths) + GAP * len(widths))
    widest_number = max(widths[names:], default=0)
    left = folded(widths[:names], console.width - GAP - widest_number)
    keys = list(range(names))
    numbers = list(range(names, len(heads)))
    while True:
        room = console.width - sum(left[i] + GAP for i in keys)
        part = [numbers[i] for i in fitting([widths[i] for i in numbers], room)[0]] if numbers else []
        table = Table(box=None, pad_edge=False)
        for i in keys:
            named = any(row[i] and not row[i].isdecimal() and row[i] != UNKNOWN for row in rows)
            table.add_column(escape(heads[i]), justify="left" if named else "right", width=left[i], overflow="fold")
        for i in part:
            table.add_column(escape(heads[i]), justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*(escape(row[i]) for i in (*keys, *part)))
        console.print(table)
        numbers = numbers[len(part) :]
        if not numbers:
            return
        console.print()
        keys = [i for i in range(names) if i == 0 or len({row[i] for row in rows}) > 1]


def folded(widths: Sequence[int], room: int) -> list[int]:
    """Widths of the columns that name a row: the widest gives way until all of them fit into ``room``.

    >>> folded([6, 30, 4], 30), folded([6, 12], 40)
    ([6, 16, 4], [6, 12])
    """
    found = list(widths)
    while found and sum(found) + GAP * (len(found) - 1) > room and max(found) > SHORTEST:
        found[found.index(max(found))] -= 1
    return found
