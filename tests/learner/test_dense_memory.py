"""A classifier whose memory holds several compressed images in a place."""

import json

import numpy as np
import pytest
from PIL import Image

import acr
from acr.errors import InputError


@pytest.fixture
def pictures(tmp_path):
    """Files of coloured pictures, and a visit: paths and labels of some classes."""
    draws = np.random.default_rng(0)

    def visit(*classes, n=12):
        paths, labels = [], []
        for label in classes:
            base = draws.integers(0, 256, 3)
            for number in range(n):
                pixels = (base + draws.integers(-40, 40, (4, 4, 3))).clip(0, 255).astype(np.uint8)
                path = tmp_path / f"{label}-{number}.png"
                Image.fromarray(pixels).resize((32, 32), Image.Resampling.BICUBIC).save(path)
                paths.append(path)
                labels.append(label)
        return paths, labels

    return visit


def made(method="aver", **changes):
    settings = {"buffer_size": 4, "width": 2, "epochs": 2, "threads": 1, "verbose": False, "batch_size": 8}
    return acr.ContinualClassifier(method, **{**settings, **changes})


@pytest.fixture
def taught(pictures):
    model = made()
    for classes in (("cat", "dog"), ("fox",)):
        model.partial_fit(*pictures(*classes))
    return model


def test_the_memory_holds_more_images_than_places(taught):
    assert taught.images_per_place is None  # the method's own rule: 8 of colour images
    assert len(taught.memory_) == 32
    assert taught.memory_.images.shape == (32, 3, 32, 32)


@pytest.mark.parametrize("method", ["aver", "er"])
def test_files_are_known_by_the_images_that_are_left_of_them(method, pictures):
    model = made(method, images_per_place=8)
    given, labels = pictures("cat", "dog")
    model.partial_fit(given, labels)
    names = {str(path) for path in given}
    assert all(len(files) == 1 and files[0] in names for files in model.memory_.files)
    for files, label in zip(model.memory_.files, model.memory_.labels, strict=True):
        assert files[0].rpartition("/")[2].startswith(label)
    assert model.has_learned(given).all()
    assert not model.has_learned(pictures("new")[0]).any()


def test_a_deleted_image_leaves_no_trace(taught):
    file = taught.memory_.files[3][0]
    taught.drop_from_memory(files=[file])
    assert len(taught.memory_) == 31
    assert all(file not in files for files in taught.memory_.files)
    assert not taught.has_learned([file]).any()


def test_saved_between_visits_it_is_as_if_never_saved(taught, pictures, tmp_path):
    taught.save(tmp_path / "model")
    again = acr.ContinualClassifier.load(tmp_path / "model")
    images, labels = pictures("cat", "bird")
    for one in (taught, again):
        one.partial_fit(images, labels)
    np.testing.assert_array_equal(taught.decision_function(images), again.decision_function(images))
    np.testing.assert_array_equal(taught.memory_.images, again.memory_.images)
    assert taught.memory_.files == again.memory_.files


def test_a_classifier_of_before_is_what_it_was(pictures, tmp_path):
    """AVER had whole images once: the folder of such a classifier does not name the field."""
    model = made(images_per_place=1, buffer_size=6).partial_fit(*pictures("cat", "dog"))
    model.save(tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    content = json.loads(file.read_text())
    del content["config"]["images_per_place"], content["parameters"]["images_per_place"]
    file.write_text(json.dumps(content))
    again = acr.ContinualClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(model.memory_.images, again.memory_.images)
    images, labels = pictures("fox")
    assert len(again.partial_fit(images, labels).memory_) == 6
    np.testing.assert_array_equal(
        again.decision_function(images), model.partial_fit(images, labels).decision_function(images)
    )


def test_the_number_cannot_change_but_the_places_can(taught, pictures):
    images, labels = pictures("cat")
    taught.set_params(images_per_place=2)
    with pytest.raises(InputError, match="images_per_place was 8 when the classifier began to learn"):
        taught.partial_fit(images, labels)
    taught.set_params(images_per_place=None, buffer_size=3)
    with pytest.raises(InputError, match="The memory holds 32 images already, more than a buffer_size of 3 allows"):
        taught.partial_fit(images, labels)
    taught.set_params(buffer_size=6)
    taught.partial_fit(images, labels)
    assert len(taught.memory_) > 32


def test_it_keeps_the_policy_that_it_began_with(pictures, tmp_path):
    """AVER had boundary samples once. Whatever the default is by now, a classifier goes on with what it has."""
    model = made(images_per_place=1, buffer_size=6, options={"policy": "challenging"})
    model.partial_fit(*pictures("cat", "dog")).save(tmp_path / "model")
    again = acr.ContinualClassifier.load(tmp_path / "model").set_params(options=None)
    again.partial_fit(*pictures("fox", n=30))
    assert again._knowledge.config.options.policy == "challenging"
    again.set_params(options={"policy": "balanced-random"})
    with pytest.raises(InputError, match="policy was 'challenging' when the classifier began to learn"):
        again.partial_fit(*pictures("bird"))


def test_what_auto_means_is_decided_once(taught, pictures):
    """The rule may change; a saved classifier says how many."""
    assert taught._knowledge.config.images_per_place == 8
    for same in ("auto", 8, None):
        taught.set_params(images_per_place=same).partial_fit(*pictures("cat"))
    with pytest.raises(InputError, match=r"2 places with room for 16 images, .* 17 classes.* to 3 or more.*\(43\)"):
        made(buffer_size=2).partial_fit(*pictures(*"abcdefghijklmnopq", n=2))
