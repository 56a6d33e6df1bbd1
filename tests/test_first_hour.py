"""What a new user meets in the first hour: help, wrong input, progress, reprs, and the types that editors see."""

import io
import re
import subprocess
import sys
import types
from pathlib import Path

import keywords
import numpy as np
import pytest
import torch
from fabricated_runs import make_run
from rich.console import Console

import acr
from acr.cli import main
from acr.commands.flags import config_flags
from acr.commands.sweep import show_table
from acr.config import DataConfig
from acr.data.catalog import find
from acr.data.loading import load_dataset
from acr.errors import InputError
from acr.runs.run import load_run
from acr.shift import corrupt
from acr.storage import progress
from acr.sweeps.progress import SweepProgress
from acr.sweeps.sweep import SweepState
from acr.training.progress import RunProgress

ROOT = Path(__file__).parent.parent


def said(capsys, words, code=2):
    """What a command prints on standard error when it refuses."""
    with pytest.raises(SystemExit) as exit:
        main(words)
    assert exit.value.code == code
    return capsys.readouterr().err


# --- help ------------------------------------------------------------------------------------------------------------


def test_every_flag_says_its_default_and_where_it_comes_from():
    texts = {flag.name: flag.annotation.__metadata__[0].help for flag in config_flags(everything=True)}
    assert [name for name, text in texts.items() if "[default: " not in text and "by default" not in text] == []
    assert "the data set's; split-digits: 20" in texts["epochs"]
    assert "the method's on it (er, " in texts["learning_rate"]
    assert "challenging (acr), reservoir (er)" in texts["policy"]


def test_help_is_short_and_help_all_has_the_rest(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    main(["run", "--help"])
    short = capsys.readouterr().out
    for word in ("--method", "--epochs", "--help-all", "--debug", "Examples:", "acr run --method er"):
        assert word in short
    assert "--weight-decay" not in short
    assert len(short.splitlines()) < 80
    main(["run", "--help-all"])
    everything = capsys.readouterr().out
    for flag in config_flags(everything=True):
        assert f"--{flag.name.replace('_', '-')} " in everything
    main(["--help"])
    out = capsys.readouterr().out
    assert "--install-completion" in out
    assert "--debug" in out


def test_completion_knows_commands_and_flags():
    from acr.cli import app

    script = app.generate_completion(shell="bash")
    for word in ("reproduce", "--buffer-size", "--ood-severities"):
        assert word in script


@pytest.mark.parametrize("width", ["80", "120"])
def test_data_list_fits_the_terminal(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setenv("FORCE_COLOR", "1")
    main(["data", "list"])
    text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, text.splitlines())) <= int(width)
    assert "split-mini-imagenet" in text
    assert "image-net.org" not in text
    main(["data", "list", "split-mini-imagenet"])
    assert "image-net.org" in capsys.readouterr().out


# --- wrong input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "extra"], "acr run does not know what to do with 'extra'. See: acr run --help"),
        (["run", "--quirk", "wrapped-ood", "b"], "There is no quirk 'b'."),
        (["run", "--class-order", "foo"], "--class-order 'foo': expected file, random:SEED, or a list of labels"),
        (["run", "--epochs", "many"], "--epochs 'many': expected a whole number."),
        (["run", "--protocol", "fast"], "--protocol 'fast': expected sound or published."),
        (["run", "--method"], "acr run --method needs a value: method to train"),
        (["run", "--lr-milestones", "x"], "--lr-milestones 'x': expected a whole number."),
        (["run", "--image-size", "5"], "--image-size 5: expected at least 8."),
        (["run", "--image-size", "2000"], "--image-size 2000: expected at most 1024."),
        (["shift", "show"], "acr shift show needs a NAME: name of the data set"),
        (["compare", "a"], "acr compare needs a SECOND: folder of another finished run"),
    ],
)
def test_wrong_words_get_a_sentence(words, says, capsys):
    err = said(capsys, words)
    assert says in err
    assert "Token" not in err
    assert "[" not in err


def test_a_path_is_not_a_data_set_but_names_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    np.savez(tmp_path / "mine.npz", images=np.zeros((2, 8, 8), np.uint8), labels=[0, 1])
    (tmp_path / "arrays").mkdir()
    np.save(tmp_path / "arrays" / "x.npy", np.zeros(2))
    for name, meant in (("photos", "folder:photos"), ("mine.npz", "npz:mine.npz"), ("arrays", "npz:arrays")):
        with pytest.raises(InputError, match=re.escape(f"Did you mean {meant}?")):
            find(name)
    with pytest.raises(InputError, match="Did you mean 'split-digits'"):
        find("split-digit")


def test_a_config_of_another_method(tmp_path, capsys):
    config = tmp_path / "config.yaml"
    config.write_text("method: acr\ntemperature: 0.2\npolicy: hard\nseed: 3\n")
    small = ["--epochs", "1", "--width", "2", "--ood-every", "never", "--quiet", "--out", str(tmp_path / "runs")]
    words = ["run", "--config", str(config), "--method", "finetune", *small]
    err = said(capsys, words)
    assert "options that finetune does not have: temperature, policy" in err
    assert "--other-method" in err
    main([*words, "--other-method"])
    assert "temperature 0.2, policy hard" in capsys.readouterr().out
    (folder,) = (tmp_path / "runs").iterdir()
    assert load_run(folder).values["seed"] == 3
    assert "temperature" not in load_run(folder).values


def test_an_unknown_scenario_is_answered_with_those_there_are(tmp_path):
    run = load_run(make_run(tmp_path, "er", 0, corruptions=("fog", "snow")))
    with pytest.raises(KeyError) as error:
        run.accuracy["rain/1"]
    assert "There is no scenario 'rain/1'" in str(error.value)
    assert "clean, fog/1, ood, snow/1" in str(error.value)
    assert isinstance(error.value, InputError)
    assert "rain/1" not in run.accuracy
    assert run.accuracy.get("rain/1") is None


def test_the_result_of_a_method_that_is_not_installed_is_shown(tmp_path, capsys):
    folder = make_run(tmp_path, "somebody-elses", 0)
    main(["resume", str(folder)])
    out = capsys.readouterr().out
    assert "already finished" in out
    assert "somebody-elses" in out
    assert acr.resume_run(folder, device="cpu").finished


# --- images ----------------------------------------------------------------------------------------------------------


def test_corrupt_and_from_arrays_accept_the_same_layouts():
    rng = np.random.default_rng(0)
    first = rng.integers(0, 256, (3, 3, 10, 12), dtype=np.uint8)
    last = np.ascontiguousarray(first.transpose(0, 2, 3, 1))
    foggy = corrupt(first, "fog")
    np.testing.assert_array_equal(corrupt(last, "fog"), foggy.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(corrupt(torch.from_numpy(last), "fog").numpy(), foggy.transpose(0, 2, 3, 1))
    grey = first[:, 0]
    np.testing.assert_array_equal(corrupt(grey, "fog"), corrupt(grey[:, None], "fog")[:, 0])
    floats = corrupt(last / 255.0, "fog")
    assert floats.dtype == np.float32
    assert floats.shape == last.shape
    np.testing.assert_allclose(floats * 255, corrupt(last, "fog"), atol=0.51)
    for images in (first, last, grey, last / 255.0, torch.from_numpy(first).float().div(255).requires_grad_()):
        shape = acr.ImageSet.from_arrays(images, [0, 1, 2]).images.shape
        assert shape == (3, 1 if images is grey else 3, 10, 12)
    for images in (np.zeros((2, 5, 8, 8), np.uint8), np.zeros((8, 8), np.uint8)):
        with pytest.raises(InputError, match="N x H x W"):
            corrupt(images, "fog")
        with pytest.raises(InputError, match="N x H x W"):
            acr.ImageSet.from_arrays(images, [0, 1])


def test_reprs_are_one_short_line(tmp_path):
    data = load_dataset("split-digits")
    run = load_run(make_run(tmp_path, "er", 4))
    shown = {
        repr(data): "1,440 training",
        repr(data.train): "1,440 images of 1x8x8, 10 classes",
        repr(run): "seed 4: ACC",
    }
    for text, part in shown.items():
        assert part in text
        assert "\n" not in text
        assert len(text.replace(str(run.folder), "")) < 120
    (run.folder / "results.json").write_text("{torn")
    assert str(run.folder) in repr(load_run(run.folder))


def test_docs_and_code_agree_on_the_limits_of_images():
    field = DataConfig.model_fields["image_size"]
    low, high = (next(getattr(p, name) for p in field.metadata if hasattr(p, name)) for name in ("ge", "le"))
    assert f"`--image-size` takes {low} to {high} pixels" in (ROOT / "docs" / "data.md").read_text()
    assert f"{low} to {high}" in field.description


# --- progress --------------------------------------------------------------------------------------------------------


class Shell:
    """As much of a notebook's kernel as progress asks for."""

    kernel = object()

    def __init__(self):
        self.lines = []

    def get_ipython(self):
        return self

    def display(self, content, raw, display_id):
        self.lines.append(content["text/plain"])
        return self

    def update(self, content, raw):
        self.lines.append(content["text/plain"])


@pytest.fixture
def notebook(monkeypatch):
    shell = Shell()
    module = types.SimpleNamespace(get_ipython=shell.get_ipython, display=types.SimpleNamespace(display=shell.display))
    monkeypatch.setitem(sys.modules, "IPython", module)
    return shell


def test_python_shows_progress_where_a_person_looks_and_nowhere_else(monkeypatch, tmp_path, capsys, notebook):
    seen = []
    monkeypatch.setattr("acr.launch.run_config", lambda config, **how: seen.append(config.quiet))
    acr.run("finetune", out=tmp_path)  # a notebook
    monkeypatch.delitem(sys.modules, "IPython")
    acr.run("finetune", out=tmp_path)  # a pipe
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    acr.run("finetune", out=tmp_path)  # a terminal
    acr.run("finetune", out=tmp_path, quiet=True)
    assert seen == [False, True, False, True]


def test_a_notebook_gets_one_line_that_is_replaced(notebook, capsys, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("acr.training.progress.time.monotonic", lambda: float(next(clock)))
    with RunProgress(3) as shown:
        for step in range(3):
            shown.step(f"task 1, step {step}", 0.5, 32)
    assert notebook.lines[1].startswith("task 1, step 0 loss 0.500")
    assert notebook.lines[-1].startswith("3 of 3 steps in ")
    assert capsys.readouterr() == ("", "")


def test_without_a_kernel_there_is_no_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    assert not progress.in_notebook()
    monkeypatch.setitem(
        sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: object())
    )  # a terminal's IPython
    assert not progress.in_notebook()


def test_a_sweep_ends_with_a_line_per_config(tmp_path, capsys):
    folders = [make_run(tmp_path, method, seed) for method in ("acr", "er") for seed in (0, 1)]
    jobs = [types.SimpleNamespace(folder=folder) for folder in folders]
    show_table(types.SimpleNamespace(found=jobs[:1], done=jobs[1:]))
    lines = capsys.readouterr().out.strip().splitlines()
    assert [line.split()[0] for line in lines] == ["method", "ACR", "ER"]
    accuracies = [100 * load_run(folder).summary()["acc"] for folder in folders[:2]]
    assert f"{sum(accuracies) / 2:.1f} ({accuracies[0]:.1f}, {accuracies[1]:.1f})" in lines[1]


def test_the_bar_of_a_sweep_has_a_line_of_its_own(tmp_path):
    job = types.SimpleNamespace(name="a-run", folder=tmp_path, started=0.0, config=None)
    state = SweepState([job], running=[job])
    console = Console(width=80, file=io.StringIO())
    console.print(SweepProgress(1).table(state))
    assert any(line.startswith("a-run") for line in console.file.getvalue().splitlines())


# --- types and README ------------------------------------------------------------------------------------------------


def test_the_keywords_of_run_are_those_of_the_config_and_the_methods():
    written = keywords.FILE.read_text(encoding="utf-8")
    assert written == keywords.content(), "run: python tests/helpers/keywords.py"


@pytest.mark.slow
def test_mypy_finds_a_misspelt_keyword(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        'import acr\n\nacr.run("er", seed=1, second_view="strong", options={"mine": 3})\n'
        'acr.run(metod="er")\nacr.run(buffer_size="many")\n'
    )
    words = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--ignore-missing-imports", str(program)]
    found = subprocess.run(words, capture_output=True, text=True, cwd=ROOT).stdout
    assert re.findall(r"program\.py:(\d+): error", found) == ["4", "5"], found


def test_what_readme_shows_exists_and_agrees():
    readme, project = (ROOT / "README.md").read_text(), (ROOT / "pyproject.toml").read_text()
    for link in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", readme):
        assert (ROOT / link).exists(), link
    assert (ROOT / "docs" / "report.png").stat().st_size < 200_000
    assert re.search(r'requires-python = ">=3\.10"', project)
    assert "3.10 and newer" in (ROOT / "docs" / "badges" / "python.svg").read_text()
    assert "MIT" in (ROOT / "docs" / "badges" / "licence.svg").read_text()
    assert "MIT License" in (ROOT / "LICENSE").read_text()
    for extra in re.findall(r'"\.\[(\w+)\]"', readme):
        assert f"\n{extra} = [" in project
    citation = (ROOT / "CITATION.cff").read_text()
    title = "Continual Learning: Less Forgetting, More OOD Generalization via Adaptive Contrastive Replay"
    assert title in citation
    assert title in readme.replace("{OOD}", "OOD")
    assert "2410.07110" in citation
    assert "2410.07110" in readme
