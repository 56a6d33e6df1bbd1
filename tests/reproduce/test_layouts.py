"""The paper's layouts on made-up runs, with numbers that can be checked by hand."""

import math

import pytest
from hand_worked_runs import fabricate, fill, make_planned
from scipy import stats

from acr.report.formats import to_markdown
from acr.reproduce.cells import PlannedRun, printed
from acr.reproduce.layouts import LAYOUTS, readings
from acr.reproduce.plan import make_plan, names, write_reproduction
from acr.runs.resolve import make_config
from acr.runs.run import load_run
from acr.runs.writer import folder_name

FIGURES = {"stages", "sensitivity", "ood", "time", "resources"}


def cell(table, row, column, group=""):
    i = table.rows.index((group, row)) if group else [label for _, label in table.rows].index(row)
    return table.cells[i, table.columns.index(column)]


def test_acc_and_bwt_tables_by_hand(tmp_path):
    samples = [
        make_planned(tmp_path, "acr", 0, 0.300, drop=0.4, ood=0.10),
        make_planned(tmp_path, "acr", 1, 0.320, drop=0.5, ood=0.12),
        make_planned(tmp_path, "acr", 0, 0.400, buffer_size=1000, ood=0.20),
        make_planned(tmp_path, "acr", 1, 0.440, buffer_size=1000, ood=0.20),
        make_planned(tmp_path, "er", 0, 0.200, drop=0.6, ood=0.15),
        make_planned(tmp_path, "er", 1, 0.210, drop=0.6, ood=0.15),
        make_planned(tmp_path, "gem", 0, 0.100),
        PlannedRun(
            make_config({"method": "er", "dataset": "split-cifar100", "buffer_size": 1000, "out": tmp_path}), None
        ),
    ]
    (acc,) = LAYOUTS["acc"](samples)
    place, iid, ood = ("Split CIFAR-100", "B = 500"), "i.i.d.", "OOD"
    ours = cell(acc, "ACR", place, iid)
    assert ours.mean == pytest.approx(31.0)
    assert ours.over_seeds.each == pytest.approx((30.0, 32.0))  # too few for an interval, so what each seed gave
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
    one = make_planned(tmp_path / "a", "acr", 0, 0.3, buffer_size=1000, per_class=[2, 2, 4, 4], per_task=[4, 8])
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
    (table,) = LAYOUTS["stages"]([make_planned(tmp_path, "acr", 0, 0.3, drop=0.4, ood=0.1, buffer_size=1000)])
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
    er = make_planned(tmp_path, "er", 0, 0.3, buffer_size=2000, seconds=3600.0, readings=steps)
    gem = make_planned(tmp_path, "gem", 0, 0.3, buffer_size=2000, seconds=9000.0)
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
