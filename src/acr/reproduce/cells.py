"""What a reproduction is made of: the runs it asked for, found or missing, and tables in the paper's layout."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from statistics import fmean
from typing import Literal

from acr.config import RunConfig
from acr.report.statistics import half_width, paired_p
from acr.runs.run import Run

METHOD_LABELS = {
    "gem": "GEM", "agem": "A-GEM", "er": "ER", "gss": "GSS", "gdumb": "GDumb", "hal": "HAL", "metasp": "MetaSP",
    "soif": "SOIF", "acr": "ACR", "derpp": "DER++", "er-ace": "ER-ACE", "finetune": "Fine-tuning", "joint": "Joint",
}  # fmt: skip
DATASET_LABELS = {
    "split-cifar100": "Split CIFAR-100", "split-mini-imagenet": "Split Mini-ImageNet",
    "split-tiny-imagenet": "Split Tiny-ImageNet", "split-digits": "Split Digits",
}  # fmt: skip
SCENARIOS = {"iid": "i.i.d.", "ood": "OOD"}
"""The paper's names for clean and shifted test images."""


@dataclass(frozen=True)
class Sample:
    """One run that the layout asks for, and the run if it is there."""

    config: RunConfig
    run: Run | None

    @cached_property
    def summary(self) -> Mapping[str, float]:
        """The figures of the run; none if it is missing."""
        return self.run.summary() if self.run is not None and self.run.finished else {}

    @property
    def option(self) -> Callable[[str], object]:
        """Options of the method by name; None where it has no such option."""
        return lambda name: getattr(self.config.options, name, None)

    def figure(self, name: str, scenario: str = "iid") -> float:
        """ACC, BWT and the like in percent, clean or shifted; NaN where missing."""
        key = name if scenario == "iid" else f"{scenario}_{name}"
        return 100 * float(self.summary.get(key, math.nan))


Samples = Sequence[Sample]


def by_seed(samples: Iterable[Sample], figure: Callable[[Sample], float]) -> dict[int, float]:
    """A figure of every run that has it, by seed."""
    found = {sample.config.seed: figure(sample) for sample in samples}
    return {seed: value for seed, value in sorted(found.items()) if not math.isnan(value)}


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

    @property
    def mean(self) -> float:
        """Over seeds."""
        return fmean(self.by_seed.values()) if self.by_seed else math.nan

    @property
    def half_width(self) -> float:
        """Half the 95 % interval of the mean."""
        return half_width(list(self.by_seed.values()))

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
class PaperTable:
    """A table: rows and columns in groups. A place without a cell does not exist; a cell without values is missing."""

    name: str
    title: str
    rows: list[tuple[str, str]]
    """Group and label."""
    columns: list[tuple[str, str]]
    cells: dict[tuple[int, int], Cell] = field(default_factory=dict)
    better: Literal["higher", "lower"] | None = "higher"
    digits: int = 2
    reference: str = "ACR"
    """Label of the row that the others of its group are tested against."""
    notes: list[str] = field(default_factory=list)

    def finish(self) -> PaperTable:
        """Rank the cells of every column within each group of rows, and test them against the reference row."""
        for column in range(len(self.columns)):
            for group in dict.fromkeys(group for group, _ in self.rows):
                places = [i for i, row in enumerate(self.rows) if row[0] == group and (i, column) in self.cells]
                cells = {i: self.cells[i, column] for i in places}
                self._rank(list(cells.values()))
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


@cache
def printed_rows(file: str) -> tuple[Mapping[str, str], ...]:
    """The lines of a file of printed values."""
    text = (files("acr.reproduce") / "paper" / f"{file}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def printed(file: str, column: str, **where: object) -> float | None:
    """The value that the paper printed for a case, None if it printed none.

    >>> printed("main_results", "value", metric="acc", method="acr", scenario="iid", dataset="split-cifar100",
    ...         buffer_size=500)
    29.27
    """
    for row in printed_rows(file):
        if all(row[name] == str(value) for name, value in where.items()):
            return float(row[column])
    return None
