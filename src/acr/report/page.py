"""A page: one self-contained HTML file about a set of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader

from acr import files
from acr.experiments.records import Run
from acr.report.tables import summary_rows


def write_page(runs: Sequence[Run], path: Path) -> Path:
    """Write the page and return its path. Names that came from outside are escaped."""
    environment = Environment(loader=PackageLoader("acr.report"), autoescape=True)
    heads, rows = summary_rows(runs)
    matrices = []
    for run in runs:
        for scenario in ("clean", "ood"):
            if scenario in run.accuracy:
                cells = [[None if math.isnan(a) else 100 * float(a) for a in row] for row in run.accuracy[scenario]]
                matrices.append({"method": run.results["method"], "scenario": scenario, "rows": cells})
    files.write_text(path, environment.get_template("page.html").render(heads=heads, rows=rows, matrices=matrices))
    return path
