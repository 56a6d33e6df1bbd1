"""The classifier learns visit by visit, answers with the labels it was given, and survives what goes wrong."""

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import acr
from acr.errors import AcrError, InputError
from acr.learner.visit import hold_out
from acr.methods.method import method_class, method_names
from acr.shift import corrupt

OPEN_ENDED = [name for name in method_names() if not method_class(name).sees_all_tasks]
QUICK = {"gdumb": {"fit_epochs": 2}, "hal": {"anchor_steps": 2}}


@pytest.mark.usefixtures("plain_convolutions")
@pytest.mark.parametrize("method", OPEN_ENDED)
def test_every_method_that_can_lives_in_a_stream_without_an_end(method, small, visit, digits):
    model = small(method=method, options=QUICK.get(method))
    model.partial_fit(*visit(0, 1, part=slice(16)))
    model.partial_fit(*visit(2, 3, part=slice(16)))
    model.partial_fit(*visit(1, 4, part=slice(8, 24)))  # an old class with new images, and a new one
    assert model.classes_.tolist() == ["0", "1", "2", "3", "4"]
    probabilities = model.predict_proba(digits[3])
    assert probabilities.shape == (24, 5)
    assert np.allclose(probabilities.sum(1), 1)
    assert set(model.predict(digits[0])) <= set(model.classes_)
    memory = model.memory_
    if method_class(method).uses_memory:
        assert 0 < len(memory) <= 20
        assert set(memory.labels.tolist()) <= set(model.classes_.tolist())
        assert all(any(np.array_equal(image[0], own) for own in digits[int(label)])
                   for image, label in zip(memory.images, memory.labels, strict=True))  # fmt: skip
    assert [entry["new_classes"] for entry in model.history_] == [2, 2, 1]
    with torch.inference_mode():  # what is exported answers as the method does
        pixels, learned = torch.from_numpy(digits[3][:, None]), model._knowledge.method
        torch.testing.assert_close(learned.predictor()(pixels), learned.logits(pixels))


def test_joint_training_is_refused_with_the_reason(small, visit):
    with pytest.raises(InputError, match="needs all classes at once"):
        small(method="joint").partial_fit(*visit(0, 1))


def test_it_learns_and_remembers(small, visit, digits):
    model = small(width=8, epochs=15, buffer_size=60)  # 79 to 96 % with seeds 0 to 4, so on any processor well above
    for task in ((0, 1, 2), (3, 4), (5, 6)):
        model.partial_fit(*visit(*task, part=slice(20)))
    held_out = [(digits[digit][20:], [str(digit)] * 4) for digit in range(7)]
    images, labels = np.concatenate([i for i, _ in held_out]), [label for _, l in held_out for label in l]
    assert model.score(images, labels) > 0.6  # chance: 1/7
    assert np.mean([model.score(i, l) for i, l in held_out[:3]]) > 0.4  # the first visit is not forgotten


@pytest.mark.parametrize("name", [str, int, lambda d: ("digit", d), lambda d: d / 4, lambda d: d if d % 2 else str(d)])
def test_labels_come_back_as_they_were_given(small, visit, digits, name):
    model = small().partial_fit(*visit(0, 3, name=name)).partial_fit(*visit(1, 2, name=name))
    expected = {name(d) for d in range(4)}
    assert set(model.classes_.tolist()) == expected
    assert {type(v) for v in model.classes_.tolist()} == {type(v) for v in expected}
    assert set(model.predict(digits[0]).tolist()) <= expected


def test_two_classifiers_taught_the_same_are_the_same(small, visit, digits):
    a, b = (small().partial_fit(*visit(0, 1)).partial_fit(*visit(2)) for _ in range(2))
    other = small(seed=1).partial_fit(*visit(0, 1)).partial_fit(*visit(2))
    assert np.array_equal(a.decision_function(digits[1]), b.decision_function(digits[1]))
    assert not np.array_equal(a.decision_function(digits[1]), other.decision_function(digits[1]))


def test_global_generators_and_torch_settings_are_left_alone(small, visit):
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), torch.get_num_threads()
    small(threads=None).partial_fit(*visit(0, 1))
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])
    assert before[2] == torch.get_num_threads()


def test_growing_keeps_what_the_old_outputs_say(small, visit, digits):
    """Before the first step of a visit the old classes have the scores that they had."""
    model = small(method="er").partial_fit(*visit(0, 1, 2))
    before = model.decision_function(digits[0])
    model.set_params(learning_rate=1e-30)  # a visit that changes nothing but the outputs (and batch norm's averages)
    known = model._knowledge
    grown = known.copy_of_method()
    assert torch.equal(grown.network.head.weight, known.method.network.head.weight)
    model.partial_fit(*visit(3))
    weight, old = model._knowledge.method.network.head.weight, known.method.network.head.weight
    assert weight.shape[0] == 4
    torch.testing.assert_close(weight[:3], old, rtol=0, atol=0)
    assert before.shape[1] == 3


def test_normalisation_comes_from_the_first_visit_and_stays(small, visit):
    images, labels = visit(0, 1)
    model = small().partial_fit(images, labels)
    assert model.mean_[0] == pytest.approx(images.mean() / 255)
    assert model.std_[0] == pytest.approx(images.std() / 255)
    mean = model.mean_
    model.partial_fit(visit(2)[0] // 4, visit(2)[1])
    assert np.array_equal(model.mean_, mean)


def test_transform_gives_the_embeddings(small, visit, digits):
    model = small().partial_fit(*visit(0, 1))
    embeddings = model.transform(digits[0])
    assert embeddings.shape == (24, 16)  # 8 features per channel of the first stage
    network = model._knowledge.method.network.eval()
    expected = network.features(torch.from_numpy(digits[0][:, None])).detach().numpy()
    np.testing.assert_allclose(embeddings, expected, rtol=1e-5, atol=1e-6)


def test_evaluate_shift_is_the_accuracy_on_corrupted_images(small, visit):
    images, labels = visit(0, 1)
    model = small(epochs=3).partial_fit(images, labels)
    found = model.evaluate_shift(images, labels, corruptions=["fog", "gaussian_noise"], severities=[1, 3])
    assert list(found) == ["clean", "shifted", "fog/1", "fog/3", "gaussian_noise/1", "gaussian_noise/3"]
    assert found["clean"] == model.score(images, labels)
    assert found["fog/3"] == model.score(corrupt(images, "fog", 3), labels)
    assert found["shifted"] == pytest.approx(np.mean(list(found.values())[2:]))


def test_paths_are_learned_and_remembered_by_file(small, tmp_path, digits):
    paths, labels = [], []
    for digit in (0, 1):
        for number, image in enumerate(digits[digit][:12]):
            paths.append(tmp_path / f"{digit}-{number}.png")
            Image.fromarray(image).save(paths[-1])
            labels.append(digit)
    model = small(buffer_size=8).partial_fit(paths, labels)
    memory = model.memory_
    assert len(memory) == 8
    for image, files in zip(memory.images, memory.files, strict=True):
        (file,) = files
        assert np.array_equal(image[0], np.asarray(Image.open(file)))
    assert model.has_learned(paths).all()
    assert not model.has_learned([digits[5][0]]).any()


# --- deleting -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plain_convolutions")
@pytest.mark.parametrize("method", [name for name in OPEN_ENDED if method_class(name).uses_memory])
def test_stored_images_can_be_deleted_and_the_memory_fills_again(method, small, visit):
    model = small(method=method, options=QUICK.get(method)).partial_fit(*visit(0, 1)).partial_fit(*visit(2))
    memory = model.memory_
    label = memory.labels[0]
    count = int((memory.labels == label).sum())
    assert model.drop_from_memory(labels=[label]) == count
    assert label not in model.memory_.labels.tolist()
    kept = memory.images[memory.labels != label]
    assert np.array_equal(model.memory_.images, kept)
    model.partial_fit(*visit(3, 4))
    assert len(model.memory_) <= 20
    assert set(model.memory_.labels.tolist()) & {"3", "4"}


def test_copies_of_a_deleted_image_go_too(small, visit):
    images, labels = visit(0, part=slice(4))
    model = small(method="er", buffer_size=20).partial_fit(np.concatenate([images] * 3), labels * 3)
    memory = model.memory_
    copies = sum(np.array_equal(image, memory.images[0]) for image in memory.images)
    assert copies > 1
    assert model.drop_from_memory(indices=[0]) == copies
    assert not any(np.array_equal(image, memory.images[0]) for image in model.memory_.images)
    assert not model.has_learned(memory.images[:1]).any()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"indices": [99]}, "no image 99"),
        ({"labels": ["x"]}, "no image of the class 'x'"),
        ({"files": ["x.png"]}, "x.png"),
    ],
)
def test_deleting_what_is_not_there(small, visit, what, said):
    model = small().partial_fit(*visit(0, 1))
    with pytest.raises(InputError, match=said):
        model.drop_from_memory(**what)


# --- stopping early -----------------------------------------------------------------------------------------------


def test_early_stopping_is_as_if_training_had_ended_at_the_best_epoch(small, visit, digits):
    images, labels = visit(0, 1, 2, 3)
    stopped = small(method="er", epochs=12, validation_fraction=0.25, patience=2, learning_rate=0.3).fit(images, labels)
    (entry,) = stopped.history_
    assert entry["images"] + entry["held_out"] == len(images)
    assert entry["held_out"] == 4 * 6
    assert entry["epochs"] < 12
    # The same number of epochs without a hold-out, on the images that were learned from. (The keys of draws do not
    # depend on how many epochs there are.)
    columns = np.array([int(label) for label in labels])
    used, held = hold_out(columns, 0.25, 0, 0)
    plain = small(method="er", epochs=entry["epochs"], learning_rate=0.3).fit(images[used], [labels[i] for i in used])
    # Normalisation constants are those of all images of the visit, so the two differ by them; compare the decisions.
    assert stopped.score(images[held], [labels[i] for i in held]) == entry["held_out_accuracy"]
    assert np.mean(stopped.predict(images) == plain.predict(images)) > 0.5


def test_a_hold_out_has_its_share_of_every_class():
    columns = np.array([0] * 10 + [1] * 4 + [2])
    used, held = hold_out(columns, 0.25, seed=0, visit=0)
    assert sorted([*used, *held]) == list(range(15))
    assert np.bincount(columns[held], minlength=3).tolist() == [3, 1, 0]
    assert not np.array_equal(held, hold_out(columns, 0.25, seed=1, visit=0)[1])


@pytest.mark.parametrize("method", ["soif", "metasp"])
def test_methods_that_need_their_last_epochs_cannot_stop_early(method, small, visit):
    with pytest.raises(InputError, match="cannot be stopped early"):
        small(method=method, validation_fraction=0.2).partial_fit(*visit(0, 1))


# --- what goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "labels", "said"),
    [
        (np.zeros((3, 8, 8), np.uint8), ["a"], "3 images but 1 labels"),
        (np.zeros((0, 8, 8), np.uint8), [], "no image to learn from"),
        ([], [], "no image to learn from"),
        (np.full((2, 8, 8), np.nan), ["a", "b"], "nan"),
        (["/nowhere.png"], ["a"], "nowhere.png"),
        (np.zeros((2, 8, 8), np.uint8), ["a", None], "Label 1 is None"),
    ],
)
def test_bad_input_is_named_and_leaves_the_classifier_as_it_was(images, labels, said, small, visit, digits):
    model = small().partial_fit(*visit(0, 1))
    before = model.decision_function(digits[0])
    with pytest.raises(InputError) as error:
        model.partial_fit(images, labels)
    assert said in str(error.value)
    assert np.array_equal(model.decision_function(digits[0]), before)
    assert model.n_visits_ == 1


def test_more_classes_than_places_are_refused_before_training(small, visit):
    with pytest.raises(InputError, match="set buffer_size to 6 or more"):
        small(buffer_size=5).partial_fit(*visit(0, 1, 2, 3, 4, 5))


@pytest.mark.parametrize("when", ["step", "end"])
def test_an_interruption_leaves_the_classifier_as_it_was(when, small, visit, digits, monkeypatch):
    model = small().partial_fit(*visit(0, 1))
    before, memory = model.decision_function(digits[0]), model.memory_.images
    name = "observe" if when == "step" else "end_task"
    monkeypatch.setattr(method_class("acr"), name, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(*visit(2))
    monkeypatch.undo()
    assert np.array_equal(model.decision_function(digits[0]), before)
    assert np.array_equal(model.memory_.images, memory)
    assert model.classes_.tolist() == ["0", "1"]


def test_a_loss_that_is_not_finite_leaves_the_classifier_as_it_was(small, visit, digits):
    model = small(method="er").partial_fit(*visit(0, 1))
    before = model.decision_function(digits[0])
    model.set_params(learning_rate=1e30, epochs=3)
    with pytest.raises(AcrError, match="as it was before this call"):
        model.partial_fit(*visit(2))
    assert np.array_equal(model.decision_function(digits[0]), before)


def test_an_unknown_label_at_score(small, visit):
    model = small().partial_fit(*visit(0, 1))
    with pytest.raises(InputError, match="not learned the class '2'"):
        model.score(*visit(2))
    with pytest.raises(InputError, match="24 images but 2 labels"):
        model.score(visit(0)[0], ["0", "1"])


@pytest.mark.parametrize("call", ["predict", "predict_proba", "transform"])
def test_asking_before_learning(call, small, digits):
    with pytest.raises(NotFittedError, match="call partial_fit"):
        getattr(small(), call)(digits[0])
    with pytest.raises(NotFittedError):
        _ = small().classes_


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"width": 3}, "width was 2"), ({"method": "er"}, "method was 'acr'"), ({"buffer_size": 19}, "holds 20 images")],
)
def test_what_cannot_change_after_the_first_visit(changes, said, small, visit):
    model = small().partial_fit(*visit(0, 1)).set_params(**changes)
    with pytest.raises(InputError, match=said):
        model.partial_fit(*visit(2))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epochs": 0}, "epochs"),
        ({"learning_rate": -1}, "learning-rate"),
        ({"method": "acrr"}, "no method 'acrr'"),
        ({"options": {"temprature": 1}}, "temprature"),
        ({"validation_fraction": 1}, "validation_fraction"),
        ({"patience": 0}, "patience"),
        ({"device": "tpu"}, "tpu"),
    ],
)
def test_wrong_parameters_are_named(changes, said, small, visit):
    with pytest.raises(InputError, match=said):
        small(**changes).partial_fit(*visit(0, 1))


def test_a_larger_memory_may_be_had_later(small, visit):
    model = small().partial_fit(*visit(0, 1)).set_params(buffer_size=30)
    assert len(model.partial_fit(*visit(2, 3)).memory_) > 20


def test_classes_limits_the_labels(small, visit):
    model = small()
    with pytest.raises(InputError, match="'2'"):
        model.partial_fit(*visit(0, 2), classes=["0", "1"])
    assert model.partial_fit(*visit(0, 1), classes=["0", "1", "2"]).classes_.tolist() == ["0", "1"]


def test_labels_that_cannot_be_saved_are_said_before_training(small, visit):
    with pytest.warns(UserWarning, match="save\\(\\) will refuse"):
        small().partial_fit(*visit(0, 1, name=lambda d: frozenset({d})))


def test_fit_starts_over(small, visit, digits):
    once = small().fit(*visit(2, 3))
    again = small().partial_fit(*visit(0, 1)).fit(*visit(2, 3))
    assert again.classes_.tolist() == ["2", "3"]
    assert np.array_equal(once.decision_function(digits[2]), again.decision_function(digits[2]))


def test_clone_has_the_parameters_and_nothing_learned(small, visit):
    model = small(options={"temperature": 0.2}).partial_fit(*visit(0, 1))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(visit(0)[0])


def test_repr_shows_what_differs_from_the_defaults():
    assert repr(acr.ContinualClassifier(width=8)) == "ContinualClassifier(width=8)"
