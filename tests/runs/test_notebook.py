"""Runs in a notebook: what they look like, and their counts as a table."""

import math
import subprocess
import sys
import types
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from fabricated_runs import make_run

import acr
from acr.errors import InputError
from acr.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> acr.Run:
    return acr.load_run(make_run(tmp_path, "er", 3, tasks=3, corruptions=("fog", "snow"), severities=(1, 3)))


def change(run: acr.Run, **values: Any) -> acr.Run:
    """The run, opened again after fields of its config were changed."""
    path = run.folder / "config.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **values}))
    return acr.load_run(run.folder)


class Page(HTMLParser):
    """The tags and the texts of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_run_is_a_small_table(run: acr.Run) -> None:
    page = Page(run._repr_html_())
    figures = run.summary()
    acc, shifted = (f"{100 * figures[name]:.1f}" for name in ("acc", "ood_acc"))
    assert page.texts[:8] == ["method", "er", "data set", "split-digits", "buffer", "50", "seed", "3"]
    assert page.texts[8:13] == ["clean", "shifted", "ACC %", acc, shifted]
    assert page.texts[-2:] == ["folder", str(run.folder)]
    assert repr(run) == f"Run(er on split-digits, seed 3: ACC {acc} %, shifted {shifted} %; {str(run.folder)!r})"


def test_names_from_outside_are_shown_and_not_obeyed(run: acr.Run) -> None:
    hostile = change(run, dataset="folder:<script>alert(1)</script>\x1b[2J&amp;")
    page = Page(hostile._repr_html_())
    assert page.tags == {"table", "tr", "th", "td"}
    assert "folder:<script>alert(1)</script>\\x1b[2J&amp;" in page.texts
    assert "\x1b" not in repr(hostile)


def test_runs_that_are_not_finished_or_damaged_are_shown_too(tmp_path: Path) -> None:
    begun = acr.load_run(make_run(tmp_path, "er", finished=False))
    assert "not finished" in begun._repr_html_()
    assert "not finished" in repr(begun)
    damaged = make_run(tmp_path, "er", name="<b>bold")
    (damaged / "results.json").write_text("{torn")
    page = Page(acr.load_run(damaged)._repr_html_())
    assert page.tags == {"code"}
    assert "<b>bold" in "".join(page.texts)
    unmeasured = acr.load_run(make_run(tmp_path, "er", 9, tasks=1, classes_per_task=10, corruptions=()))
    assert Page(unmeasured._repr_html_()).texts.count("–") == 3, "shifted ACC and BWT, and the BWT of a single task"
    assert "shifted" not in repr(unmeasured)


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, Any]]]:
    """What was handed to pandas, which need not be there."""
    made: list[list[dict[str, Any]]] = []
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=lambda rows: made.append(rows) or rows))
    return made


def test_the_table_has_one_row_per_stage_scenario_and_task(run: acr.Run, frames: list[list[dict[str, Any]]]) -> None:
    rows = run.to_frame()
    assert frames == [rows]
    scenarios = ["clean", "fog/1", "fog/3", "snow/1", "snow/3"]
    assert [(row["stage"], row["scenario"], row["task"]) for row in rows] == [
        (stage, scenario, task) for stage in range(3) for scenario in scenarios for task in range(stage + 1)
    ]
    for row in rows:
        assert row["accuracy"] == run.accuracy[row["scenario"]][row["stage"], row["task"]]
        assert row["accuracy"] == row["correct"] / row["total"]
        counts = run.results.stages[row["stage"]].scenarios[row["scenario"]]
        for over in ("seen", "all", "task"):
            assert row[f"correct_{over}"] == sum(counts.correct[over][row["task"]])
        where = (None, None) if row["scenario"] == "clean" else tuple(row["scenario"].split("/"))
        assert (row["corruption"], row["severity"] and str(row["severity"])) == where
        assert (row["method"], row["dataset"], row["buffer_size"], row["seed"]) == ("er", "split-digits", 50, 3)
    final = [row["accuracy"] for row in rows if row["stage"] == 2 and row["scenario"] == "clean"]
    assert sum(final) / 3 == pytest.approx(run.summary()["acc"])


def test_correct_is_what_the_protocol_reports(tmp_path: Path, frames: list[list[dict[str, Any]]]) -> None:
    run = acr.load_run(make_run(tmp_path, "er", protocol="published", corruptions=()))
    run.results.stages[0].scenarios["clean"].correct["all"][0] = [0, 1]
    assert run.results.headline == "all"
    assert run.to_frame()[0]["correct"] == 1


def test_a_task_without_images_has_no_accuracy(run: acr.Run, frames: list[list[dict[str, Any]]]) -> None:
    counts = run.results.stages[0].scenarios["clean"]
    counts.total[0] = [0, 0]
    counts.correct["seen"][0] = [0, 0]
    assert math.isnan(run.to_frame()[0]["accuracy"])


def test_with_pandas(run: acr.Run) -> None:
    pandas = pytest.importorskip("pandas")
    table = run.to_frame()
    assert isinstance(table, pandas.DataFrame)
    mean = table[(table.stage == 2) & (table.scenario == "clean")].accuracy.mean()
    assert mean == pytest.approx(run.summary()["acc"])


def test_without_pandas_it_says_how_to_get_it(run: acr.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="to_frame needs pandas, which is not installed: pip install pandas"):
        run.to_frame()


def test_all_runs_of_a_folder_but_the_damaged(tmp_path: Path) -> None:
    good = [make_run(tmp_path / "a", "er", seed) for seed in (0, 1)]
    begun = make_run(tmp_path / "b" / "deep", "er", 2, finished=False)
    torn = make_run(tmp_path / "b", "er", 3)
    (torn / "results.json").write_text("{torn")
    odd = make_run(tmp_path / "b", "er", 4, name="odd\x1bname")
    (odd / "config.yaml").write_text("- 1")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "arrays-0123456789ab.npz").write_bytes(b"")
    with pytest.warns(
        UserWarning, match=r"(?s)^2 damaged run\(s\) left out:.*odd\\x1bname: .*lines of the form"
    ) as said:
        runs = acr.load_runs(tmp_path)
    assert [run.folder for run in runs] == sorted([*good, begun])
    assert [run.finished for run in runs] == [True, True, False]
    assert f"{torn}: " in str(said[0].message)
    assert said[0].filename == __file__, "it points to the line that asked"
    with pytest.raises(InputError, match="nowhere does not exist"):
        acr.load_runs(tmp_path / "nowhere")
    assert acr.load_runs(tmp_path / "data") == []


def test_runs_are_given_their_charts_by_whoever_has_both(run: acr.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "plotter", None)
    with pytest.raises(InputError, match=r"opened by acr\.load_run"):
        run.plot()
    code = f"import sys, acr; r = acr.load_run({str(run.folder)!r}); assert 'acr.report' not in sys.modules; r.plot()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
