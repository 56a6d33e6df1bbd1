"""Charts of what runs cost, drawn from their events: time, memory, throughput, and the loss beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from acr.report.charts.parts import Json, Variant, axis, plain, plot, rounded
from acr.report.groups import Comparison, Group
from acr.report.style import Look
from acr.report.wording import number, with_interval
from acr.runs.run import Run

POINTS = 120
"""Points of a line; a longer series is thinned evenly."""
SERIES = (
    ("loss", "loss", "loss", 3),
    ("images_per_second", "throughput", "images per second", 0),
    ("rss_mib", "memory of the process", "MiB", 0),
    ("gpu_mib", "memory of the GPU, peak", "MiB", 0),
    ("cpu_percent", "CPU use (100 % is one core)", "%", 0),
)
"""Name in the events, title, unit, digits."""


def step_series(events: Sequence[dict[str, Any]]) -> tuple[list[int], dict[str, list[float | None]]]:
    """Steps taken and what was read at each. A step that was taken again after an interruption counts once."""
    readings: dict[int, dict[str, Any]] = {}
    for place, event in enumerate(e for e in events if e.get("event") == "step"):
        readings[int(event.get("taken", place))] = event
    steps = sorted(readings)
    if len(steps) > POINTS:
        steps = [steps[round(i * (len(steps) - 1) / (POINTS - 1))] for i in range(POINTS)]
    names = [name for name, *_ in SERIES]
    return steps, {name: [as_number(readings[step].get(name)) for step in steps] for name in names}


def as_number(value: Any) -> float | None:
    """A reading, if it is one."""
    return float(value) if isinstance(value, int | float) else None


def read_series(run: Run) -> tuple[list[int], dict[str, list[float | None]]]:
    """The series of a run; none if its events cannot be read."""
    try:
        return step_series(list(run.events()))
    except Exception:  # an events file is the least of a run
        return [], {}


def series_panels(
    lines: Sequence[tuple[str, str, list[int], dict[str, list[float | None]]]], looks: dict[str, Look]
) -> list[Json]:
    """A panel for each kind of reading that anyone has; ``lines``: label, name, steps, readings."""
    panels = []
    for name, title, unit, digits in SERIES:
        traces = []
        for label, run_name, steps, readings in lines:
            values = readings.get(name, [])
            if all(value is None for value in values):
                continue
            look = looks[label]
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "meta": label,
                    "name": plain(run_name),
                    "x": steps,
                    "y": [rounded(value, digits) for value in values],
                    "line": {"color": look.color, "dash": look.dash, "width": 1.5},
                    "opacity": 0.85,
                    "hovertemplate": "%{fullData.name}<br>step %{x}: %{y}<extra></extra>",
                }
            )
        if traces:
            panels.append(plot(title, traces, axis("step"), axis(unit, rangemode="tozero"), 240))
    return panels


def cost(comparison: Comparison, looks: dict[str, Look]) -> Variant:
    """Running time as bars, then what was read along the way, one line per method (the run of its lowest seed)."""
    heads = ["method", "seconds", "images per second", "peak MiB", "parameters", "memory holds"]
    variant = Variant(heads=heads)
    lines, bars = [], []
    for group in comparison.groups:
        steps, readings = read_series(group.runs[0])
        lines.append((group.label, f"{group.label}, seed {group.seeds[0]}", steps, readings))
        variant.rows.append(cost_row(group, readings))
        seconds = group.estimate("seconds")
        bars.append(
            {
                "type": "bar",
                "orientation": "h",
                "meta": group.label,
                "name": plain(group.label),
                "x": [rounded(seconds.mean, 1)],
                "y": [plain(group.label)],
                "text": [with_interval(seconds)],
                "textposition": "auto",
                "insidetextanchor": "end",
                "marker": {"color": looks[group.label].color},
                "hovertemplate": "%{fullData.name}: %{text} s<extra></extra>",
            }
        )
    height = 70 + 26 * len(bars)
    across = axis("seconds, mean over seeds", rangemode="tozero")
    time = plot("running time", bars, across, axis("", autorange="reversed"), max(240, height), barmode="overlay")
    variant.panels = [time, *series_panels(lines, looks)]
    if len(variant.panels) == 1:
        variant.note = "The runs hold no readings along the way (events.jsonl), so only the time is shown."
    return variant


def cost_row(group: Group, readings: dict[str, list[float | None]]) -> list[str]:
    """One line of the table of costs."""
    speed = [value for value in readings.get("images_per_second", []) if value is not None]
    held = [v for name in ("rss_mib", "gpu_mib") for v in readings.get(name, []) if v is not None]
    results = group.runs[0].results
    size = results.memory.bytes + results.memory.side_bytes
    return [
        group.label,
        with_interval(group.estimate("seconds")),
        number(sum(speed) / len(speed), 0) if speed else "–",
        number(max(held), 0) if held else "–",
        f"{results.parameters:,}",
        f"{size / 1024:,.1f} KiB" if size else "–",
    ]
