"""Spoiled run folders against everything that reads them: reports, comparisons, the live view, sweeps."""

import json
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from fabricated_runs import make_run
from hostile_folders import FILES, bomb, everything_reads, in_its_place, spoil_folder

from acr.errors import AcrError, InputError
from acr.launch import run_config
from acr.report.live.watch import Watch
from acr.report.page.render import render_all
from acr.runs import limits
from acr.runs.reading import newest_lines, parse_json
from acr.runs.resolve import make_config
from acr.runs.run import Run, find_runs
from acr.runs.writer import RunWriter
from acr.sweeps.engines import LocalEngine
from acr.sweeps.jobs import Job
from acr.sweeps.sweep import run_sweep
from acr.training.checkpoint import CheckpointError, Checkpoints, read

TINY = {"tasks": 2, "corruptions": ("fog",), "test_per_class": 4, "train_per_class": 5, "buffer_size": 8, "epochs": 2}
needs_links = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links and pipes need a POSIX system")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A run to spoil, with checkpoints, and a good one beside it."""
    top = tmp_path_factory.mktemp("template")
    spoiled = make_run(top, "acr", 0, name="spoiled", **TINY)
    make_run(top, "er", 0, name="good", **TINY)
    checkpoints = Checkpoints(spoiled / "checkpoint", "run")
    for step in (1, 2):
        checkpoints.save(step, {"weights": torch.ones(3), "step": step})
    return top


@pytest.fixture
def runs(template, tmp_path):
    return Path(shutil.copytree(template, tmp_path / "runs"))


def try_number(number, runs, outside):
    outside.write_text("precious")
    what = spoil_folder(number, runs / "spoiled", outside)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            everything_reads(runs / "spoiled", runs / "good")
        except Exception as error:
            raise AssertionError(f"number {number} ({what}) was not withstood") from error
    assert outside.read_text() == "precious"


@needs_links
@pytest.mark.parametrize("number", range(16))
def test_a_spoiled_folder_is_read_or_refused_and_its_neighbour_is_shown(number, runs, tmp_path):
    try_number(number, runs, tmp_path / "outside")


@needs_links
@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(1, 21))
def test_two_thousand_spoiled_folders(hundred, template, tmp_path):
    for number in range(100 * hundred, 100 * hundred + 100):
        runs = Path(shutil.copytree(template, tmp_path / "runs"))
        try_number(number, runs, tmp_path / "outside")
        shutil.rmtree(runs)


class Kinds:
    """Chooses one kind of thing to put in a file's place, where a random generator is expected."""

    def __init__(self, kind):
        self.choice = lambda kinds: kind


@needs_links
@pytest.mark.parametrize("kind", ["link", "dangling", "loop", "fifo", "folder", "device"])
@pytest.mark.parametrize("name", [*FILES, "checkpoint/step-000000000002/manifest.json"])
def test_what_is_not_a_file_is_refused_by_name_and_nothing_is_read_through_it(runs, tmp_path, name, kind):
    outside = tmp_path / "outside.json"
    shutil.copy(runs / "good" / name, outside) if (runs / "good" / name).exists() else outside.write_text("{}")
    in_its_place(Kinds(kind), runs / "spoiled" / name, outside)
    run = Run(runs / "spoiled")
    readers = {"config.yaml": lambda: run.values, "results.json": lambda: run.finished,
               "environment.json": lambda: run.environment, "events.jsonl": lambda: list(run.events()),
               "manifest.json": lambda: read(run.folder / "checkpoint" / "step-000000000002", "run")}  # fmt: skip
    with pytest.raises(AcrError) as refused:
        readers.get(Path(name).name, lambda: run.arrays(name))()
    assert Path(name).name in str(refused.value)
    assert any(word in str(refused.value) for word in ("link", "pipe", "folder", "device"))


@needs_links
@pytest.mark.parametrize("kind", ["link", "dangling", "fifo", "folder", "device"])
@pytest.mark.parametrize("name", [".lock", "events.jsonl", "config.yaml", "environment.json"])
def test_a_run_does_not_write_through_what_stands_in_a_files_place(tmp_path, name, kind):
    """Before this was checked, a link at .lock or events.jsonl made a run write into the file it pointed to."""
    outside = tmp_path / "outside"
    outside.write_text("precious")
    folder = tmp_path / "runs" / "run"
    folder.mkdir(parents=True)
    in_its_place(Kinds(kind), folder / name, outside)
    config = make_config({"method": "finetune", "out": tmp_path / "runs"})

    def write():
        writer = RunWriter.open(folder, config)
        try:
            writer.event("start")
        finally:
            writer.close()

    if name == "environment.json" and kind != "folder":  # written anew beside it, and put in its place
        write()
        assert not (folder / name).is_symlink()
        assert (folder / name).is_file()
    else:
        with pytest.raises((AcrError, OSError), match=r"link|pipe|folder|device") as refused:
            write()
        assert name in str(refused.value) or name == "environment.json"
    assert outside.read_text() == "precious"
    assert not (tmp_path / "none").exists()


@needs_links
def test_a_linked_checkpoint_folder_is_neither_used_nor_tidied(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    kept = Checkpoints(elsewhere, "run").save(1, {"step": 1})
    (tmp_path / "checkpoint").symlink_to(elsewhere)
    linked = Checkpoints(tmp_path / "checkpoint", "run", keep=1)
    with pytest.raises(CheckpointError, match="is a link"):
        linked.load()
    with pytest.raises((CheckpointError, OSError), match="is a link"):
        linked.save(2, {"step": 2})
    assert [path.name for path in elsewhere.iterdir()] == [kept.name]


@needs_links
def test_a_folder_of_runs_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    folder = make_run(tmp_path / "runs", "er", 0, **TINY)
    assert Run(folder).finished
    assert [run.state for run in Watch([tmp_path / "runs"]).look()] == ["finished"]


def test_an_npz_bomb_is_not_unpacked(runs):
    path = runs / "spoiled" / "memory.npz"
    path.write_bytes(bomb())
    assert path.stat().st_size < 200_000
    with pytest.raises(InputError, match=r"memory\.npz is damaged.*would unpack to 80 MiB, and may to 64 MiB"):
        Run(runs / "spoiled").arrays("memory.npz")


def test_an_array_that_says_more_than_it_holds_is_refused(runs):
    import io
    import zipfile

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive, archive.open("images.npy", "w") as array:
        np.lib.format.write_array_header_1_0(array, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
        array.write(bytes(80))
    (runs / "spoiled" / "memory.npz").write_bytes(content.getvalue())
    with pytest.raises(InputError, match="not as large as it says"):
        Run(runs / "spoiled").arrays("memory.npz")


def test_files_have_a_largest_size(runs, monkeypatch):
    for name, limit in (("results.json", "JSON_BYTES"), ("config.yaml", "YAML_BYTES")):
        monkeypatch.setattr(limits, limit, (runs / "spoiled" / name).stat().st_size - 1)
    run = Run(runs / "spoiled")
    with pytest.raises(InputError, match=r"results\.json: it is larger than"):
        _ = run.results
    with pytest.raises(InputError, match=r"config\.yaml: it is larger than"):
        _ = run.values


def test_of_many_events_the_newest_are_read_and_lines_without_end_are_passed_over(runs, monkeypatch):
    path = runs / "spoiled" / "events.jsonl"
    lines = [json.dumps({"event": "step", "schema": 1, "taken": n}).encode() for n in range(1000)]
    lines.insert(997, b'{"event": "step", "schema": 1, "x": "' + b"y" * 5000 + b'"}')
    path.write_bytes(b"\n".join(lines) + b"\n")
    monkeypatch.setattr(limits, "EVENT_BYTES", 1000)
    monkeypatch.setattr(limits, "EVENTS_BYTES", 6000)
    assert [event["taken"] for event in Run(runs / "spoiled").events()][-5:] == [995, 996, 997, 998, 999]
    assert len(list(Run(runs / "spoiled").events())) < 30
    with open(path, "rb") as file:
        assert sum(map(len, newest_lines(file))) <= 6000
    (live,) = [run for run in Watch([runs]).look() if run.name == "spoiled"]
    assert live.events[-1]["taken"] == 999
    assert len(live.events) < 30


@pytest.mark.parametrize("text", ["1" * 400, "-" + "9" * 19, "1e400", "[" * 100_000, '{"a": ' * 100_000])
def test_json_that_is_out_of_bounds_is_not_json(text):
    with pytest.raises(ValueError, match=r"digits|too large|too deeply"):
        parse_json(text)


def poison(folder, change):
    content = json.loads((folder / "results.json").read_text())
    change(content)
    (folder / "results.json").write_text(json.dumps(content))


APPLES = {
    "a number of 400 digits": lambda content: content.update(parameters=10**400),
    "a lone surrogate": lambda content: content.update(class_names=["\ud800"] * len(content["classes"])),
    "another number of classes": lambda content: content.update(class_names=["one"]),
    "tasks of another run": lambda content: content.update(tasks=[[0], [1]]),
    "counts beyond sense": lambda content: content["memory"].update(per_class=["many"]),
    "seconds that are not finite": lambda content: content["timing"].update(seconds=1e308),
    "a scenario called <script>": lambda content: content["stages"][-1]["scenarios"].update(
        {"<script>\x1b[2J": content["stages"][-1]["scenarios"]["clean"]}
    ),
}


@pytest.mark.parametrize("apple", APPLES)
def test_one_bad_apple_does_not_spoil_the_report_or_the_dashboard(runs, tmp_path, capsys, apple):
    from acr.cli import main

    poison(runs / "spoiled", APPLES[apple])
    main(["report", str(runs), "-o", str(tmp_path / "page.html"), "--csv", str(tmp_path / "csv")])
    said = capsys.readouterr().out
    assert "\x1b" not in said
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>\x1b" not in page
    states = {run.name: run.state for run in Watch([runs]).look()}
    assert states["good"] == "finished"
    if "1 runs in" in said:
        assert f"not counted: {runs / 'spoiled'} (damaged: " in said
        assert states["spoiled"] in ("damaged", "finished")
    else:
        assert "2 runs in" in said


def test_a_damaged_run_fails_alone_in_a_sweep(tmp_path):
    """The others are found, and the sweep says which one is damaged, and why."""
    common = {"method": "finetune", "epochs": 1, "width": 1, "samples_per_class": 8, "ood_every": "never", "threads": 1}
    configs = [make_config({**common, "seed": seed, "out": tmp_path, "quiet": True}) for seed in (0, 1)]
    for config in configs:
        run_config(config)
    (Job(configs[0]).folder / "results.json").write_text("{torn")
    report = run_sweep(configs, LocalEngine(1))
    assert [job.config.seed for job in report.found] == [1]
    assert [(outcome.job.config.seed, "not JSON" in outcome.reason) for outcome in report.failed] == [(0, True)]

    from acr.reproduce.plan import find_planned_runs

    missing, found = find_planned_runs(configs)
    assert (missing.run, "not JSON" in missing.problem) == (None, True)
    assert (found.run is None, found.problem) == (False, "")


def test_a_run_that_cannot_be_drawn_is_listed_with_the_reason(runs, monkeypatch):
    """Whatever breaks while a page is made of one run, the page is made of the others."""
    from acr.report.page import render

    described = render.commands

    def broken(gathered):
        if "acr" in [group.method for group in gathered.groups]:
            raise ZeroDivisionError("a surprise")
        return described(gathered)

    monkeypatch.setattr(render, "commands", broken)
    gathered, page = render_all(find_runs(runs))
    assert [run.folder.name for run in gathered.runs] == ["good"]
    assert [(p.folder.name, p.state) for p in gathered.problems] == [("spoiled", "damaged")]
    assert "a surprise" in page


@pytest.mark.parametrize("name", [b"caf\xe9", b"\x1b]0;owned\x07", b"[/red]", "a\u202eb".encode()])
def test_folders_with_any_name_are_reported(tmp_path, capsys, name):
    from acr.cli import main

    top = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    try:
        os.mkdir(top)
    except (OSError, UnicodeError):
        pytest.skip("this file system has no such names")
    make_run(Path(top), "er", 0, **TINY)
    broken = make_run(Path(top), "acr", 0, name=os.fsdecode(name), **TINY)
    (broken / "results.json").write_text("{")
    main(["report", top, "-o", str(tmp_path / "page.html")])
    said = capsys.readouterr().out
    assert "1 runs in 1 groups" in said
    assert all(character.isprintable() or character == "\n" for character in said)
    assert [run.state for run in Watch([Path(top)]).look()] == ["damaged", "finished"]
    whole = str(next(Path(top).glob("split*")))
    main(["compare", whole, whole])
    assert all(character.isprintable() or character == "\n" for character in capsys.readouterr().out)
