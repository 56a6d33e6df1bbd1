"""The numbers of a run's summary that tables show, and the table of runs in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from acr.report.screen import print_columns
from acr.report.wording import UNKNOWN
from acr.runs.run import Run


@dataclass(frozen=True)
class Column:
    """One number of a summary, as tables show it."""

    heading: str
    meaning: str
    scale: float = 1.0
    """Summaries hold fractions; percentages appear at the edge only."""
    digits: int = 1
    low_is_good: bool = False

    def cell(self, value: float | None) -> str:
        """The number as plain text.

        >>> COLUMNS["acc"].cell(0.5), COLUMNS["bwt"].cell(float("nan")), COLUMNS["seconds"].cell(12.34)
        ('50.0', '–', '12.3')
        """
        return UNKNOWN if value is None or not math.isfinite(value) else f"{self.scale * value:.{self.digits}f}"


COLUMNS = {
    "acc": Column("ACC %", "mean accuracy over all tasks at the end", 100),
    "bwt": Column("BWT %", "change of old tasks' accuracy since they were learned", 100),
    "ood_acc": Column("shifted ACC %", "the same as ACC on corrupted images", 100),
    "ood_bwt": Column("shifted BWT %", "the same as BWT on corrupted images", 100),
    "as_trained_acc": Column("raw ACC %", "ACC of the network as trained, where ACC is of averaged weights", 100),
    "as_trained_ood_acc": Column("raw shifted ACC %", "the same on corrupted images", 100),
    "relative_robustness": Column("robust", "shifted ACC over clean ACC", digits=2),
    "mean_corruption_error": Column(
        "mCE %", "error on corrupted images relative to a baseline run, 100 is equal", low_is_good=True
    ),
    "cv_classes": Column("class CV %", "imbalance of the classes in the memory, 0 is exact balance", low_is_good=True),
    "cv_tasks": Column("task CV %", "imbalance of the tasks in the memory", low_is_good=True),
    "gate_open": Column("gate open %", "how often GSS let new samples contend once its memory was full", 100),
    "seconds": Column("seconds", "wall-clock time", low_is_good=True),
}
"""By their names in a summary, in the order of the tables."""
NAMES = 4
"""Columns at the left of a table of runs that say which run it is."""


def summary_rows(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows, one row per run; a column for which no run has a number is left out."""
    summaries = [run.summary() for run in runs]
    shown = [name for name in COLUMNS if any(not math.isnan(s.get(name, math.nan)) for s in summaries)]
    heads = ["method", "data set", "buffer", "seed", *(COLUMNS[name].heading for name in shown)]
    rows = [
        [s["method"], s["dataset"], str(s["buffer_size"] or UNKNOWN), str(s["seed"]),
         *(COLUMNS[name].cell(s.get(name)) for name in shown)]
        for s in summaries
    ]  # fmt: skip
    return heads, rows


def print_summary(runs: Sequence[Run]) -> None:
    """The table of runs in the terminal."""
    heads, rows = summary_rows(runs)
    # "shifted ACC %" in two lines takes half the width.
    short = [head.replace(" ", "\n", 1) if head.count(" ") > 1 else head for head in heads]
    print_columns(short, rows, NAMES)
