"""One table in every format."""

import csv
import io

import pytest
from rich.console import Console
from scipy import stats

from acr.report.formats import legend, mean_and_interval, print_table, to_csv, to_markdown
from acr.report.latex import document, table_environments
from acr.report.tables import Cell, ResultTable


def small_table():
    table = ResultTable("t", "Accuracy (%)", [("i.i.d.", "ER"), ("i.i.d.", "A_B"), ("i.i.d.", "ACR")],
                       [("Split & more", "B = 5"), ("Split & more", "mean")], reference="ACR")  # fmt: skip
    rows = [({0: 20.0, 1: 22.0}, 25.0), ({}, 30.0), ({0: 30.0, 1: 31.0}, None)]
    for i, (values, known) in enumerate(rows):
        table.cells[i, 0] = Cell(values, known)
    table.notes.append("A note with 100 % & more_or_less.")
    return table.finish()


def test_markdown_csv_and_terminal_say_the_same(capsys):
    table = small_table()
    markdown = to_markdown(table)
    assert "| ACR | **30.50 (30.00, 31.00)** |" in markdown
    assert "| ER | <u>21.00 (20.00, 22.00)</u> |" in markdown
    assert "| A_B | missing |" in markdown
    assert "25.00 (-4.00)" in markdown
    assert "30.00 (missing)" in markdown
    p = stats.ttest_rel([20, 22], [30, 31]).pvalue
    assert f"{p:.3f}" in markdown
    rows = list(csv.DictReader(io.StringIO(to_csv([("sound", table)]))))
    assert [row["rank"] for row in rows] == ["2", "", "1"]
    assert rows[0] | {"mean": "21", "printed": "25", "difference": "-4", "seeds": "2"} == rows[0]
    assert rows[1]["mean"] == ""
    assert float(rows[0]["p_against_reference"]) == pytest.approx(p, rel=1e-4)
    for width in (200, 30):
        console = Console(width=width, highlight=False, record=True, file=io.StringIO())
        print_table(table, console)
        text = console.export_text()
        assert "30.50 (30.00, 31.00)" in text
        assert "missing" in text
        assert "1 of 3 cells are missing" in " ".join(text.split())


def test_two_seeds_have_their_values_and_three_an_interval():
    table = ResultTable("t", "A", [("g", "one"), ("g", "two"), ("g", "three")], [("", "x")])
    for row, values in enumerate(([70.0], [72.0, 92.0], [1.0, 2.0, 3.0])):
        table.cells[row, 0] = Cell(dict(enumerate(values)))
    words = [mean_and_interval(table, table.cells[row, 0]) for row in range(3)]
    half = stats.t.ppf(0.975, 2) * 1.0 / 3**0.5
    assert words == ["70.00", "82.00 (72.00, 92.00)", f"2.00 ±{half:.2f}"]
    assert "±" not in legend(small_table())[0]  # two seeds everywhere
    assert "in brackets the values of two seeds" in legend(small_table())[0]


def test_no_number_is_cut_however_narrow_the_terminal():
    columns = [(f"data set {g}", f"B = {b}") for g in range(2) for b in (200, 500, 2000)]
    table = ResultTable("t", "A", [("g", "ACR"), ("g", "ER")], columns)
    for row in range(2):
        for column in range(6):
            table.cells[row, column] = Cell({0: 10.0 + row + column, 1: 11.5 + row + column, 2: 12.25 + row})
    for width in (200, 80, 40, 24):
        console = Console(width=width, highlight=False, record=True, file=io.StringIO())
        print_table(table, console)
        text = console.export_text()
        assert "…" not in text
        for cell in table.cells.values():
            assert mean_and_interval(table, cell) in text
        assert max(map(len, text.splitlines())) <= width


def test_latex_marks_and_escapes():
    text = table_environments(small_table())
    assert r"ACR & \textbf{30.50}\,{\scriptsize(30.00, 31.00)} &" in text
    assert r"ER & \underline{21.00}" in text
    assert r"A\_B & missing" in text
    assert r"\multicolumn{2}{c}{Split \& more}" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 3


def test_document_includes_tables_and_figures():
    text = document(["acc"], "ACC & more", ["acc.pdf"])
    assert r"\input{acc}" in text
    assert r"\includegraphics[width=\linewidth]{acc.pdf}" in text
    assert r"ACC \& more" in text
