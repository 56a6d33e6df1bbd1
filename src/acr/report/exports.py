"""The figures of a report for other programs: CSV files in long form, and tables for LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from acr.report.charts import PANELS
from acr.report.estimates import Estimate
from acr.report.groups import Gathered, Group, Setting
from acr.report.tables import COLUMNS
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
    if isinstance(cell, float) and math.isnan(cell):
        return ""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell != "" else cell


def run_rows(gathered: Gathered) -> tuple[list[str], list[list[Any]]]:
    """A row a run, with its whole summary."""
    pairs = [(g, run, summary) for g in gathered.groups for run, summary in zip(g.runs, g.summaries, strict=True)]
    names = list(dict.fromkeys(name for *_, summary in pairs for name in summary if name not in PLACE))
    rows = [[*place_of(g), run.folder.name, *(s.get(name, "") for name in names)] for g, run, s in pairs]
    return [*PLACE, "folder", *names], rows


def overview_rows(gathered: Gathered) -> tuple[list[str], list[list[Any]]]:
    """A row a group: mean and half the 95 % interval of every figure of the overview."""
    heads = [*PLACE, "seeds", *(part for name in COLUMNS for part in (name, f"{name}_half_interval"))]
    rows = []
    for group in gathered.groups:
        values = [group.figure(name) for name in COLUMNS]
        rows.append([*place_of(group), len(group.runs), *(part for v in values for part in (v.mean, v.half))])
    return heads, rows


def matrix_rows(gathered: Gathered) -> Iterable[list[Any]]:
    """A row a cell of every accuracy matrix that was measured."""
    for group in gathered.groups:
        for run in group.runs:
            for scenario, matrix in run.accuracy.items():
                for i, row in enumerate(matrix.tolist()):
                    for j, value in enumerate(row):
                        if not math.isnan(value):
                            yield [*place_of(group), run.results.seed, scenario, i + 1, j + 1, value]


def stage_rows(gathered: Gathered) -> Iterable[list[Any]]:
    """A row a point of the eight stage panels."""
    for group in gathered.groups:
        for scenario, images in (("clean", "clean"), ("ood", "shifted")):
            for title, *_, reduce in PANELS:
                for place, value in enumerate(group.estimates(scenario, reduce)):
                    if value.known:
                        yield [*place_of(group), images, title, place + 1, value.mean, value.half, value.n]


# --- LaTeX ------------------------------------------------------------------------------------------------------------

SPECIAL = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
           "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}  # fmt: skip


def latex(text: str) -> str:
    """Text for LaTeX.

    >>> latex("50_% & more")
    '50\\\\_\\\\% \\\\& more'
    """
    return "".join(SPECIAL.get(character, character) for character in text)


def write_latex(gathered: Gathered, folder: Path) -> None:
    """A table a figure (``acc.tex``, ``bwt.tex``, and shifted): methods by settings; best bold, second underlined."""
    for name, title in (("acc", "ACC"), ("bwt", "BWT"), ("ood_acc", "ACC under shift"), ("ood_bwt", "BWT under shift")):
        text = latex_table(gathered, name, title)
        if text:
            files.write_text(folder / f"{name}.tex", text)


def latex_table(gathered: Gathered, name: str, title: str) -> str:
    """One table, in percent; empty if nobody has the figure. Needs the package booktabs."""
    settings = [s for s in gathered.settings if any(group.figure(name).known for group in s.groups)]
    if not settings:
        return ""
    columns = [latex_column(setting, name) for setting in settings]
    heads = " & ".join(latex(setting.name.replace(" · ", ", ")) for setting in settings)
    lines = [
        f"% {title} in percent, mean and half the 95 % interval over seeds",
        rf"\begin{{tabular}}{{l{'r' * len(settings)}}}",
        r"\toprule",
        rf"method & {heads} \\",
        r"\midrule",
    ]
    for label in gathered.labels:
        cells = [column.get(label, "") for column in columns]
        if any(cells):
            lines.append(rf"{latex(label)} & {' & '.join(cell or '--' for cell in cells)} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def latex_column(setting: Setting, name: str) -> dict[str, str]:
    """The cells of one setting by label."""
    values = {group.label: group.figure(name) for group in setting.groups}
    contenders = {group.label for group in setting.contenders}
    ranked = sorted({round(v.mean, 6) for label, v in values.items() if v.known and label in contenders}, reverse=True)
    cells = {}
    for label, value in values.items():
        if not value.known:
            continue
        place = ranked.index(round(value.mean, 6)) if len(ranked) > 1 and label in contenders else 2
        cells[label] = latex_cell(value, {0: r"\mathbf", 1: r"\underline"}.get(place, ""))
    return cells


def latex_cell(value: Estimate, mark: str = "") -> str:
    """A figure in percent with its interval, the figure marked.

    >>> latex_cell(Estimate(-0.123, 0.01, 3), "X")
    '$X{-12.3} \\\\pm 1.0$'
    """
    half = "" if math.isnan(value.half) else rf" \pm {100 * value.half:.1f}"
    return f"${mark}{{{100 * value.mean:.1f}}}{half}$"
