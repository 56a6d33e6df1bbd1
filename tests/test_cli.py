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
