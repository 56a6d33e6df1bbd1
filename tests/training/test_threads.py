"""The number of threads: chosen by measurement, kept for the machine, and the same again when a run is resumed."""

import json

import pytest
import torch

import acr
from acr.runs.run import load_run
from acr.training import threads
from acr.training.threads import choose_threads

KIND = {"width": 8, "image": [3, 32, 32]}


def no_step():
    """Makes a step that does nothing."""
    return lambda: None


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)


def measured(monkeypatch, one, many):
    monkeypatch.setattr(threads, "measure", lambda step, most: {"1": one, "all": many})


@pytest.mark.parametrize(("one", "many", "expected"), [(1.0, 0.6, 2), (1.0, 0.9, 1), (1.0, 30.0, 1), (1.0, 0.81, 1)])
def test_more_threads_are_used_only_if_clearly_faster(monkeypatch, tmp_path, two_cores, one, many, expected):
    measured(monkeypatch, one, many)
    choice = choose_threads(KIND, no_step, tmp_path)
    assert choice.threads == expected
    assert "with 1 thread and" in choice.reason


def test_a_choice_is_kept_for_the_kind_of_run(monkeypatch, tmp_path, two_cores):
    measured(monkeypatch, 1.0, 0.5)
    assert choose_threads(KIND, no_step, tmp_path).threads == 2
    measured(monkeypatch, 1.0, 5.0)  # a busy moment must not change what the same run does
    assert choose_threads(KIND, no_step, tmp_path).threads == 2
    assert choose_threads({**KIND, "width": 16}, no_step, tmp_path).threads == 1


@pytest.mark.parametrize("content", ["", "[1]", '{"a": 3}', '{"a": {"1": "x", "all": 1}}', "\x00"])
def test_a_damaged_record_is_written_anew(monkeypatch, tmp_path, two_cores, content):
    (tmp_path / "threads.json").write_text(content)
    measured(monkeypatch, 1.0, 0.5)
    assert choose_threads(KIND, no_step, tmp_path).threads == 2
    assert len(json.loads((tmp_path / "threads.json").read_text())) == 1


def test_a_cache_that_cannot_be_written_is_no_obstacle(monkeypatch, tmp_path, two_cores):
    measured(monkeypatch, 1.0, 0.5)
    (tmp_path / "file").write_text("")
    assert choose_threads(KIND, no_step, tmp_path / "file").threads == 2


def test_measuring_leaves_the_number_of_threads_as_it_was():
    before = torch.get_num_threads()
    times = threads.measure(lambda: torch.ones(10).sum(), 2)
    assert set(times) == {"1", "all"}
    assert torch.get_num_threads() == before


def test_a_run_records_its_threads_and_a_resumed_one_uses_them(tmp_path, monkeypatch):
    small = {"method": "finetune", "epochs": 1, "width": 2, "samples_per_class": 16, "tasks": 2, "ood_every": "never"}
    run = acr.run(out=tmp_path, **small)
    assert run.environment["threads"] == run.threads
    assert run.environment["threads_because"]
    (run.folder / "results.json").unlink()
    record = json.loads((run.folder / "environment.json").read_text())
    (run.folder / "environment.json").write_text(json.dumps({**record, "threads": 3}))
    resumed = acr.resume_run(run.folder)
    assert resumed.environment["threads"] == 3
    assert resumed.environment["threads_because"] == "the run began with them"
    assert load_run(run.folder).threads == 3
