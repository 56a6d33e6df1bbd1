"""No command executes what lies in the current folder or in a data folder, whatever it is called."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from pictures import picture, save

from acr.cli import COMMANDS, GROUPS
from acr.storage.workers import import_path
from acr.sweeps.ray_engine import RayEngine

POISON = ("json", "numpy", "torch", "PIL", "random", "yaml", "typing", "string", "decimal", "logging", "pickle", "csv",
          "importlib", "sitecustomize", "usercustomize", "acr", "rich", "pydantic", "filelock", "safetensors", "scipy",
          "sklearn", "matplotlib", "plotly", "jinja2", "nicegui", "psutil", "platformdirs", "cyclopts")  # fmt: skip
LINE = "import builtins, os\nwith builtins.open({marker!r}, 'a') as file:\n    file.write(__name__ + os.linesep)\n"

SMALL = ["--epochs=1", "--width=2", "--ood-every=never", "--threads=1", "--quiet"]
RUN = ["--dataset=folder:pictures", "--image-size=8", "--buffer-size=4", "--tasks=2", "--method=er", *SMALL]

LEARN = ["--image-size=8", "--buffer-size=8", "--method=er", "--epochs=1", "--width=2", "--threads=1", "--quiet"]

WORDS = {  # every command, with what it takes to go through all of it, and the exit code
    "methods": [([], 0)],
    "doctor": [([], 0)],
    "data list": [([], 0)],
    "data fetch": [(["split-digits"], 2)],
    "data check": [(["folder:pictures", "--image-size", "8", "--quiet"], 0)],
    "data show": [(["folder:pictures", "--quiet"], 0)],
    "shift list": [([], 0)],
    "shift build": [(["folder:pictures", "--ood-corruptions", "fog", "--quiet"], 0)],
    "shift show": [(["folder:pictures", "--ood-corruptions", "fog", "--ood-severities", "1", "--quiet"], 0)],
    "run": [(RUN, 0)],
    "resume": [(["FIRST"], 0)],
    "sweep": [(["recipe.yaml", "--jobs", "1"], 0)],
    "reproduce": [(["acc", "--jobs", "0"], 2)],  # all of it but the runs, which are those of a sweep
    "compare": [(["FIRST", "SECOND"], 0)],
    "report": [(["runs", "--csv", "csv"], 0)],
    "dashboard": [(["runs", "--port", "0"], 0)],
    "demo": [([], 0)],
    "learn": [(["model", "pictures", *LEARN], 0)],
    "predict": [(["model", "pictures/a"], 0)],
    "memory": [(["model", "list"], 0), (["model", "sheet", "-o", "sheet.png"], 0)],
    "gate": [(["model", "model", "pictures"], 0)],
    "export": [(["model", "model.pt2"], 0)],
}

PROGRAM = """
import json, sys
from pathlib import Path

def go():
    import acr.commands.demo, acr.data.readers.decoding, acr.shift.suite
    from acr.cli import main
    acr.data.readers.decoding.FEW = acr.shift.suite.FEW = 1  # so that there are child processes
    whole = acr.commands.demo.make_config
    small = {"epochs": 1, "width": 2, "ood_every": "never", "threads": 1}
    acr.commands.demo.make_config = lambda values: whole({**values, **small})
    acr.commands.demo.METHODS = ("finetune",)
    acr.storage.workers.cores = acr.data.readers.decoding.cores = lambda: 2
    try:
        import nicegui
        nicegui.ui.run = lambda **how: None
    except ImportError:
        pass
    for words, code in json.loads(sys.argv[1]):
        runs = [str(path.parent) for path in sorted(Path("runs").glob("*/config.yaml"))]
        words = [{"FIRST": runs[:1], "SECOND": runs[1:2]}.get(word, [word]) for word in words]
        words = [word for several in words for word in several]
        left = 0
        try:
            main(words)
        except SystemExit as ended:
            left = ended.code or 0
        assert left == code, (words, left)
        print("done", *words[:2], file=sys.stderr, flush=True)

go()
"""


def poison(folder: Path, marker: Path) -> None:
    """Lay modules into a folder that leave a trace when they are executed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in POISON:
        (folder / f"{name}.py").write_text(LINE.format(marker=str(marker)))


@pytest.fixture
def poisoned(tmp_path: Path) -> Path:
    here = tmp_path / "here"
    marker = tmp_path / "executed"
    for number, name in enumerate("abcd"):
        for i in range(12):
            save(here / f"pictures/{name}/{i}.png", picture(20 * number + i, (8, 8)))
        poison(here / "pictures" / name, marker)
    poison(here / "pictures", marker)
    poison(here, marker)
    grid = {"seed": [0]}
    fixed = {"dataset": "folder:pictures", "image_size": 8, "method": "finetune", "epochs": 1, "width": 2, "tasks": 2,
             "ood_every": "never"}  # fmt: skip
    (here / "recipe.yaml").write_text(yaml.safe_dump({"title": "t", "fixed": fixed, "grid": grid}))
    return here


def test_the_poison_works(poisoned: Path) -> None:
    """With Python's own rules a module of the current folder is executed: the test below could fail."""
    subprocess.run([sys.executable, "-c", "import yaml"], cwd=poisoned, check=True)
    assert (poisoned.parent / "executed").read_text().split() == ["yaml"]


@pytest.mark.skipif(sys.platform == "win32", reason="PATH and HOME are not all that Windows needs")
@pytest.mark.parametrize("names", [("data check", "shift build", "sweep"), pytest.param(None, marks=pytest.mark.slow)])
def test_no_command_executes_what_lies_in_the_current_folder(
    poisoned: Path, tmp_path: Path, names: tuple[str, ...] | None
) -> None:
    """Those that start other processes; and, where there is time, all of them."""
    known = {*COMMANDS, *(f"{group} {name}" for group, (_, commands) in GROUPS.items() for name in commands)}
    assert set(WORDS) == known, "every command is to be tried"
    calls = [([*name.split(), *words], code) for name in names or WORDS for words, code in WORDS[name]]
    isolated = "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); " + f"exec({PROGRAM!r})"
    environment = {"ACR_CACHE": str(tmp_path / "cache"), "PATH": "", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", isolated, json.dumps(import_path()), json.dumps(calls)],
        cwd=poisoned, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    marker = tmp_path / "executed"
    assert not marker.exists(), f"executed: {marker.read_text()}"
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert not list(poisoned.rglob("__pycache__"))


def test_python_m_acr_does_not_look_there_either(poisoned: Path, tmp_path: Path) -> None:
    """Not even the modules that are imported after Python itself has started."""
    environment = {"PYTHONPATH": str(Path(__file__).parents[1] / "src"), "HOME": str(tmp_path), "PATH": ""}
    for name in ("acr", "importlib", "typing", "sitecustomize", "usercustomize"):  # needed before our first line
        (poisoned / f"{name}.py").unlink()
    subprocess.run([sys.executable, "-m", "acr", "data", "list"], cwd=poisoned, env=environment, check=True,
                   capture_output=True)  # fmt: skip
    assert not (tmp_path / "executed").exists(), (tmp_path / "executed").read_text()


def test_ray_is_not_started_in_the_current_folder(poisoned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray hands the folder it is started in to its workers, as the first place to look for modules."""
    seen = []
    pretended = SimpleNamespace(init=lambda **how: seen.append(Path.cwd()), remote=lambda **how: lambda task: task)
    monkeypatch.setitem(sys.modules, "ray", pretended)
    monkeypatch.chdir(poisoned)
    RayEngine(jobs=1)
    RayEngine(jobs=1, address="somewhere:1")
    assert len(seen) == 2
    assert poisoned not in seen
    assert Path.cwd() == poisoned
