"""Methods of other packages: the example is installed and used; broken ones are named, and the others still work."""

import json
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.version import Version

from acr.cli import main
from acr.errors import InputError
from acr.methods import method
from acr.methods.method import REGISTRY, Method, method_class, method_classes, method_names, method_problems
from acr.runs.resolve import make_config
from acr.sweeps.recipe import known_fields

PACKAGE = Path(__file__).parents[2] / "examples" / "own_package"

TRY_IT = """
import json, sys
import pytest, torch
import acr.testing.rehearsal
from acr.cli import main

torch.backends.mkldnn.enabled = False  # faster for networks as small as these
acr.testing.rehearsal.WIDTH = 2
main(["methods"])
print("-----")
main(json.loads(sys.argv[1]))
print("-----")
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", sys.argv[2]]))
"""


def is_installed(package: str, least: str) -> bool:
    """Whether a package is there in this version or a newer one. It is not imported: setuptools changes the process."""
    try:
        return Version(version(package)) >= Version(least)
    except PackageNotFoundError:
        return False


@pytest.mark.slow
def test_the_example_package_is_installed_listed_run_and_checked(tmp_path: Path) -> None:
    if not (is_installed("pip", "20") and is_installed("setuptools", "70.1")):
        pytest.skip("building a package takes pip and setuptools 70.1 or newer")
    source, target = tmp_path / "source", tmp_path / "installed"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    built = subprocess.run([*pip, "--target", target, source], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    words = ["run", "--method", "balanced-replay", "--epochs", "2", "--width", "2", "--samples-per-class", "20",
             "--buffer-size", "20", "--threads", "1", "--ood-every", "never", "--out", str(tmp_path / "runs"),
             "--quiet"]  # fmt: skip
    code = f"import sys; sys.path.insert(0, {str(target)!r})\n{TRY_IT}"
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(words), str(source / "tests")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    listed, run, checked = done.stdout.split("-----\n")
    assert "\nbalanced-replay  Replay in which every class" in listed
    assert "\nbalanced-replay" in run
    assert "2 passed" in checked
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "results.json").read_text())["method"] == "balanced-replay"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a package of one module with entry points, as pip would leave it; the end of the test removes it."""
    monkeypatch.setattr(method, "REGISTRY", before := dict(REGISTRY))
    modules = set(sys.modules)

    def forget() -> None:
        method._installed.cache_clear()
        method._load.cache_clear()

    def write(package: str, code: str, **entries: str) -> None:
        module = package.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        rows = "".join(f"{name.replace('_', '-')} = {value}\n" for name, value in entries.items())
        (info / "entry_points.txt").write_text(f"[acr.methods]\n{rows}")
        monkeypatch.syspath_prepend(tmp_path)
        forget()

    forget()
    yield write
    assert method.REGISTRY is before
    for name in set(sys.modules) - modules:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
    monkeypatch.undo()
    forget()


GOOD = """
from acr.methods.finetune import Finetune
class Good(Finetune):
    name = "good"
    summary = "a method [of] another package"
"""
CLASH = """
from acr.config import MethodOptions
from acr.methods.finetune import Finetune
class Clashing(Finetune):
    name = "odd"
    class Options(MethodOptions):
        epochs: int = 1
"""
BROKEN = {
    "import-error": ("import a_module_that_nobody_has", "import_error:Method",
                     r"import_error:Method cannot be imported \(ModuleNotFoundError: .*a_module_that_nobody_has"),
    "no-such-class": ("", "no_such_class:Method", r"cannot be imported \(AttributeError"),
    "raises": ("raise RuntimeError('one\\ntwo')", "raises:Method", r"\(RuntimeError: one two\)"),
    "function": ("def make(): pass", "function:make", r"is not a subclass of acr\.methods\.method\.Method"),
    "other-class": ("class Other: pass", "other_class:Other", "other_class:Other is not a subclass of"),
    "nameless": ("from acr.methods.method import Method\nclass Mine(Method): pass", "nameless:Mine", "has no name"),
    "other-name": (GOOD, "other_name:Good", "calls itself 'good'; class and entry point must use one name"),
    "clashing": (CLASH, "clashing:Clashing", r"the options \['epochs'\] have names that are already fields"),
    "registers": ("from acr.methods.method import *\n@register\nclass ER(Method):\n    name = 'er'", "registers:ER",
                  r"\(InputError: A method 'er' exists already"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_package_is_named_and_spares_the_others(kind: str, install, capsys) -> None:
    code, value, why = BROKEN[kind]
    install(kind, code, odd=value)
    install("good-package", GOOD, good="good_package:Good")
    with pytest.raises(InputError, match=f"The package {kind} has a method 'odd' that cannot be used: .*{why}"):
        method_class("odd")
    assert "odd" in method_names()
    assert [cls.name for cls in method_classes()] == [*REGISTRY, "good"]
    main(["methods"])
    said = capsys.readouterr()
    assert "a method [of] another" in said.out
    assert "er-ace" in said.out
    assert said.err.count("\n") == 1
    assert f"The package {kind} has" in said.err
    with pytest.raises(SystemExit) as ended:
        main(["run", "--method", "odd"])
    assert ended.value.code == 2
    assert f"The package {kind} has" in capsys.readouterr().err


def test_other_commands_work_beside_a_broken_package(install, tmp_path: Path, capsys) -> None:
    for kind in ("import-error", "clashing"):
        install(kind, BROKEN[kind][0], **{kind: BROKEN[kind][1]})
    main(["run", "--method", "finetune", "--epochs", "1", "--width", "2", "--samples-per-class", "5", "--ood-every",
          "never", "--threads", "1", "--quiet", "--out", str(tmp_path / "runs")])  # fmt: skip
    assert "finetune" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"no config field 'epoch'\. Did you mean 'epochs'"):
        make_config({"epoch": 3})
    assert "policy" in known_fields()


def test_a_name_that_acr_has_is_not_taken_over(install) -> None:
    install("bold", GOOD.replace('"good"', '"er"'), er="bold:Good")
    assert method_class("er").__module__ == "acr.methods.er"
    assert method_problems() == [
        "The package bold has a method 'er' that cannot be used: acr itself has one of that name."
    ]


def test_two_packages_with_one_name(install) -> None:
    install("first", GOOD, good="first:Good")
    install("second", GOOD, good="second:Good")
    with pytest.raises(InputError, match=r"Several packages have a method 'good': first and second. Uninstall all but"):
        method_class("good")
    assert len(method_problems()) == 1


def test_a_class_may_be_registered_and_installed(install) -> None:
    code = GOOD.replace("class Good", "from acr.methods.method import register\n@register\nclass Good")
    install("both", code, good="both:Good")
    cls = method_class("good")
    assert issubclass(cls, Method)
    assert method_class("good") is cls
    assert method_problems() == []
    assert method_names().count("good") == 1
