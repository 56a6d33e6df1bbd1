"""Figures for papers, from the same data as the page: PDF, PNG and SVG of each, one set per comparison."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from acr.report import drawing
from acr.report.charts.parts import known
from acr.report.charts.shift import corruption_estimate
from acr.report.charts.stages import PANELS
from acr.report.drawing import new_figure
from acr.report.groups import Comparison, Gathered, Group
from acr.report.style import Look


def write_figures(gathered: Gathered, folder: Path) -> list[Path]:
    """Draw every figure that the runs have data for; returns the files."""
    looks = gathered.looks
    written: list[Path] = []
    with drawing.settings():
        for comparison in gathered.comparisons:
            for name, draw in FIGURES.items():
                figure = draw(comparison, looks)
                if figure is not None:
                    written += drawing.save(figure, folder / f"{name}-{slug(comparison.name)}")
    return written


def slug(text: str) -> str:
    """A name for a file.

    >>> slug("split-digits · buffer 50 · sound")
    'split-digits-buffer-50-sound'
    """
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-") or "comparison"


def draw_line(axes: Any, group: Group, look: Look, values: list[Any]) -> None:
    """A line with its interval as a band."""
    x = list(range(1, len(values) + 1))
    y = [100 * value.mean for value in values]
    axes.plot(x, y, color=look.color, marker=look.marker, linestyle=look.line, label=wrapped(group.label))
    half = [0.0 if math.isnan(value.half) else 100 * value.half for value in values]
    if any(half):
        low, high = ([a + sign * b for a, b in zip(y, half, strict=True)] for sign in (-1, 1))
        axes.fill_between(x, low, high, color=look.color, alpha=0.12, linewidth=0)


def stages_figure(comparison: Comparison, looks: dict[str, Look]) -> Any:
    """The eight panels; four where nothing was evaluated under shift."""
    rows = [("clean", "clean"), ("ood", "shifted")]
    rows = [row for row in rows if row[0] in comparison.scenarios]
    figure = new_figure(7.2, 1.9 * len(rows) + 0.4)
    panels = figure.subplots(len(rows), 4, squeeze=False)
    for r, (scenario, words) in enumerate(rows):
        for c, (title, along, unit, reduce) in enumerate(PANELS):
            axes = panels[r][c]
            for group in comparison.groups:
                values = group.estimates(scenario, reduce)
                if known(values):
                    draw_line(axes, group, looks[group.label], values)
            axes.set(title=f"({'abcdefgh'[4 * r + c]}) {title}, {words}", xlabel=along, ylabel=unit)
            tasks = max(group.tasks for group in comparison.groups)
            axes.set_xticks(range(1, tasks + 1, max(1, math.ceil(tasks / 10))))
            axes.set_xlim(0.6, tasks + 0.4)
    legend(figure, panels[0][0])
    return figure


def legend_columns(labels: list[str]) -> int:
    """As many columns as fit a page's width of about 100 letters.

    >>> legend_columns(["ACR", "ER"]), legend_columns(["ACR, policy hard, samples per class 16, width 8"] * 3)
    (2, 1)
    """
    longest = max(len(line) for label in labels for line in label.splitlines())
    return max(1, min(len(labels), 6, 100 // (8 + longest)))


def wrapped(label: str) -> str:
    """A long label in several lines, so that a legend leaves room for what it explains."""
    return textwrap.fill(label, 36)


def legend(figure: Any, axes: Any) -> None:
    """One legend for all panels, above them."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper center", ncols=legend_columns(labels))


def scatter_figure(comparison: Comparison, looks: dict[str, Look]) -> Any:
    """Clean against shifted ACC."""
    points = [(group, group.estimate("acc"), group.estimate("ood_acc")) for group in comparison.groups]
    points = [point for point in points if point[1].known and point[2].known]
    if not points:
        return None
    figure = new_figure(4.6, 3.1)
    axes = figure.subplots()
    for group, clean, shifted in points:
        look = looks[group.label]
        halves = [0.0 if math.isnan(v.half) else 100 * v.half for v in (clean, shifted)]
        axes.errorbar(100 * clean.mean, 100 * shifted.mean, xerr=halves[0], yerr=halves[1], color=look.color,
                      marker=look.marker, linestyle="", markersize=6, elinewidth=0.8,
                      label=wrapped(group.label))  # fmt: skip
    ends = axes.get_xlim(), axes.get_ylim()
    axes.plot([0, 100], [0, 100], color="#999", linestyle=":", linewidth=0.8)
    axes.set(xlabel="clean ACC (%)", ylabel="shifted ACC (%)", xlim=ends[0], ylim=ends[1])
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def ood_figure(comparison: Comparison, looks: dict[str, Look]) -> Any:
    """ACC under each corruption, the mean over severities, one bar per method."""
    scenarios = [name for name in comparison.scenarios if "/" in name]
    names = list(dict.fromkeys(name.partition("/")[0] for name in scenarios))
    if not names:
        return None
    figure = new_figure(7.2, 2.8)
    axes = figure.subplots()
    groups = [group for group in comparison.groups if "ood" in group.runs[0].accuracy]
    width = 0.84 / max(1, len(groups))
    for place, group in enumerate(groups):
        values = [corruption_estimate(group, [s for s in scenarios if s.partition("/")[0] == n]) for n in names]
        x = [i + (place - (len(groups) - 1) / 2) * width for i in range(len(names))]
        errors = [0.0 if math.isnan(v.half) else 100 * v.half for v in values]
        look = looks[group.label]
        hatch = {"-": "", "--": "///", ":": "...", "-.": "xxx"}[look.line]
        heights = [100 * v.mean for v in values]
        axes.bar(x, heights, width, yerr=errors, color=look.color, hatch=hatch, label=wrapped(group.label),
                 error_kw={"elinewidth": 0.6, "ecolor": "#444"}, edgecolor="white", linewidth=0.3)  # fmt: skip
    axes.set_xticks(
        range(len(names)), [name.replace("_", " ") for name in names], rotation=35, ha="right", rotation_mode="anchor"
    )
    axes.set_ylabel("ACC (%)")
    axes.grid(axis="x", visible=False)
    legend(figure, axes)
    return figure


def matrices_figure(comparison: Comparison, looks: dict[str, Look]) -> Any:
    """Accuracy matrices, clean above and shifted below, one column per method."""
    columns = min(5, len(comparison.groups))
    lines = [comparison.groups[i : i + columns] for i in range(0, len(comparison.groups), columns)]
    rows = [(s, groups) for s in ("clean", "ood") if s in comparison.scenarios for groups in lines]
    figure = new_figure(max(2.6, 1.3 * columns + 0.8), 1.5 * len(rows) + 0.4)
    panels = figure.subplots(len(rows), columns, squeeze=False, sharex=True, sharey=True)
    image = None
    for r, (scenario, groups) in enumerate(rows):
        for c, axes in enumerate(panels[r]):
            axes.grid(visible=False)
            layers = groups[c].matrices(scenario) if c < len(groups) else []
            if not layers:
                axes.set_axis_off()
                continue
            mean = 100 * sum(layers[1:], layers[0]) / len(layers)
            image = axes.imshow(mean, vmin=0, vmax=100, cmap="viridis", origin="upper")
            ticks = range(0, len(mean), max(1, math.ceil(len(mean) / 5)))
            axes.set_xticks(ticks, [str(t + 1) for t in ticks])
            axes.set_yticks(ticks, [str(t + 1) for t in ticks])
            axes.set_title("\n".join(groups[c].label.split(", ")))
            if c == 0:
                axes.set_ylabel(f"{'clean' if scenario == 'clean' else 'shifted'}\nafter task")
            if r == len(rows) - 1:
                axes.set_xlabel("on task")
    if image is None:
        return None
    figure.colorbar(image, ax=panels, label="accuracy (%)", shrink=0.8, aspect=30)
    return figure


FIGURES: dict[str, Callable[..., Any]] = {
    "stages": stages_figure,
    "scatter": scatter_figure,
    "ood": ood_figure,
    "matrices": matrices_figure,
}
"""What is drawn for every comparison."""
