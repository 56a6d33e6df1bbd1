"""Two runs side by side: what differs in config, in result, per task and per corruption."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from acr.metrics import average_accuracy
from acr.report.columns import COLUMNS
from acr.report.wording import UNKNOWN
from acr.runs.run import Run


@dataclass(frozen=True)
class Section:
    """A part of the comparison: a heading, and rows of name, first, second, difference."""

    title: str
    rows: list[tuple[str, str, str, str]]
    empty: str = ""
    """What to say where there are no rows."""


def compare_runs(first: Run, second: Run) -> list[Section]:
    """All sections, in the order a person asks: what was set, what came out, where."""
    return [
        Section("config", config_rows(*(config_values(run, first, second) for run in (first, second))),
                "The configs are the same."),
        Section("result", result_rows(*summaries(first, second))),
        Section("accuracy by task after the last, clean (%)", task_rows(first, second, "clean")),
        Section("accuracy by task after the last, shifted (%)", task_rows(first, second, "ood"),
                "At least one of the runs was not evaluated under shift."),
        Section("ACC by corruption (%)", corruption_rows(first, second), "The runs share no corruption."),
    ]  # fmt: skip


def summaries(first: Run, second: Run) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both summaries; where the runs were evaluated under the same shifts, with the error relative to the first run."""
    same = first.results.dataset == second.results.dataset and first.scenarios == second.scenarios
    baseline = first if same and len(first.scenarios) > 1 else None
    return first.summary(baseline), second.summary(baseline)


def config_values(run: Run, *runs: Run) -> dict[str, Any]:
    """A run's config; with the revision of its method where ``runs`` are of one method in several revisions."""
    methods, revisions = {r.results.method for r in runs}, {r.revision for r in runs}
    return {**run.values, "revision": run.revision} if len(methods) == 1 < len(revisions) else run.values


def config_rows(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Fields whose values differ; where a run is stored is not part of what it is."""
    names = [name for name in dict.fromkeys((*first, *second)) if name not in ("out", "data_root", "data_cache")]
    return [
        (name, shown(first, name), shown(second, name), "") for name in names if first.get(name) != second.get(name)
    ]


def shown(values: dict[str, Any], name: str) -> str:
    """A value for people; an option that the other method alone has is said to be absent."""
    if name not in values:
        return "no such option"
    value = values[name]
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def result_rows(first: dict[str, Any], second: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """The numbers that tables of runs show, where either run has one."""
    rows = []
    for name, column in COLUMNS.items():
        a, b = (float(summary.get(name, math.nan)) for summary in (first, second))
        if not (math.isnan(a) and math.isnan(b)):
            rows.append((column.heading, column.cell(a), column.cell(b), signed(column.cell(b - a))))
    return rows


def task_rows(first: Run, second: Run, scenario: str) -> list[tuple[str, str, str, str]]:
    """Final accuracy on every task; tasks that one run does not have are left empty."""
    if not all(scenario in run.accuracy for run in (first, second)):
        return []
    lines = [100 * run.accuracy[scenario][-1] for run in (first, second)]
    longest = max(map(len, lines))
    a, b = (np.pad(line, (0, longest - len(line)), constant_values=np.nan) for line in lines)
    return [(f"task {task + 1}", *numbers(a[task], b[task])) for task in range(longest)]


def corruption_rows(first: Run, second: Run) -> list[tuple[str, str, str, str]]:
    """ACC under every corruption and severity that both were evaluated under."""
    both = [name for name in first.scenarios if name in second.scenarios and name != "clean"]
    return [(name, *numbers(*(100 * average_accuracy(run.accuracy[name]) for run in (first, second)))) for name in both]


def numbers(a: float, b: float) -> tuple[str, str, str]:
    """Two percentages and their difference."""
    first, second, difference = (f"{value:.1f}" if math.isfinite(value) else UNKNOWN for value in (a, b, b - a))
    return first, second, signed(difference)


def signed(text: str) -> str:
    """A number with its sign.

    >>> signed("2.0"), signed("-2.0"), signed("–")
    ('+2.0', '-2.0', '–')
    """
    return text if text[:1] in ("-", "–") else f"+{text}"
