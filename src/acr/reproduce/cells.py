"""What a reproduction is made of: the runs it asked for, found or missing, and what the paper printed."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files

from acr.config import RunConfig
from acr.data.catalog import CATALOG
from acr.runs.run import Run

SCENARIOS = {"iid": "i.i.d.", "ood": "OOD"}
"""The paper's names for clean and shifted test images."""


def dataset_label(name: str) -> str:
    """How tables call a data set."""
    return (CATALOG[name].label if name in CATALOG else "") or name


@dataclass(frozen=True)
class PlannedRun:
    """One run that a layout asks for, and the finished run if there is one."""

    config: RunConfig
    run: Run | None
    problem: str = ""
    """Why there is none, if its folder is damaged."""

    @cached_property
    def summary(self) -> Mapping[str, float]:
        """The summary of the run; empty if it is missing."""
        return self.run.summary() if self.run is not None and self.run.finished else {}

    def option(self, name: str) -> object:
        """An option of the method; None where it has no such option."""
        return getattr(self.config.options, name, None)

    def percent(self, name: str, scenario: str = "iid") -> float:
        """ACC, BWT and the like in percent, clean or shifted; NaN where missing."""
        key = name if scenario == "iid" else f"{scenario}_{name}"
        return 100 * float(self.summary.get(key, math.nan))


PlannedRuns = Sequence[PlannedRun]


def by_seed(planned: Iterable[PlannedRun], value: Callable[[PlannedRun], float]) -> dict[int, float]:
    """A number of every run that has it, by seed; ``value`` reads it off a run."""
    found = {one.config.seed: value(one) for one in planned}
    return {seed: number for seed, number in sorted(found.items()) if not math.isnan(number)}


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
