import os
import signal
import subprocess
import sys
import time

import pytest

from acr.cli import main

SMALL = ["--epochs", "1", "--width", "2", "--ood-every", "never"]


def test_help_does_not_import_torch():
    code = "import sys; from acr.cli import main; main(['--help']); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "--method", "acrr"], "Did you mean 'acr'"),
        (["run", "--dataset", "split-digit"], "Did you mean 'split-digits'"),
        (["run", "--buffer-size", "-5"], "--buffer-size -5"),
        (["run", "--buffer-size", "9"], "less than the 10 classes"),
        (["run", "--confidence-epochs", "99"], "between 1 and the epochs"),
        (["run", "--tasks", "11"], "cannot make 11 tasks"),
        (["run", "--out", "/dev/null/x"], "Cannot write to the output folder"),
        (["run", "--bufer-size", "5"], "Did you mean --buffer-size?"),
        (["run", "--device", "quantum"], "no such device"),
        (["run", "--config", "no-such-file.yaml"], "Cannot read the config file"),
        (["resume", "no-such-folder"], "not a run folder"),
        (["rum"], 'Did you mean "run"?'),
        (["run", "--epochs", "1.5"], "--epochs '1.5': expected a whole number"),
        (["run", "--epochs", "1e3"], "expected a whole number"),
        (["run", "--seed", "1" + "0" * 400], "expected a whole number"),
        (["run", "--seed", "²"], "expected a whole number"),
        (["run", "--width", "1000000000"], "would take about"),
        (["run", "--learning-rate", "1e308"], "--learning-rate 1e+308: expected a number of at most 1e+30"),
        (["run", "--learning-rate", "1e400"], "--learning-rate inf: expected a finite number"),
        (["run", "--class-order", "random:²"], "expected random:SEED"),
        (["run", "--class-order", "random:" + "9" * 5000], "expected random:SEED"),
        (["run", "--class-order", "0-9999," * 20], "at most 100,000 numbers"),
        (["run", "--dataset", "x" * 10_000], "xxx…"),
        (["run", "--method", "\x1b[2J"], r"no method '\x1b[2J'"),
        (["resume", "--threads", "1.5", "x"], "expected a whole number"),
        (["sweep", "acc", "--jobs", "1.5"], "expected a whole number"),
        (["dashboard", ".", "--port", "80.5"], "expected a whole number"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(words, says, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit:
        main([*words, *(["--quiet"] if words[0] == "run" else [])])
    assert exit.value.code == 2
    _, err = capsys.readouterr()
    assert says in err
    assert "Traceback" not in err
    assert err.strip().count("\n") == 0
    assert len(err) < 1000
    assert err.strip().isprintable()
    assert list(tmp_path.iterdir()) == []


def test_run_prints_figures_and_where_it_lies(tmp_path, capsys):
    main(["run", "--method", "finetune", "--out", str(tmp_path), "--quiet", *SMALL])
    out = capsys.readouterr().out
    assert "ACC %" in out
    assert "finetune" in out
    folder = out.split("Everything about this run:")[1].strip()
    assert os.path.exists(os.path.join(folder, "results.json"))
    main(["run", "--method", "finetune", "--out", str(tmp_path), "--quiet", *SMALL])
    assert "already finished" in capsys.readouterr().out


def test_config_file_and_flags_combine(tmp_path, capsys):
    config = tmp_path / "mine.yaml"
    config.write_text("method: finetune\nepochs: 1\nwidth: 3\nood-every: never\n")
    main(["run", "--config", str(config), "--width", "2", "--out", str(tmp_path / "runs"), "--quiet"])
    (folder,) = (tmp_path / "runs").iterdir()
    text = (folder / "config.yaml").read_text()
    assert "width: 2" in text
    assert "method: finetune" in text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_with_a_checkpoint_and_says_how_to_go_on(tmp_path, capsys, number, code):
    words = ["run", "--method", "finetune", "--width", "2", "--epochs", "40", "--samples-per-class", "10",
             "--ood-every", "never", "--threads", "1", "--out", str(tmp_path)]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "acr", *words, "--log-every", "1"],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if any('"step"' in events.read_text() for events in tmp_path.glob("*/events.jsonl")):
            break
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    assert "acr resume" in err
    (folder,) = tmp_path.iterdir()
    assert list((folder / "checkpoint").glob("step-*"))

    with pytest.raises(SystemExit) as asked:
        main([*words, "--quiet"])
    assert asked.value.code == 2
    assert "started before but not finished" in capsys.readouterr().err
    main(["resume", str(folder), "--quiet"])
    assert (folder / "results.json").exists()


def test_methods_doctor_and_data_list(capsys):
    main(["methods"])
    main(["doctor"])
    main(["data", "list"])
    out = capsys.readouterr().out
    for word in ("finetune", "joint", "torch", "threads", "split-digits"):
        assert word in out


def flags(**values):
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


QUICK = flags(method="finetune", samples_per_class=8, threads=1)


def test_a_whole_number_is_never_rounded(tmp_path):
    """--epochs 1.5 trained for two."""
    import acr
    from acr.errors import InputError
    from acr.runs.resolve import read_config_file

    (tmp_path / "config.yaml").write_text("epochs: 1.5")
    for values in ({"epochs": 1.5}, {"epochs": 2.0}, {"epochs": True}, read_config_file(tmp_path / "config.yaml"),
                   {"lr_milestones": [1.0]}, {"confidence_epochs": 1.5}):  # fmt: skip
        with pytest.raises(InputError, match="expected a whole number"):
            acr.run(out=tmp_path / "runs", **values)
    assert not (tmp_path / "runs").exists()


POOR = {
    "ascii output": {"PYTHONIOENCODING": "ascii"},
    "ascii locale": {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "warnings are errors": {"PYTHONWARNINGS": "error"},
    "no home": {"HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none/cache", "ACR_CACHE": ""},
    "no temporary folder": {"TMPDIR": "/proc/none"},
}


def run_in(environment, out):
    words = ["run", "--out", str(out), "--buffer-size", "200", *QUICK[2:], *SMALL, "--method", "er"]
    done = subprocess.run([sys.executable, "-m", "acr", *words], capture_output=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    assert b"warning: The memory has room for 200 samples" in done.stderr
    assert b"Unexpected" not in done.stderr + done.stdout
    return done


def test_poor_surroundings_do_not_stop_a_run(tmp_path):
    everything = {name: value for part in POOR.values() for name, value in part.items()}
    assert run_in(everything, tmp_path / "runs").stdout.isascii()


@pytest.mark.slow
@pytest.mark.parametrize("poor", POOR)
def test_each_of_these_surroundings_does_not_stop_a_run(tmp_path, poor):
    run_in(POOR[poor], tmp_path / "runs")


def test_a_cache_that_cannot_be_written_is_a_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as exit:
        main(["shift", "build", "split-digits", "--data-cache", str(tmp_path / "file" / "cache"), "--quiet"])
    assert exit.value.code in (1, 2)
    said = capsys.readouterr().err
    assert "Unexpected" not in said
    assert str(tmp_path / "file") in said


@pytest.mark.parametrize("error", [
    MemoryError(), RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you "
                                "tried to allocate 4000 bytes. Error code 12 (Cannot allocate memory)"),
    RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."), RuntimeError("MPS backend out of memory"),
    RuntimeError("not enough memory: you tried to allocate 10 bytes."),
])  # fmt: skip
def test_too_little_memory_is_a_sentence(tmp_path, capsys, monkeypatch, error):
    from acr.methods.finetune import Finetune

    def observe(self, batch):
        raise error

    monkeypatch.setattr(Finetune, "observe", observe)
    with pytest.raises(SystemExit) as exit:
        main(["run", "--out", str(tmp_path), "--quiet", *QUICK, *SMALL])
    assert exit.value.code == 1
    said = capsys.readouterr().err
    assert "Out of memory. Try a smaller --width (it is 2)" in said
    assert "Unexpected" not in said


@pytest.mark.parametrize("gone", ["deleted", "moved", "replaced"])
def test_a_run_whose_folder_is_gone_stops_at_the_next_write(tmp_path, capsys, monkeypatch, gone):
    """It went on to the end, writing to files that no longer had a name, or made the folder anew in part."""
    import shutil

    from acr.methods.finetune import Finetune

    observe, after = Finetune.observe, []

    def observe_and_lose(self, batch):
        if (batch.task, batch.step) == (1, 0):
            (folder,) = tmp_path.glob("runs/split*")
            shutil.rmtree(folder) if gone == "deleted" else folder.rename(tmp_path / "elsewhere")
            if gone == "replaced":
                folder.mkdir()
        after.append(batch.task)
        return observe(self, batch)

    monkeypatch.setattr(Finetune, "observe", observe_and_lose)
    with pytest.raises(SystemExit) as exit:
        main(["run", "--out", str(tmp_path / "runs"), "--quiet", "--log-every", "1", *QUICK, *SMALL])
    assert exit.value.code == 1
    assert "was deleted, moved or replaced while the run was writing to it" in capsys.readouterr().err
    assert after == [0, 1]
    left = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert left == []


def test_suggested_commands_can_be_copied_into_a_shell(tmp_path, capsys):
    import shlex

    out = tmp_path / "my runs; echo"
    folder = out / "a b"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("schema: 1\nmethod: finetune\n")
    with pytest.raises(SystemExit):
        main(["compare", str(folder), str(folder)])
    said = capsys.readouterr().err
    assert shlex.split(said.partition("Finish it with: ")[2]) == ["acr", "resume", str(folder)]
    (tmp_path / "no runs").mkdir()
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "no runs")])
    assert shlex.split(capsys.readouterr().err.partition("Make one with: ")[2])[:3] == ["acr", "run", "--out"]


def test_sigterm_ends_a_command_as_an_exception_does():
    code = (
        "import os, signal, tempfile; from acr.storage.signals import end_on_sigterm\n"
        "with end_on_sigterm(), tempfile.TemporaryDirectory() as folder:\n"
        "    print(folder, flush=True); os.kill(os.getpid(), signal.SIGTERM)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 143
    assert not os.path.exists(done.stdout.strip())
