"""A gate before deployment: is the new classifier as good as the old one where people rely on it?

A classifier that has learned more may be better on average and yet wrong where it used to be right. These images,
negative flips, are what its users notice (Yan et al. 2021, "Positive-congruent training: towards regression-free model
updates").
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from acr.errors import InputError
from acr.evaluation.evaluator import BINS
from acr.learner.classifier import ContinualClassifier
from acr.learner.gate_report import Check, ClassChange, GateReport, Measures, NewClass, named, percent
from acr.learner.images import Batch, read_images
from acr.learner.labelled import read_labelled
from acr.learner.labels import check_one_each, to_labels
from acr.learner.opening import open_classifier
from acr.learner.teaching import with_known_labels
from acr.learner.visit import Rows
from acr.metrics import expected_calibration_error
from acr.shift.suite import ShiftSpec

Limits = Mapping[str, float | None]
"""By the argument of :func:`gate`; None: not applied."""
Shift = tuple[Sequence[str] | None, Sequence[int]]
"""Corruptions (None: the eleven of the paper) and severities."""


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
    limits: Limits = {
        "max_negative_flips": max_negative_flips,
        "max_drop_per_class": max_drop_per_class,
        "min_accuracy": min_accuracy,
        "min_shifted_accuracy": min_shifted_accuracy,
        "max_calibration_error": max_calibration_error,
    }
    shift = None if corruptions is None and min_shifted_accuracy is None else (corruptions, severities)
    before, after = _opened(old), _opened(new)
    shown = {shape: read_images(images, shape[1], shape[0]) for shape in {_shape(before), _shape(after)}}
    return compare(before, after, shown[_shape(before)], shown[_shape(after)], to_labels(labels), limits, shift)


def gate_on(
    old: Path, new: Path, data: Path, limits: Limits, shift: Shift | None, *, skip_broken: bool = False
) -> GateReport:
    """:func:`gate` for the images of a folder or file (see :func:`acr.learner.labelled.read_labelled`)."""
    before, after = open_classifier(old), open_classifier(new)
    read = {
        (channels, size): read_labelled(data, size, channels, part="test", skip_broken=skip_broken)
        for channels, size in {_shape(before), _shape(after)}
    }
    labels = with_known_labels(after, read[_shape(after)].labels)
    return compare(before, after, read[_shape(before)].batch, read[_shape(after)].batch, labels, limits, shift)


def compare(
    old: ContinualClassifier,
    new: ContinualClassifier,
    old_images: Batch,
    new_images: Batch,
    labels: Sequence[Hashable],
    limits: Limits,
    shift: Shift | None,
) -> GateReport:
    """Hold two classifiers against limits.

    Args:
        old: the classifier in use.
        new: the one that is to replace it.
        old_images: the images in the size that the old classifier takes.
        new_images: the same images in the size that the new one takes.
        labels: one per image.
        limits: by the argument of :func:`gate`.
        shift: corruptions and severities; None: not measured.
    """
    for name, limit in limits.items():
        if limit is not None and not 0 <= limit <= 1:
            raise InputError(f"{name} must be between 0 and 1; got {limit}.")
    check_one_each(len(new_images), len(labels))
    return _Comparison(old, new, old_images, new_images, labels).report(limits, shift)


def _opened(model: ContinualClassifier | str | Path) -> ContinualClassifier:
    return model if isinstance(model, ContinualClassifier) else open_classifier(Path(model))


def _shape(model: ContinualClassifier) -> tuple[int, int]:
    """Channels and side of the images that a classifier takes."""
    return model._needed().pictures.image_shape[:2]


class _Comparison:
    """What two classifiers answer for the same images."""

    def __init__(
        self,
        old: ContinualClassifier,
        new: ContinualClassifier,
        old_images: Batch,
        new_images: Batch,
        labels: Sequence[Hashable],
    ) -> None:
        known_old, known_new = old._needed().labels, new._needed().labels
        self.values = known_new.values
        self.lost_classes = tuple(label for label in known_old.values if label not in known_new)
        # The images of lost classes are left out: that such classes are lost is reason enough to fail.
        lost = set(self.lost_classes)
        judged = [row for row, label in enumerate(labels) if label not in lost]
        self.labels = [labels[row] for row in judged]
        self.answers = known_new.columns(self.labels)
        self.common = np.array([label in known_old for label in self.labels], dtype=bool)
        if not self.common.any():
            both = named([label for label in known_old.values if label in known_new])
            raise InputError(
                "None of the images is of a class that both classifiers know, so there is nothing to compare. "
                f"Both know {both or 'no class'}."
            )
        self.old, self.new = old, new
        self.new_images = new_images.select(judged)
        self.old_images = old_images.select([row for row, use in zip(judged, self.common, strict=True) if use])
        self.new_scores = new.predict_proba(self.new_images)
        self.old_scores = old.predict_proba(self.old_images)
        self.old_answers = known_old.columns(self._labels(self.common))

    def _labels(self, chosen: npt.NDArray[np.bool_]) -> list[Hashable]:
        return [label for label, use in zip(self.labels, chosen, strict=True) if use]

    def report(self, limits: Limits, shift: Shift | None) -> GateReport:
        """All measures, held against the limits."""
        common, added = self.common, ~self.common
        was, now, now_all = self._shifted(shift)
        old = _measures(self.old_scores, self.old_answers, was)
        new = _measures(self.new_scores[common], self.answers[common], now)
        new_all = _measures(self.new_scores, self.answers, now_all)
        changes = tuple(sorted(self._changes(), key=lambda change: -change.drop))
        present = np.bincount(self.answers, minlength=len(self.values))
        measured = {
            "max_negative_flips": sum(change.lost for change in changes) / old.images,
            "min_accuracy": new_all.accuracy,
            "min_shifted_accuracy": new_all.shifted_accuracy,
            "max_calibration_error": new_all.calibration_error,
        }
        return GateReport(
            old=old,
            new=new,
            new_all=new_all,
            classes=changes,
            new_classes=tuple(self._new_classes(added)),
            lost_classes=self.lost_classes,
            untested_classes=tuple(value for value, count in zip(self.values, present, strict=True) if not count),
            learned_images=self._learned(),
            checks=(*_checks(limits, measured, changes), *self._lost_check()),
        )

    def _learned(self) -> int:
        """Number of images that are no test, because one of the two has learned them."""
        learned = self.new.has_learned(self.new_images)
        learned[self.common] |= self.old.has_learned(self.old_images)
        return int(learned.sum())

    def _lost_check(self) -> Iterator[Check]:
        if self.lost_classes:
            note = f"The new classifier does not know {named(self.lost_classes)}, which the old one knows."
            yield Check("lost_classes", len(self.lost_classes), 0, False, note)

    def _new_classes(self, added: npt.NDArray[np.bool_]) -> Iterator[NewClass]:
        """One entry per class that only the new classifier knows and that has images."""
        right = self.new_scores.argmax(1) == self.answers
        for column in np.unique(self.answers[added]):
            own = self.answers == column
            yield NewClass(self.values[column], int(own.sum()), int(right[own].sum()))

    def _changes(self) -> Iterator[ClassChange]:
        """One entry per class that both know and that has images."""
        answers = self.answers[self.common]
        was = self.old_scores.argmax(1) == self.old_answers
        now = self.new_scores[self.common].argmax(1) == answers
        for column in np.unique(answers):
            own = answers == column
            counts = (own.sum(), was[own].sum(), now[own].sum(), (was & ~now)[own].sum())
            yield ClassChange(self.values[column], *map(int, counts))

    def _shifted(self, shift: Shift | None) -> tuple[float | None, float | None, float | None]:
        """Accuracies under shift: of the old and the new classifier where both know the class, of the new one on all.

        Both see the same corrupted images.
        """
        if shift is None:
            return None, None, None
        corruptions, severities = shift
        spec = ShiftSpec.make(corruptions, severities, "imagenet-c")

        both = np.flatnonzero(self.common).tolist()
        was = np.stack(list(self.old._right_under_shift(self.old_images, self.old_answers, spec, both).values()))
        now = np.stack(list(self.new._right_under_shift(self.new_images, self.answers, spec).values()))
        return float(was.mean()), float(now[:, self.common].mean()), float(now.mean())


def _checks(limits: Limits, measured: Mapping[str, float | None], changes: Sequence[ClassChange]) -> Iterator[Check]:
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
