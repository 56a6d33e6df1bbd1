"""Charts of classes and of the memory: what is forgotten when, what is stored, and why."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from acr.errors import InputError
from acr.report.charts import Json, Variant, axis, percent, plain, plot
from acr.report.estimates import in_words, number, rounded
from acr.report.groups import Group, Setting
from acr.report.style import Look
from acr.runs.run import Run

Array = npt.NDArray[Any]
DIVERGING = [[0.0, "#B2182B"], [0.25, "#EF9A7A"], [0.5, "#F4F4F4"], [0.75, "#7FB6D9"], [1.0, "#2166AC"]]
"""Red for lost, blue for gained; told apart by all common kinds of colour vision."""
SEQUENTIAL = [[0.0, "#F1F5FA"], [0.35, "#A9CCE6"], [0.7, "#3E8EC4"], [1.0, "#0B3C6F"]]
MAP_POINTS = 1500
"""Points of a confidence map that are drawn; more would only lie on top of one another."""


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


def forgetting(setting: Setting) -> Variant:
    """Change of every class since it was learned: a row a method, a column a class."""
    labels, cells, names = [], [], setting.groups[0].class_names
    for group in setting.groups:
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


def shorten(text: str, most: int = 14) -> str:
    """A long name cut for an axis; tables have it whole."""
    return text if len(text) <= most else text[: most - 1] + "…"


# --- the memory -------------------------------------------------------------------------------------------------------

NO_MEMORY = "No method of this setting stores samples."


def balance(setting: Setting, looks: dict[str, Look], by: str) -> Variant:
    """Stored samples per class or per task, a panel a method, from the run with the lowest seed."""
    variant = Variant(heads=["method", "CV %"])
    for group in setting.groups:
        memory = group.runs[0].results.memory
        counts = memory.per_class if by == "class" else memory.per_task
        if not counts:
            continue
        names = group.class_names if by == "class" else [str(t + 1) for t in range(len(counts))]
        cv = group.figure("cv_classes" if by == "class" else "cv_tasks")
        bars = {
            "type": "bar",
            "meta": group.label,
            "name": plain(group.label),
            "x": list(range(len(counts))),
            "y": counts,
            "text": [plain(name) for name in names],
            "textposition": "none",
            "marker": {"color": looks[group.label].color, "pattern": {"shape": ""}},
            "hovertemplate": by + " %{text}: %{y} samples<extra></extra>",
        }
        step = max(1, math.ceil(len(names) / 12))
        places = list(range(0, len(names), step))
        ticks = {"tickvals": places, "ticktext": [plain(shorten(names[i], 8)) for i in places], "showgrid": False}
        panel = plot(f"{group.label} · CV {number(cv.mean)} %", [bars], axis(by, **ticks),
                     axis("samples", rangemode="tozero"), 210, group.label, bargap=0.15)  # fmt: skip
        variant.panels.append(panel)
        variant.rows.append([group.label, in_words(cv), *map(str, counts)])
    if not variant.panels:
        return Variant(empty=NO_MEMORY)
    first = setting.groups[0]
    names = first.class_names if by == "class" else [str(t + 1) for t in range(first.tasks)]
    variant.heads += [f"{by} {name}" for name in names]
    return variant


def confidence_map(run: Run, label: str, color: str) -> Variant:
    """Mean against variance of every training sample's confidence, the stored samples marked."""
    seen = load_arrays(run, "confidence.npz")
    tasks = sorted(int(name[5:]) for name in seen if name.startswith("mean_"))
    if not tasks:
        return Variant(empty=NO_CONFIDENCE)
    mean = np.concatenate([seen[f"mean_{task}"] for task in tasks])
    variance = np.concatenate([seen[f"variance_{task}"] for task in tasks])
    task = np.concatenate([np.full(len(seen[f"mean_{t}"]), t + 1) for t in tasks])
    chosen = np.sort(np.random.default_rng(0).permutation(len(mean))[:MAP_POINTS])
    stored = load_arrays(run, "memory.npz")
    traces = [
        dots(mean[chosen], variance[chosen], task[chosen].tolist(), "training sample",
             {"color": "#8C8C8C", "size": 4, "opacity": 0.45}),
    ]  # fmt: skip
    marked = "confidence_mean" in stored and "confidence_variance" in stored
    if marked:
        traces.append(
            dots(stored["confidence_mean"], stored["confidence_variance"], (stored["tasks"] + 1).tolist(), "stored",
                 {"color": color, "size": 7, "symbol": "diamond", "line": {"width": 1, "color": "#fff"}})
        )  # fmt: skip
    top = {"rangemode": "tozero"}
    panel = plot("", traces, axis("mean confidence in the right class", range=[0, 1]), axis("variance", **top), 440,
                 showlegend=True, legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"})  # fmt: skip
    panel["layout"]["margin"]["t"] = 34
    drawn = f"{len(chosen)} of {len(mean)} training samples drawn" if len(chosen) < len(mean) else ""
    rows = []
    for t in tasks:
        own = stored["tasks"] == t if marked else np.zeros(0, bool)
        kept = stored["confidence_variance"][own] if marked else np.zeros(0)
        rows.append([str(t + 1), str(len(seen[f"mean_{t}"])), number(float(seen[f"mean_{t}"].mean()), 3),
                     number(float(seen[f"variance_{t}"].mean()), 4), str(int(own.sum())),
                     number(float(kept.mean()) if len(kept) else None, 4)])  # fmt: skip
    heads = ["task", "samples", "mean confidence", "mean variance", "stored", "mean variance of stored"]
    return Variant([panel], heads, rows, note=drawn)


NO_CONFIDENCE = (
    "No run of this setting recorded the confidence of its samples. Methods that choose what to store by it do, "
    "such as acr."
)


def dots(x: Array, y: Array, tasks: list[int], name: str, marker: Json) -> Json:
    """Points of a confidence map."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [rounded(float(value), 3) for value in x],
        "y": [rounded(float(value), 4) for value in y],
        "text": tasks,
        "marker": marker,
        "hovertemplate": f"{name}, task %{{text}}<br>mean %{{x:.3f}}, variance %{{y:.4f}}<extra></extra>",
    }


def load_arrays(run: Run, name: str) -> dict[str, Array]:
    """The arrays of an ``.npz`` file of a run; none, with a warning, if it is damaged: the rest of the page stands."""
    try:
        return run.arrays(name)
    except InputError as error:
        warnings.warn(f"Left out of the page: {error}", stacklevel=2)
        return {}
