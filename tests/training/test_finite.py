"""Numbers that stop being numbers: never in a checkpoint, null in JSON, a dash in tables."""

import json
import math

import numpy as np
import pytest
import torch
from fabricated_runs import make_run

import acr
from acr.cli import main
from acr.methods.finetune import Finetune
from acr.methods.method import method_names
from acr.training.checkpoint import Checkpoints, flatten, restore
from acr.training.finite import not_finite
from acr.training.trainer import Diverged, Trainer

SMALL = {"epochs": 1, "width": 1, "samples_per_class": 8, "batch_size": 8, "ood_every": "never", "threads": 1}


def spoil_after(monkeypatch, task, step, spoil):
    """Let a run's last word be a step whose loss is finite and whose result is not."""
    observe = Finetune.observe

    def spoiling(self, batch):
        loss = observe(self, batch)
        if (batch.task, batch.step) == (task, step):
            with torch.no_grad():
                spoil(self)
        return loss

    monkeypatch.setattr(Finetune, "observe", spoiling)


def nan_weight(method):
    next(method.network.parameters()).view(-1)[0] = math.nan


def inf_statistics(method):
    next(b for n, b in method.network.named_buffers() if "running_var" in n).fill_(math.inf)


@pytest.mark.parametrize("spoil", [nan_weight, inf_statistics])
def test_a_state_that_is_not_finite_never_becomes_a_checkpoint(tmp_path, monkeypatch, spoil):
    """The loss of the step was finite, and it was the last of its task: only the state shows it."""
    spoil_after(monkeypatch, 1, 1, spoil)
    with pytest.raises(Diverged, match=r"became infinite or NaN at task 2/5, epoch 1/1, step 2.*whole and finite is"):
        acr.run(method="finetune", out=tmp_path, **SMALL)
    (folder,) = tmp_path.iterdir()
    (kept,) = Checkpoints(folder / "checkpoint", acr.load_run(folder).config.identity()).folders()
    _, state = Checkpoints(folder / "checkpoint", acr.load_run(folder).config.identity()).load()
    assert state["position"]["task"] == 1
    assert not not_finite(state["method"])
    assert [e["event"] for e in acr.load_run(folder).events()][-1] == "diverged"
    monkeypatch.undo()
    assert acr.resume_run(folder).finished
    assert not kept.exists() or kept.is_dir()


def test_weights_lost_at_the_very_last_step_are_said_and_not_reported_as_results(tmp_path, monkeypatch):
    spoil_after(monkeypatch, 4, 1, nan_weight)
    with pytest.raises(Diverged, match="task 5/5"):
        acr.run(method="finetune", out=tmp_path, **SMALL)
    (folder,) = tmp_path.iterdir()
    assert not (folder / "results.json").exists()


def test_a_checkpoint_is_called_good_only_after_a_look_at_it(tmp_path, monkeypatch):
    spoil_after(monkeypatch, 1, 1, nan_weight)
    save = Checkpoints.save

    def save_and_lose(self, step, state):
        path = save(self, step, state)
        (path / "state.json").write_bytes(b"{}")  # a disk that loses what it was given
        return path

    monkeypatch.setattr(Checkpoints, "save", save_and_lose)
    with pytest.raises(Diverged, match="None of its checkpoints is whole and finite"):
        acr.run(method="finetune", out=tmp_path, **SMALL)


@pytest.mark.parametrize("method", method_names())
def test_sound_states_of_every_method_pass(tmp_path, monkeypatch, method):
    """No method keeps infinity in what is checked, so that none is stopped for nothing."""
    looked = []
    check = Trainer.check_state
    monkeypatch.setattr(
        Trainer, "check_state", lambda self, state: looked.append(not_finite(state)) or check(self, state)
    )
    quick = {"hal": {"anchor_steps": 2}, "gdumb": {"fit_epochs": 1}}.get(method, {})
    acr.run(method=method, out=tmp_path, tasks=2, class_order=[0, 1], buffer_size=6, **quick, **{**SMALL, "epochs": 2})
    assert looked
    assert not any(looked)


def test_outputs_that_overflow_are_null_in_json_and_a_dash_in_tables(tmp_path, monkeypatch, capsys):
    """Finite weights whose outputs are not: counted as they are, with null where there is no number."""
    monkeypatch.setattr(Finetune, "logits", lambda self, images: self.network(images) * math.nan)
    run = acr.run(method="finetune", out=tmp_path, **SMALL)
    content = json.loads((run.folder / "results.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert content["summary"]["calibration_error"] is None
    for line in (run.folder / "events.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(name))
    for path in run.folder.rglob("*.json"):
        json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert math.isnan(acr.load_run(run.folder).calibration_error())
    assert acr.resume_run(run.folder).finished
    main(["report", str(tmp_path), "-o", str(tmp_path / "page.html")])
    main(["compare", str(run.folder), str(run.folder)])
    assert "nan" not in capsys.readouterr().out.lower().replace(str(tmp_path).lower(), "")


def test_the_corruption_error_against_a_baseline_without_error_is_a_dash(tmp_path, capsys):
    baseline = make_run(tmp_path / "a", "acr", 0, tasks=2, corruptions=("fog",))
    content = json.loads((baseline / "results.json").read_text())
    for stage in content["stages"]:
        for counts in stage["scenarios"].values():
            counts["correct"] = dict.fromkeys(counts["correct"], counts["total"])
    (baseline / "results.json").write_text(json.dumps(content))
    other = make_run(tmp_path / "b", "er", 0, tasks=2, corruptions=("fog",))
    assert math.isnan(acr.load_run(other).mean_corruption_error(acr.load_run(baseline)))
    words = ["report", str(tmp_path), "-o", str(tmp_path / "page.html"), "--csv", str(tmp_path / "csv")]
    main([*words, "--latex", str(tmp_path / "tex"), "--baseline", str(baseline)])
    main(["compare", str(baseline), str(other)])
    assert "nan" not in capsys.readouterr().out.lower().replace(str(tmp_path).lower(), "")
    assert "nan" not in (tmp_path / "csv" / "runs.csv").read_text().lower()


def test_numbers_that_json_does_not_have_come_back_from_a_checkpoint(tmp_path):
    state = {"best": -math.inf, "worst": math.inf, "none": math.nan, "one": 1.0}
    json.dumps(flatten(state, {}), allow_nan=False)
    back = restore(json.loads(json.dumps(flatten(state, {}))), {})
    assert np.array_equal([back[name] for name in state], list(state.values()), equal_nan=True)
    Checkpoints(tmp_path, "run").save(1, state)
    assert Checkpoints(tmp_path, "run").load()[1]["best"] == -math.inf


def test_only_weights_optimiser_and_memory_are_checked():
    bad = torch.tensor([1.0, math.nan])
    state = {"network": {"w": bad}, "optimizer": {"state": {0: {"momentum": bad}}}, "buffer": {"scores": [bad]},
             "confidence": {"values": bad}, "policy": {"best": math.inf}}  # fmt: skip
    assert not_finite(state) == ["network.w", "optimizer.state.0.momentum", "buffer.scores.0"]
    assert not_finite({"network": {"w": torch.ones(2), "steps": torch.tensor(3), "none": torch.zeros(0)}}) == []
