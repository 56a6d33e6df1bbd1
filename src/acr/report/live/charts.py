"""Charts of runs while they are running: losses, accuracy so far, the memory filling up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acr.report.charts.cost import series_panels, step_series
from acr.report.charts.parts import Json, axis, percent, plain, plot, rounded
from acr.report.live.watch import LiveRun
from acr.report.style import PALETTE, SYMBOLS, method_look


def live_panels(runs: Sequence[LiveRun]) -> dict[str, Json]:
    """Losses, accuracy and memory of the picked runs, then what they cost, by name."""
    style = {method(run): method_look(method(run)) for run in runs}
    lines = []
    for run in runs:
        steps, readings = step_series(run.events)
        lines.append((method(run), run.name if doubled(run, runs) else run.label, steps, readings))
    series = {panel["title"]: panel for panel in series_panels(lines, style)}
    found = {"loss": series.pop("loss", None), "accuracy": accuracy_panel(runs), "memory": memory_panel(runs), **series}
    return {name: panel for name, panel in found.items() if panel is not None}


def method(run: LiveRun) -> str:
    """Name of the method, also for a run whose config cannot be read."""
    return str(run.values.get("method", "unknown"))


def doubled(run: LiveRun, runs: Sequence[LiveRun]) -> bool:
    """Whether another run has the same short name."""
    return sum(other.label == run.label for other in runs) > 1


def accuracy_panel(runs: Sequence[LiveRun]) -> Json | None:
    """Mean accuracy over the tasks seen, after every task; dotted under shift."""
    traces = []
    for place, run in enumerate(runs):
        stages = run.stages
        look = method_look(method(run))
        shown = {"color": look.color, "symbol": SYMBOLS[place % len(SYMBOLS)][0], "size": 7}
        clean = [percent(number(stage.get("accuracy"))) for stage in stages]
        shifted = [percent(shifted_accuracy(stage)) for stage in stages]
        for values, dash, word in ((clean, "solid", "clean"), (shifted, "dot", "shifted")):
            if any(value is not None for value in values):
                traces.append(
                    {
                        "type": "scatter",
                        "mode": "lines+markers",
                        "name": f"{plain(run.label)}, {word}",
                        "x": [stage["stage"] + 1 for stage in stages],
                        "y": values,
                        "line": {"color": look.color, "dash": dash, "width": 2},
                        "marker": shown,
                        "hovertemplate": "%{fullData.name}<br>after task %{x}: %{y:.1f} %<extra></extra>",
                    }
                )
    if not traces:
        return None
    across = axis("after task", tickmode="linear", dtick=1)
    return plot("accuracy on all tasks seen", traces, across, axis("%", range=[0, 102]), 260)


def number(value: Any) -> float | None:
    """A number, if it is one."""
    return float(value) if isinstance(value, int | float) else None


def shifted_accuracy(stage: dict[str, Any]) -> float | None:
    """Mean over shifted scenarios and tasks of a stage."""
    accuracies = stage.get("accuracies") or {}
    means = []
    for scenario, values in accuracies.items():
        known = [value for value in values if isinstance(value, int | float)]
        if scenario != "clean" and known:
            means.append(sum(known) / len(known))
    return sum(means) / len(means) if means else None


def memory_panel(runs: Sequence[LiveRun]) -> Json | None:
    """What the first picked run that stores anything holds after every task, by the task the samples came with."""
    for run in runs:
        stages = [stage for stage in run.stages if stage.get("parts")]
        if not stages:
            continue
        tasks = sorted({int(part.partition("/")[0]) for stage in stages for part in stage["parts"]})
        traces = []
        for task in tasks:
            held = [sum(n for part, n in s["parts"].items() if int(part.partition("/")[0]) == task) for s in stages]
            traces.append(
                {
                    "type": "bar",
                    "name": f"task {task + 1}",
                    "x": [stage["stage"] + 1 for stage in stages],
                    "y": held,
                    "marker": {"color": PALETTE[(task + 1) % len(PALETTE)]},
                    "hovertemplate": f"samples of task {task + 1}, after task %{{x}}: %{{y}}<extra></extra>",
                }
            )
        across = axis("after task", tickmode="linear", dtick=1)
        title = f"what the memory of {run.label} holds, by task"
        return plot(title, traces, across, axis("samples", rangemode="tozero"), 260, barmode="stack")
    return None


def matrix_panel(run: LiveRun) -> Json | None:
    """The accuracy matrix so far, on clean images."""
    found = [(stage["stage"], (stage.get("accuracies") or {}).get("clean")) for stage in run.stages]
    rows = [(stage, list(values)) for stage, values in found if values]
    if not rows:
        return None
    width = max(len(values) for _, values in rows)
    cells = [
        [rounded(None if v is None else 100 * v, 1) for v in values] + [None] * (width - len(values))
        for _, values in rows
    ]
    trace = {
        "type": "heatmap",
        "z": cells,
        "x": [str(task + 1) for task in range(width)],
        "y": [str(stage + 1) for stage, _ in rows],
        "zmin": 0,
        "zmax": 100,
        "xgap": 2,
        "ygap": 2,
        "colorscale": [[0.0, "#8199B3"], [1.0, "#0B3C6F"]],
        "textfont": {"color": "#fff"},
        "showscale": False,
        "hoverongaps": False,
        "texttemplate": "%{z:.0f}" if width <= 12 else "",
        "hovertemplate": "after task %{y}, on task %{x}: %{z:.1f} %<extra></extra>",
    }
    down = axis("after task", autorange="reversed", type="category", showgrid=False)
    return plot(run.label, [trace], axis("accuracy (%) on task", type="category", showgrid=False), down, 260)
