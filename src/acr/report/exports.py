"""The numbers of a report for other programs: CSV files in long form, and tables for LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from acr.report import latex
from acr.report.charts.stages import PANELS
from acr.report.columns import COLUMNS
from acr.report.groups import Gathered, Group
from acr.report.tables import Cell, ResultTable
from acr.storage import files

PLACE = ("label", "method", "dataset", "buffer_size", "protocol")


def write_csv(gathered: Gathered, folder: Path) -> None:
    """``runs``, ``overview``, ``matrices`` and ``stages``. Accuracies are fractions, as in the runs."""
    write_rows(folder / "runs.csv", *run_rows(gathered))
    write_rows(folder / "overview.csv", *overview_rows(gathered))
    write_rows(
        folder / "matrices.csv",
        [*PLACE, "seed", "scenario", "after_task", "on_task", "accuracy"],
        matrix_rows(gathered),
    )
    write_rows(
        folder / "stages.csv",
        [*PLACE, "images", "figure", "place", "mean", "half_interval", "seeds"],
        stage_rows(gathered),
    )


def place_of(group: Group) -> list[Any]:
    """The columns that say which group a row is about."""
    return [group.label, group.method, *group.place]


def write_rows(path: Path, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A CSV file, whole or not at all. A name that a spreadsheet would take for a formula gets a quote before it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([harmless(cell) for cell in row] for row in rows)
    files.write_text(path, text.getvalue())


def harmless(cell: Any) -> Any:
    """Text that no spreadsheet runs; a number that is not known is an empty cell.

    >>> harmless("=1+1"), harmless(math.nan), harmless(-0.5)
    ("'=1+1", '', -0.5)
    """
    if isinstance(cell, float) and not math.isfinite(cell):
        return ""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell != "" else cell


def run_rows(gathered: Gathered) -> tuple[list[str], list[list[Any]]]:
    """One row per run, with its whole summary."""
    pairs = [(g, run, summary) for g in gathered.groups for run, summary in zip(g.runs, g.summaries, strict=True)]
    names = list(dict.fromkeys(name for *_, summary in pairs for name in summary if name not in PLACE))
    rows = [[*place_of(g), run.folder.name, *(s.get(name, "") for name in names)] for g, run, s in pairs]
    return [*PLACE, "folder", *names], rows


def overview_rows(gathered: Gathered) -> tuple[list[str], list[list[Any]]]:
    """One row per group: mean and half the 95 % interval of every number of the overview."""
    heads = [*PLACE, "seeds", *(part for name in COLUMNS for part in (name, f"{name}_half_interval"))]
    rows = []
    for group in gathered.groups:
        values = [group.estimate(name) for name in COLUMNS]
        rows.append([*place_of(group), len(group.runs), *(part for v in values for part in (v.mean, v.half))])
    return heads, rows


def matrix_rows(gathered: Gathered) -> Iterable[list[Any]]:
    """One row per measured cell of every accuracy matrix."""
    for group in gathered.groups:
        for run in group.runs:
            for scenario, matrix in run.accuracy.items():
                for i, row in enumerate(matrix.tolist()):
                    for j, value in enumerate(row):
                        if not math.isnan(value):
                            yield [*place_of(group), run.results.seed, scenario, i + 1, j + 1, value]


def stage_rows(gathered: Gathered) -> Iterable[list[Any]]:
    """One row per point of the eight stage panels."""
    for group in gathered.groups:
        for scenario, images in (("clean", "clean"), ("ood", "shifted")):
            for title, *_, reduce in PANELS:
                for place, value in enumerate(group.estimates(scenario, reduce)):
                    if value.known:
                        yield [*place_of(group), images, title, place + 1, value.mean, value.half, value.n]


# --- LaTeX ------------------------------------------------------------------------------------------------------------

LATEX = {"acc": "ACC", "bwt": "BWT", "ood_acc": "ACC under shift", "ood_bwt": "BWT under shift"}
"""Numbers that get a LaTeX table, and what its comment calls them."""


def write_latex(gathered: Gathered, folder: Path) -> None:
    """One tabular per number (``acc.tex``, ``bwt.tex``, and shifted): methods by comparisons, in percent."""
    for name, title in LATEX.items():
        table = comparison_table(gathered, name, title)
        if table.cells:
            comment = f"% {title} in percent, mean and half the 95 % interval over seeds"
            files.write_text(folder / f"{name}.tex", f"{comment}\n{latex.tabular(table)}\n")


def comparison_table(gathered: Gathered, name: str, title: str) -> ResultTable:
    """A number of the summaries: one row per label, one column per comparison; without cells if nobody has it."""
    comparisons = [c for c in gathered.comparisons if any(group.estimate(name).known for group in c.groups)]
    bounds = frozenset(group.label for group in gathered.groups if group.is_bound)
    labels = [x for x in gathered.labels if any(g.label == x and g.estimate(name).known for g in gathered.groups)]
    columns = [(c.dataset, f"{c.buffer_in_words}, {c.protocol}") for c in comparisons]
    table = ResultTable(name, title, [("", label) for label in labels], columns, digits=1, unranked=bounds)
    for column, comparison in enumerate(comparisons):
        for group in comparison.groups:
            if group.label in labels:
                numbers = zip(group.seeds, group.summaries, strict=True)
                by_seed = {seed: 100 * float(summary.get(name, math.nan)) for seed, summary in numbers}
                known = {seed: value for seed, value in by_seed.items() if not math.isnan(value)}
                table.cells[labels.index(group.label), column] = Cell(known)
    return table.finish()
