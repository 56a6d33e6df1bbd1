"""Charts of the memory: what is stored, how evenly, and why."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from acr.errors import InputError
from acr.report.charts.parts import Json, Variant, axis, plain, plot, rounded, shorten
from acr.report.groups import Comparison
from acr.report.style import Look
from acr.report.wording import number, with_interval
from acr.runs.run import Run

Array = npt.NDArray[Any]
MAP_POINTS = 1500
"""Points of a confidence map that are drawn; more would only lie on top of one another."""
NO_MEMORY = "No method here stores samples."


def balance(comparison: Comparison, looks: dict[str, Look], by: str) -> Variant:
    """Stored samples per class or per task, one panel per method, from the run with the lowest seed."""
    variant = Variant(heads=["method", "CV %"])
    for group in comparison.groups:
        memory = group.runs[0].results.memory
        counts = memory.per_class if by == "class" else memory.per_task
        if not counts:
            continue
        names = group.class_names if by == "class" else [str(t + 1) for t in range(len(counts))]
        cv = group.estimate("cv_classes" if by == "class" else "cv_tasks")
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
        variant.rows.append([group.label, with_interval(cv), *map(str, counts)])
    if not variant.panels:
        return Variant(empty=NO_MEMORY)
    first = comparison.groups[0]
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
    "No run here recorded the confidence of its samples. Methods that choose what to store by it do, such as acr."
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
