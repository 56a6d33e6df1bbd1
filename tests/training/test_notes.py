"""What is said before a run begins, and a run that continues with other threads."""

import json
import warnings

import numpy as np
import pytest

import acr
from acr.data.loading import load_dataset
from acr.errors import InputError
from acr.launch import RunNote, check_memory
from acr.runs.resolve import make_config
from acr.training.trainer import Trainer

SMALL = {"epochs": 1, "width": 1, "samples_per_class": 8, "batch_size": 8, "ood_every": "never", "threads": 1}


def arrays(path, classes=4, channel=None, of_class=6, test_of_class=None):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), of_class)
    images = rng.integers(0, 255, (len(labels), 8, 8, 3), dtype=np.uint8)
    if channel is not None:
        images[..., channel] = 7
    counts = test_of_class or [2] * classes
    test = np.repeat(np.arange(classes), counts)
    np.savez(path, train_images=images, train_labels=labels, test_images=images[: len(test)], test_labels=test)
    return f"npz:{path}"


@pytest.mark.parametrize(
    ("made", "given", "says"),
    [
        ({}, {"buffer_size": 24}, "The memory has room for 24 samples, and there are 24 training images"),
        ({}, {"buffer_size": 24, "class_order": [0, 1], "tasks": 2}, "there are 12 training images"),
        ({"classes": 1}, {"tasks": 1, "buffer_size": 2}, "There is one class only"),
        ({}, {"tasks": 1, "buffer_size": 8}, "All classes arrive in one task"),
        ({"channel": 1}, {"buffer_size": 8}, "Channel 2 of the images has the same value everywhere"),
        ({"test_of_class": [9, 2, 2, 2]}, {"buffer_size": 8}, "60 % of the test images have the same class"),
    ],
)
def test_what_makes_figures_mean_less_is_said_before_training(tmp_path, monkeypatch, made, given, says):
    dataset = arrays(tmp_path / "data.npz", **made)
    began = []
    monkeypatch.setattr(Trainer, "run", lambda self: began.append(list(acr.load_run(self.folder.path).events())))
    monkeypatch.setattr("acr.launch.write_results", lambda trainer: None)
    values = {**SMALL, "samples_per_class": None, "tasks": 2, **given}
    with pytest.warns(RunNote) as warned:
        acr.run(method="er", dataset=dataset, out=tmp_path / "runs", data_cache=tmp_path / "cache", **values)
    assert [str(w.message) for w in warned if says in str(w.message)]
    (events,) = began  # they were there when the training began
    assert any(event["event"] == "note" and says in event["text"] for event in events)


def test_a_usual_run_has_no_notes_and_tells_the_chance_level(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RunNote)
        run = acr.run(method="er", buffer_size=20, out=tmp_path, **SMALL)
    events = list(run.events())
    assert not [event for event in events if event["event"] == "note"]
    assert 0.1 <= events[0]["chance"] < 0.12


class Stop(BaseException):
    """Ends a run in its middle."""


def test_a_run_resumed_with_other_threads_says_so_and_records_it(tmp_path, monkeypatch):
    save = Trainer.save_checkpoint

    def save_and_stop(self):
        save(self)
        raise Stop

    monkeypatch.setattr(Trainer, "save_checkpoint", save_and_stop)
    with pytest.raises(Stop):
        acr.run(method="finetune", out=tmp_path, **SMALL)
    monkeypatch.undo()
    (folder,) = tmp_path.iterdir()
    path = folder / "environment.json"  # as if it had begun with three
    path.write_text(json.dumps({**json.loads(path.read_text()), "threads": 3, "threads_of_sittings": [3]}))
    with pytest.warns(RunNote, match=r"began with 3 CPU thread\(s\) and continues with 1.*last bits"):
        run = acr.resume_run(folder, threads=1)
    assert run.environment["threads_of_sittings"] == [3, 1]
    assert any("continues with 1" in event.get("text", "") for event in run.events())


def test_a_network_or_a_memory_beyond_this_machine_is_refused_at_once():
    config = make_config({"method": "er", "buffer_size": 20, "quiet": True})
    data = load_dataset(config.dataset, config)
    check_memory(config, data)
    for changes, flag in (({"width": 10**9}, "--width 1000000000"), ({"buffer_size": 10**15}, "--buffer-size")):
        with pytest.raises(InputError, match=flag):
            check_memory(config.model_copy(update=changes), data)


def test_environment_of_an_earlier_version_counts_as_one_sitting(tmp_path):
    run = acr.run(method="finetune", out=tmp_path, **SMALL)
    path = run.folder / "environment.json"
    content = json.loads(path.read_text())
    del content["threads_of_sittings"]
    path.write_text(json.dumps(content))
    assert acr.load_run(run.folder).threads_before == [1]
