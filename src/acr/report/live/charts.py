"""Charts of runs while they are running: losses, accuracy so far, the memory filling up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from acr.report.charts.cost import series_panels, step_series
from acr.report.charts.parts import Json, axis, percent, plain, plot, rounded
from acr.report.groups import ASIDE
from acr.report.live.watch import LiveRun
from acr.report.style import DASHES, PALETTE, Look, method_label, method_look
from acr.report.wording import config_value


def live_panels(runs: Sequence[LiveRun]) -> dict[str, Json]:
    """Losses, accuracy and memory of the picked runs, then what they cost, by name."""
    names = name_runs(runs)
    style = live_looks({names[run.name]: method(run) for run in runs})
    lines = []
    for run in runs:
        steps, readings = step_series(run.events)
        lines.append((names[run.name], names[run.name], steps, readings))
    series = {panel["title"]: panel for panel in series_panels(lines, style)}
    found = {
        "loss": series.pop("loss", None),
        "accuracy": accuracy_panel(runs, names, style),
        "memory": memory_panel(runs, names),
        **series,
    }
    return {name: panel for name, panel in found.items() if panel is not None}


def name_runs(runs: Sequence[LiveRun]) -> dict[str, str]:
    """A short name for each run, by its folder: the method, and what else differs between these runs."""
    if len(runs) == 1:
        return {runs[0].name: runs[0].label}
    # A method without a memory has a buffer of 0, which is no choice that one would compare.
    compared = {name: [run for run in runs if name != "buffer_size" or run.values.get(name)] for name in ALWAYS}
    everywhere = [name for name in ALWAYS if differs(name, compared[name])]
    found: dict[str, str] = {}
    for run in runs:
        # Between methods, options differ as a matter of course; they tell apart only the runs of one method.
        twins = [other for other in runs if method(other) == method(run)]
        fields = [name for name in run.values if name not in ASIDE - {"seed"} and differs(name, twins)]
        parts = [f"{name.replace('_', ' ')} {config_value(run.values.get(name))}"
                 for name in dict.fromkeys([*everywhere, *fields]) if name != "method"]  # fmt: skip
        found[run.name] = ", ".join([method_label(method(run)), *parts])
    alike = [name for name in found.values() if list(found.values()).count(name) > 1]
    return {folder: f"{name} ({folder})" if name in alike else name for folder, name in found.items()}


ALWAYS = ("dataset", "buffer_size", "protocol", "seed")
"""Fields that are part of a run's name wherever the runs shown differ in them."""


def differs(name: str, runs: Sequence[LiveRun]) -> bool:
    """Whether the runs differ in a field of their configs."""
    return len({repr(run.values.get(name)) for run in runs}) > 1


def live_looks(methods: Mapping[str, str]) -> dict[str, Look]:
    """A line style of its own for each name: the method's colour and its first free dash, then other colours.

    >>> styles = live_looks({f"run {i}": "acr" for i in range(9)})
    >>> len({(look.color, look.dash) for look in styles.values()})
    9
    """
    found: dict[str, Look] = {}
    used: set[tuple[str, str]] = set()
    for name, of_method in methods.items():
        own = [method_look(of_method, variant) for variant in range(len(DASHES))]
        others = [replace(look, color=color) for color in PALETTE for look in own]
        look = next((look for look in (*own, *others) if (look.color, look.dash) not in used), own[0])
        used.add((look.color, look.dash))
        found[name] = look
    return found


def method(run: LiveRun) -> str:
    """Name of the method, also for a run whose config cannot be read."""
    return str(run.values.get("method", "unknown"))


def accuracy_panel(runs: Sequence[LiveRun], names: Mapping[str, str], style: Mapping[str, Look]) -> Json | None:
    """Mean accuracy over the tasks seen, after every task; thin and with open markers under shift."""
    traces = []
    for run in runs:
        stages = run.stages
        look = style[names[run.name]]
        clean = [percent(number(stage.get("accuracy"))) for stage in stages]
        shifted = [percent(shifted_accuracy(stage)) for stage in stages]
        for values, width, marker, word in ((clean, 2, "", "clean"), (shifted, 1, "-open", "shifted")):
            if any(value is not None for value in values):
                traces.append(
                    {
                        "type": "scatter",
                        "mode": "lines+markers",
                        "name": f"{plain(names[run.name])}, {word}",
                        "x": [stage["stage"] + 1 for stage in stages],
                        "y": values,
                        "line": {"color": look.color, "dash": look.dash, "width": width},
                        "marker": {"color": look.color, "symbol": look.symbol + marker, "size": 7},
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


def memory_panel(runs: Sequence[LiveRun], names: Mapping[str, str]) -> Json | None:
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
        title = f"what the memory of {names[run.name]} holds, by task"
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
