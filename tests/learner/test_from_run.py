"""A finished run is a classifier: it answers as it was evaluated, and can be taught more."""

import shutil

import numpy as np
import pytest
from PIL import Image

import acr
from acr.data.loading import load_dataset
from acr.errors import InputError

SMALL = {"width": 2, "epochs": 1, "buffer_size": 20, "ood_every": "never", "threads": 1, "quiet": True}


@pytest.fixture(scope="module")
def data():
    return load_dataset("split-digits", samples_per_class=20)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A function that makes a small run of a method, once."""
    out, made = tmp_path_factory.mktemp("runs"), {}

    def run(method):
        if method not in made:
            made[method] = acr.run(method, out=out, samples_per_class=20, **SMALL)
        return made[method]

    return run


@pytest.mark.parametrize("method", ["er", "cls-er", "scr", "joint", "finetune"])
def test_it_answers_as_the_run_was_evaluated(method, runs, data):
    run = runs(method)
    model = run.classifier()
    counts = run.results.stages[-1].scenarios["clean"]
    right = sum(sum(row) for row in counts.correct["seen"])
    assert model.classes_.tolist() == list(range(10))
    assert round(model.score(data.test.images, data.test.labels) * len(data.test)) == right
    assert len(model.memory_) == run.results.memory.size


def test_it_can_be_taught_more_and_saved(runs, data, tmp_path):
    model = runs("er").classifier()
    assert model.n_visits_ == 5
    model.partial_fit(data.train.images[:40], ["extra"] * 40)
    assert model.classes_.tolist() == [*range(10), "extra"]
    model.save(tmp_path / "m")
    again = acr.ContinualClassifier.load(tmp_path / "m")
    images = data.test.images[:50]
    assert np.array_equal(model.decision_function(images), again.decision_function(images))


def test_joint_training_answers_but_learns_no_more(runs, data):
    with pytest.raises(InputError, match="needs all classes at once"):
        runs("joint").classifier().partial_fit(data.train.images[:4], ["a", "a", "b", "b"])


def test_a_folder_of_images_gives_its_class_names(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("cat", "dog", "eel", "fox"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(6):
            Image.fromarray(rng.integers(0, 256, (20, 16, 3), dtype=np.uint8)).save(
                tmp_path / f"photos/{name}/{number}.png"
            )
    run = acr.run(
        "er", f"folder:{tmp_path / 'photos'}", tmp_path / "runs", image_size=16, **{**SMALL, "buffer_size": 8}
    )
    model = run.classifier()
    assert model.classes_.tolist() == ["cat", "dog", "eel", "fox"]
    assert model.predict([tmp_path / "photos/cat/0.png"])[0] in model.classes_


def test_an_unfinished_run_and_one_without_a_checkpoint(runs, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(runs("er").folder, copy)
    shutil.rmtree(copy / "checkpoint")
    with pytest.raises(InputError, match="its network is gone"):
        acr.load_run(copy).classifier()
    (copy / "results.json").unlink()
    with pytest.raises(InputError, match="is not finished"):
        acr.load_run(copy).classifier()
