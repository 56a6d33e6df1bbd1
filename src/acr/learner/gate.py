"""A gate before deployment: is the new classifier as good as the old one where people rely on it?

A classifier that has learned more may be better on average and yet wrong where it used to be right. These images,
negative flips, are what its users notice (Yan et al. 2021, "Positive-congruent training: towards regression-free model
updates").
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from acr.errors import InputError
from acr.evaluation.evaluator import BINS
from acr.learner.classifier import ContinualClassifier
from acr.learner.gate_report import Check, ClassChange, GateReport, Measures, NewClass, named, percent
from acr.learner.labels import to_labels
from acr.learner.opening import open_classifier
from acr.metrics import expected_calibration_error

Rows = npt.NDArray[np.int64]


def gate(
    old: ContinualClassifier | str | Path,
    new: ContinualClassifier | str | Path,
    images: Any,
    labels: Any,
    *,
    max_negative_flips: float | None = 0.02,
    max_drop_per_class: float | None = 0.1,
    min_accuracy: float | None = None,
    min_shifted_accuracy: float | None = None,
    max_calibration_error: float | None = None,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] = (1,),
) -> GateReport:
    """Compare a new classifier with the one that it is to replace, on labelled images that neither has learned.

    Args:
        old: the classifier in use, or the folder it was saved in.
        new: the classifier that is to replace it, likewise.
        images: as for :meth:`acr.ContinualClassifier.predict`.
        labels: one per image, of classes that the old or the new classifier knows.
        max_negative_flips: largest share of images that the old classifier gets right and the new one wrong, among
            the images of classes that both know.
        max_drop_per_class: largest drop in accuracy of a class that both know. A class is judged only if one image is
            not more than this drop (with 0.1: ten images or more), so that no single image fails the gate. If no class
            can be judged, the limit counts as not kept.
        min_accuracy: least accuracy of the new classifier on all images.
        min_shifted_accuracy: least accuracy of the new classifier on all images under shift.
        max_calibration_error: largest expected calibration error of the new classifier on all images.
        corruptions: names from ``acr.shift.CORRUPTIONS``. Accuracy under shift is measured if they or
            ``min_shifted_accuracy`` are given; in the latter case by default on the eleven of the paper.
        severities: of the corruptions, from 1 to 5.

    A limit of None is not applied. Limits are compared with what was measured on these images; the report has the
    counts behind every number. A class that the old classifier knows and the new one does not always fails the gate.
    """
    limits = {
        "max_negative_flips": max_negative_flips,
        "max_drop_per_class": max_drop_per_class,
        "min_accuracy": min_accuracy,
        "min_shifted_accuracy": min_shifted_accuracy,
        "max_calibration_error": max_calibration_error,
    }
    for name, limit in limits.items():
        if limit is not None and not 0 <= limit <= 1:
            raise InputError(f"{name} must be between 0 and 1; got {limit}.")
    shift = None if corruptions is None and min_shifted_accuracy is None else (corruptions, severities)
    before, after = _opened(old), _opened(new)
    comparison = _Comparison(before, after, images, to_labels(labels))
    return comparison.report(limits, shift)


def _opened(model: ContinualClassifier | str | Path) -> ContinualClassifier:
    return model if isinstance(model, ContinualClassifier) else open_classifier(Path(model))


class _Comparison:
    """What two classifiers answer for the same images."""

    def __init__(
        self, old: ContinualClassifier, new: ContinualClassifier, images: Any, labels: Sequence[Hashable]
    ) -> None:
        self.old, self.new = old, new
        self.images, self.labels = images, labels
        known_old, known_new = old._needed().labels, new._needed().labels
        self.lost_classes = tuple(label for label in known_old.values if label not in known_new)
        # The images of lost classes are left out: that such classes are lost is reason enough to fail.
        judged = [row for row, label in enumerate(labels) if label not in set(self.lost_classes)]
        self.answers = known_new.columns([labels[row] for row in judged])
        self.rows = np.array(judged, dtype=np.int64)
        self.common = np.array([labels[row] in known_old for row in judged], dtype=bool)
        if not self.common.any():
            raise InputError(
                "None of the images is of a class that both classifiers know, so there is nothing to compare. "
                f"Both know {named([label for label in known_old.values if label in known_new]) or 'no class'}."
            )
        self.new_scores = new.predict_proba(images)
        if len(self.new_scores) != len(labels):
            raise InputError(
                f"There are {len(self.new_scores)} images but {len(labels)} labels; each image needs one label."
            )
        self.new_scores = self.new_scores[self.rows]
        both = self.rows[self.common]
        self.old_answers = known_old.columns([labels[row] for row in both])
        self.old_scores = old.predict_proba(_select(images, both))

    def report(
        self, limits: dict[str, float | None], shift: tuple[Sequence[str] | None, Sequence[int]] | None
    ) -> GateReport:
        """All measures, held against the limits."""
        common, new = self.common, ~self.common
        both, added = self.rows[common], self.rows[new]
        shifted_old = self._shifted(self.old, both, shift)
        shifted_new = self._shifted(self.new, both, shift)
        shifted_added = self._shifted(self.new, added, shift)
        old = _measures(self.old_scores, self.old_answers, shifted_old)
        after = _measures(self.new_scores[common], self.answers[common], shifted_new)
        everything = _measures(
            self.new_scores, self.answers, _mean((shifted_new, len(both)), (shifted_added, len(added)))
        )
        changes = tuple(sorted(self._changes(), key=lambda change: -change.drop))
        right = self.new_scores.argmax(1) == self.answers
        values = self.new._needed().labels.values
        present = np.bincount(self.answers, minlength=len(values))
        new_classes = tuple(
            NewClass(values[column], int(present[column]), int(right[self.answers == column].sum()))
            for column in np.unique(self.answers[new])
        )
        untested = tuple(value for value, count in zip(values, present, strict=True) if not count)
        flips = sum(change.lost for change in changes) / len(both)
        measured = {
            "max_negative_flips": flips,
            "min_accuracy": everything.accuracy,
            "min_shifted_accuracy": everything.shifted_accuracy,
            "max_calibration_error": everything.calibration_error,
        }
        checks = list(_checks(limits, measured, changes))
        if self.lost_classes:
            note = f"The new classifier does not know {named(self.lost_classes)}, which the old one knows."
            checks.append(Check("lost_classes", len(self.lost_classes), 0, False, note))
        return GateReport(old, after, everything, changes, new_classes, self.lost_classes, untested, tuple(checks))

    def _changes(self) -> Iterator[ClassChange]:
        """One entry per class that both know and that has images."""
        answers = self.answers[self.common]
        was = self.old_scores.argmax(1) == self.old_answers
        now = self.new_scores[self.common].argmax(1) == answers
        values = self.new._needed().labels.values
        for column in np.unique(answers):
            own = answers == column
            counts = (own.sum(), was[own].sum(), now[own].sum(), (was & ~now)[own].sum())
            yield ClassChange(values[column], *map(int, counts))

    def _shifted(
        self, model: ContinualClassifier, rows: Rows, shift: tuple[Sequence[str] | None, Sequence[int]] | None
    ) -> float | None:
        if shift is None or not len(rows):
            return None
        labels = [self.labels[row] for row in rows]
        return model.evaluate_shift(_select(self.images, rows), labels, *shift)["shifted"]


def _checks(
    limits: dict[str, float | None], measured: dict[str, float | None], changes: Sequence[ClassChange]
) -> Iterator[Check]:
    """One check per limit that is applied."""
    for name, limit in limits.items():
        if limit is None:
            continue
        if name == "max_drop_per_class":
            yield _drop_check(limit, changes)
            continue
        value = measured[name]
        assert value is not None
        yield Check(name, value, limit, value >= limit if name.startswith("min") else value <= limit)


def _drop_check(limit: float, changes: Sequence[ClassChange]) -> Check:
    """The largest drop among the classes that have enough images to be judged."""
    needed = math.ceil(1 / limit) if limit else 1
    judged = [change for change in changes if change.images >= needed]
    few = len(changes) - len(judged)
    if not judged:
        note = (
            f"No class has the {needed} images that it takes to judge a drop of {percent(limit)}: give more images, a "
            "larger max_drop_per_class, or None to do without."
        )
        return Check("max_drop_per_class", None, limit, False, note)
    worst = max(judged, key=lambda change: change.drop)
    over = [change.label for change in judged if change.drop > limit]
    notes = [f"Dropped by more than {percent(limit)}: {named(over)}."] if over else []
    if few:
        notes.append(
            f"{few} of {len(changes)} classes have fewer than {needed} images, too few to judge a drop of "
            f"{percent(limit)}; they are listed but not held against the limit."
        )
    return Check("max_drop_per_class", worst.drop, limit, not over, " ".join(notes))


def _measures(scores: npt.NDArray[np.float64], answers: Rows, shifted: float | None) -> Measures:
    right = scores.argmax(1) == answers
    confidence = scores.max(1)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    sums = [np.bincount(bins, weights, BINS) for weights in (None, confidence, right)]
    return Measures(len(answers), float(right.mean()), expected_calibration_error(*sums), shifted)


def _mean(*parts: tuple[float | None, int]) -> float | None:
    """The mean over all images, from means over parts of them."""
    known = [(value, count) for value, count in parts if value is not None]
    return sum(value * count for value, count in known) / sum(count for _, count in known) if known else None


def _select(images: Any, rows: Rows) -> Any:
    """The images at these positions, of an array, a tensor or a list."""
    if isinstance(images, np.ndarray) or hasattr(images, "detach"):
        return images[rows]
    listed = list(images)  # a column of a table would be indexed by its own names of rows
    return [listed[row] for row in rows]
