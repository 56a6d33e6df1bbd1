"""Charts as plain dicts in the form plotly.js reads, each with the table that says the same in numbers.

A chart has variants (a setting, a scenario, a method, joined with ``|`` in the key). A variant has panels, drawn side
by side where there is room and below each other where there is not. Every trace of a method carries its label as
``meta``, so that a page can hide it in all charts at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from acr import metrics
from acr.report.estimates import Estimate, in_words, rounded
from acr.report.groups import Group, Matrix, Setting
from acr.report.style import Look, nice

Json = dict[str, Any]
Rows = list[list[str]]


@dataclass
class Variant:
    """What a chart shows for one choice of its pickers."""

    panels: list[Json] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    rows: Rows = field(default_factory=list)
    empty: str = ""
    """Said in place of the panels where there is nothing to draw: why, and what to do about it."""
    note: str = ""

    def as_json(self) -> Json:
        """For the page."""
        values = {"panels": self.panels, "heads": self.heads, "rows": self.rows, "empty": self.empty, "note": self.note}
        return {name: value for name, value in values.items() if value}


def plain(text: str) -> str:
    """Text that plotly shows as it is: it would take ``<b>`` and ``&`` in a name for markup.

    >>> plain("<b>R&D")
    '&lt;b&gt;R&amp;D'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def axis(title: str, **more: Any) -> Json:
    """An axis with a title and as little ink as will do."""
    return {"title": {"text": title, "standoff": 8}, "automargin": True, "zeroline": False, **more}


def plot(title: str, traces: list[Json], x: Json, y: Json, height: int = 300, label: str = "", **layout: Any) -> Json:
    """A panel drawn by plotly."""
    full = {
        "xaxis": x,
        "yaxis": y,
        "height": height,
        "margin": {"l": 48, "r": 12, "t": 8, "b": 44},
        "showlegend": False,
        "hovermode": "closest",
        "font": {"size": 12},
        **layout,
    }
    panel = {"kind": "plot", "title": title, "data": traces, "layout": full}
    return {**panel, "label": label} if label else panel


def heat(
    title: str, cells: list[list[float | None]], rows: list[str], columns: list[str], label: str, corner: str
) -> Json:
    """A panel that is a coloured table: the numbers are the chart. Cells are percentages."""
    return {"kind": "heat", "title": title, "cells": cells, "rows": rows, "columns": columns, "label": label,
            "corner": corner}  # fmt: skip


def percent(value: float | None, digits: int = 2) -> float | None:
    """A fraction as a percentage, for JSON."""
    return rounded(None if value is None else 100 * value, digits)


def error_bars(values: Sequence[Estimate]) -> Json:
    """Intervals as plotly's error bars, in percent."""
    return {"type": "data", "array": [percent(v.half) or 0 for v in values], "thickness": 1, "width": 3,
            "color": "#808080"}  # fmt: skip


def known(values: Sequence[Estimate]) -> bool:
    """Whether there is anything to draw."""
    return any(value.known for value in values)


NO_SHIFT = (
    "No run of this setting was evaluated on shifted images. Runs do so by default; if they were made with "
    "--ood-every never, run them again with --ood-every stage."
)

# --- stages -----------------------------------------------------------------------------------------------------------

PANELS: tuple[tuple[str, str, str, Callable[[Matrix], Any]], ...] = (
    ("final accuracy", "task", "accuracy (%)", lambda m: m[-1]),
    ("ACC by stage", "stage", "ACC (%)", metrics.stage_accuracy),
    ("change since learned", "task", "points", metrics.final_transfer),
    ("BWT by stage", "stage", "BWT (points)", metrics.stage_backward_transfer),
)
"""Title, what runs along x, what runs along y, and the row of figures of a matrix: the four kinds of stage panel."""


def stages(setting: Setting, looks: dict[str, Look]) -> Variant:
    """Eight panels: the four kinds of figure, on clean images and on shifted ones."""
    variant = Variant(heads=["panel", "method"])
    width = max(group.tasks for group in setting.groups)
    letters = iter("abcdefgh")
    for scenario, words in (("clean", "clean"), ("ood", "shifted")):
        for title, along, unit, reduce in PANELS:
            letter = next(letters)
            traces = []
            for group in setting.groups:
                values = group.estimates(scenario, reduce)
                if not known(values):
                    continue
                traces.append(line(group.label, looks, values, unit))
                cells = [in_words(value, 100) for value in values]
                variant.rows.append([f"{letter} {title}, {words}", group.label, *cells, *[""] * (width - len(cells))])
            if not traces:
                continue
            ticks = {"tickmode": "linear", "dtick": 1} if width <= 12 else {}
            panel = plot(f"({letter}) {title}, {words}", traces, axis(along, range=[0.7, width + 0.3], **ticks),
                         axis(unit), 250)  # fmt: skip
            variant.panels.append(panel)
    variant.heads += [str(place + 1) for place in range(width)]
    if len(variant.panels) <= 4:
        variant.note = "Panels e to h (shifted images) are left out. " + NO_SHIFT
    return variant


def line(label: str, looks: dict[str, Look], values: Sequence[Estimate], unit: str) -> Json:
    """One line of a stage panel."""
    look = looks[label]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "meta": label,
        "name": plain(label),
        "x": list(range(1, len(values) + 1)),
        "y": [percent(value.mean) for value in values],
        "text": [in_words(value, 100) for value in values],
        "line": {"color": look.color, "dash": look.dash, "width": 2},
        "marker": {"color": look.color, "symbol": look.symbol, "size": 7},
        "hovertemplate": "%{fullData.name}<br>%{x}: %{text}<extra></extra>",
    }


# --- matrices ---------------------------------------------------------------------------------------------------------


def matrices(setting: Setting, scenario: str) -> Variant:
    """The accuracy matrix of every method under one scenario, the mean over seeds."""
    panels = []
    for group in setting.groups:
        rows = group.estimates(scenario, lambda m: m.reshape(-1))
        if not known(rows):
            continue
        names = [str(task + 1) for task in range(group.tasks)]
        cells = [percent(value.mean, 1) for value in rows]
        square = [cells[i * group.tasks : (i + 1) * group.tasks] for i in range(group.tasks)]
        panels.append(heat(group.label, square, names, names, group.label, "after \\ on"))
    return Variant(panels, empty="" if panels else f"No run of this setting was evaluated on {nice(scenario)}.")


def confusion(setting: Setting, scenario: str) -> Variant:
    """Where the images of each task end up after the last task; seeds, and shifts for ``ood``, are added up."""
    panels = []
    for group in setting.groups:
        counts = confusion_counts(group, scenario)
        if counts is None:
            continue
        names = [str(task + 1) for task in range(len(counts))]
        cells = [[percent(value / sum(row) if sum(row) else None, 1) for value in row] for row in counts]
        panels.append(heat(group.label, cells, names, names, group.label, "of \\ taken for"))
    return Variant(panels, empty="" if panels else f"No run of this setting was evaluated on {nice(scenario)}.")


def confusion_counts(group: Group, scenario: str) -> list[list[int]] | None:
    """Images of task i predicted as a class of task j, at the end, over the seeds of a group."""
    total: list[list[int]] | None = None
    for run in group.runs:
        scenarios = run.results.stages[-1].scenarios
        chosen = [name for name in scenarios if name != "clean"] if scenario == "ood" else [scenario]
        for name in chosen:
            if name not in scenarios:
                continue
            table = scenarios[name].confusion
            if total is None:
                total = [[0] * len(table) for _ in table]
            total = [[a + b for a, b in zip(x, y, strict=True)] for x, y in zip(total, table, strict=True)]
    return total
