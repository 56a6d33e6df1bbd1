"""Exported files answer as the classifier does, without this package, and tell what they need to tell and no more."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import acr
from acr.errors import AcrError, InputError
from acr.learner import exporting

DIGITS = load_digits()
PIXELS = (DIGITS.images / 16 * 255).astype(np.uint8)
NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])[DIGITS.target]


def pictures(channels, count=100):
    """Digits; in colour if there are three channels."""
    grey = PIXELS[:count]
    return grey if channels == 1 else np.stack([grey, 255 - grey, grey // 2], axis=-1)


@cache
def taught(method="acr", width=2, channels=1, **more):
    """A classifier after two visits."""
    model = acr.ContinualClassifier(
        method=method, width=width, image_size=8, epochs=2, buffer_size=40, threads=1, verbose=False, **more
    )
    rows = np.isin(DIGITS.target[:300], (0, 1, 2))
    model.partial_fit(pictures(channels, 300)[rows], NAMES[:300][rows])
    rows = np.isin(DIGITS.target[:300], (3, 4))
    return model.partial_fit(pictures(channels, 300)[rows], NAMES[:300][rows])


def channels_first(images):
    return images[:, None] if images.ndim == 3 else np.ascontiguousarray(images.transpose(0, 3, 1, 2))


@pytest.fixture(scope="module")
def pt2_file(tmp_path_factory):
    """A classifier as a .pt2 file, made once."""
    return taught().export(tmp_path_factory.mktemp("exported") / "model.pt2")


def difference(probabilities, model, images):
    return float(np.abs(probabilities - model.predict_proba(images)).max())


CASES = [
    ("acr", 2, 1),
    ("scr", 8, 3),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (("acr", 8, 3), ("er", 8, 1), ("cls-er", 2, 3))),
]


@pytest.mark.parametrize(("method", "width", "channels"), CASES)
def test_a_pt2_file_answers_as_the_classifier(method, width, channels, tmp_path):
    model = taught(method, width, channels)
    path = model.export(tmp_path / "model.pt2")
    told = {"classes.json": ""}
    program = torch.export.load(str(path), extra_files=told)
    images = pictures(channels)
    for count in (1, 7, 100):
        found = program.module()(torch.from_numpy(channels_first(images[:count]))).detach().numpy()
        assert found.shape == (count, 5)
        assert difference(found, model, images[:count]) <= 1e-4
    facts = json.loads(told["classes.json"])
    assert json.loads(facts["classes"]) == model.classes_.tolist()
    assert (facts["image_size"], facts["channels"]) == ("8", str(channels))
    assert [p.name for p in tmp_path.iterdir()] == ["model.pt2"]


@pytest.mark.parametrize(("method", "width", "channels"), CASES)
def test_an_onnx_file_answers_as_the_classifier(method, width, channels, tmp_path, capfd):
    for package in exporting.ONNX_PACKAGES:
        pytest.importorskip(package)
    import onnx
    import onnxruntime

    model = taught(method, width, channels)
    capfd.readouterr()
    path = model.export(tmp_path / "model.onnx")
    assert capfd.readouterr() == ("", "")
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    images = pictures(channels)
    for count in (1, 7, 100):
        (found,) = session.run(["probabilities"], {"images": channels_first(images[:count])})
        assert found.shape == (count, 5)
        assert difference(found, model, images[:count]) <= 1e-4
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["classes"]) == model.classes_.tolist()
    assert json.loads(facts["labels"]) == [{"str": name} for name in model.classes_]
    assert (facts["image_size"], facts["channels"]) == ("8", str(channels))
    (one,) = session.get_inputs()
    assert one.type == "tensor(uint8)"
    assert one.shape == ["batch", channels, 8, 8]
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    check_no_paths(path)


def test_a_pt2_file_needs_nothing_of_this_package(tmp_path, pt2_file):
    model = taught()
    np.save(tmp_path / "images.npy", channels_first(pictures(1)))
    code = (
        "import sys, numpy as np, torch\n"
        "sys.modules['acr'] = None\n"
        "program = torch.export.load(sys.argv[1]).module()\n"
        "np.save('answers.npy', program(torch.from_numpy(np.load('images.npy'))).detach().numpy())\n"
    )
    subprocess.run([sys.executable, "-c", code, str(pt2_file)], cwd=tmp_path, check=True)
    assert difference(np.load(tmp_path / "answers.npy"), model, pictures(1)) <= 1e-4


def check_no_paths(file):
    for secret in (str(Path(acr.__file__).parent), str(file.parent), "network.py", "site-packages"):
        assert secret.encode() not in file.read_bytes()


def test_a_file_says_nothing_about_the_machine_it_was_made_on(pt2_file):
    check_no_paths(pt2_file)


def test_labels_of_any_type_are_told_as_text_and_with_their_type(tmp_path):
    model = acr.ContinualClassifier(method="er", width=2, image_size=8, epochs=1, buffer_size=20, threads=1)
    model.fit(pictures(1, 6), [7, 7, "seven", "seven", (1, "x"), (1, "x")])
    told = {"classes.json": ""}
    torch.export.load(str(model.export(tmp_path / "m.pt2")), extra_files=told)
    facts = json.loads(told["classes.json"])
    assert json.loads(facts["classes"]) == [str(label) for label in model.classes_]
    assert {"int": "7"} in json.loads(facts["labels"])
    assert {"str": "seven"} in json.loads(facts["labels"])


@pytest.mark.slow
def test_a_classifier_without_memory_is_compared_on_random_images(tmp_path):
    model = taught("finetune")
    assert len(model.memory_) == 0
    program = torch.export.load(str(model.export(tmp_path / "model.pt2")))
    found = program.module()(torch.from_numpy(channels_first(pictures(1)))).detach().numpy()
    assert difference(found, model, pictures(1)) <= 1e-4


@pytest.mark.slow
def test_mixed_precision_is_exported_in_32_bits(tmp_path):
    try:
        model = taught("er", 8, precision="bf16-mixed")
    except InputError as error:
        pytest.skip(str(error))
    program = torch.export.load(str(model.export(tmp_path / "model.pt2")))
    images = torch.from_numpy(channels_first(pictures(1)))
    network = model._knowledge.method.network.eval()
    assert network.autocast is torch.bfloat16  # exporting has left it as it was
    network.autocast = None
    try:
        expected = network(images).softmax(1).detach()
    finally:
        network.autocast = torch.bfloat16
    assert float((program.module()(images) - expected).abs().max()) <= 1e-4


def test_a_file_is_replaced_only_on_request(tmp_path):
    path = tmp_path / "model.pt2"
    path.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        taught().export(path)
    assert path.read_text() == "mine"
    taught().export(path, overwrite=True)
    assert path.stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "says"), [("model.h5", "must end in .onnx"), ("model", "must end in .onnx"), (".", "must end in .onnx")]
)
def test_other_endings_are_refused(name, says, tmp_path):
    with pytest.raises(InputError, match=re.escape(says)):
        taught().export(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_not_replaced(tmp_path):
    (tmp_path / "model.pt2").mkdir()
    with pytest.raises(InputError, match="it is a folder"):
        taught().export(tmp_path / "model.pt2", overwrite=True)


def test_missing_packages_are_named_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "find_spec", lambda name: None if name == "onnxscript" else object())
    with pytest.raises(InputError, match="pip install onnxscript "):
        taught().export(tmp_path / "model.onnx")


def test_a_program_that_answers_differently_is_not_written(tmp_path, monkeypatch):
    """If the exporter changes a weight, or a method's predictor does not do what its logits do."""
    model = taught()
    method = model._knowledge.method
    monkeypatch.setattr(method, "logits", lambda images: method.network(images) * 1.01)
    with pytest.raises(AcrError, match="answers differently"):
        model.export(tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported_is_a_sentence(tmp_path, monkeypatch):
    class Branching(torch.nn.Module):
        def forward(self, images):
            return images.float().flatten(1)[:, :5] * (1 if images.sum() > 0 else 2)

    method = taught()._knowledge.method
    monkeypatch.setattr(method, "predictor", Branching)
    with pytest.raises(AcrError, match=r"cannot be exported to \.pt2"):
        taught().export(tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*words):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(AcrError, match="No space left"):
        taught().export(tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []
