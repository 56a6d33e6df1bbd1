"""Tables in terminals of any width."""

import io

import pytest
from fabricated_runs import make_run
from rich.console import Console

from acr.report import screen
from acr.report.columns import NAMES, print_summary, summary_rows
from acr.runs.run import load_run


@pytest.fixture
def at_width(monkeypatch, capsys):
    """Print as in a terminal of a width; returns the lines."""

    def printed(width, function, *arguments):
        file = io.StringIO()
        terminal = Console(file=file, width=width, highlight=False, force_terminal=True, color_system=None)
        monkeypatch.setattr(screen, "Console", lambda **keywords: terminal)
        function(*arguments)
        return file.getvalue().splitlines()

    return printed


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    return [load_run(make_run(out, method, seed)) for method in ("acr", "finetune") for seed in (0, 1)]


@pytest.mark.parametrize("width", [200, 120, 80, 60, 48])
def test_every_number_of_a_summary_is_whole(width, runs, at_width):
    lines = at_width(width, print_summary, runs)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    _, rows = summary_rows(runs)
    words = " ".join(lines).split()
    for row in rows:
        for number in row[NAMES:]:
            assert number in words
    if width == 120:
        assert len(lines) == 2 + len(runs)  # one part: headings of two lines, and a line per run
    if width == 80:
        below = lines[lines.index("") + 1 :]
        assert below[2].split()[0:3:2] == ["acr", "0"]  # each part says which run a line is: method, buffer, seed


def test_long_names_are_folded_rather_than_numbers(runs, at_width):
    rows = [["acr", "folder:/a/rather/long/path/to/photographs", "12.3", "45.6"]]
    lines = at_width(40, screen.print_columns, ["method", "data set", "ACC %", "BWT %"], rows, 2)
    assert max(map(len, lines)) <= 40
    first = lines[1 : lines.index("")]
    assert "".join(line[8:].split()[0] for line in first) == rows[0][1]
    assert "12.3" in " ".join(lines).split()
    assert "45.6" in " ".join(lines).split()


def test_a_pipe_gets_every_column_on_one_line(runs, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    print_summary(runs)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(runs)
    assert lines[2].split() == summary_rows(runs)[1][0]
