"""What charts are made of: plain dicts in the form plotly.js reads, each with a table of the same numbers.

A chart has variants (a comparison, a scenario, a method, joined with ``|`` in the key). A variant has panels, drawn
side by side where there is room and below each other where there is not. Every trace of a method carries its label as
``meta``, so that a page can hide it in all charts at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from acr.report.statistics import Estimate

Json = dict[str, Any]
Rows = list[list[str]]


@dataclass
class Variant:
    """What a chart shows for one choice of its pickers."""

    panels: list[Json] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    rows: Rows = field(default_factory=list)
    empty: str = ""
    """Said in place of the panels where there is nothing to draw: why, and what to do about it."""
    note: str = ""

    def as_json(self) -> Json:
        """For the page."""
        values = {"panels": self.panels, "heads": self.heads, "rows": self.rows, "empty": self.empty, "note": self.note}
        return {name: value for name, value in values.items() if value}


def plain(text: str) -> str:
    """Text that plotly shows as it is: it would take ``<b>`` and ``&`` in a name for markup.

    >>> plain("<b>R&D")
    '&lt;b&gt;R&amp;D'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def shorten(text: str, most: int = 14) -> str:
    """A long name cut for an axis; tables have it whole."""
    return text if len(text) <= most else text[: most - 1] + "…"


def axis(title: str, **more: Any) -> Json:
    """An axis with a title and as little ink as will do."""
    return {"title": {"text": title, "standoff": 8}, "automargin": True, "zeroline": False, **more}


def plot(title: str, traces: list[Json], x: Json, y: Json, height: int = 300, label: str = "", **layout: Any) -> Json:
    """A panel drawn by plotly."""
    full = {
        "xaxis": x,
        "yaxis": y,
        "height": height,
        "margin": {"l": 48, "r": 12, "t": 8, "b": 44},
        "showlegend": False,
        "hovermode": "closest",
        "font": {"size": 12},
        **layout,
    }
    panel = {"kind": "plot", "title": title, "data": traces, "layout": full}
    return {**panel, "label": label} if label else panel


def heat(
    title: str, cells: list[list[float | None]], rows: list[str], columns: list[str], label: str, corner: str
) -> Json:
    """A panel that is a coloured table: the numbers are the chart. Cells are percentages."""
    return {"kind": "heat", "title": title, "cells": cells, "rows": rows, "columns": columns, "label": label,
            "corner": corner}  # fmt: skip


def rounded(value: float | None, digits: int = 4) -> float | None:
    """For JSON: fewer digits, and None for what is not known."""
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), digits)


def percent(value: float | None, digits: int = 2) -> float | None:
    """A fraction as a percentage, for JSON."""
    return rounded(None if value is None else 100 * value, digits)


def error_bars(values: Sequence[Estimate]) -> Json:
    """Intervals as plotly's error bars, in percent."""
    return {"type": "data", "array": [percent(v.half) or 0 for v in values], "thickness": 1, "width": 3,
            "color": "#808080"}  # fmt: skip


def known(values: Sequence[Estimate]) -> bool:
    """Whether there is anything to draw."""
    return any(value.known for value in values)


NO_SHIFT = (
    "No run here was evaluated on shifted images. Runs do so by default; if they were made with "
    "--ood-every never, run them again with --ood-every stage."
)
