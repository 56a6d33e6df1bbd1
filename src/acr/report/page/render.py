"""A page: one self-contained HTML file about a set of runs, that asks nothing of any network."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, Template, select_autoescape
from markupsafe import Markup

from acr._version import __version__
from acr.report.charts.parts import Json
from acr.report.columns import COLUMNS
from acr.report.groups import Gathered, Group, Problem, gather, reason
from acr.report.page import pictures, rerun
from acr.report.page.sections import Section, chart_json, in_short, sections
from acr.report.wording import config_value, scenario_in_words, with_interval
from acr.runs.run import Run
from acr.storage import files


def write_page(runs: Sequence[Run], path: Path) -> Path:
    """Write the page and return its path. Runs that are not finished, or damaged, are listed as such."""
    files.write_text(path, render_all(runs)[1])
    return path


def render_all(runs: Sequence[Run], baseline: Run | None = None) -> tuple[Gathered, str]:
    """What the page shows, and its text. A run that cannot be drawn, however it is damaged, is listed instead.

    The page is first made of all runs. Only if that fails is each tried alone, to find which of them is the reason.
    """
    gathered = gather(runs, baseline)
    try:
        return gathered, render(gathered)
    except Exception as error:  # a damaged folder may hold anything, and must not keep the others from being shown
        broken = {run.folder: why for run in gathered.runs if (why := problem_alone(run, baseline))}
        if not broken:
            raise
        logging.getLogger("acr").debug("a run cannot be drawn", exc_info=error)
    rest = gather([run for run in runs if run.folder not in broken], baseline)
    rest.problems += [Problem(folder, "damaged", why) for folder, why in broken.items()]
    return rest, render(rest)


def problem_alone(run: Run, baseline: Run | None) -> str:
    """Why a page of this run alone cannot be made; empty if it can."""
    try:
        render(gather([run], baseline))
    except Exception as error:
        return reason(error)
    return ""


def render(gathered: Gathered) -> str:
    """The page as text. Names that came from outside are escaped wherever they stand."""
    style = gathered.looks
    shown = sections(style, gathered)
    return template().render(
        version=__version__,
        gathered=gathered,
        methods=len({group.method for group in gathered.groups}),
        overview=overview(gathered),
        columns=overview_columns(gathered),
        sections=shown,
        data=Markup(embedded(page_data(gathered, shown, style))),
        css=Markup(asset("page.css")),
        js=Markup(asset("page.js")),
        plotly=Markup(plotly_js()),
        looks=style,
        configs=configs(gathered.groups),
        commands=commands(gathered),
    )


def page_data(gathered: Gathered, shown: Sequence[Section], style: dict[str, Any]) -> Json:
    """Everything the page's script draws from."""
    budget = pictures.SPRITE_BYTES // 4 // max(1, len(gathered.comparisons))
    return {
        "comparisons": [
            {"key": s.key, "name": s.name, "labels": [group.label for group in s.groups]} for s in gathered.comparisons
        ],
        "looks": {label: asdict(look) for label, look in style.items()},
        "short": in_short(gathered),
        "charts": {section.id: chart_json(section, gathered.comparisons) for section in shown},
        "memories": pictures.memory_pictures(gathered),
        "samples": {s.key: pictures.corruption_pictures(s, budget) for s in gathered.comparisons},
        "scenarios": {name: scenario_in_words(name) for s in gathered.comparisons for name in s.scenarios},
    }


def embedded(content: Any) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element or the line."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def asset(name: str) -> str:
    """A file beside the template."""
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


@cache
def template() -> Template:
    """The page's template, compiled once."""
    environment = Environment(
        loader=PackageLoader("acr.report.page"), autoescape=select_autoescape(default=True), trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html")


@cache
def plotly_js() -> str:
    """plotly.js as the plotly package brings it."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def overview_columns(gathered: Gathered) -> list[tuple[str, str, str]]:
    """The numbers that any group has: name, heading, meaning."""
    return [
        (name, column.heading, column.meaning)
        for name, column in COLUMNS.items()
        if any(group.estimate(name).known for group in gathered.groups)
    ]


def overview(gathered: Gathered) -> list[dict[str, Any]]:
    """Rows of the overview, one per group, with the mean and interval of every number."""
    names = [name for name, *_ in overview_columns(gathered)]
    ranks = {name: leaders(gathered, name) for name in names}
    rows = []
    for place, group in enumerate(gathered.groups):
        dataset, size, protocol = group.place
        cells = []
        for name in names:
            value = group.estimate(name)
            text, opened, each = with_interval(value, COLUMNS[name].scale, COLUMNS[name].digits).partition(" (")
            sort = repr(value.mean) if math.isfinite(value.mean) else ""
            cells.append({"text": text, "each": opened.strip() + each, "sort": sort, "rank": ranks[name].get(place, 0)})
        place_of = {"dataset": dataset, "buffer": size, "protocol": protocol}
        rows.append({"label": group.label, "method": group.method, **place_of, "seeds": group.seeds, "cells": cells})
    return rows


def leaders(gathered: Gathered, name: str) -> dict[int, int]:
    """Which rows come first and second in a number, in a comparison with at least two methods that learn task by task.

    A row that is part of several comparisons, as that of a method without memory, has no single rank and gets none.
    """
    found: dict[int, int] = {}
    for comparison in gathered.comparisons:
        values = [(group.estimate(name).mean, gathered.groups.index(group)) for group in comparison.contenders]
        values = [pair for pair in values if not math.isnan(pair[0])]
        distinct = sorted({round(value, 6) for value, _ in values}, reverse=not COLUMNS[name].low_is_good)[:2]
        if len(distinct) < 2:
            continue
        for value, place in values:
            group = gathered.groups[place]
            only_here = sum(group in other.groups for other in gathered.comparisons) == 1
            if round(value, 6) in distinct and only_here:
                found[place] = distinct.index(round(value, 6)) + 1
    return found


def configs(groups: Sequence[Group]) -> dict[str, Any]:
    """Fields in which groups differ, one row per group, and those that all share."""
    fields = list(dict.fromkeys(name for group in groups for name in group.values))
    differ = [f for f in fields if len({repr(group.values.get(f)) for group in groups}) > 1]
    return {
        "fields": differ,
        "rows": [[group.label, *(config_value(group.values.get(f)) for f in differ)] for group in groups],
        "shared": [(f, config_value(groups[0].values.get(f))) for f in fields if f not in differ] if groups else [],
    }


def commands(gathered: Gathered) -> str:
    """Commands that repeat every run, and then make this page."""
    lines = [rerun.command(run, Path("runs")) for run in gathered.runs]
    return "\n".join([*lines, "acr report runs -o report.html"])
