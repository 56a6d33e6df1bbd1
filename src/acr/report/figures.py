"""Figures for papers, from the same data as the page: PDF, PNG and SVG of each, a set for every setting."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from acr.report.charts import PANELS, known
from acr.report.groups import Gathered, Group, Setting
from acr.report.shift_charts import corruption_estimate
from acr.report.style import Look, looks
from acr.storage import files

FORMATS = ("pdf", "png", "svg")
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 7,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "legend.fontsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "acr",
    "text.parse_math": False,
    "figure.constrained_layout.use": True,
}
"""Small type for a column of print; text stays text; a name with a dollar sign is no formula."""


def write_figures(gathered: Gathered, folder: Path) -> list[Path]:
    """Draw every figure that the runs have data for; returns the files."""
    import matplotlib
    from matplotlib.figure import Figure

    style = looks(gathered.labels)
    written: list[Path] = []
    with matplotlib.rc_context(STYLE):
        for setting in gathered.settings:
            for name, draw in FIGURES.items():
                figure: Any = draw(setting, style, Figure)
                if figure is not None:
                    written += save(figure, folder / f"{name}-{slug(setting.name)}")
    return written


def save(figure: Any, path: Path) -> list[Path]:
    """A figure in all formats, without a date, so that the same runs give the same file."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout is found; finding it again for each format only takes time
    paths = []
    for kind in FORMATS:
        target = path.with_name(f"{path.name}.{kind}")
        metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[kind]
        files.write_atomically(target, partial(figure.savefig, format=kind, dpi=200, metadata=metadata))
        paths.append(target)
    return paths


def slug(text: str) -> str:
    """A name for a file.

    >>> slug("split-digits · buffer 50 · sound")
    'split-digits-buffer-50-sound'
    """
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-") or "setting"


def draw_line(axes: Any, group: Group, look: Look, values: list[Any]) -> None:
    """A line with its interval as a band."""
    x = list(range(1, len(values) + 1))
    y = [100 * value.mean for value in values]
    axes.plot(x, y, color=look.color, marker=look.marker, linestyle=look.line, label=group.label)
    half = [0.0 if math.isnan(value.half) else 100 * value.half for value in values]
    if any(half):
        low, high = ([a + sign * b for a, b in zip(y, half, strict=True)] for sign in (-1, 1))
        axes.fill_between(x, low, high, color=look.color, alpha=0.12, linewidth=0)


def stages_figure(setting: Setting, style: dict[str, Look], new: Callable[..., Any]) -> Any:
    """The eight panels; four where nothing was evaluated under shift."""
    rows = [("clean", "clean"), ("ood", "shifted")]
    rows = [row for row in rows if row[0] in setting.scenarios]
    figure = new(figsize=(7.2, 1.9 * len(rows) + 0.4))
    panels = figure.subplots(len(rows), 4, squeeze=False)
    for r, (scenario, words) in enumerate(rows):
        for c, (title, along, unit, reduce) in enumerate(PANELS):
            axes = panels[r][c]
            for group in setting.groups:
                values = group.estimates(scenario, reduce)
                if known(values):
                    draw_line(axes, group, style[group.label], values)
            axes.set(title=f"({'abcdefgh'[4 * r + c]}) {title}, {words}", xlabel=along, ylabel=unit)
            tasks = max(group.tasks for group in setting.groups)
            axes.set_xticks(range(1, tasks + 1, max(1, math.ceil(tasks / 10))))
            axes.set_xlim(0.6, tasks + 0.4)
    legend(figure, panels[0][0])
    return figure


def legend(figure: Any, axes: Any) -> None:
    """One legend for all panels, above them."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 6), frameon=False)


def scatter_figure(setting: Setting, style: dict[str, Look], new: Callable[..., Any]) -> Any:
    """Clean against shifted ACC."""
    points = [(group, group.figure("acc"), group.figure("ood_acc")) for group in setting.groups]
    points = [point for point in points if point[1].known and point[2].known]
    if not points:
        return None
    figure = new(figsize=(4.6, 3.1))
    axes = figure.subplots()
    for group, clean, shifted in points:
        look = style[group.label]
        halves = [0.0 if math.isnan(v.half) else 100 * v.half for v in (clean, shifted)]
        axes.errorbar(100 * clean.mean, 100 * shifted.mean, xerr=halves[0], yerr=halves[1], color=look.color,
                      marker=look.marker, linestyle="", markersize=6, elinewidth=0.8, label=group.label)  # fmt: skip
    ends = axes.get_xlim(), axes.get_ylim()
    axes.plot([0, 100], [0, 100], color="#999", linestyle=":", linewidth=0.8)
    axes.set(xlabel="clean ACC (%)", ylabel="shifted ACC (%)", xlim=ends[0], ylim=ends[1])
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def ood_figure(setting: Setting, style: dict[str, Look], new: Callable[..., Any]) -> Any:
    """ACC under each corruption, the mean over severities, a bar a method."""
    scenarios = [name for name in setting.scenarios if "/" in name]
    names = list(dict.fromkeys(name.partition("/")[0] for name in scenarios))
    if not names:
        return None
    figure = new(figsize=(7.2, 2.8))
    axes = figure.subplots()
    groups = [group for group in setting.groups if "ood" in group.runs[0].accuracy]
    width = 0.84 / max(1, len(groups))
    for place, group in enumerate(groups):
        values = [corruption_estimate(group, [s for s in scenarios if s.partition("/")[0] == n]) for n in names]
        x = [i + (place - (len(groups) - 1) / 2) * width for i in range(len(names))]
        errors = [0.0 if math.isnan(v.half) else 100 * v.half for v in values]
        look = style[group.label]
        hatch = {"-": "", "--": "///", ":": "...", "-.": "xxx"}[look.line]
        heights = [100 * v.mean for v in values]
        axes.bar(x, heights, width, yerr=errors, color=look.color, hatch=hatch, label=group.label,
                 error_kw={"elinewidth": 0.6, "ecolor": "#444"}, edgecolor="white", linewidth=0.3)  # fmt: skip
    axes.set_xticks(
        range(len(names)), [name.replace("_", " ") for name in names], rotation=35, ha="right", rotation_mode="anchor"
    )
    axes.set_ylabel("ACC (%)")
    axes.grid(axis="x", visible=False)
    legend(figure, axes)
    return figure


def matrices_figure(setting: Setting, style: dict[str, Look], new: Callable[..., Any]) -> Any:
    """Accuracy matrices, clean above and shifted below, a column a method."""
    columns = min(5, len(setting.groups))
    lines = [setting.groups[i : i + columns] for i in range(0, len(setting.groups), columns)]
    rows = [(s, groups) for s in ("clean", "ood") if s in setting.scenarios for groups in lines]
    figure = new(figsize=(max(2.6, 1.3 * columns + 0.8), 1.5 * len(rows) + 0.4))
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
"""What is drawn for every setting."""
