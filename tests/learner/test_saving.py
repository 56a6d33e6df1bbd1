"""A saved classifier is the classifier: the same bits after any pause, and the last good one after any accident."""

import hashlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from acr import ContinualClassifier
from acr.errors import AcrError, InputError
from acr.learner import saving
from acr.methods.method import method_class, method_names
from acr.storage import files

OPEN_ENDED = [name for name in method_names() if not method_class(name).sees_all_tasks]
QUICK = {"gdumb": {"fit_epochs": 2}, "hal": {"anchor_steps": 2}}


def tell(model, images):
    """Everything that two classifiers must agree on."""
    memory = model.memory_
    return [model.decision_function(images), memory.images, memory.labels.tolist(), memory.visits, model.n_visits_]


def same(a, b):
    return all(np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y for x, y in zip(a, b, strict=True))


def kinds(digit):
    """Labels of three kinds: text, numbers, tuples."""
    return (str(digit), digit, ("digit", digit))[digit % 3]


@pytest.mark.parametrize("method", OPEN_ENDED)
def test_saved_between_visits_is_as_if_never_saved(method, small, visit, digits, tmp_path):
    def lessons(model):
        yield model.partial_fit(*visit(0, 1, 2, part=slice(16), name=kinds))
        yield model.partial_fit(*visit(3, 4, 5, 6, part=slice(12), name=kinds))
        yield model.partial_fit(*visit(1, part=slice(16, 24), name=kinds))  # a class comes again

    unbroken = small(method=method, options=QUICK.get(method))
    *_, unbroken = lessons(unbroken)
    paused = small(method=method, options=QUICK.get(method))
    paused.partial_fit(*visit(0, 1, 2, part=slice(16), name=kinds)).save(tmp_path / "m")
    paused = ContinualClassifier.load(tmp_path / "m")
    paused.partial_fit(*visit(3, 4, 5, 6, part=slice(12), name=kinds)).save(tmp_path / "m")
    paused = ContinualClassifier.load(tmp_path / "m")
    paused.partial_fit(*visit(1, part=slice(16, 24), name=kinds))
    assert unbroken.classes_.tolist() == paused.classes_.tolist()
    assert {type(label) for label in paused.classes_} == {str, int, tuple}
    assert same(tell(unbroken, digits[3]), tell(paused, digits[3]))


CHILD = """
import sys, numpy as np
from acr import ContinualClassifier
images = np.load(sys.argv[2])
model = ContinualClassifier.load(sys.argv[1])
np.save(sys.argv[3], model.decision_function(images))
model.partial_fit(images, ["new"] * len(images))
model.save(sys.argv[1])
np.save(sys.argv[4], model.decision_function(images))
"""


def test_another_process_goes_on_where_this_one_stopped(small, visit, digits, tmp_path):
    model = small().partial_fit(*visit(0, 1))
    model.save(tmp_path / "m")
    np.save(tmp_path / "images.npy", digits[5])
    outputs = [tmp_path / "before.npy", tmp_path / "after.npy"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CHILD, tmp_path / "m", tmp_path / "images.npy", *outputs]
    subprocess.run(list(map(str, command)), env=environment, check=True, capture_output=True)
    assert np.array_equal(np.load(outputs[0]), model.decision_function(digits[5]))
    model.partial_fit(digits[5], ["new"] * len(digits[5]))
    assert np.array_equal(np.load(outputs[1]), model.decision_function(digits[5]))


def test_no_file_holds_code_and_none_is_left_over(small, visit, tmp_path):
    model = small().partial_fit(*visit(0, 1))
    model.save(tmp_path / "m")
    model.partial_fit(*visit(2))
    model.save(tmp_path / "m")
    names = sorted(path.name for path in (tmp_path / "m").iterdir() if path.name != ".lock")
    assert names[0] == "model.json"
    assert len(names) == 2
    assert saving.TENSORS.fullmatch(names[1])
    json.loads((tmp_path / "m" / "model.json").read_text())
    load_file(tmp_path / "m" / names[1])


def test_a_deleted_image_is_in_no_file(small, visit, tmp_path):
    model = small().partial_fit(*visit(0, 1))
    model.save(tmp_path / "m")
    image = model.memory_.images[0]
    everything = lambda: b"".join(path.read_bytes() for path in (tmp_path / "m").iterdir())  # noqa: E731
    assert image.tobytes() in everything()
    model.drop_from_memory(indices=[0])
    model.save(tmp_path / "m")
    assert image.tobytes() not in everything()


class Fault(BaseException):
    """Ends a save as a kill would: nothing after it is done."""


@pytest.mark.parametrize("fault", range(6))
def test_a_save_that_is_interrupted_leaves_the_last_one(fault, small, visit, digits, tmp_path, monkeypatch):
    """Interrupted before the Nth write, rename or removal."""
    model = small().partial_fit(*visit(0, 1))
    model.save(tmp_path / "m")
    before = model.decision_function(digits[0])
    model.partial_fit(*visit(2))
    after = model.decision_function(digits[0])
    calls = iter(range(100))

    def counted(function):
        def call(*arguments, **keywords):
            if next(calls) == fault:
                raise Fault
            return function(*arguments, **keywords)

        return call

    monkeypatch.setattr(os, "replace", counted(os.replace))
    monkeypatch.setattr(os, "fsync", counted(os.fsync))
    monkeypatch.setattr(files, "write_bytes", counted(files.write_bytes))
    ended = False
    try:
        model.save(tmp_path / "m")
        ended = True
    except Fault:
        pass
    monkeypatch.undo()
    found = ContinualClassifier.load(tmp_path / "m").decision_function(digits[0])
    assert any(
        found.shape == known.shape and np.array_equal(found, known)
        for known in ((after,) if ended else (before, after))
    )


def test_a_full_disk_is_said_and_the_last_model_stays(small, visit, digits, tmp_path, monkeypatch):
    model = small().partial_fit(*visit(0, 1))
    model.save(tmp_path / "m")
    before = model.decision_function(digits[0])
    model.partial_fit(*visit(2))

    def full(path, content):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(files, "write_bytes", full)
    with pytest.raises(AcrError, match=r"No space left on device. What was saved there before is still there"):
        model.save(tmp_path / "m")
    monkeypatch.undo()
    assert np.array_equal(ContinualClassifier.load(tmp_path / "m").decision_function(digits[0]), before)


def test_another_classifier_is_not_overwritten_unasked(small, visit, tmp_path):
    small().partial_fit(*visit(0, 1)).save(tmp_path / "m")
    other = small().partial_fit(*visit(2, 3))
    with pytest.raises(InputError, match="another classifier already"):
        other.save(tmp_path / "m")
    other.save(tmp_path / "m", overwrite=True)
    assert ContinualClassifier.load(tmp_path / "m").classes_.tolist() == ["2", "3"]


def test_two_processes_do_not_mix(small, visit, tmp_path):
    small().partial_fit(*visit(0, 1)).save(tmp_path / "m")
    first, second = (ContinualClassifier.load(tmp_path / "m") for _ in range(2))
    first.partial_fit(*visit(2)).save(tmp_path / "m")
    second.partial_fit(*visit(3))
    with pytest.raises(InputError, match="changed by another program"):
        second.save(tmp_path / "m")
    assert ContinualClassifier.load(tmp_path / "m").classes_.tolist() == ["0", "1", "2"]


def test_a_folder_with_other_things_is_refused(small, visit, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty and holds no classifier"):
        small().partial_fit(*visit(0, 1)).save(tmp_path)


def test_nothing_learned_cannot_be_saved(small, tmp_path):
    with pytest.raises(ValueError, match="has not learned anything"):
        small().save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.fixture
def saved(small, visit, tmp_path):
    return small().partial_fit(*visit(0, 1)).save(tmp_path / "m")


def changed(folder: Path, **changes):
    content = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**content, **changes}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: changed(f, schema=99, version="9.0"), "saved by version '9.0'.*Update this program"),
        (lambda f: changed(f, kind="other"), "not written by this program"),
        (lambda f: changed(f, labels="x"), "damaged: labels"),
        (lambda f: changed(f, labels=[{"str": "a"}]), "cannot be restored"),
        (lambda f: changed(f, tensors="../x.safetensors"), "not a file of tensors"),
        (lambda f: changed(f, state={"tensor": "no"}), "cannot be restored"),
        (lambda f: changed(f, config={}), "cannot be restored"),
        (lambda f: changed(f, image_shape=[3, 8, 8]), "cannot be restored"),
        (lambda f: changed(f, parameters={"widht": 3}), "cannot be restored"),
        (lambda f: (f / "model.json").write_text("{"), "damaged"),
        (lambda f: (f / "model.json").write_bytes(b"\xff\xfe"), "damaged"),
        (lambda f: (f / "model.json").unlink(), "does not hold a classifier"),
        (lambda f: next(f.glob("tensors-*")).write_bytes(b"x"), "checksum differs"),
        (lambda f: next(f.glob("tensors-*")).unlink(), "incomplete"),
    ],
)
def test_damaged_and_foreign_folders_are_refused(damage, said, saved):
    damage(saved)
    with pytest.raises(InputError, match=said):
        ContinualClassifier.load(saved)


def test_links_are_not_followed(saved, tmp_path):
    target = tmp_path / "elsewhere.json"
    (saved / "model.json").rename(target)
    (saved / "model.json").symlink_to(target)
    with pytest.raises(InputError, match="link"):
        ContinualClassifier.load(saved)


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        ContinualClassifier.load(tmp_path / "nowhere")


def test_a_folder_never_decides_which_code_runs(saved):
    content = json.loads((saved / "model.json").read_text())
    changed(saved, config={**content["config"], "network": "os:system"})
    with pytest.raises(InputError, match=r"os:system.*If you trust it"):
        ContinualClassifier.load(saved)


def test_tensors_of_another_shape_are_refused(saved):
    path = next(saved.glob("tensors-*"))
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("conv.weight"))
    tensors[name] = tensors[name][:1]
    save_file(tensors, path)
    digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    path.rename(saved / f"tensors-{digest}.safetensors")
    changed(saved, tensors=f"tensors-{digest}.safetensors")
    with pytest.raises(InputError, match="cannot be restored"):
        ContinualClassifier.load(saved)


def test_a_method_that_has_changed_since_is_said(saved):
    changed(saved, revision=0)
    with pytest.warns(UserWarning, match="It answers as before"):
        ContinualClassifier.load(saved)


JUNK = (
    None,
    True,
    -1,
    10**17,
    1e300,
    "",
    "x" * 5000,
    "\x1b[31m",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    [-1],
    ["../../etc"],
    {"tensor": "x"},
)


def every_place(content):
    """All places in a nested content, at most three levels deep."""
    for key in content if isinstance(content, dict) else range(min(3, len(content))):
        yield (key,)
        if isinstance(content[key], (dict, list)):
            yield from ((key, *rest) for rest in list(every_place(content[key]))[:40] if len(rest) < 3)


def test_no_value_in_a_model_makes_anything_but_a_sentence(saved, digits):
    """Every field of model.json replaced by junk: it is refused for people, or it makes no difference."""
    path = saved / "model.json"
    whole = json.loads(path.read_text())
    refused = []
    for number, place in enumerate(every_place(whole)):
        forged = json.loads(json.dumps(whole))
        inside = forged
        for key in place[:-1]:
            inside = inside[key]
        inside[place[-1]] = JUNK[number % len(JUNK)]
        path.write_text(json.dumps(forged))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ContinualClassifier.load(saved).predict(digits[0][:2])
        except InputError as error:
            refused.append(str(error))
    assert len(refused) > number // 2
    assert max(map(len, refused)) < 1000
    assert not any("\x1b" in sentence for sentence in refused)
