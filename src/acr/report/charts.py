"""Charts as plain dicts in the form plotly.js reads, each with the table that says the same in numbers.

A chart has variants (a setting, a scenario, a method, joined with ``|`` in the key). A variant has panels, drawn side
by side where there is room and below each other where there is not. Every trace of a method carries its label as
``meta``, so that a page can hide it in all charts at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from acr.evaluation import metrics
from acr.report.data import Group, Matrix, Setting
from acr.report.estimates import Estimate, in_words, number, rounded
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


# --- clean against shifted --------------------------------------------------------------------------------------------


def scatter(setting: Setting, looks: dict[str, Look]) -> Variant:
    """Clean ACC across, shifted ACC up, a point a method, its name at the right-hand side."""
    points, rows = [], []
    for group in setting.groups:
        clean, shifted = group.figure("acc"), group.figure("ood_acc")
        if clean.known and shifted.known:
            points.append((group.label, clean, shifted))
            robust = group.figure("relative_robustness")
            rows.append([group.label, in_words(clean, 100), in_words(shifted, 100), in_words(robust, 1, 2)])
    if not points:
        return Variant(empty=NO_SHIFT)
    left, right = span([clean for _, clean, _ in points])
    low, high = span([shifted for _, _, shifted in points])
    heights = spread([100 * shifted.mean for *_, shifted in points], low, high, (high - low) / 19)
    traces: list[Json] = [
        {"type": "scatter", "mode": "lines", "x": [left, right], "y": [left, right], "hoverinfo": "skip",
         "line": {"dash": "dot", "width": 1, "color": "#888"}},
    ]  # fmt: skip
    for (label, clean, shifted), height in zip(points, heights, strict=True):
        look = looks[label]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+text",
                "meta": label,
                "x": [percent(clean.mean), right],
                "y": [percent(shifted.mean), height],
                "text": ["", plain(label)],
                "textposition": "middle right",
                "cliponaxis": False,
                "hoverinfo": "skip",
                "line": {"color": look.color, "width": 0.8},
                "opacity": 0.75,
            }
        )
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "meta": label,
                "name": plain(label),
                "x": [percent(clean.mean)],
                "y": [percent(shifted.mean)],
                "error_x": {**error_bars([clean]), "color": look.color},
                "error_y": {**error_bars([shifted]), "color": look.color},
                "marker": {"color": look.color, "symbol": look.symbol, "size": 11},
                "hovertemplate": "%{fullData.name}<br>clean %{x:.1f} %<br>shifted %{y:.1f} %<extra></extra>",
            }
        )
    across, up = axis("clean ACC (%)", range=[left, right]), axis("shifted ACC (%)", range=[low, high])
    panel = plot("", traces, across, up, 460)
    panel["layout"]["margin"]["r"] = 16 + round(6.6 * max(len(label) for label, *_ in points))
    return Variant([panel], ["method", "clean ACC %", "shifted ACC %", "shifted / clean"], rows)


def span(values: Sequence[Estimate]) -> tuple[float, float]:
    """Ends of an axis in percent that show the values with their intervals, at round numbers.

    >>> span([Estimate(0.52, 0.04, 3), Estimate(0.71, math.nan, 1)])
    (45, 75)
    """
    halves = [0.0 if math.isnan(value.half) else value.half for value in values]
    low = min(100 * (value.mean - half) for value, half in zip(values, halves, strict=True))
    high = max(100 * (value.mean + half) for value, half in zip(values, halves, strict=True))
    return max(0, 5 * math.floor((low - 1) / 5)), min(100, 5 * math.ceil((high + 1) / 5))


def spread(values: Sequence[float], low: float, high: float, gap: float) -> list[float]:
    """Heights for names beside points: as near to the values as may be, no two nearer than ``gap``.

    >>> spread([50.0, 50.0, 90.0], 0.0, 100.0, 4.0)
    [48.0, 52.0, 90.0]
    """
    order = sorted(range(len(values)), key=lambda i: values[i])
    blocks: list[list[float]] = []  # [middle, members], merged while they overlap
    for place in order:
        blocks.append([values[place], 1])
        while len(blocks) > 1 and blocks[-1][0] - blocks[-2][0] < gap * (blocks[-1][1] + blocks[-2][1]) / 2:
            middle, n = blocks.pop()
            before, m = blocks[-1]
            blocks[-1] = [(middle * n + before * m) / (n + m), n + m]
    heights = []
    for middle, n in blocks:
        middle = min(max(middle, low + gap * n / 2), high - gap * n / 2)
        heights += [middle + gap * (i - (n - 1) / 2) for i in range(int(n))]
    found = dict(zip(order, heights, strict=True))
    return [round(found[i], 3) for i in range(len(values))]


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
        scenarios = run.results["stages"][-1]["scenarios"]
        chosen = [name for name in scenarios if name != "clean"] if scenario == "ood" else [scenario]
        for name in chosen:
            if name not in scenarios:
                continue
            table = scenarios[name]["confusion"]
            if total is None:
                total = [[0] * len(table) for _ in table]
            total = [[a + b for a, b in zip(x, y, strict=True)] for x, y in zip(total, table, strict=True)]
    return total


# --- corruptions ------------------------------------------------------------------------------------------------------


def severities(setting: Setting) -> list[str]:
    """Severities that were evaluated."""
    return sorted({name.partition("/")[2] for name in setting.scenarios if "/" in name})


def corruption_bars(setting: Setting, looks: dict[str, Look], severity: str) -> Variant:
    """ACC under each corruption, a bar a method; ``severity`` may be ``all`` for the mean over those evaluated."""
    chosen = [n for n in setting.scenarios if "/" in n and severity in ("all", n.partition("/")[2])]
    names = list(dict.fromkeys(name.partition("/")[0] for name in chosen))
    if not names:
        return Variant(empty=NO_SHIFT)
    traces, columns = [], []
    for group in setting.groups:
        values = [corruption_estimate(group, [n for n in chosen if n.partition("/")[0] == name]) for name in names]
        if not known(values):
            continue
        columns.append((group.label, values))
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "meta": group.label,
                "name": plain(group.label),
                "y": [name.replace("_", " ") for name in names],
                "x": [percent(value.mean) for value in values],
                "error_x": error_bars(values),
                "text": [in_words(value, 100) for value in values],
                "textposition": "none",
                "marker": {"color": looks[group.label].color, "pattern": pattern(looks[group.label])},
                "hovertemplate": "%{fullData.name}<br>%{y}: %{text} %<extra></extra>",
            }
        )
    height = 60 + len(names) * (14 + max(9, 26 - 2 * len(traces)) * len(traces))
    panel = plot("", traces, axis("ACC (%)", rangemode="tozero"), axis("", autorange="reversed"), height, barmode="group",
                 bargap=0.22)  # fmt: skip
    rows = [[name.replace("_", " "), *(in_words(values[i], 100) for _, values in columns)] for i, name in enumerate(names)]
    return Variant([panel], ["corruption", *(f"{label} ACC %" for label, _ in columns)], rows)


def corruption_estimate(group: Group, scenarios: Sequence[str]) -> Estimate:
    """ACC over a few scenarios, their mean taken in each run before the interval over runs."""
    from acr.report.estimates import estimate

    values = []
    for run in group.runs:
        there = [metrics.average_accuracy(run.accuracy[name]) for name in scenarios if name in run.accuracy]
        values.append(sum(there) / len(there) if there else math.nan)
    return estimate(values)


def pattern(look: Look) -> Json:
    """Hatching for variants of a method, which share its colour."""
    shapes = {"solid": "", "dash": "/", "dot": ".", "dashdot": "x"}
    return {"shape": shapes[look.dash], "solidity": 0.4}


__all__ = [
    "NO_SHIFT", "PANELS", "Json", "Variant", "axis", "confusion", "corruption_bars", "heat", "matrices", "number",
    "plain", "plot", "scatter", "severities", "stages",
]  # fmt: skip
