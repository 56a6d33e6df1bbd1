"""--fresh: of several finished runs of a config the newest counts, everywhere; the others are listed as superseded."""

import json

import pytest
from fabricated_runs import make_run

import acr
from acr.cli import main
from acr.launch import run_config
from acr.report.groups import gather
from acr.report.live.watch import Watch
from acr.reproduce.plan import find_planned_runs
from acr.runs.resolve import make_config
from acr.runs.run import attempts, find_runs, finished_run, finished_runs, successor
from acr.sweeps.engines import LocalEngine
from acr.sweeps.jobs import Job
from acr.sweeps.sweep import run_local, run_sweep, superseded

SMALL = {"method": "finetune", "epochs": 1, "width": 1, "samples_per_class": 8, "ood_every": "never", "threads": 1}
FLAGS = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A folder with a run and a fresh one of the same config."""
    out = tmp_path_factory.mktemp("runs")
    first = acr.run(out=out, **SMALL)
    return out, first, acr.run(out=out, fresh=True, **SMALL)


def test_the_newest_run_is_the_one_that_counts(two, capsys):
    out, first, fresh = two
    assert fresh.folder.name == f"{first.folder.name}-2"
    assert acr.run(out=out, **SMALL).folder == fresh.folder
    main(["run", "--out", str(out), *FLAGS])
    assert f"already finished: {fresh.folder}" in capsys.readouterr().out
    config = make_config({**SMALL, "out": out})
    (planned,) = find_planned_runs([config])
    assert planned.run.folder == fresh.folder.resolve()
    assert [run.folder for run in run_local([config], 1)] == [fresh.folder]
    report = run_sweep([config], LocalEngine(1))
    assert len(report.found) == 1
    assert [(older.folder.name, newer.folder.name) for older, newer in superseded(report.found)] == [
        (first.folder.name, fresh.folder.name)
    ]
    assert successor(first).folder == fresh.folder
    assert successor(fresh) is None


def test_the_older_run_is_listed_as_superseded(two, tmp_path, capsys):
    out, first, fresh = two
    main(["report", str(out), "-o", str(tmp_path / "page.html")])
    said = capsys.readouterr().out
    assert f"not counted: {first.folder} (superseded: {fresh.folder.name}" in said
    assert "superseded" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert {run.name: run.state for run in Watch([out]).look()} == {
        first.folder.name: "superseded", fresh.folder.name: "finished",
    }  # fmt: skip
    main(["compare", str(first.folder), str(fresh.folder)])
    assert f"{first.folder} is superseded" in capsys.readouterr().out


def test_newest_means_finished_last_not_named_last(tmp_path):
    old = make_run(tmp_path, "er", 0, name="run-2", tasks=2, corruptions=())
    new = make_run(tmp_path, "er", 0, name="run", tasks=2, corruptions=())
    for folder, ended in ((old, 1000.0), (new, 2000.0)):
        content = json.loads((folder / "results.json").read_text())
        content["timing"]["ended"] = ended
        (folder / "results.json").write_text(json.dumps(content))
    for order in (find_runs(tmp_path), find_runs(tmp_path)[::-1]):
        gathered = gather(order)
        assert [run.folder for run in gathered.runs] == [new]
        assert [(problem.folder, problem.state) for problem in gathered.problems] == [(old, "superseded")]
    assert [run.folder for run in finished_runs(tmp_path / "run")] == [new, old]


def test_a_damaged_or_unfinished_attempt_does_not_hide_a_finished_one(tmp_path):
    config = make_config({**SMALL, "out": tmp_path, "quiet": True})
    first = run_config(config)
    second, third = (run_config(config, fresh=True) for _ in range(2))
    assert [path.name for path in attempts(first.folder)] == [r.folder.name for r in (first, second, third)]
    (third.folder / "results.json").write_text("{torn")
    (first.folder / "results.json").unlink()
    assert finished_run(Job(config).folder).folder == second.folder
    (second.folder / "results.json").unlink()
    with pytest.raises(acr.errors.InputError, match="not JSON"):
        finished_run(Job(config).folder)
