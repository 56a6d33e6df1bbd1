"""Charts of what shift does: clean against shifted accuracy, and accuracy under each corruption."""

from __future__ import annotations

import math
from collections.abc import Sequence

from acr import metrics
from acr.report.charts.parts import NO_SHIFT, Json, Variant, axis, error_bars, known, percent, plain, plot
from acr.report.groups import Comparison, Group
from acr.report.statistics import Estimate, estimate
from acr.report.style import Look
from acr.report.wording import with_interval


def scatter(comparison: Comparison, looks: dict[str, Look]) -> Variant:
    """Clean ACC across, shifted ACC up, one point per method, its name at the right-hand side."""
    points, rows = [], []
    for group in comparison.groups:
        clean, shifted = group.estimate("acc"), group.estimate("ood_acc")
        if clean.known and shifted.known:
            points.append((group.label, clean, shifted))
            robust = group.estimate("relative_robustness")
            rows.append(
                [group.label, with_interval(clean, 100), with_interval(shifted, 100), with_interval(robust, 1, 2)]
            )
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


# --- corruptions ------------------------------------------------------------------------------------------------------


def severities(comparison: Comparison) -> list[str]:
    """Severities that were evaluated."""
    return sorted({name.partition("/")[2] for name in comparison.scenarios if "/" in name})


def corruption_bars(comparison: Comparison, looks: dict[str, Look], severity: str) -> Variant:
    """ACC under each corruption, one bar per method; ``severity`` may be ``all`` for the mean over those evaluated."""
    chosen = [n for n in comparison.scenarios if "/" in n and severity in ("all", n.partition("/")[2])]
    names = list(dict.fromkeys(name.partition("/")[0] for name in chosen))
    if not names:
        return Variant(empty=NO_SHIFT)
    traces, columns = [], []
    for group in comparison.groups:
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
                "text": [with_interval(value, 100) for value in values],
                "textposition": "none",
                "marker": {"color": looks[group.label].color, "pattern": pattern(looks[group.label])},
                "hovertemplate": "%{fullData.name}<br>%{y}: %{text} %<extra></extra>",
            }
        )
    height = 60 + len(names) * (14 + max(9, 26 - 2 * len(traces)) * len(traces))
    across, down = axis("ACC (%)", rangemode="tozero"), axis("", autorange="reversed")
    panel = plot("", traces, across, down, height, barmode="group", bargap=0.22)
    rows = [
        [name.replace("_", " "), *(with_interval(values[i], 100) for _, values in columns)]
        for i, name in enumerate(names)
    ]
    return Variant([panel], ["corruption", *(f"{label} ACC %" for label, _ in columns)], rows)


def corruption_estimate(group: Group, scenarios: Sequence[str]) -> Estimate:
    """ACC over a few scenarios, their mean taken in each run before the interval over runs."""
    values = []
    for run in group.runs:
        there = [metrics.average_accuracy(run.accuracy[name]) for name in scenarios if name in run.accuracy]
        values.append(sum(there) / len(there) if there else math.nan)
    return estimate(values)


def pattern(look: Look) -> Json:
    """Hatching for variants of a method, which share its colour."""
    shapes = {"solid": "", "dash": "/", "dot": ".", "dashdot": "x"}
    return {"shape": shapes[look.dash], "solidity": 0.4}
