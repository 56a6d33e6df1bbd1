"""The charts of the report for a single run, as plotly figures: what ``Run.plot`` draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from acr.errors import InputError, unknown
from acr.report.charts import classes, cost, memory, shift, stages
from acr.report.charts.parts import Json, Variant, axis, plain
from acr.report.groups import Comparison, gather
from acr.report.style import Look
from acr.runs.run import Run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

KINDS: dict[str, Callable[[Comparison, dict[str, Look], str], Variant]] = {
    "stages": lambda one, looks, scenario: stages.stage_curves(one.groups[0], looks[one.groups[0].label]),
    "tasks": lambda one, looks, scenario: stages.stages(one, looks),
    "matrix": lambda one, looks, scenario: stages.matrices(one, scenario),
    "confusion": lambda one, looks, scenario: stages.confusion(one, scenario),
    "corruptions": lambda one, looks, scenario: shift.corruption_bars(one, looks, "all"),
    "classes": lambda one, looks, scenario: classes.class_history(one.groups[0]),
    "memory": lambda one, looks, scenario: memory.balance(one, looks, "class"),
    "confidence": lambda one, looks, scenario: memory.confidence_map(
        one.groups[0].runs[0], one.groups[0].label, looks[one.groups[0].label].color
    ),
    "training": lambda one, looks, scenario: readings(one, looks),
}
"""What draws each kind of chart of a comparison that has one run."""


def plot_run(run: Run, kind: str = "stages", scenario: str = "clean") -> Figure:
    """A chart of a finished run; arguments as for :meth:`acr.Run.plot`."""
    if kind not in KINDS:
        raise unknown("kind of chart", kind, KINDS)
    gathered = gather([run])
    if gathered.problems:
        problem = gathered.problems[0]
        raise InputError(f"{run.folder} cannot be drawn, because it is {problem.state}: {problem.reason}")
    if scenario not in run.accuracy:
        raise unknown("scenario", scenario, run.accuracy)
    variant = KINDS[kind](gathered.comparisons[0], gathered.looks, scenario)
    if not variant.panels:
        raise InputError(f"{run.folder} has nothing to draw for {kind!r}. {variant.empty}")
    results = run.results
    return figure(variant.panels, f"{gathered.labels[0]} on {results.dataset}, seed {results.seed}")


def readings(one: Comparison, looks: dict[str, Look]) -> Variant:
    """Loss, throughput, memory and processor along the steps of the run."""
    group = one.groups[0]
    steps, series = cost.read_series(group.runs[0])
    panels = cost.series_panels([(group.label, group.label, steps, series)], looks)
    return Variant(panels, empty="Its events.jsonl, which holds the loss, is missing or cannot be read.")


def figure(panels: Sequence[Json], title: str) -> Figure:
    """One figure of all panels, two side by side."""
    from plotly.subplots import make_subplots

    panels = [drawable(panel) for panel in panels]
    across = min(len(panels), 2)
    down = math.ceil(len(panels) / across)
    shown = make_subplots(rows=down, cols=across, subplot_titles=[plain(panel["title"]) for panel in panels])
    for place, panel in enumerate(panels):
        cell = {"row": place // across + 1, "col": place % across + 1}
        shown.add_traces(
            panel["data"], rows=[cell["row"]] * len(panel["data"]), cols=[cell["col"]] * len(panel["data"])
        )
        shown.update_xaxes(panel["layout"]["xaxis"], **cell)
        shown.update_yaxes(panel["layout"]["yaxis"], **cell)
    own = {"xaxis", "yaxis", "height", "margin"}
    shown.update_layout(
        {name: value for panel in panels for name, value in panel["layout"].items() if name not in own},
        title={"text": plain(title)},
        height=80 + down * max(max(panel["layout"]["height"] for panel in panels), 240),
    )
    return shown


def drawable(panel: Json) -> Json:
    """A panel that plotly draws by itself; on a page, a script draws coloured tables and names the cells of others."""
    if panel["kind"] == "heat":
        return coloured_table(panel)
    if "names" in panel:
        rows, columns = panel["names"]
        named = [[f"{row} · class {column}" for column in columns] for row in rows]
        return {**panel, "data": [{**panel["data"][0], "customdata": named}]}
    return panel


def coloured_table(panel: Json) -> Json:
    """A table of percentages as a heat map; the numbers stand in the cells while there is room for them."""
    of, on = panel["corner"].split(" \\ ")
    trace = {
        "type": "heatmap",
        "z": panel["cells"],
        "x": panel["columns"],
        "y": panel["rows"],
        "zmin": 0,
        "zmax": 100,
        "xgap": 2,
        "ygap": 2,
        "colorscale": classes.SEQUENTIAL,
        "hoverongaps": False,
        "texttemplate": "%{z:.0f}" if len(panel["columns"]) <= 12 else "",
        "colorbar": {"thickness": 10, "outlinewidth": 0, "title": {"text": "%", "side": "right"}},
        "hovertemplate": f"{of} task %{{y}}, {on} task %{{x}}: %{{z:.1f}} %<extra></extra>",
    }
    layout = {
        "xaxis": axis(f"{on} task", type="category", showgrid=False),
        "yaxis": axis(f"{of} task", type="category", showgrid=False, autorange="reversed"),
        "height": 160 + 26 * len(panel["rows"]),
    }
    return {"kind": "plot", "title": "", "data": [trace], "layout": layout}
