"""A classifier with averaged weights answers with them, everywhere."""

import math

import numpy as np
import pytest
import torch

import acr
from acr.data.loading import load_dataset
from acr.errors import InputError


@pytest.fixture
def taught(small, visit):
    """A classifier in its third visit, with averaged weights."""

    def make(method="er", **changes):
        model = small(method=method, average_weights="0.3t", **changes)
        for digits_of_visit in ((1, 3), (0, 2), (5,)):
            model.partial_fit(*visit(*digits_of_visit))
        return model

    return make


def averaged_scores(model, images):
    """Scores of the averaged network itself."""
    method = model._knowledge.method
    with torch.inference_mode():
        return method.average.network(torch.from_numpy(images[:, None])).double().numpy()


def test_predictions_come_from_the_averaged_network(taught, digits):
    model = taught()
    scores = averaged_scores(model, digits[0])
    np.testing.assert_array_equal(model.decision_function(digits[0]), scores)
    method = model._knowledge.method
    with torch.inference_mode():
        as_trained = method.network.eval()(torch.from_numpy(digits[0][:, None])).double().numpy()
        embedded = method.average.network.features(torch.from_numpy(digits[0][:, None])).numpy()
    assert not np.array_equal(scores, as_trained)
    np.testing.assert_array_equal(model.transform(digits[0]), embedded)


@pytest.mark.parametrize("method", ["acr", "scr"])
def test_saved_between_visits_it_is_as_if_never_saved(method, taught, visit, digits, tmp_path):
    model = taught(method)
    model.save(tmp_path / "model")
    again = acr.ContinualClassifier.load(tmp_path / "model")
    assert again.average_weights == "0.3t"
    for one in (model, again):
        one.partial_fit(*visit(7, 3))
    np.testing.assert_array_equal(model.decision_function(digits[7]), again.decision_function(digits[7]))
    assert model._knowledge.method.average.total == again._knowledge.method.average.total


def test_training_is_what_it_is_without(taught, small, visit):
    plain = small(method="er")
    for digits_of_visit in ((1, 3), (0, 2), (5,)):
        plain.partial_fit(*visit(*digits_of_visit))
    with_average = taught()._knowledge.method.network.state_dict()
    for name, value in plain._knowledge.method.network.state_dict().items():
        assert torch.equal(value, with_average[name]), name


def test_what_is_exported_is_the_averaged_network(taught, digits, tmp_path):
    model = taught()
    model.export(tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    there = program(torch.from_numpy(digits[2][:, None])).detach().numpy()
    # Both compute in 32 bits; sums of some hundred products are rounded in another order.
    np.testing.assert_allclose(there, model.predict_proba(digits[2]), atol=1e-5)


def test_a_run_with_averaged_weights_is_a_classifier_with_averaged_weights(tmp_path):
    run = acr.run("er", out=tmp_path, average_weights="0.5t", width=2, epochs=2, samples_per_class=20, threads=1,
                  ood_every="never", quiet=True)  # fmt: skip
    model = run.classifier()
    test = load_dataset("split-digits", run.config).test
    names = dict(zip(run.results.classes, model.classes_.tolist(), strict=True))
    counts = run.results.stages[-1].scenarios["clean"]
    right, total = (sum(map(sum, table)) for table in (counts.correct["seen"], counts.total))
    assert model.score(test.images, [names[label] for label in test.labels.tolist()]) == pytest.approx(right / total)


def test_it_cannot_be_switched_on_later(small, visit):
    model = small(method="er").partial_fit(*visit(1, 3))
    model.set_params(average_weights="0.3t")
    with pytest.raises(InputError, match="average_weights was 'off' when the classifier began to learn"):
        model.partial_fit(*visit(0, 2))


def test_early_stopping_judges_the_averaged_network(taught):
    model = taught(epochs=4, validation_fraction=0.25, patience=1)
    assert model.history_[-1]["held_out_accuracy"] is not None


def test_the_rule_counts_visits_also_those_before_it_was_saved(small, visit, tmp_path):
    model = small(method="aver", epochs=2)
    total = 0.0
    for number, digits_of_visit in enumerate(((1, 3, 4), (0, 2), (5,), (1,)), 1):
        images, labels = visit(*digits_of_visit)
        model.partial_fit(images, labels)
        steps = 2 * math.ceil(len(images) / model.batch_size)
        for _ in range(steps):
            total = total * 0.5 ** (1 / (0.07 * number * steps)) + 1
        model.save(tmp_path / str(number))
        model = acr.ContinualClassifier.load(tmp_path / str(number))
    assert model._knowledge.method.average.total == pytest.approx(total, rel=1e-12)
