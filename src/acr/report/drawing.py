"""What all figures for papers share: matplotlib's settings, the file formats, and how a figure is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from acr.storage import files

FORMATS = ("pdf", "png", "svg")
SETTINGS: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 7.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "acr",
    "text.parse_math": False,
}
"""Small type for a column of print; text stays text; a name with a dollar sign is no formula."""


@contextmanager
def settings() -> Iterator[None]:
    """Draw with our settings; the user's are back afterwards."""
    import matplotlib

    with matplotlib.rc_context(SETTINGS):
        yield


def new_figure(width: float, height: float) -> Any:
    """An empty figure, in inches, made without pyplot: it touches neither the user's figures nor their windows."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, path: Path) -> list[Path]:
    """Write a figure in all formats as ``path`` plus the format's ending; returns the files.

    No date is stored, so that the same numbers give the same file.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout is found; finding it again for each format only takes time
    written = []
    for kind in FORMATS:
        target = path.with_name(f"{path.name}.{kind}")
        dateless = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
        files.write_atomically(target, partial(figure.savefig, format=kind, dpi=200, metadata=dateless))
        written.append(target)
    return written
