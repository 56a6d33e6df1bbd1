"""The paper's layouts on made-up runs, with numbers that can be checked by hand."""

import csv
import io
import math
import shutil
import subprocess

import numpy as np
import pytest
from hand_worked_runs import fabricate
from rich.console import Console
from scipy import stats

from acr.cli import main
from acr.report.formats import print_table, to_csv, to_markdown
from acr.report.latex import document, table_environments
from acr.report.statistics import estimate, paired_p
from acr.report.tables import Cell, ResultTable, mean_cell
from acr.reproduce.cells import PlannedRun, printed
from acr.reproduce.figures import interval, shown_seeds
from acr.reproduce.layouts import LAYOUTS, readings
from acr.reproduce.plan import RECIPES, Plan, find_planned_runs, make_plan, names, write_reproduction
from acr.runs.resolve import make_config
from acr.runs.run import load_run
from acr.runs.writer import folder_name
from acr.sweeps.recipe import find_recipe

FIGURES = {"stages", "sensitivity", "ood", "time", "resources"}


def make(out, method, seed, final, *, dataset="split-cifar100", buffer_size=500, **made_up):
    config = make_config({"method": method, "dataset": dataset, "buffer_size": buffer_size, "seed": seed, "out": out})
    fabricate(config, final, **made_up)
    return PlannedRun(config, load_run(out / folder_name(config)))


def cell(table, row, column, group=""):
    i = table.rows.index((group, row)) if group else [label for _, label in table.rows].index(row)
    return table.cells[i, table.columns.index(column)]


def fill(plan, skip=lambda config: False):
    """A made-up run for every run a reproduction asks for."""
    for number, config in enumerate(plan.all_configs()):
        if not skip(config) and not (config.out / folder_name(config)).exists():
            steps = [{"task": t, "epoch": e, "step": 0, "cpu_percent": 100.0, "rss_mib": 500.0 + t, "seconds": 1.0}
                     for t in range(3) for e in range(2)]  # fmt: skip
            fabricate(config, 0.3 + number % 7 / 100, ood=0.2 + number % 5 / 100, per_class=[3, 4, 5, 4, 4, 4],
                      per_task=[7, 9, 8], seconds=10.0 + number, readings=steps)  # fmt: skip


# --- statistics -------------------------------------------------------------------------------------------------------


def test_interval_and_paired_test_by_hand():
    values = [29.0, 31.0, 30.5]
    assert estimate(values).half == pytest.approx(4.303 * np.std(values, ddof=1) / math.sqrt(3), rel=1e-3)
    assert math.isnan(estimate([1.0]).half)
    ours, theirs = {0: 30.0, 1: 31.0, 2: 35.0, 9: 1.0}, {0: 29.0, 1: 28.0, 2: 33.0, 7: 5.0}
    d = np.array([1.0, 3.0, 2.0])  # the seeds both have
    t = d.mean() / (d.std(ddof=1) / math.sqrt(3))
    assert paired_p(ours, theirs) == pytest.approx(2 * stats.t.sf(t, 2))
    assert paired_p(ours, theirs) == pytest.approx(stats.ttest_rel([30, 31, 35], [29, 28, 33]).pvalue)
    assert math.isnan(paired_p({0: 1.0}, {0: 2.0}))
    assert math.isnan(paired_p({0: 0.1 + 0.2, 1: 1.3}, {0: 0.3, 1: 1.3}))  # rounding is no spread


def test_means_of_cells_go_seed_by_seed():
    both = mean_cell([Cell({0: 10.0, 1: 20.0}, printed=15.0), Cell({0: 30.0, 2: 40.0}, printed=25.0)])
    assert both.by_seed == {0: 20.0}
    assert both.printed == 20.0
    assert mean_cell([Cell({0: 1.0}, printed=1.0), Cell({0: 1.0})]).printed is None


def test_ranks_follow_what_is_shown():
    table = ResultTable("t", "t", [("", name) for name in "abcde"], [("", "x")])
    for i, value in enumerate([10.001, 10.0, 12.0, 3.0]):
        table.cells[i, 0] = Cell({0: value})
    table.cells[4, 0] = Cell({})
    assert [table.finish().cells[i, 0].rank for i in range(5)] == [2, 2, 1, 0, 0]  # 10.00 and 10.00 are equal
    table.better = "lower"
    assert [table.finish().cells[i, 0].rank for i in range(5)] == [2, 2, 0, 1, 0]


# --- numbers in their places ------------------------------------------------------------------------------------------


def test_acc_and_bwt_tables_by_hand(tmp_path):
    samples = [
        make(tmp_path, "acr", 0, 0.300, drop=0.4, ood=0.10),
        make(tmp_path, "acr", 1, 0.320, drop=0.5, ood=0.12),
        make(tmp_path, "acr", 0, 0.400, buffer_size=1000, ood=0.20),
        make(tmp_path, "acr", 1, 0.440, buffer_size=1000, ood=0.20),
        make(tmp_path, "er", 0, 0.200, drop=0.6, ood=0.15),
        make(tmp_path, "er", 1, 0.210, drop=0.6, ood=0.15),
        make(tmp_path, "gem", 0, 0.100),
        PlannedRun(
            make_config({"method": "er", "dataset": "split-cifar100", "buffer_size": 1000, "out": tmp_path}), None
        ),
    ]
    (acc,) = LAYOUTS["acc"](samples)
    place, iid, ood = ("Split CIFAR-100", "B = 500"), "i.i.d.", "OOD"
    ours = cell(acc, "ACR", place, iid)
    assert ours.mean == pytest.approx(31.0)
    assert ours.half_width == pytest.approx(12.706 * 1.0, rel=1e-4)  # t(1) times the standard error of 30 and 32
    assert (ours.printed, ours.rank) == (29.27, 1)
    assert ours.difference == pytest.approx(1.73)
    assert cell(acc, "ER", place, iid).rank == 2
    assert cell(acc, "ER", place, iid).p == pytest.approx(stats.ttest_rel([20, 21], [30, 32]).pvalue)
    assert math.isnan(cell(acc, "GEM", place, iid).p)  # one seed
    assert cell(acc, "ER", place, ood).rank == 1  # ranks are of each block
    assert cell(acc, "ACR", place, ood).mean == pytest.approx(11.0)
    assert cell(acc, "GEM", place, ood).missing  # not evaluated under shift
    assert cell(acc, "ER", ("Split CIFAR-100", "B = 1000"), iid).missing
    assert cell(acc, "ER", ("Split CIFAR-100", "mean"), iid).missing  # a mean over half the columns would mislead
    assert cell(acc, "ACR", ("Split CIFAR-100", "mean"), iid).by_seed == pytest.approx({0: 35.0, 1: 38.0})
    assert cell(acc, "ACR", ("all", "mean"), iid).printed == pytest.approx((29.27 + 36.06) / 2)

    (bwt,) = LAYOUTS["bwt"](samples)
    assert cell(bwt, "ACR", place, iid).mean == pytest.approx(-45.0)
    assert cell(bwt, "ACR", place, iid).rank == 2  # GEM, at -20, is first: the highest is the best
    assert cell(bwt, "ER", place, iid).mean == pytest.approx(-60.0)


def test_balance_policies_and_sensitivity_by_hand(tmp_path):
    one = make(tmp_path / "a", "acr", 0, 0.3, buffer_size=1000, per_class=[2, 2, 4, 4], per_task=[4, 8])
    (balance,) = LAYOUTS["balance"]([one])
    assert cell(balance, "ACR", ("CV", "classes")).mean == pytest.approx(100 / 3)
    assert cell(balance, "ACR", ("CV", "tasks")).printed == 0

    def policy(name, seed, final, **options):
        values = {"method": "acr", "dataset": "split-cifar100", "buffer_size": 500, "seed": seed, "policy": name}
        config = make_config({**values, **options, "out": tmp_path / "b"})
        fabricate(config, final, ood=final / 2)
        return PlannedRun(config, load_run(config.out / folder_name(config)))

    samples = [policy("reservoir", 0, 0.2), policy("hard", 0, 0.1), policy("challenging", 0, 0.3)]
    (table,) = LAYOUTS["policies"](samples)
    reservoir = cell(table, "Reservoir", ("ACC", "i.i.d."))
    assert (reservoir.mean, reservoir.printed, reservoir.rank) == (pytest.approx(20.0), 23.34, 2)
    assert cell(table, "Hard", ("ACC", "OOD")).mean == pytest.approx(5.0)

    samples += [
        policy("challenging", 0, 0.25, confidence_epochs=1),
        policy("challenging", 0, 0.35, confidence_epochs=10),
    ]
    (table,) = LAYOUTS["sensitivity"]([s for s in samples if s.option("policy") != "hard"])
    assert [label for _, label in table.rows] == ["E = 1", "E = 5", "E = 10", "Reservoir"]
    column = ("Split CIFAR-100", "ACC i.i.d.")
    assert cell(table, "E = 5", column).mean == pytest.approx(30.0)  # nothing said is 5
    assert cell(table, "E = 5", column).printed == 29.27
    assert cell(table, "Reservoir", column).printed == 23.34
    assert cell(table, "E = 10", column).rank == 1


def test_stages_by_hand(tmp_path):
    (table,) = LAYOUTS["stages"]([make(tmp_path, "acr", 0, 0.3, drop=0.4, ood=0.1, buffer_size=1000)])
    groups = list(dict.fromkeys(group for group, _ in table.rows))
    assert [group[:3] for group in groups] == [f"({letter})" for letter in "abcdefgh"]

    def line(letter):
        group = next(group for group in groups if group.startswith(f"({letter})"))
        i = table.rows.index((group, "ACR"))
        return {j + 1: round(table.cells[i, j].mean, 6) for j in range(3) if (i, j) in table.cells}

    assert line("a") == {1: 30, 2: 30, 3: 30}
    assert line("b") == {1: 70, 2: 50, 3: 30}
    assert line("c") == {1: -40, 2: -40}
    assert line("d") == {2: -40, 3: -40}
    assert line("h") == {2: -10, 3: -10}


def test_time_and_resources_by_hand(tmp_path):
    steps = [{"task": t, "epoch": 0, "step": s, "cpu_percent": 50.0 + t, "rss_mib": 1000.0 * (t + 1), "seconds": 1.0}
             for t, s in [(0, 0), (0, 0), (0, 1), (1, 0)]]  # fmt: skip
    er = make(tmp_path, "er", 0, 0.3, buffer_size=2000, seconds=3600.0, readings=steps)
    gem = make(tmp_path, "gem", 0, 0.3, buffer_size=2000, seconds=9000.0)
    (table,) = LAYOUTS["time"]([er, gem])
    hours, ratio = ("running time", "hours"), ("running time", "times ER")
    assert (cell(table, "GEM", hours).mean, cell(table, "GEM", hours).printed) == (2.5, 20.42)
    assert cell(table, "GEM", ratio).mean == 2.5
    assert cell(table, "GEM", ratio).printed == pytest.approx(20.42 / 1.25)
    assert cell(table, "ER", hours).rank == 1

    # 64 training images a task in batches of 32 are 2 steps an epoch, so task 2 begins at step 2 x epochs.
    assert [event["at"] for event in readings(er)] == [0, 1, 2 * er.config.epochs]
    (table,) = LAYOUTS["resources"]([er, gem])
    assert cell(table, "ER", ("process memory", "GB")).mean == pytest.approx(2000 * 2**20 / 1e9)
    assert cell(table, "ER", ("CPU use", "%")).mean == pytest.approx(50.5)  # the first reading is the start-up
    assert cell(table, "GEM", ("CPU use", "%")).missing


# --- formats ----------------------------------------------------------------------------------------------------------


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
    assert "| ACR | **30.50 ±6.35** |" in markdown
    assert "| ER | <u>21.00 ±12.71</u> |" in markdown
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
        assert "30.50 ±6.35" in text
        assert "missing" in text
        assert "1 of 3 cells are missing" in " ".join(text.split())


def test_latex_marks_and_escapes():
    text = table_environments(small_table())
    assert r"ACR & \textbf{30.50}\,{\scriptsize$\pm$6.35} &" in text
    assert r"ER & \underline{21.00}" in text
    assert r"A\_B & missing" in text
    assert r"\multicolumn{2}{c}{Split \& more}" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 3


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="pdflatex is not there: apt install texlive-latex-recommended"
)
@pytest.mark.parametrize("name", names())
def test_latex_compiles(name, tmp_path):
    plan = make_plan(name, "full", "both" if name == "acc" else "sound", tmp_path)
    fill(plan, skip=lambda config: config.seed > 1 or config.method == "hal")
    written = write_reproduction(plan, tmp_path)
    (whole,) = [path for path in written.files if path.name.endswith("-document.tex")]
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", whole.name]
    done = subprocess.run(words, cwd=whole.parent, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:]
    assert whole.with_suffix(".pdf").stat().st_size > 10_000


def test_document_includes_tables_and_figures():
    text = document(["acc"], "ACC & more", ["acc.pdf"])
    assert r"\input{acc}" in text
    assert r"\includegraphics[width=\linewidth]{acc.pdf}" in text
    assert r"ACC \& more" in text


# --- the nine ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_every_cell_of_every_layout(name, tmp_path):
    plan = make_plan(name, "quick", "sound", tmp_path)
    fill(plan)
    done = write_reproduction(plan, tmp_path)
    assert sum(table.missing for _, table in done.tables) == 0
    kinds = sorted(path.name for path in done.files)
    expected = [f"{name}-document.tex", f"{name}.csv", f"{name}.md", f"{name}.tex"]
    if name in FIGURES:
        expected += [f"{name}.{kind}" for kind in ("pdf", "png", "svg")]
    assert kinds == sorted(expected)
    assert all(path.stat().st_size > 200 for path in done.files)
    assert "printed values do not apply" in (tmp_path / f"{name}-quick" / f"{name}.md").read_text()
    assert not any(table.has_printed for _, table in done.tables)


@pytest.mark.parametrize("name", names())
def test_nothing_but_missing_cells_where_nothing_was_run(name, tmp_path):
    done = write_reproduction(make_plan(name, "full", "sound", tmp_path), tmp_path)
    for _, table in done.tables:
        assert table.missing == len(table.cells) > 0
        assert "missing" in to_markdown(table)
        assert table.has_printed == (name != "stages")


def test_full_scale_layout_is_the_papers(tmp_path):
    ((_, table),) = write_reproduction(make_plan("acc", "full", "sound", tmp_path), tmp_path).tables
    assert len(table.rows) == 18
    assert len(table.columns) == 13
    known = [table.cells[17, j].printed for j in range(13)]  # ACR under shift
    assert known[0] == printed("main_results", "value", metric="acc", method="acr", scenario="ood",
                               dataset="split-cifar100", buffer_size=500)  # fmt: skip
    assert known[12] == pytest.approx(12.60, abs=0.01)
    assert any("published only" in note for note in table.notes)


def test_both_protocols_give_a_table_each(tmp_path):
    plan = make_plan("policies", "quick", "both", tmp_path)
    fill(plan)
    done = write_reproduction(plan, tmp_path)
    assert [protocol for protocol, _ in done.tables] == ["sound", "published"]
    assert "protocol published" in (tmp_path / "policies-quick" / "policies.md").read_text()


def test_the_same_runs_give_the_same_files(tmp_path):
    plan = make_plan("ood", "quick", "sound", tmp_path)
    fill(plan)
    first = {path: path.read_bytes() for path in write_reproduction(plan, tmp_path).files}
    assert first == {path: path.read_bytes() for path in write_reproduction(plan, tmp_path).files}


def test_samples_are_found_by_identity(tmp_path):
    configs = find_recipe("policies", RECIPES).at_scale("quick").expand(out=tmp_path / "runs")
    fill(Plan("policies", "quick", "", {"sound": configs[:3]}, None))
    assert [sample.run is not None for sample in find_planned_runs(configs)] == [True] * 3 + [False] * 5


def test_reproduce_command_on_finished_runs_has_nothing_to_do(tmp_path, capsys):
    fill(make_plan("policies", "quick", "sound", tmp_path))
    main(["reproduce", "policies", "--scale", "quick", "--out", str(tmp_path)])
    out = capsys.readouterr().out
    assert "8 of 8 runs finished (8 before this sweep), 0 failed" in out
    assert "Balanced Random" in out
    assert "policies.csv" in out


def test_compare_tells_config_result_task_and_corruption(tmp_path, capsys):
    first = make(tmp_path, "acr", 0, 0.30, ood=0.10).run.folder
    second = make(tmp_path, "er", 0, 0.35, ood=0.20).run.folder
    main(["compare", str(first), str(second)])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "method acr er" in lines
    assert "temperature 0.09 no such option" in lines
    assert "ACC % 30.0 35.0 +5.0" in lines
    assert lines.count("task 2 30.0 35.0 +5.0") == 1
    assert "fog/1 10.0 20.0 +10.0" in lines
    assert not any(line.startswith("out ") for line in lines)


def test_compare_refuses_what_is_not_finished(tmp_path, capsys):
    first = make(tmp_path, "acr", 0, 0.3).run.folder
    second = make(tmp_path, "er", 0, 0.3).run.folder
    (second / "results.json").unlink()
    with pytest.raises(SystemExit) as exit:
        main(["compare", str(first), str(second)])
    assert exit.value.code == 2
    assert "acr resume" in capsys.readouterr().err


def test_two_seeds_are_shown_as_dots_and_three_as_an_interval():
    """Student's t for two seeds is 12.7: such an interval would hide the figure."""
    one, two, three = (Cell(dict(enumerate(values))) for values in ([5.0], [1.0, 2.0], [1.0, 2.0, 3.0]))
    assert [interval(cell) for cell in (one, two)] == [None, None]
    assert interval(three) == pytest.approx(2.484, abs=1e-3)
    assert [shown_seeds(cell) for cell in (one, two, three)] == [[], [1.0, 2.0], []]
