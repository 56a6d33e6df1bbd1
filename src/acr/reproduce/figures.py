"""The paper's figures, drawn by matplotlib from the tables of :mod:`acr.reproduce.layouts` and from telemetry."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acr.report import drawing
from acr.report.drawing import new_figure
from acr.report.statistics import FEWEST_SEEDS
from acr.report.style import PALETTE, SYMBOLS, method_label, method_look
from acr.report.tables import Cell, ResultTable
from acr.reproduce.cells import SCENARIOS, PlannedRuns
from acr.reproduce.layouts import readings, values_of, where

SEED_DOTS: Any = {"marker": "o", "linestyle": "", "color": "#222222", "markersize": 2.5, "markerfacecolor": "white",
                  "markeredgewidth": 0.7, "zorder": 5}  # fmt: skip
EMPHASISED = {"linewidth": 2.2, "markersize": 5, "zorder": 5}
"""The method under study, which the others are tested against, is drawn thicker and on top."""


def write_figures(
    name: str, tables: Sequence[ResultTable], planned: PlannedRuns, folder: Path, suffix: str
) -> list[Path]:
    """Draw what belongs to this name in all formats; returns the files, none where the paper has a table only.

    ``suffix`` is added to the file names: it tells protocols apart.
    """
    draw = FIGURES.get(name)
    if draw is None:
        return []
    with drawing.settings():
        return drawing.save(draw(tables[0], planned), folder / f"{name}{suffix}")


def line_styles(table: ResultTable, planned: PlannedRuns) -> dict[str, dict[str, Any]]:
    """Colour, marker and thickness of each method's line, by the method's label."""
    styles = {}
    for method in values_of(planned, "method"):
        label, look = method_label(method), method_look(method)
        emphasis = EMPHASISED if label == table.reference else {"linewidth": 1.2}
        styles[label] = {"color": look.color, "marker": look.marker, "label": label, **emphasis}
    return styles


def draw_stages(table: ResultTable, planned: PlannedRuns) -> Any:
    """Eight panels: clean above, shifted below."""
    styles = line_styles(table, planned)
    figure = new_figure(13, 6)
    axes = figure.subplots(2, 4)
    groups = list(dict.fromkeys(group for group, _ in table.rows))
    for panel, group in zip(axes.flat, groups, strict=True):
        any_value = False
        for i, (own, label) in enumerate(table.rows):
            line = {j: table.cells[i, j] for j in range(len(table.columns)) if (i, j) in table.cells}
            points = [(j + 1, cell) for j, cell in line.items() if not cell.missing]
            if own == group and points:
                any_value = True
                panel.plot([x for x, _ in points], [cell.mean for _, cell in points], **styles[label])
        words = group.replace(", i.i.d.", " (clean)").replace(", OOD", " (shifted)")
        panel.set_title(words, fontsize=9, loc="left")
        panel.set_xlabel("stage" if "stage" in group else "task")
        panel.set_xlim(0.7, len(table.columns) + 0.3)
        panel.set_xticks(range(1, len(table.columns) + 1))
        if not any_value:
            say_missing(panel)
    for panel, head in zip(axes[:, 0], ("accuracy (%)", "accuracy (%)"), strict=True):
        panel.set_ylabel(head)
    for panel in axes[:, 2]:
        panel.set_ylabel("backward transfer (%)")
    method_legend(figure, styles.values())
    return figure


def draw_sensitivity(table: ResultTable, planned: PlannedRuns) -> Any:
    """Four panels (ACC and BWT, clean and shifted), one colour per data set, the reservoir dashed."""
    from matplotlib.lines import Line2D

    figure = new_figure(13, 3.4)
    axes = figure.subplots(1, 4)
    kinds = [f"{metric} {SCENARIOS[scenario]}" for scenario in SCENARIOS for metric in ("ACC", "BWT")]
    datasets = list(dict.fromkeys(group for group, _ in table.columns))
    rows = [(i, int(label[4:])) for i, (_, label) in enumerate(table.rows) if label.startswith("E = ")]
    reservoir = next((i for i, (_, label) in enumerate(table.rows) if label == "Reservoir"), None)
    for panel, kind in zip(axes, kinds, strict=True):
        columns = [j for j, (_, label) in enumerate(table.columns) if label == kind]
        for j in columns:
            dataset = table.columns[j][0]
            at = datasets.index(dataset)
            colour, marker = PALETTE[at + 1], SYMBOLS[at][1]
            known = [(e, table.cells[i, j]) for i, e in rows if not table.cells[i, j].missing]
            if known:
                means = np.array([cell.mean for _, cell in known])
                spread = np.array([interval(cell) or 0.0 for _, cell in known])
                places = [e for e, _ in known]
                panel.plot(places, means, color=colour, marker=marker, markersize=4, label=dataset)
                panel.fill_between(places, means - spread, means + spread, color=colour, alpha=0.12, linewidth=0)
                for place, cell in known:
                    seed_dots(panel, place, cell)
            if reservoir is not None and not table.cells[reservoir, j].missing:
                panel.axhline(table.cells[reservoir, j].mean, color=colour, linestyle="--", linewidth=1.2)
        if all(table.cells[i, j].missing for i, _ in rows for j in columns):
            say_missing(panel)
        metric, _, scenario = kind.partition(" ")
        panel.set_title(f"{metric}, {'clean' if scenario == 'i.i.d.' else 'shifted'}", loc="left", fontsize=9)
        panel.set_xlabel("E (confidence epochs)")
        panel.set_xticks([e for _, e in rows])
    axes[0].set_ylabel("%")
    handles = axes[0].get_legend_handles_labels()[0]
    handles += [Line2D([], [], color="#555555", linestyle="--", label="reservoir policy")]
    handles += dots_in_legend(table)
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def draw_ood(table: ResultTable, planned: PlannedRuns) -> Any:
    """Bars of ACC under shift, one group per data set; what the paper printed as a line across."""
    styles = line_styles(table, planned)
    columns = [j for j, (group, _) in enumerate(table.columns) if group != "all"]
    figure = new_figure(max(5.5, 3.4 * len(columns) + 1.2), 3.6)
    panel = figure.subplots()
    width = 0.86 / len(table.rows)
    for i, (_, label) in enumerate(table.rows):
        places = [at + (i - (len(table.rows) - 1) / 2) * width for at in range(len(columns))]
        bars(panel, places, [table.cells[i, j] for j in columns], width, styles[label]["color"])
    panel.set_xticks(range(len(columns)), [table.columns[j][0] for j in columns])
    panel.tick_params(axis="x", length=0)
    panel.grid(axis="x", visible=False)
    panel.set_ylabel("ACC under shift (%)")
    legend_of_bars(figure, table, styles)
    return figure


def draw_time(table: ResultTable, planned: PlannedRuns) -> Any:
    """Horizontal bars of running time, the quickest on top."""
    styles = line_styles(table, planned)
    figure = new_figure(6, 3.4)
    panel = figure.subplots()
    order = sorted(range(len(table.rows)), key=lambda i: table.cells[i, 0].mean if not table.cells[i, 0].missing else 0)
    for place, i in enumerate(order):
        cell, ratio = table.cells[i, 0], table.cells[i, 1]
        label = table.rows[i][1]
        if cell.missing:
            panel.text(0, place, " missing", va="center", color="#777777", fontsize=8)
            continue
        error = interval(cell)
        panel.barh(place, cell.mean, 0.7, color=styles[label]["color"], xerr=error, ecolor="#444444", capsize=2)
        end = max([cell.mean + (error or 0), *shown_seeds(cell)])
        for value in shown_seeds(cell):
            panel.plot(value, place, **SEED_DOTS)
        times = "" if ratio.missing else f" ({ratio.mean:.1f}x ER)"
        panel.annotate(f"{cell.mean:.1f}{times}", (end, place), (4, 0), textcoords="offset points", va="center",
                       fontsize=8)  # fmt: skip
    panel.set_yticks(range(len(order)), [table.rows[i][1] for i in order])
    panel.invert_yaxis()
    panel.margins(x=0.28)
    panel.set_xlim(left=0)
    panel.grid(axis="y", visible=False)
    panel.set_xlabel(f"running time ({table.columns[0][1]})")
    if handles := dots_in_legend(table):
        figure.legend(handles=handles, loc="outside lower right")
    return figure


def draw_resources(table: ResultTable, planned: PlannedRuns) -> Any:
    """Memory and CPU use over the steps of training."""
    styles = line_styles(table, planned)
    figure = new_figure(9, 3.6)
    axes = figure.subplots(1, 2)
    on_gpu = table.columns[0][0] == "GPU memory"
    drawn = []
    for method in values_of(planned, "method"):
        one = where(planned, method=method)[0]
        events = readings(one)[1:]  # the first reading covers the time before the first step
        if not events:
            continue
        style = styles[method_label(method)]
        drawn.append(style)
        look = {**style, "markevery": max(1, len(events) // 8), "markersize": 4}
        steps = [event["at"] for event in events]
        memory = [event.get("gpu_mib" if on_gpu else "rss_mib", math.nan) * 2**20 / 1e9 for event in events]
        axes[0].plot(steps, memory, **look)
        axes[1].plot(steps, smooth([event["cpu_percent"] for event in events]), **look)
    for panel, head in zip(axes, (f"{table.columns[0][0]} (GB)", "CPU use (%, 100 is one core)"), strict=True):
        panel.set_xlabel("training step")
        panel.set_ylabel(head)
        panel.set_ylim(bottom=0)
        if not drawn:
            say_missing(panel)
    if drawn:
        method_legend(figure, drawn)
    return figure


def smooth(values: Sequence[float], parts: int = 40) -> list[float]:
    """A running mean over a fortieth of the run, so that single readings do not hide the course."""
    size = max(1, len(values) // parts)
    return [float(np.mean(values[max(0, i - size) : i + size + 1])) for i in range(len(values))]


def interval(cell: Cell) -> float | None:
    """Half the 95 % interval, where there are seeds enough to draw one."""
    return cell.half_width if len(cell.by_seed) >= FEWEST_SEEDS else None


def shown_seeds(cell: Cell) -> list[float]:
    """The single values that stand in place of an interval, where there are too few for one but more than one."""
    return list(cell.by_seed.values()) if 1 < len(cell.by_seed) < FEWEST_SEEDS else []


def seed_dots(panel: Any, place: float, cell: Cell) -> None:
    """One dot per seed, where there is no interval."""
    for value in shown_seeds(cell):
        panel.plot(place, value, **SEED_DOTS)


def dots_in_legend(table: ResultTable) -> list[Any]:
    """What the dots are, if there are any."""
    from matplotlib.lines import Line2D

    return [Line2D([], [], label="one seed", **SEED_DOTS)] if any(map(shown_seeds, table.cells.values())) else []


def bars(panel: Any, places: Sequence[float], cells: Sequence[Cell], width: float, colour: str) -> None:
    """Bars of one method with their intervals; a missing one is marked as missing."""
    for place, cell in zip(places, cells, strict=True):
        if cell.missing:
            panel.annotate("missing", (place, 0), (0, 3), textcoords="offset points", rotation=90, ha="center",
                           fontsize=7, color="#777777")  # fmt: skip
        else:
            panel.bar(place, cell.mean, width * 0.9, color=colour, yerr=interval(cell),
                      ecolor="#444444", capsize=2, error_kw={"linewidth": 0.8})  # fmt: skip
            seed_dots(panel, place, cell)
        if cell.printed is not None:
            for line_colour, thickness in (("white", 3.2), ("black", 1.4)):  # seen on dark bars too
                panel.hlines(cell.printed, place - width / 2, place + width / 2, color=line_colour, linewidth=thickness,
                             zorder=6)  # fmt: skip


def legend_of_bars(figure: Any, table: ResultTable, styles: Mapping[str, dict[str, Any]]) -> None:
    """One patch per method, and the line that stands for the printed value."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    handles: list[Any] = [Rectangle((0, 0), 1, 1, color=styles[label]["color"], label=label) for _, label in table.rows]
    handles += dots_in_legend(table)
    if table.has_printed:
        handles.append(Line2D([], [], color="black", linewidth=1.4, label="printed"))
    figure.legend(handles=handles, loc="outside right center")


def method_legend(figure: Any, styles: Iterable[dict[str, Any]]) -> None:
    """One legend for all panels."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **style) for style in styles]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def say_missing(panel: Any) -> None:
    """Write into an empty panel why it is empty."""
    panel.text(0.5, 0.5, "missing", transform=panel.transAxes, ha="center", va="center", color="#777777")


FIGURES: dict[str, Callable[[ResultTable, PlannedRuns], Any]] = {
    "stages": draw_stages, "sensitivity": draw_sensitivity, "ood": draw_ood, "time": draw_time,
    "resources": draw_resources,
}  # fmt: skip
"""What the paper shows as a figure."""
