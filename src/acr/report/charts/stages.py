"""Charts of tasks and stages: accuracy and transfer along the stream, accuracy matrices, confusion between tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from acr import metrics
from acr.report.charts.parts import NO_SHIFT, Json, Variant, axis, heat, known, percent, plain, plot
from acr.report.groups import Comparison, Group, Matrix
from acr.report.statistics import Estimate
from acr.report.style import Look
from acr.report.wording import scenario_in_words, with_interval

PANELS: tuple[tuple[str, str, str, Callable[[Matrix], Any]], ...] = (
    ("final accuracy", "task", "accuracy (%)", lambda m: m[-1]),
    ("ACC by stage", "stage", "ACC (%)", metrics.stage_accuracy),
    ("change since learned", "task", "points", metrics.final_transfer),
    ("BWT by stage", "stage", "BWT (points)", metrics.stage_backward_transfer),
)
"""Title, what runs along x, what runs along y, and the row of numbers of a matrix: the four kinds of stage panel."""


def stages(comparison: Comparison, looks: dict[str, Look]) -> Variant:
    """Eight panels: the four kinds of panel, on clean images and on shifted ones."""
    variant = Variant(heads=["panel", "method"])
    width = max(group.tasks for group in comparison.groups)
    letters = iter("abcdefgh")
    for scenario, words in (("clean", "clean"), ("ood", "shifted")):
        for title, along, unit, reduce in PANELS:
            letter = next(letters)
            traces = []
            for group in comparison.groups:
                values = group.estimates(scenario, reduce)
                if not known(values):
                    continue
                traces.append(line(group.label, looks, values, unit))
                cells = [with_interval(value, 100) for value in values]
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


def stage_curves(group: Group, look: Look) -> Variant:
    """Mean accuracy over the tasks seen after each stage, on clean images and, dashed, on shifted ones."""
    style = {"clean": look, "shifted": replace(look, symbol=f"{look.symbol}-open", dash="dash")}
    found = {name: group.estimates(of, metrics.stage_accuracy) for name, of in (("clean", "clean"), ("shifted", "ood"))}
    shown = {name: values for name, values in found.items() if known(values)}
    traces = [line(name, style, values, "ACC (%)") for name, values in shown.items()]
    rows = [[name, *(with_interval(value, 100) for value in values)] for name, values in shown.items()]
    ticks = {"tickmode": "linear", "dtick": 1} if group.tasks <= 12 else {}
    panel = plot("", traces, axis("after task", range=[0.7, group.tasks + 0.3], **ticks),
                 axis("ACC (%)", range=[0, 102]), 340, showlegend=True)  # fmt: skip
    return Variant([panel], ["images", *(str(task + 1) for task in range(group.tasks))], rows)


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
        "text": [with_interval(value, 100) for value in values],
        "line": {"color": look.color, "dash": look.dash, "width": 2},
        "marker": {"color": look.color, "symbol": look.symbol, "size": 7},
        "hovertemplate": "%{fullData.name}<br>%{x}: %{text}<extra></extra>",
    }


# --- matrices ---------------------------------------------------------------------------------------------------------


def matrices(comparison: Comparison, scenario: str) -> Variant:
    """The accuracy matrix of every method under one scenario, the mean over seeds."""
    panels = []
    for group in comparison.groups:
        rows = group.estimates(scenario, lambda m: m.reshape(-1))
        if not known(rows):
            continue
        names = [str(task + 1) for task in range(group.tasks)]
        cells = [percent(value.mean, 1) for value in rows]
        square = [cells[i * group.tasks : (i + 1) * group.tasks] for i in range(group.tasks)]
        panels.append(heat(group.label, square, names, names, group.label, "after \\ on"))
    return Variant(panels, empty="" if panels else f"No run here was evaluated on {scenario_in_words(scenario)}.")


def confusion(comparison: Comparison, scenario: str) -> Variant:
    """Where the images of each task end up after the last task; seeds, and shifts for ``ood``, are added up."""
    panels = []
    for group in comparison.groups:
        counts = confusion_counts(group, scenario)
        if counts is None:
            continue
        names = [str(task + 1) for task in range(len(counts))]
        cells = [[percent(value / sum(row) if sum(row) else None, 1) for value in row] for row in counts]
        panels.append(heat(group.label, cells, names, names, group.label, "of \\ taken for"))
    return Variant(panels, empty="" if panels else f"No run here was evaluated on {scenario_in_words(scenario)}.")


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
