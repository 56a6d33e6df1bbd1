"""The gate, against counts that were worked out by hand and against scikit-learn and scipy."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import accuracy_score

import acr
from acr.errors import InputError
from acr.learner.gate_report import ClassChange, sign_test
from acr.learner.labels import Labels


class Scripted(acr.ContinualClassifier):
    """A classifier whose answers are given: of image i, the first pixel is i."""

    def __init__(self, classes=(), answers=(), confidence=0.9):
        super().__init__(width=2, image_size=8, method="er", epochs=1, threads=1, verbose=False)
        self.classes, self.answers, self.confidence = classes, answers, confidence

    def _needed(self):
        pictures = SimpleNamespace(image_shape=(1, 8, 8))
        return SimpleNamespace(labels=Labels(self.classes), pictures=pictures)

    def predict_proba(self, batch):
        images = batch.images
        rest = (1 - self.confidence) / max(1, len(self.classes) - 1)
        scores = np.full((len(images), len(self.classes)), rest)
        for row, image in enumerate(images):
            scores[row, list(self.classes).index(self.answers[image.flat[0]])] = self.confidence
        return scores

    def _right_under_shift(self, batch, answers, spec, places=None):
        """Of four corruptions, cats (the first class) are right under three and dogs under one."""
        assert len(batch) == len(answers)
        return {str(number): number < np.where(answers == 0, 3, 1) for number in range(4)}


def numbered(count):
    images = np.zeros((count, 8, 8), np.uint8)
    images[:, 0, 0] = np.arange(count)
    return images


def compare(labels, old, new, old_classes="ab", new_classes="ab", **limits):
    """The gate for one-letter labels and answers, one per image."""
    models = Scripted(tuple(old_classes), old), Scripted(tuple(new_classes), new)
    return acr.gate(*models, numbered(len(labels)), list(labels), **limits)


NONE = {"max_negative_flips": None, "max_drop_per_class": None}


def test_flips_and_drops_are_counted():
    #                     a: 4 images, 3 right before, 1 after; b: 3 images, 1 right before, 2 after
    report = compare("aaaabbb", "aaabbaa", "abbbbba", **NONE)
    a, b = report.classes
    assert (a.label, a.images, a.old_correct, a.new_correct, a.lost, a.gained) == ("a", 4, 3, 1, 2, 0)
    assert (b.label, b.images, b.old_correct, b.new_correct, b.lost, b.gained) == ("b", 3, 1, 2, 0, 1)
    assert (a.drop, b.drop) == (0.5, -1 / 3)
    assert report.negative_flips == 2 / 7
    assert (report.lost, report.gained) == (2, 1)
    assert (report.old.accuracy, report.new.accuracy) == (4 / 7, 3 / 7)
    assert report.new_all == report.new
    assert report.passed  # no limits
    assert report.checks == ()


def test_statistics_are_those_of_the_binomial_distribution():
    report = compare("aaaabbb", "aaabbaa", "abbbbba", **NONE)
    # 3 images changed; P(2 or 3 losses of 3) = (3 + 1)/8.
    assert report.p_value == pytest.approx(0.5)
    # The bound is the rate at which 2 or fewer flips among 7 have a probability of 5 %.
    assert stats.binom.cdf(2, 7, report.negative_flips_bound) == pytest.approx(0.05)
    everything = compare("aa", "aa", "bb", **NONE)
    assert everything.negative_flips_bound == 1
    nothing = compare("a" * 50, "a" * 50, "a" * 50, **NONE)
    assert nothing.negative_flips_bound == pytest.approx(1 - 0.05 ** (1 / 50))
    assert sign_test(0, 5) == 1


def test_classes_that_only_the_new_one_knows_are_reported_apart():
    report = compare("aabbcc", "aabbxx", "aabbca", new_classes="abc", **NONE)
    assert report.old.images == report.new.images == 4
    assert report.negative_flips == 0
    (new,) = report.new_classes
    assert (new.label, new.images, new.correct) == ("c", 2, 1)
    assert report.new_all.images == 6
    assert report.new_all.accuracy == 5 / 6


def test_a_class_that_the_new_one_has_lost_always_fails():
    report = compare("aabb", "aabb", "aaaa", new_classes="a", **NONE)
    assert not report.passed
    assert report.lost_classes == ("b",)
    assert report.failures[0].name == "lost_classes"
    assert "does not know 'b'" in str(report)
    assert report.old.images == 2  # those of the lost class are left out


@pytest.mark.parametrize(("limit", "passed"), [(2 / 7, True), (0.28, False), (0, False), (1, True), (None, True)])
def test_the_limit_of_negative_flips(limit, passed):
    report = compare("aaaabbb", "aaabbaa", "abbbbba", max_negative_flips=limit, max_drop_per_class=None)
    assert report.passed is passed


def test_a_single_image_never_fails_the_limit_per_class():
    nine = compare("a" * 9 + "b" * 10, "a" * 9 + "b" * 10, "a" * 5 + "b" * 14, max_negative_flips=None)
    assert nine.passed  # nine images are too few to judge a drop of 0.1: one of them is more
    (check,) = nine.checks
    assert check.value == 0
    assert "1 of 2 classes have fewer than 10 images" in check.note
    ten = compare("a" * 10 + "b" * 10, "a" * 10 + "b" * 10, "a" * 9 + "b" * 11, max_negative_flips=None)
    assert ten.passed  # one of ten is not more than 0.1
    two = compare("a" * 10 + "b" * 10, "a" * 10 + "b" * 10, "a" * 8 + "b" * 12, max_negative_flips=None)
    assert not two.passed
    assert "Dropped by more than 10.0 %: 'a'" in two.checks[0].note


def test_what_cannot_be_judged_does_not_pass():
    report = compare("aab", "aab", "aab", max_negative_flips=None)
    assert not report.passed
    assert "No class has the 10 images" in str(report)
    assert compare("aab", "aab", "aab", max_negative_flips=None, max_drop_per_class=1).passed


def test_a_limit_of_zero_per_class_allows_no_drop():
    assert compare("aab", "aab", "aab", max_drop_per_class=0).passed
    assert not compare("aab", "aab", "abb", max_negative_flips=None, max_drop_per_class=0).passed


def test_limits_on_the_new_one_are_about_all_its_classes():
    words = {"labels": "aabbcc", "old": "aabbxx", "new": "aabbca", "new_classes": "abc", **NONE}
    assert compare(**words, min_accuracy=0.83).passed
    assert not compare(**words, min_accuracy=0.84).passed
    # Always 0.9 sure, and right in 5 of 6.
    assert compare(**words, max_calibration_error=0.07).passed
    assert not compare(**words, max_calibration_error=0.06).passed
    error = compare(**words).new_all.calibration_error
    assert error == pytest.approx(0.9 - 5 / 6)


def test_shifted_accuracy_is_the_mean_over_all_images():
    models = Scripted(("cat",), ["cat"] * 4), Scripted(("cat", "dog"), ["cat", "cat", "cat", "dog"])
    labels = ["cat", "cat", "cat", "dog"]
    plain = acr.gate(*models, numbered(4), labels, **NONE)
    assert plain.old.shifted_accuracy is plain.new_all.shifted_accuracy is None
    report = acr.gate(*models, numbered(4), labels, corruptions=["fog"], **NONE)
    assert report.old.shifted_accuracy == report.new.shifted_accuracy == 0.75
    assert report.new_all.shifted_accuracy == (3 * 0.75 + 0.25) / 4
    assert acr.gate(*models, numbered(4), labels, min_shifted_accuracy=0.6, **NONE).passed
    assert not acr.gate(*models, numbered(4), labels, min_shifted_accuracy=0.7, **NONE).passed


def test_accuracy_under_shift_is_what_each_classifier_says_itself(small, visit):
    """Also where the two do not know the same classes: both see the same corrupted images."""
    old = small().partial_fit(*visit(1, 3))
    new = small().partial_fit(*visit(1, 3)).partial_fit(*visit(0, 2))
    images, labels = visit(0, 1, 2, 3)
    report = acr.gate(old, new, images, labels, corruptions=["snow", "fog"], severities=[3], **NONE)
    assert report.new_all.shifted_accuracy == pytest.approx(
        new.evaluate_shift(images, labels, ["snow", "fog"], [3])["shifted"]
    )
    both = [row for row, label in enumerate(labels) if label in ("1", "3")]
    right = [
        (old.predict(acr.shift.corrupt(images[both], name, 3, indices=both)) == np.array(labels)[both]).mean()
        for name in ("snow", "fog")
    ]
    assert report.old.shifted_accuracy == pytest.approx(np.mean(right))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"labels": "ax", "old": "aa", "new": "aa"}, "has not learned the class 'x'"),
        ({"labels": "cc", "old": "aa", "new": "cc", "new_classes": "abc"}, "nothing to compare"),
        ({"labels": "aa", "old": "aa", "new": "aa", "max_negative_flips": 2}, "between 0 and 1"),
        ({"labels": "aa", "old": "aa", "new": "aa", "min_accuracy": math.nan}, "between 0 and 1"),
    ],
)
def test_wrong_input_is_a_sentence(words, says):
    with pytest.raises(InputError, match=says):
        compare(**words)


def test_images_and_labels_must_be_as_many():
    models = Scripted(("a",), "aaa"), Scripted(("a",), "aaa")
    with pytest.raises(InputError, match="3 images but 2 labels"):
        acr.gate(*models, numbered(3), ["a", "a"])


def test_classes_without_images_are_named():
    report = compare("aa", "aa", "aa", **NONE)
    assert report.untested_classes == ("b",)
    assert "not tested: 'b'" in str(report)


def test_the_report_as_text_and_as_json():
    report = compare("aaaabbb", "aaabbaa", "abbbbba", max_drop_per_class=0.5)
    text = str(report)
    assert repr(report) == text
    for part in ("FAILED (max_negative_flips)", "28.6 %", "at most 2.0 %", "2 from right to wrong, 1 from wrong",
                 "57.1 %", "42.9 %", "50.0 %"):  # fmt: skip
        assert part in text
    content = json.loads(report.to_json())
    assert content["passed"] is False
    assert content["negative_flips"] == 2 / 7
    assert content["classes"][0] == {"label": "a", "images": 4, "old_correct": 3, "new_correct": 1, "lost": 2,
                                     "gained": 0, "drop": 0.5, "p_value": 0.25}  # fmt: skip
    assert ClassChange("a", 4, 3, 1, 2).p_value == 0.25


def test_names_of_classes_cannot_give_orders_to_the_terminal():
    evil = "\x1b[2J\nx"
    report = acr.gate(Scripted((evil, "b"), [evil] * 2), Scripted((evil, "b"), ["b"] * 2), numbered(2), [evil] * 2)
    assert "\x1b" not in str(report)
    assert "\nx" not in str(report)


def test_real_classifiers_from_folders(small, visit, tmp_path):
    """Two states of one classifier, in memory and saved, give the same report; accuracies are scikit-learn's."""
    old = small().partial_fit(*visit(0, 1, part=slice(0, 12)))
    new = small().partial_fit(*visit(0, 1, part=slice(0, 12))).partial_fit(*visit(2, part=slice(0, 12)))
    images, labels = visit(0, 1, 2, part=slice(12, 24))
    report = acr.gate(old, new, images, labels, corruptions=["gaussian_noise"])
    common = slice(0, 24)
    assert report.old.accuracy == pytest.approx(accuracy_score(labels[common], old.predict(images[common])))
    assert report.new.accuracy == pytest.approx(accuracy_score(labels[common], new.predict(images[common])))
    assert report.new_all.accuracy == pytest.approx(new.score(images, labels))
    was, now = (model.predict(images[common]) == labels[common] for model in (old, new))
    assert report.negative_flips == pytest.approx(np.mean(was & ~now))
    shifted = old.evaluate_shift(images[common], labels[common], ["gaussian_noise"])["shifted"]
    assert report.old.shifted_accuracy == pytest.approx(shifted)
    assert report.learned_images == 0
    learned = acr.gate(old, new, *visit(0, 2, part=slice(6, 18)))  # of twelve images each, six were learned
    assert learned.learned_images == 12
    assert "12 of the 24 images were learned by one of the classifiers" in str(learned)
    old.save(tmp_path / "old")
    new.save(tmp_path / "new")
    again = acr.gate(tmp_path / "old", str(tmp_path / "new"), list(images), labels, corruptions=["gaussian_noise"])
    assert again == report
    with pytest.raises(InputError, match="neither a classifier"):
        acr.gate(tmp_path, new, images, labels)
