import json

import pytest
import torch

import acr
from acr.errors import InputError
from acr.launch import execute
from acr.runs.resolve import make_config
from acr.training.trainer import Diverged, Trainer

SMALL = {"epochs": 2, "width": 2, "batch_size": 32, "samples_per_class": 60, "buffer_size": 20, "ood_every": "never"}


def results(run):
    """The content of results.json without the clock."""
    content = json.loads((run.folder / "results.json").read_text())
    content.pop("timing")
    return content


def weights(run):
    from acr.training.checkpoint import Checkpoints

    _, state = Checkpoints(run.folder / "checkpoint", run.config.identity()).load()
    return state["method"]["network"]


@pytest.mark.parametrize("method", ["acr", "er"])
def test_same_config_same_bits_whatever_is_logged_or_evaluated(tmp_path, method):
    first = acr.run(method=method, out=tmp_path / "a", **SMALL)
    again = acr.run(method=method, out=tmp_path / "b", eval_every=1, log_every=1, checkpoint_every="0s", **SMALL)
    assert results(first) == results(again)
    assert all(torch.equal(v, weights(again)[k]) for k, v in weights(first).items())
    other = acr.run(method=method, out=tmp_path / "a", seed=1, **SMALL)
    assert results(first)["stages"] != results(other)["stages"]


class Killed(BaseException):
    """Stands for SIGKILL: nothing is cleaned up on the way out."""


@pytest.mark.parametrize("method", ["acr", "er", "finetune", "joint"])
def test_resumed_run_equals_the_undisturbed_one(tmp_path, monkeypatch, method):
    """Die after every 7 steps with the last checkpoint up to 3 steps old, until the run gets through."""
    undisturbed = acr.run(method=method, out=tmp_path / "a", **SMALL)
    after_step, deaths, steps = Trainer.after_step, 0, 0

    def dying(self, step):
        nonlocal steps
        after_step(self, step)
        steps += 1
        if steps % 3 == 0:
            self.save_checkpoint()
        if steps % 7 == 0:
            raise Killed

    monkeypatch.setattr(Trainer, "after_step", dying)
    for _ in range(100):
        try:
            run = acr.run(method=method, out=tmp_path / "b", **SMALL)
            break
        except Killed:
            deaths += 1
    assert deaths >= 5
    assert results(run) == results(undisturbed)
    assert all(torch.equal(v, weights(run)[k]) for k, v in weights(undisturbed).items())


def test_finished_run_is_found_and_fresh_makes_another(tmp_path):
    first = acr.run(method="finetune", out=tmp_path, **SMALL)
    stamp = (first.folder / "results.json").stat().st_mtime_ns
    found = acr.run(method="finetune", out=tmp_path, **SMALL)
    assert found.folder == first.folder
    assert (found.folder / "results.json").stat().st_mtime_ns == stamp
    fresh = acr.run(method="finetune", out=tmp_path, fresh=True, **SMALL)
    assert fresh.folder != first.folder
    assert results(fresh) == results(first)


def test_config_of_a_run_folder_runs_again_as_it_is(tmp_path):
    first = acr.run(method="er", out=tmp_path / "a", **SMALL)
    from acr.launch import run_config
    from acr.runs.resolve import read_config_file

    values = read_config_file(first.folder / "config.yaml")
    again = run_config(make_config({"out": tmp_path / "b"}, file=values))
    assert results(again) == results(first)


def test_non_finite_loss_stops_with_what_to_try(tmp_path):
    with pytest.raises(Diverged, match=r"task 1/5, epoch \d/2, step \d+.*smaller --learning-rate"):
        acr.run(method="finetune", out=tmp_path, **{**SMALL, "learning_rate": 1e30})


def test_a_folder_of_another_config_is_refused_with_the_difference(tmp_path):
    run = acr.run(method="finetune", out=tmp_path, **SMALL)
    other = make_config({"method": "finetune", "out": tmp_path, **SMALL, "epochs": 1, "quiet": True})
    with pytest.raises(InputError, match="epochs: 2 there, 1 here"):
        execute(other, run.folder)


def test_a_folder_is_written_by_one_process_at_a_time(tmp_path):
    from acr.errors import AcrError
    from acr.runs.writer import RunWriter

    config = make_config({"method": "finetune", "out": tmp_path, **SMALL})
    held = RunWriter.open(tmp_path / "run", config)
    with pytest.raises(AcrError, match=r"is being written by process \d+"):
        RunWriter.open(tmp_path / "run", config)
    held.close()
    RunWriter.open(tmp_path / "run", config).close()


def test_learning_rate_schedule(tmp_path):
    seen = []
    from acr.methods.finetune import Finetune

    observe = Finetune.observe

    def spy(self, batch):
        seen.append((batch.task, batch.epoch, self.optimizer.param_groups[0]["lr"]))
        return observe(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Finetune, "observe", spy)
        acr.run(method="finetune", out=tmp_path, **{**SMALL, "epochs": 3, "tasks": 2}, lr_milestones="1,2",
                lr_decay=0.5, learning_rate=0.08)  # fmt: skip
    rates = {(task, epoch): rate for task, epoch, rate in seen}
    assert [rates[0, e] for e in range(3)] == pytest.approx([0.08, 0.04, 0.02])
    assert [rates[1, e] for e in range(3)] == pytest.approx([0.08, 0.04, 0.02])


def test_events_survive_a_torn_line(tmp_path):
    run = acr.run(method="finetune", out=tmp_path, **SMALL)
    path = run.folder / "events.jsonl"
    whole = list(run.events())
    path.write_bytes(path.read_bytes() + b'{"event": "st')
    assert list(run.events()) == whole
    from acr.runs.writer import RunWriter

    folder = RunWriter.open(run.folder, run.config)
    folder.event("note")
    folder.close()
    assert [e["event"] for e in run.events()] == [*(e["event"] for e in whole), "note"]


def test_run_folder_is_complete_and_readable(tmp_path):
    run = acr.run(method="acr", out=tmp_path, **SMALL)
    names = {path.name for path in run.folder.iterdir()}
    assert {"config.yaml", "environment.json", "events.jsonl", "results.json", "memory.npz", "confidence.npz",
            "checkpoint"} <= names  # fmt: skip
    import numpy as np

    memory = np.load(run.folder / "memory.npz", allow_pickle=False)
    assert memory["images"].shape == (20, 1, 8, 8)
    assert sorted(set(memory["labels"].tolist())) == list(range(10))
    confidence = np.load(run.folder / "confidence.npz", allow_pickle=False)
    assert confidence["variance_4"].shape == (120,)
    assert run.accuracy["clean"].shape == (5, 5)
    summary = acr.load_run(run.folder).summary()
    assert summary["cv_classes"] == summary["cv_tasks"] == 0
    assert 0 <= summary["acc"] <= 1


def test_joint_fills_the_last_row_only(tmp_path):
    import numpy as np

    matrix = acr.run(method="joint", out=tmp_path, **SMALL).accuracy["clean"]
    assert np.isnan(matrix[:-1]).all()
    assert not np.isnan(matrix[-1]).any()
