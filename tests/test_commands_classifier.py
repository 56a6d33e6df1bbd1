"""acr learn, predict, memory, gate and export, as a person uses them: on files, with exit codes and sentences."""

import csv
import hashlib
import io
import json
import shutil
import signal
import time

import numpy as np
import pytest
from killed_saves import MOMENTS, run_and_die
from PIL import Image
from sklearn.datasets import load_digits
from warm_processes import WarmProcess

import acr
from acr.cli import main
from acr.learner.saving import TEACHING
from acr.storage.locks import try_lock

SMALL = [
    "--width",
    "2",
    "--epochs",
    "1",
    "--image-size",
    "8",
    "--buffer-size",
    "20",
    "--threads",
    "1",
    "--method",
    "er",
]
DIGITS = load_digits()
IMAGES = {digit: (DIGITS.images[DIGITS.target == digit] * 15).astype(np.uint8) for digit in range(10)}
NAMES = ("zero", "one", "two", "three", "four")


def write_digits(folder, *digits, rows=slice(0, 8)):
    """Class folders with some of the images of these digits; a file's name says which image it is."""
    for digit in digits:
        place = folder / NAMES[digit]
        place.mkdir(parents=True, exist_ok=True)
        for row in range(*rows.indices(100)):
            Image.fromarray(IMAGES[digit][row]).save(place / f"{NAMES[digit]}-{row}.png")
    return folder


def acr_(*words):
    """Run a command; returns the exit code."""
    try:
        main([str(word) for word in words])
    except SystemExit as ended:
        return ended.code
    return 0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A classifier of two digits, its images, and images of a third digit."""
    folder = tmp_path_factory.mktemp("made")
    write_digits(folder / "first", 0, 1)
    write_digits(folder / "second", 2)
    assert acr_("learn", folder / "model", folder / "first", "--quiet", *SMALL) == 0
    return folder


@pytest.fixture
def place(made, tmp_path):
    """A copy of it that a test may change."""
    shutil.copytree(made, tmp_path / "place")
    return tmp_path / "place"


def content(folder):
    """Everything in a folder but the locks."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix}


# --- learn ----------------------------------------------------------------------------------------------------------


def test_learn_makes_a_classifier_and_says_what_came_of_it(tmp_path, capsys):
    data = write_digits(tmp_path / "digits", 0, 1)
    assert acr_("learn", tmp_path / "model", data, "--quiet", *SMALL, "--validation-fraction", "0.25") == 0
    out = capsys.readouterr().out
    assert "held-out" in out
    assert "knows 2 classes and keeps 12 images" in out
    assert f"acr predict {tmp_path / 'model'} IMAGES" in out
    model = acr.ContinualClassifier.load(tmp_path / "model")
    assert model.classes_.tolist() == ["one", "zero"]
    assert (model.width, model.method, model.verbose) == (2, "er", None)
    assert model.history_[0]["images"] == 12
    assert model.history_[0]["held_out"] == 4
    assert {name for names in model.memory_.files for name in names} <= {str(path) for path in data.rglob("*.png")}


def test_learn_teaches_only_what_is_new(place, capsys):
    write_digits(place / "first", 2, rows=slice(0, 5))
    assert acr_("learn", place / "model", place / "first", "--quiet") == 0
    out = capsys.readouterr().out
    assert "knows 3 classes" in out
    assert "learned before" in out
    model = acr.ContinualClassifier.load(place / "model")
    assert model.classes_.tolist() == ["one", "zero", "two"]
    assert [visit["images"] for visit in model.history_] == [16, 5]
    assert model.epochs == 1  # as it was

    before = content(place / "model")
    assert acr_("learn", place / "model", place / "first", "--quiet") == 0
    assert "nothing new: all 21 images were learned before" in capsys.readouterr().out
    assert content(place / "model") == before

    assert acr_("learn", place / "model", place / "first", "--quiet", "--all", "--epochs", "2") == 0
    last = acr.ContinualClassifier.load(place / "model").history_[-1]
    assert (last["images"], last["epochs"]) == (21, 2)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--width", "4"], "width was 2"),
        (["--image-size", "16"], "image_size was 8"),
        (["--method", "acr"], "method was 'er'"),
        (["--seed", "3"], "seed was 0"),
        (["--no-flip"], "flip was True"),
        (["--weights", "some.safetensors"], "cannot start from other weights"),
        (["--epochs", "0"], "--epochs 0"),
        (["--buffer-size", "2"], "The memory"),
        (["--device", "quantum"], "no such device"),
    ],
)
def test_flags_that_do_not_fit_the_classifier_are_a_sentence(flags, says, place, capsys):
    before = content(place / "model")
    assert acr_("learn", place / "model", place / "second", "--quiet", *flags) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
    assert content(place / "model") == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["model", "none"], "There is no file or folder"),
        (["model", "notes.txt"], "is not a folder, a .csv or an .npz file"),
        (["digits", "digits"], "is not empty and holds no classifier"),
        (["model", "digits", "--method", "joint"], "needs all classes at once"),
        (["model", "digits", "--method", "err"], "There is no method 'err'"),
        (["model", "digits", "--validation-fraction", "2"], "validation_fraction must be"),
        (["model", "digits", "--patience", "0"], "patience must be"),
        (["notes.txt", "digits"], "Cannot write to"),
        (["model"], "needs a DATA"),
    ],
)
def test_wrong_input_is_a_sentence_and_leaves_nothing(words, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_digits(tmp_path / "digits", 0, 1, rows=slice(0, 2))
    (tmp_path / "notes.txt").write_text("hello")
    before = sorted(tmp_path.rglob("*"))
    assert acr_("learn", *words, "--quiet") == 2
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != TEACHING] == before


def test_learn_from_a_table_and_from_arrays(place, capsys):
    (place / "table.csv").write_text("path,label\nsecond/two/two-0.png,two\nsecond/two/two-1.png,two\n")
    assert acr_("learn", place / "model", place / "table.csv", "--quiet") == 0
    np.savez(place / "arrays.npz", images=IMAGES[3][:4], labels=["three"] * 4)
    assert acr_("learn", place / "model", place / "arrays.npz", "--quiet") == 0
    model = acr.ContinualClassifier.load(place / "model")
    assert model.classes_.tolist() == ["one", "zero", "two", "three"]


def test_labels_as_text_are_those_that_were_learned_as_numbers(tmp_path):
    model = acr.ContinualClassifier(width=2, epochs=1, image_size=8, buffer_size=20, threads=1, method="er")
    model.partial_fit(np.concatenate([IMAGES[0][:6], IMAGES[1][:6]]), [0] * 6 + [1] * 6).save(tmp_path / "model")
    (tmp_path / "new/1").mkdir(parents=True)
    Image.fromarray(IMAGES[1][20]).save(tmp_path / "new/1/one.png")
    assert acr_("learn", tmp_path / "model", tmp_path / "new", "--quiet") == 0
    assert acr.ContinualClassifier.load(tmp_path / "model").classes_.tolist() == [0, 1]


def test_unreadable_files_are_an_error_or_left_out(place, capsys):
    (place / "second/two/broken.png").write_text("no image")
    assert acr_("learn", place / "model", place / "second", "--quiet") == 2
    assert "--skip-broken" in capsys.readouterr().err
    assert acr_("learn", place / "model", place / "second", "--quiet", "--skip-broken") == 0
    assert "left out: " in capsys.readouterr().err
    assert acr.ContinualClassifier.load(place / "model").history_[-1]["images"] == 8


def test_two_programs_do_not_teach_one_classifier_at_once(place, capsys):
    lock = try_lock(place / "model" / TEACHING)
    try:
        before = content(place / "model")
        assert acr_("learn", place / "model", place / "second", "--quiet") == 1
        assert "Another program is changing" in capsys.readouterr().err
        assert acr_("memory", place / "model", "drop", "--index", "0", "--yes") == 1
        assert "Another program is changing" in capsys.readouterr().err
        assert content(place / "model") == before
    finally:
        lock.release()
    assert acr_("learn", place / "model", place / "second", "--quiet") == 0


def start_long_lesson(place, *flags):
    """A process that teaches for minutes; returns when it has begun to."""
    log = place / "log.txt"
    words = ["learn", str(place / "model"), str(place / "second"), "--epochs", "100000", *flags]
    process = WarmProcess(words, log, talkative=True)
    deadline = time.monotonic() + 120
    while "images/s" not in process.output() and process.exit_code is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


def test_a_classifier_that_is_killed_while_it_learns_is_the_last_good_one(place):
    before = content(place / "model")
    process = start_long_lesson(place)
    try:
        assert "images/s" in process.output()
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
    finally:
        process.end()
    assert content(place / "model") == before
    assert acr_("learn", place / "model", place / "second", "--quiet") == 0  # the lock went with the process


def test_ctrl_c_is_a_sentence_and_exit_code_130(place):
    before = content(place / "model")
    process = start_long_lesson(place)
    try:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.end()
    assert f"Interrupted. {place / 'model'} is as it was last saved." in process.output()
    assert content(place / "model") == before


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_classifier_that_is_killed_while_it_is_saved_is_the_one_before_or_after(moment, place):
    before = acr.ContinualClassifier.load(place / "model")
    words = ["learn", str(place / "model"), str(place / "second"), "--quiet"]
    assert run_and_die(words, place / "log.txt", moment) == -signal.SIGKILL
    model = acr.ContinualClassifier.load(place / "model")
    shown = np.concatenate([IMAGES[0][:20], IMAGES[1][:20]])
    if moment == "after the model":
        assert model.classes_.tolist() == ["one", "zero", "two"]
    else:
        assert np.array_equal(model.predict_proba(shown), before.predict_proba(shown))
    # The next save leaves nothing behind of the one that was killed.
    assert acr_("learn", place / "model", place / "second", "--quiet", "--all") == 0
    files = content(place / "model")
    assert len(files) == 2
    assert not any(name.endswith(".part") for name in files)


# --- predict --------------------------------------------------------------------------------------------------------


def test_predict_in_all_forms(made, capsys):
    first = made / "first"
    files = [first / "one/one-0.png", first / "zero/zero-0.png"]
    model = acr.ContinualClassifier.load(made / "model")
    shares = model.predict_proba(files)
    assert acr_("predict", made / "model", *files, "--json", "--top", "2") == 0
    found = json.loads(capsys.readouterr().out)
    assert [entry["file"] for entry in found] == [str(file) for file in files]
    for entry, row in zip(found, shares, strict=True):
        assert {p["label"]: p["probability"] for p in entry["predictions"]} == pytest.approx(
            dict(zip(model.classes_.tolist(), row.tolist(), strict=True))
        )
        assert entry["predictions"][0]["probability"] >= entry["predictions"][1]["probability"]

    assert acr_("predict", made / "model", first, "--csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 16  # folders are searched
    everything = [first / "one" / f"one-{i}.png" for i in range(8)] + [
        first / "zero" / f"zero-{i}.png" for i in range(8)
    ]
    assert [row["file"] for row in rows] == [str(file) for file in everything]
    assert [row["label"] for row in rows] == model.predict(everything).tolist()

    assert acr_("predict", made / "model", files[0]) == 0
    out = capsys.readouterr().out
    assert model.predict(files[:1])[0] in out
    assert f"{shares[0].max():.3f}" in out


def test_files_that_cannot_be_read_do_not_hide_the_others(made, tmp_path, capsys):
    (tmp_path / "bad\x1b[2J.png").write_text("no image")
    good = made / "first/one/one-0.png"
    words = ["predict", made / "model", tmp_path / "bad\x1b[2J.png", good, tmp_path / "none.png"]
    assert acr_(*words, "--json") == 1
    out, err = capsys.readouterr()
    assert [entry["file"] for entry in json.loads(out)] == [str(good)]
    assert "bad\\x1b[2J.png: not an image" in err
    assert "none.png: No such file" in err
    assert "2 of 3 images cannot be read" in err
    assert "\x1b" not in out + err
    assert acr_(*words) == 1
    assert str(good)[-10:] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["model"], "No images given"),
        (["model", "first", "--json", "--csv"], "exclude each other"),
        (["model", "first", "--top", "0"], "expected 1 or more"),
        (["model", "empty"], "holds no image files"),
        (["none", "first"], "There is no folder"),
        (["first", "first"], "neither a classifier"),
    ],
)
def test_wrong_questions_are_sentences(words, says, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    (place / "empty").mkdir()
    assert acr_("predict", *words) == 2
    assert says in capsys.readouterr().err


def test_a_finished_run_answers_too(tmp_path, made, capsys):
    run = acr.run(method="er", width=2, epochs=1, samples_per_class=8, ood_every="never", threads=1, out=tmp_path)
    file = made / "first/one/one-0.png"
    assert acr_("predict", run.folder, file, "--json", "--top", "10") == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert sorted(prediction["label"] for prediction in entry["predictions"]) == list(range(10))
    assert acr_("memory", run.folder, "list", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)) == len(run.arrays("memory.npz")["labels"])
    assert acr_("memory", run.folder, "drop", "--index", "0", "--yes") == 2
    assert acr_("learn", run.folder, made / "first", "--quiet") == 2
    assert "is the folder of a run" in capsys.readouterr().err


# --- memory ---------------------------------------------------------------------------------------------------------


def test_memory_lists_what_is_stored(made, capsys):
    stored = acr.ContinualClassifier.load(made / "model").memory_
    assert acr_("memory", made / "model", "list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["index"] for row in rows] == list(range(len(stored)))
    assert [row["label"] for row in rows] == stored.labels.tolist()
    assert [tuple(row["files"]) for row in rows] == list(stored.files)
    assert {row["visit"] for row in rows} == {1}
    assert acr_("memory", made / "model", "list") == 0
    assert "one-" in capsys.readouterr().out


def test_memory_is_drawn(made, tmp_path, capsys):
    assert acr_("memory", made / "model", "sheet", "-o", tmp_path / "sheet.png") == 0
    assert f"Look at it: {tmp_path / 'sheet.png'}" in capsys.readouterr().out
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.height > 2 * 48  # a row of tiles per class


def test_what_is_dropped_is_in_no_file_any_more(place, capsys):
    stored = acr.ContinualClassifier.load(place / "model").memory_
    pixels, (file,) = stored.images[3].tobytes(), stored.files[3]
    name = file.rpartition("/")[2]
    digest = hashlib.blake2b(pixels, digest_size=16)

    def holds(needle):
        return any(needle in data for data in content(place / "model").values())

    traces = (pixels, name.encode(), digest.digest(), digest.hexdigest().encode())
    assert all(map(holds, traces))
    assert acr_("memory", place / "model", "drop", "--file", file) == 2  # nobody can be asked here
    assert "--yes" in capsys.readouterr().err
    assert holds(pixels)
    assert acr_("memory", place / "model", "drop", "--file", file, "--yes") == 0
    assert f"Deleted 1 image; {len(stored) - 1} are left" in capsys.readouterr().out
    assert not any(map(holds, traces))
    left = acr.ContinualClassifier.load(place / "model").memory_
    assert len(left) == len(stored) - 1


def test_drop_by_label_and_by_index(place, capsys):
    stored = acr.ContinualClassifier.load(place / "model").memory_
    ones = int((stored.labels == "one").sum())
    assert acr_("memory", place / "model", "drop", "--label", "one", "--yes") == 0
    out = capsys.readouterr().out
    assert f"Deleted {ones} images" in out
    assert "No image is stored any more of: one" in out
    assert acr_("memory", place / "model", "drop", "--index", "0", "1", "--yes") == 0
    assert len(acr.ContinualClassifier.load(place / "model").memory_) == len(stored) - ones - 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["drop", "--yes"], "Say which images"),
        (["drop", "--index", "999", "--yes"], "There is no image 999"),
        (["drop", "--index", "1.5", "--yes"], "whole number"),
        (["drop", "--label", "nine", "--yes"], "no image of the class 'nine'"),
        (["drop", "--file", "none.png", "--yes"], "no image that was read from"),
        (["list", "--index", "3"], "--index is for acr memory MODEL drop"),
        (["drop", "--json"], "--json is for acr memory MODEL list"),
        (["burn"], "expected list or sheet or drop"),
    ],
)
def test_wrong_words_about_the_memory_are_sentences(words, says, place, capsys):
    before = content(place / "model")
    assert acr_("memory", place / "model", *words) == 2
    assert says in capsys.readouterr().err
    assert content(place / "model") == before


@pytest.mark.parametrize(("answer", "deleted"), [("y", True), ("", False), ("no", False)])
def test_a_person_is_asked_before_anything_is_deleted(answer, deleted, place, monkeypatch, capsys):
    monkeypatch.setattr("acr.commands.memory.at_a_terminal", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: answer)
    before = content(place / "model")
    assert acr_("memory", place / "model", "drop", "--index", "0") == 0
    assert (content(place / "model") != before) is deleted
    assert ("Nothing was deleted" in capsys.readouterr().out) is not deleted


# --- gate and export ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grown(made, tmp_path_factory):
    """The classifier after a second visit, and images that it has not learned."""
    folder = tmp_path_factory.mktemp("grown")
    shutil.copytree(made / "model", folder / "new")
    assert acr_("learn", folder / "new", made / "second", "--quiet") == 0
    write_digits(folder / "test", 0, 1, 2, rows=slice(20, 32))
    return folder


def test_gate_decides_by_its_exit_code(made, grown, capsys):
    words = ["gate", made / "model", grown / "new", grown / "test"]
    free = ["--max-negative-flips", "1", "--max-drop-per-class", "none"]
    assert acr_(*words, *free) == 0
    out = capsys.readouterr().out
    assert "Gate: passed." in out
    assert "24 images of classes that both know" in out
    assert acr_(*words, *free, "--min-accuracy", "1") == 1
    assert "Gate: FAILED (min_accuracy)." in capsys.readouterr().out
    assert acr_(*words, *free, "--min-shifted-accuracy", "1", "--ood-corruptions", "gaussian_noise", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    models = [acr.ContinualClassifier.load(folder) for folder in (made / "model", grown / "new")]
    images = np.concatenate([IMAGES[digit][20:32] for digit in (1, 2, 0)])
    colour = np.repeat(images[..., None], 3, axis=-1)
    labels = ["one"] * 12 + ["two"] * 12 + ["zero"] * 12
    expected = acr.gate(*models, colour, labels, max_negative_flips=1, max_drop_per_class=None,
                        min_shifted_accuracy=1, corruptions=["gaussian_noise"])  # fmt: skip
    assert report == json.loads(expected.to_json())


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--max-negative-flips", "some"], "expected a number from 0 to 1, or none"),
        (["--max-negative-flips", "5"], "between 0 and 1"),
        (["--ood-corruptions", "rain"], "rain"),
        (["--ood-severities", "9"], "1 to 5"),
    ],
)
def test_wrong_limits_are_sentences(flags, says, made, grown, capsys):
    assert acr_("gate", made / "model", grown / "new", grown / "test", *flags) == 2
    assert says in capsys.readouterr().err


def test_export_by_command(made, tmp_path, capsys):
    assert acr_("export", made / "model", tmp_path / "model.pt2") == 0
    assert "2 classes" in capsys.readouterr().out
    assert acr_("export", made / "model", tmp_path / "model.pt2") == 2
    assert "--overwrite" in capsys.readouterr().err
    assert acr_("export", made / "model", tmp_path / "model.zip") == 2
    assert "must end in .onnx" in capsys.readouterr().err
