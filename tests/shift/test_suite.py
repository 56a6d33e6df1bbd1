import shutil
import subprocess
import sys

import numpy as np
import pytest

from acr.data.images import ImageSet
from acr.errors import AcrError, InputError
from acr.shift import PAPER_CORRUPTIONS, corrupt
from acr.shift import suite as suite_module
from acr.shift.suite import ShiftSpec, build_suite
from acr.testing import toy_data

SPEC = ShiftSpec.make(("fog", "gaussian_noise"), (1, 3), "cifar-c")


@pytest.fixture(scope="module")
def test_set() -> ImageSet:
    return toy_data(classes=3, test=5).test


def test_the_default_is_the_papers_eleven():
    spec = ShiftSpec.make(None, (1,), "imagenet-c")
    assert spec.corruptions == PAPER_CORRUPTIONS
    assert len(spec) == 11


def test_scenarios_hold_what_corrupt_gives(tmp_path, test_set):
    suite = build_suite(test_set, "toy", SPEC, tmp_path, quiet=True)
    assert list(suite) == ["fog/1", "fog/3", "gaussian_noise/1", "gaussian_noise/3"]
    for scenario, images in suite.items():
        name, severity = scenario.split("/")
        np.testing.assert_array_equal(images, corrupt(test_set.images, name, int(severity), "cifar-c"))
        assert not images.flags.writeable


def test_built_once_and_shared(tmp_path, test_set, monkeypatch):
    build_suite(test_set, "toy", SPEC, tmp_path, quiet=True)
    monkeypatch.setattr(suite_module, "_corrupt_part", None)  # building would fail now
    again = build_suite(test_set, "toy", SPEC, tmp_path, quiet=True)
    assert len(again) == 4
    part = ShiftSpec.make(("fog",), (3,), "cifar-c")  # another selection finds what it shares
    assert list(build_suite(test_set, "toy", part, tmp_path, quiet=True)) == ["fog/3"]


def test_other_images_other_entries(tmp_path, test_set):
    first = build_suite(test_set, "toy", SPEC, tmp_path, quiet=True)["fog/1"]
    changed = ImageSet(255 - test_set.images, test_set.labels)
    second = build_suite(changed, "toy", SPEC, tmp_path, quiet=True)["fog/1"]
    assert not np.array_equal(first, second)


def test_a_damaged_copy_is_noticed_and_built_again(tmp_path, test_set):
    whole = np.array(build_suite(test_set, "toy", SPEC, tmp_path, quiet=True)["fog/1"])
    for path in tmp_path.glob("shift/*/images.npy"):
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        path.write_bytes(bytes(content))
    np.testing.assert_array_equal(build_suite(test_set, "toy", SPEC, tmp_path, quiet=True)["fog/1"], whole)


def test_workers_give_the_same_bytes(tmp_path, test_set, monkeypatch):
    alone = build_suite(test_set, "toy", SPEC, tmp_path / "a", quiet=True)
    monkeypatch.setattr(suite_module, "FEW", 0)
    monkeypatch.setattr(suite_module, "cores", lambda: 2)
    together = build_suite(test_set, "toy", SPEC, tmp_path / "b", quiet=True)
    for name in alone:
        np.testing.assert_array_equal(alone[name], together[name])


def test_a_script_without_a_guard_can_build(tmp_path):
    """The children do not run the user's script again."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom acr.shift import suite\nfrom acr.testing import toy_data\n"
        "suite.FEW, suite.cores = 0, lambda: 2\n"
        "spec = suite.ShiftSpec.make(('fog',), (1,), 'cifar-c')\n"
        "print(len(suite.build_suite(toy_data().test, 'toy', spec, Path(sys.argv[1]), quiet=True)['fog/1']))\n"
    )
    done = subprocess.run([sys.executable, script, tmp_path / "cache"], capture_output=True, text=True, timeout=200)
    assert done.stdout == "24\n", done.stderr


def test_a_child_that_dies_is_told_of(tmp_path, test_set, monkeypatch):
    monkeypatch.setattr(suite_module, "FEW", 0)
    monkeypatch.setattr(suite_module, "cores", lambda: 2)
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(AcrError, match="A process that corrupts images ended with code 1"):
        build_suite(test_set, "toy", SPEC, tmp_path, quiet=True)


def test_sizes_are_told_before_building(tmp_path, test_set, capsys):
    build_suite(test_set, "toy", SPEC, tmp_path)
    assert "4 x 15 images" in capsys.readouterr().err
    build_suite(test_set, "toy", SPEC, tmp_path)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((("fgo",), (1,), "cifar-c"), "Did you mean 'fog'"),
        ((("fog",), (6,), "cifar-c"), "everit"),
        ((("fog",), (1,), "cifar"), "cifar-c"),
        (((), (1,), "cifar-c"), "a corruption and a severity"),
    ],
)
def test_refusals(arguments, words):
    with pytest.raises(InputError, match=words):
        ShiftSpec.make(*arguments)
