import pytest

import acr
from acr.errors import InputError
from acr.runs.resolve import make_config
from acr.training.loggers import Guarded, check_loggers, scalars

SMALL = {"method": "finetune", "epochs": 1, "width": 2, "log_every": 3, "ood_every": "never", "quiet": True}


def test_loggers_do_not_change_what_a_run_is():
    plain = make_config(SMALL)
    assert plain.identity() == make_config({**SMALL, "tensorboard": True, "wandb": "offline"}).identity()


@pytest.mark.parametrize(("field", "value"), [("tensorboard", True), ("wandb", "offline")])
def test_a_missing_package_is_said_before_training(field, value, monkeypatch, tmp_path):
    monkeypatch.setattr("acr.training.loggers.find_spec", lambda name: None)
    with pytest.raises(InputError, match=f"pip install {field}"):
        acr.run(out=tmp_path / "runs", **{**SMALL, field: value})
    assert not (tmp_path / "runs").exists()
    check_loggers(make_config(SMALL))


def test_numbers_of_an_event():
    step = dict(scalars({"event": "step", "loss": 1.5, "rss_mib": 10, "images_per_second": None}))
    assert step == {"training/loss": 1.5, "training/rss_mib": 10.0}
    assert dict(scalars({"event": "step", "loss": float("nan")})) == {}
    assert dict(scalars({"event": "checkpoint"})) == {}


def test_a_logger_that_fails_does_not_stop_the_run(caplog):
    class Broken:
        def log(self, event):
            raise OSError("disk full")

        def close(self):
            raise AssertionError("not reached: it was dropped")

    guarded = Guarded(Broken(), "Broken")
    guarded.log({"event": "step"})
    guarded.log({"event": "step"})
    guarded.close()
    assert caplog.text.count("disk full") == 1


def test_tensorboard_holds_what_the_events_hold(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed; its files were not checked")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = acr.run(out=tmp_path, tensorboard=True, **SMALL)
    read = EventAccumulator(str(run.folder / "tensorboard"))
    read.Reload()
    steps = [e for e in run.events() if e["event"] == "step"]
    written = read.Scalars("training/loss")
    assert [s.step for s in written] == [e["taken"] for e in steps]
    assert [s.value for s in written] == pytest.approx([e["loss"] for e in steps])
    accuracy = [e["accuracy"] for e in run.events() if e["event"] == "stage"]
    assert [s.value for s in read.Scalars("accuracy/seen tasks")] == pytest.approx(accuracy)


def test_wandb_offline_stays_in_the_folder(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed; its files were not checked")
    for name in ("WANDB_DIR", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "wandb-home"))
    run = acr.run(out=tmp_path / "runs", wandb="offline", **SMALL)
    assert run.finished
    (log,) = (run.folder / "wandb").glob("offline-run-*/*.wandb")
    assert log.stat().st_size > 0
