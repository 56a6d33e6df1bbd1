"""Whole runs on storage that fails, in folders that cannot be written, with files that were damaged or lost."""

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import acr
from acr.cli import main
from acr.errors import AcrError, InputError
from acr.launch import execute, run_config
from acr.runs.resolve import make_config
from acr.storage import files
from acr.training.loop import TrainingLoop
from acr.training.trainer import Trainer

SMALL = {"method": "acr", "epochs": 2, "width": 2, "samples_per_class": 16, "batch_size": 16, "buffer_size": 20,
         "ood_every": "never", "threads": 1}  # fmt: skip


def config_in(out, **changes):
    return make_config({**SMALL, "out": out, "quiet": True, **changes})


def results(run):
    content = json.loads((run.folder / "results.json").read_text())
    content.pop("timing")
    return content


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return results(run_config(config_in(tmp_path_factory.mktemp("undisturbed"))))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run that tests copy and damage."""
    return run_config(config_in(tmp_path_factory.mktemp("finished"), method="finetune", epochs=1)).folder


def copied(folder, out):
    """The same run in another output folder."""
    return Path(shutil.copytree(folder, out / folder.name))


def no_space(*arguments, **named):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def snapshot(folder):
    """Name, size and content of every file, so that "nothing was changed" can be checked."""
    return {
        p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.name != ".lock"
    }


@pytest.mark.parametrize("name", ["results.json", "memory.npz", "confidence.npz", "state.json", "environment.json"])
def test_a_full_disk_is_told_and_the_run_goes_on_afterwards(tmp_path, monkeypatch, undisturbed, name):
    whole = files.write_atomically
    monkeypatch.setattr(
        files, "write_atomically", lambda path, write: whole(path, no_space if path.name == name else write)
    )
    with pytest.raises(AcrError, match=r"No space left on device") as caught:
        run_config(config_in(tmp_path))
    assert str(tmp_path) in str(caught.value)
    (folder,) = tmp_path.iterdir()
    if name != "environment.json":
        assert f"acr resume {folder}" in str(caught.value)
    assert not (folder / "results.json").exists()
    assert [p.name for p in folder.rglob("*.part")] == []
    monkeypatch.undo()
    assert results(acr.resume_run(folder)) == undisturbed


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
def test_a_disk_that_is_full_for_the_log(tmp_path, undisturbed):
    """A real ENOSPC: at the write, and again when the file is closed with the line still in its buffer."""
    config = config_in(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "run", lambda self: None)
        patch.setattr("acr.launch.write_results", lambda *given: None)
        execute(config, tmp_path / "run")
    (tmp_path / "run" / "events.jsonl").unlink(missing_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "append_to", lambda path: os.fdopen(os.open("/dev/full", os.O_RDWR), "wb"))
        with pytest.raises(AcrError, match=r"Writing to .*run.* failed: No space left on device.*acr resume"):
            execute(config, tmp_path / "run")
    assert results(acr.resume_run(tmp_path / "run")) == undisturbed


def test_the_disk_fills_up_in_the_middle(tmp_path, monkeypatch, undisturbed):
    """From the third checkpoint on nothing can be written: what the first two hold is not lost."""
    saves = []
    whole = files.write_atomically

    def write(path, content):
        if path.name == "state.json":
            saves.append(path)
        whole(path, no_space if len(saves) > 2 else content)

    monkeypatch.setattr(files, "write_atomically", write)
    with pytest.raises(AcrError, match="No space left on device"):
        run_config(config_in(tmp_path))
    monkeypatch.undo()
    (folder,) = tmp_path.iterdir()
    assert len(list((folder / "checkpoint").glob("step-*"))) == 2
    done = acr.resume_run(folder)
    assert results(done) == undisturbed
    starts = [event for event in done.events() if event["event"] == "start"]
    assert starts[-1]["task"] == 2


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch, capsys):
    def forbidden(*arguments, **named):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(files, "write_atomically", forbidden)
    with pytest.raises(InputError, match=r"Cannot write to the output folder .*Permission denied.*--out"):
        run_config(config_in(tmp_path))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder(tmp_path):
    run = run_config(config_in(tmp_path / "a"))
    (run.folder / "results.json").unlink()
    run.folder.chmod(0o555)
    try:
        with pytest.raises(InputError, match="Cannot write to the output folder"):
            acr.resume_run(run.folder)
    finally:
        run.folder.chmod(0o755)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (b"", "is damaged: it is not JSON"),
        (b'{"schema": 1, "fini', "is damaged: it is not JSON"),
        (b"\xff\xfe\x00", "is damaged: it is not JSON"),
        (b"[" * 100_000, "is damaged: it is not JSON"),
        (b'{"schema": 2, "finished": true}', "has schema 2; this version reads schema 1"),
        (b'{"schema": 1, "finished": true}', "is damaged: method: Field required"),
        (b"[1]", "has schema None"),
    ],
)
@pytest.mark.parametrize("command", ["run", "resume"])
def test_damaged_results_are_named_and_left_alone(tmp_path, capsys, finished, damage, says, command):
    folder = copied(finished, tmp_path)
    (folder / "results.json").write_bytes(damage)
    before = snapshot(folder)
    given = {**SMALL, "method": "finetune", "epochs": 1}
    flags = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    words = ["run", "--out", str(tmp_path), *flags] if command == "run" else ["resume", str(folder)]
    with pytest.raises(SystemExit) as exit:
        main([*words, "--quiet"])
    assert exit.value.code == 2
    error = capsys.readouterr().err
    assert f"{folder / 'results.json'}" in error
    assert says in error
    assert "Unexpected" not in error
    assert snapshot(folder) == before


def test_results_that_are_moved_away_come_back_from_the_checkpoint(tmp_path):
    run = run_config(config_in(tmp_path, method="finetune", epochs=1))
    kept = results(run)
    (run.folder / "results.json").unlink()
    assert results(acr.resume_run(run.folder)) == kept


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda values: b"", "must hold lines of the form"),
        (lambda values: b"a: [", "is not a YAML file"),
        (lambda values: b"\xff\xfe\xfd", "is not a YAML file"),
        (lambda values: yaml.safe_dump({**values, "schema": 7}).encode(), "has schema 7; this version reads schema 1"),
        (lambda values: yaml.safe_dump({n: v for n, v in values.items() if n != "schema"}).encode(), "has no schema"),
        (lambda values: yaml.safe_dump({**values, "epochs": "many"}).encode(), "--epochs 'many'"),
        (lambda values: yaml.safe_dump({**values, "epochs": 3}).encode(), "epochs: 3 there, 1 here"),
        (lambda values: yaml.safe_dump({**values, "method": "unheard-of"}).encode(), "no method 'unheard-of'"),
    ],
)
def test_a_damaged_config_is_named_and_left_alone(tmp_path, finished, damage, says):
    config = config_in(tmp_path, method="finetune", epochs=1)
    folder = copied(finished, tmp_path)
    (folder / "results.json").unlink()
    path = folder / "config.yaml"
    path.write_bytes(damage(yaml.safe_load(path.read_text())))
    before = snapshot(folder)
    with pytest.raises(AcrError, match=says):
        run_config(config)
    assert snapshot(folder) == before
    if "there" not in says:
        with pytest.raises(AcrError, match=says):
            acr.resume_run(folder)
    assert snapshot(folder) == before


class Killed(BaseException):
    pass


def stop_in_the_middle(monkeypatch, config, path):
    """A run that dies in its second task."""
    begin = TrainingLoop.begin_task

    def dying(self, task):
        if task.index == 1:
            raise Killed
        begin(self, task)

    monkeypatch.setattr(TrainingLoop, "begin_task", dying)
    with pytest.raises(Killed):
        execute(config, path)
    monkeypatch.undo()


def test_data_lost_between_two_sittings(tmp_path, monkeypatch):
    """The data set and its cache are gone when the run is to go on: said, nothing lost, goes on when they are back."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 12)
    images = (rng.integers(0, 60, (48, 8, 8)) + 40 * labels[:, None, None]).astype(np.uint8)
    data, cache = tmp_path / "mine.npz", tmp_path / "cache"
    np.savez(data, train_images=images, train_labels=labels, test_images=images[::3], test_labels=labels[::3])
    changes = {"dataset": f"npz:{data}", "data_cache": cache, "samples_per_class": None, "tasks": 2}
    config = config_in(tmp_path / "runs", **changes)
    whole = run_config(config_in(tmp_path / "undisturbed", **changes))
    folder = tmp_path / "runs" / "run"
    stop_in_the_middle(monkeypatch, config, folder)
    checkpoints = snapshot(folder / "checkpoint")

    shutil.rmtree(cache, ignore_errors=True)
    away = data.rename(tmp_path / "away.npz")
    with pytest.raises(AcrError, match=r"mine\.npz"):
        acr.resume_run(folder)
    assert snapshot(folder / "checkpoint") == checkpoints
    away.rename(data)
    assert results(acr.resume_run(folder)) == results(whole)


def test_a_checkpoint_of_another_version_of_the_method(tmp_path, monkeypatch):
    from acr.methods.finetune import Finetune

    config = config_in(tmp_path, method="finetune", epochs=1)
    stop_in_the_middle(monkeypatch, config, tmp_path / "run")
    before = snapshot(tmp_path / "run" / "checkpoint")
    monkeypatch.setattr(Finetune, "load_state_dict", lambda self, state: state["momentum of old"])
    with pytest.raises(AcrError, match=r"does not fit this version of the method.*momentum of old.*--fresh"):
        execute(config, tmp_path / "run")
    assert snapshot(tmp_path / "run" / "checkpoint") == before


def test_checkpoints_lost_or_damaged_altogether(tmp_path, monkeypatch):
    config = config_in(tmp_path, method="finetune", epochs=1)
    folder = tmp_path / "run"
    stop_in_the_middle(monkeypatch, config, folder)
    for path in (folder / "checkpoint").rglob("state.json"):
        path.write_bytes(b"{}")
    before = snapshot(folder / "checkpoint")
    with pytest.warns(UserWarning, match=r"state\.json is damaged"), pytest.raises(AcrError, match="--fresh"):
        execute(config, folder)
    assert snapshot(folder / "checkpoint") == before
    shutil.rmtree(folder / "checkpoint")
    assert execute(config, folder).finished  # like a run killed before its first checkpoint: it starts over


def test_a_damaged_checkpoint_that_was_passed_over_does_not_push_good_ones_out(tmp_path):
    from acr.training.checkpoint import Checkpoints

    checkpoints = Checkpoints(tmp_path, "run", keep=1)
    checkpoints.save(50, {"step": 50})
    (tmp_path / "step-000000000050" / "state.json").write_bytes(b"")
    (tmp_path / ".part-000000000044").mkdir()
    checkpoints.save(45, {"step": 45})
    assert checkpoints.load() == (45, {"step": 45})
    assert [p.name for p in tmp_path.iterdir()] == ["step-000000000045"]


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path):
    """A process that holds the lock is killed; the next one gets it at once."""
    from acr.runs.writer import RunWriter

    config = config_in(tmp_path)
    code = (
        "import sys, time; from pathlib import Path; from acr.runs.resolve import make_config\n"
        "from acr.runs.writer import RunWriter\n"
        "held = RunWriter.open(Path(sys.argv[1]), make_config({})); print('held', flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as other:
        try:
            assert other.stdout.readline() == b"held\n"
            with pytest.raises(AcrError, match=f"is being written by process {other.pid}"):
                RunWriter.open(tmp_path / "run", config)
        finally:
            other.kill()
    RunWriter.open(tmp_path / "run", config).close()
