"""Charts of classes: what is forgotten, and when."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from acr.report.charts.parts import Json, Variant, axis, percent, plain, plot, shorten
from acr.report.groups import Comparison, Group
from acr.report.wording import number

Array = npt.NDArray[Any]
DIVERGING = [[0.0, "#B2182B"], [0.25, "#EF9A7A"], [0.5, "#F4F4F4"], [0.75, "#7FB6D9"], [1.0, "#2166AC"]]
"""Red for lost, blue for gained; told apart by all common kinds of colour vision."""
SEQUENTIAL = [[0.0, "#F1F5FA"], [0.35, "#A9CCE6"], [0.7, "#3E8EC4"], [1.0, "#0B3C6F"]]


def class_accuracy(group: Group) -> Array | None:
    """Accuracy of every class after every stage on clean images, mean over seeds: stages x classes, NaN if unseen."""
    layers = []
    for run in group.runs:
        over = run.results.headline
        table = np.full((group.tasks, len(run.results.classes)), np.nan)
        column = {label: place for place, label in enumerate(run.results.classes)}
        for stage in run.results.stages:
            counts = stage.scenarios.get("clean")
            if counts is None:
                continue
            for task, (right, total) in enumerate(zip(counts.correct[over], counts.total, strict=True)):
                for label, hits, n in zip(run.results.tasks[task], right, total, strict=True):
                    table[stage.stage, column[label]] = hits / n if n else np.nan
        layers.append(table)
    if not layers:
        return None
    with np.errstate(invalid="ignore"):
        return np.mean(layers, axis=0)


def class_change(table: Array) -> Array:
    """Change of each class's accuracy from the first stage that saw it to the last, NaN where it has only one."""
    change = np.full(table.shape[1], np.nan)
    for column in range(table.shape[1]):
        stages = np.flatnonzero(~np.isnan(table[:, column]))
        if len(stages) > 1:
            change[column] = table[stages[-1], column] - table[stages[0], column]
    return change


def forgetting(comparison: Comparison) -> Variant:
    """Change of every class since it was learned: one row per method, one column per class."""
    labels, cells, names = [], [], comparison.groups[0].class_names
    for group in comparison.groups:
        table = class_accuracy(group)
        if table is not None and table.shape[1] == len(names) and not np.isnan(class_change(table)).all():
            labels.append(group.label)
            cells.append([percent(value, 1) for value in class_change(table)])
    if not labels:
        return Variant(empty="Forgetting needs at least two tasks, each evaluated when it was learned and at the end.")
    kept = [i for i in range(len(names)) if any(row[i] is not None for row in cells)]
    cells, names = [[row[i] for i in kept] for row in cells], [names[i] for i in kept]
    panel = class_heat(cells, names, labels, DIVERGING, (-100, 100), "class, in the order of arrival", "", "points")
    rows = [[name, *(number(row[i]) for row in cells)] for i, name in enumerate(names)]
    note = "Classes of the last task have not had the time to be forgotten and are left out."
    return Variant([panel], ["class", *labels], rows, note=note)


def class_history(group: Group) -> Variant:
    """Accuracy of every class of one method after every task."""
    table = class_accuracy(group)
    if table is None:
        return Variant(empty="This method has no evaluation on clean images.")
    names = group.class_names
    cells = [[percent(value, 1) for value in row] for row in table]
    stages = [f"after {stage + 1}" for stage in range(len(cells))]
    panel = class_heat(cells, names, stages, SEQUENTIAL, (0, 100), "class, in the order of arrival", "", "%")
    rows = [[name, *(number(row[i]) for row in cells)] for i, name in enumerate(names)]
    return Variant([{**panel, "label": group.label}], ["class", *stages], rows)


def class_heat(
    cells: list[list[float | None]],
    columns: list[str],
    rows: list[str],
    scale: list[list[Any]],
    ends: tuple[float, float],
    x: str,
    y: str,
    unit: str,
) -> Json:
    """A heat map with names along both sides; the numbers stand in the cells while there is room for them."""
    few = len(columns) <= 12
    trace = {
        "type": "heatmap",
        "z": cells,
        "x": list(range(len(columns))),
        "y": list(range(len(rows))),
        "colorscale": scale,
        "zmin": ends[0],
        "zmax": ends[1],
        "xgap": 1,
        "ygap": 1,
        "hoverongaps": False,
        "texttemplate": "%{z:.0f}" if few else "",
        "colorbar": {"thickness": 10, "outlinewidth": 0, "title": {"text": unit, "side": "right"}},
        "hovertemplate": "%{customdata}<br>%{z:.1f} " + unit + "<extra></extra>",
    }
    step = max(1, math.ceil(len(columns) / 40))
    places = list(range(0, len(columns), step))
    ticks = {"tickvals": places, "ticktext": [plain(shorten(columns[i])) for i in places], "showgrid": False}
    left = {"tickvals": list(range(len(rows))), "ticktext": [plain(shorten(r, 24)) for r in rows], "showgrid": False}
    height = 110 + 30 * len(rows)
    panel = plot("", [trace], axis(x, **ticks), axis(y, autorange="reversed", **left), height)
    # Names of the cells, for the page's script to put together: as text in every cell they would be most of the page.
    return {**panel, "names": [list(map(plain, rows)), list(map(plain, columns))]}
