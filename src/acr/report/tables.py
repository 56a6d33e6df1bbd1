"""A table of results: one cell per number, with what each seed gave and, where there is one, the paper's value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Literal

from acr.report.statistics import Estimate, estimate, paired_p


@dataclass
class Cell:
    """One number of a table: what each seed gave, and what the paper printed there."""

    by_seed: dict[int, float]
    printed: float | None = None
    rank: int = 0
    """1: best of its column, 2: second; 0: neither, or nothing to rank."""
    p: float = math.nan
    """Of the paired test against the reference row."""

    @property
    def missing(self) -> bool:
        """Whether no run has given it."""
        return not self.by_seed

    @cached_property
    def over_seeds(self) -> Estimate:
        """Mean and 95 % interval."""
        return estimate(self.by_seed.values())

    @property
    def mean(self) -> float:
        """Over seeds; NaN if missing."""
        return self.over_seeds.mean

    @property
    def half_width(self) -> float:
        """Half the 95 % interval of the mean."""
        return self.over_seeds.half

    @property
    def difference(self) -> float:
        """Ours minus printed."""
        return math.nan if self.printed is None else self.mean - self.printed


def mean_cell(cells: Sequence[Cell]) -> Cell:
    """The mean of several cells, seed by seed; a seed that one of them lacks is left out."""
    if not cells:
        return Cell({})
    seeds = set.intersection(*(set(cell.by_seed) for cell in cells))
    printed = [cell.printed for cell in cells if cell.printed is not None]
    return Cell(
        {seed: fmean(cell.by_seed[seed] for cell in cells) for seed in sorted(seeds)},
        fmean(printed) if len(printed) == len(cells) else None,
    )


@dataclass
class ResultTable:
    """A table: rows and columns in groups. A place without a cell does not exist; a cell without values is missing."""

    name: str
    title: str
    rows: list[tuple[str, str]]
    """Group and label of each row."""
    columns: list[tuple[str, str]]
    """Group and label of each column."""
    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    """By row and column."""
    better: Literal["higher", "lower"] | None = "higher"
    digits: int = 2
    reference: str = ""
    """Label of the row that the others of its group are tested against; none if empty."""
    unranked: frozenset[str] = frozenset()
    """Labels of rows that cannot come first, such as an upper bound."""
    notes: list[str] = field(default_factory=list)

    def finish(self) -> ResultTable:
        """Rank the cells of every column within each group of rows, and test them against the reference row."""
        for column in range(len(self.columns)):
            for group in dict.fromkeys(group for group, _ in self.rows):
                places = [i for i, row in enumerate(self.rows) if row[0] == group and (i, column) in self.cells]
                cells = {i: self.cells[i, column] for i in places}
                self._rank([cell for i, cell in cells.items() if self.rows[i][1] not in self.unranked])
                reference = next((cells[i] for i in places if self.rows[i][1] == self.reference), None)
                for cell in cells.values():
                    if reference is not None and cell is not reference:
                        cell.p = paired_p(cell.by_seed, reference.by_seed)
        return self

    def _rank(self, cells: Sequence[Cell]) -> None:
        """Best and second best, as shown: equal numbers share a rank."""
        shown = {id(cell): round(cell.mean, self.digits) for cell in cells if not cell.missing}
        if self.better is None or len(shown) < 2:
            return
        order = sorted(set(shown.values()), reverse=self.better == "higher")
        for cell in cells:
            if not cell.missing:
                cell.rank = {value: place for place, value in enumerate(order[:2], 1)}.get(shown[id(cell)], 0)

    @property
    def has_printed(self) -> bool:
        """Whether the paper printed anything of it."""
        return any(cell.printed is not None for cell in self.cells.values())

    @property
    def has_tests(self) -> bool:
        """Whether any test against the reference row could be made."""
        return any(not math.isnan(cell.p) for cell in self.cells.values())

    @property
    def missing(self) -> int:
        """How many cells have no value."""
        return sum(cell.missing for cell in self.cells.values())
