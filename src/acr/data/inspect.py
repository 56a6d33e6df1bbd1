"""Checks of a data set, to be made before a run depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acr.data.catalog import DataSpec, find
from acr.data.fingerprint import image_digests
from acr.data.images import DataSet, ImageSet
from acr.data.loading import load_dataset
from acr.data.readers.decoding import SHOWN
from acr.errors import InputError

MEAN_TOLERANCE = 0.01
STD_TOLERANCE = 0.03
"""Published constants were often computed before resizing, which lowers the deviation by about 0.02."""


@dataclass
class Report:
    """What was found. Errors would spoil a run; warnings are worth knowing."""

    name: str
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    """Counts, sizes and constants, in the order in which they are printed."""

    @property
    def ok(self) -> bool:
        """No errors."""
        return not self.errors


def check(name: str, **fields: Any) -> Report:
    """Check counts, classes, sizes, constants, duplicates between training and test, and unreadable files.

    If the data set cannot be read at all, the report holds that error; an unknown name raises one. ``fields`` are those
    of :class:`acr.config.DataConfig`.
    """
    spec, _ = find(name)
    report = Report(name)
    try:
        data = load_dataset(name, **{**fields, "skip_broken": True})
    except InputError as error:
        report.errors.append(str(error))
        return report
    for file, reason in data.notes.get("skipped", ()):
        report.errors.append(f"unreadable: {file}: {reason}".encode("utf-8", "backslashreplace").decode())
    for folder, reason in data.notes.get("left_out", ()):
        report.errors.append(f"{folder}: {reason}")
    if lost := data.notes.get("classes_without_images"):
        report.errors.append(f"no file of these classes can be read: {', '.join(lost[:SHOWN])}")
    _describe(report, data)
    _check_classes(report, data, spec)
    _check_constants(report, data, spec)
    _check_duplicates(report, data)
    return report


def _describe(report: Report, data: DataSet) -> None:
    channels, height, width = data.train.image_shape
    for key in ("location", "layout", "cache"):
        if key in data.notes:
            report.facts[key] = data.notes[key]
    report.facts["classes"] = len(data.train.classes)
    report.facts["image"] = f"{height}x{width}, {'RGB' if channels == 3 else 'grey'}"
    for split, images in (("train", data.train), ("test", data.test)):
        report.facts[f"{split} images"] = len(images)
        report.facts[f"{split} images per class"] = _range(images.counts())
    if "holdout" in data.notes:
        held = data.notes["holdout"]
        report.facts["test set"] = f"{held['fraction']:.0%} of each class, held out with seed {held['seed']}"


def _check_classes(report: Report, data: DataSet, spec: DataSpec) -> None:
    present = len(data.train.classes)
    if spec.classes is not None and present < spec.classes:
        report.errors.append(f"{spec.classes - present} of {spec.classes} classes are missing")
    if spec.classes is not None and present > spec.classes:
        report.errors.append(f"{present} classes, but {spec.name} has {spec.classes}")
    if present < 2:
        report.errors.append("there is only one class, so there is nothing to tell apart")
    for split, images, whole in (
        ("train", data.train, spec.train_per_class),
        ("test", data.test, spec.test_per_class),
    ):
        counts = images.counts()
        if whole is not None and any(count != whole for count in counts.values()):
            report.warnings.append(
                f"{split}: {_range(counts)} images per class instead of {whole}: incomplete, or another data set"
            )
    counts = data.train.counts()
    if spec.train_per_class is None and max(counts.values()) > 10 * min(counts.values()):
        smallest = min(counts, key=lambda label: counts[label])
        report.warnings.append(
            f"train: class sizes vary widely ({_range(counts)} images); smallest: {data.train.class_names[smallest]}"
        )


def _check_constants(report: Report, data: DataSet, spec: DataSpec) -> None:
    mean, std = data.train.statistics()
    report.facts["train mean"] = tuple(round(value, 5) for value in mean)
    report.facts["train std"] = tuple(round(value, 5) for value in std)
    if min(std) == 0:
        report.errors.append("a channel is constant over all training images")
    if spec.mean is None or spec.std is None:
        return
    report.facts["recorded mean"], report.facts["recorded std"] = spec.mean, spec.std
    for what, found, known, tolerance in (
        ("mean", mean, spec.mean, MEAN_TOLERANCE),
        ("standard deviation", std, spec.std, STD_TOLERANCE),
    ):
        if len(found) != len(known) or max(abs(a - b) for a, b in zip(found, known, strict=True)) > tolerance:
            shown = " ".join(f"{value:.4f}" for value in found)
            report.warnings.append(f"the {what} is {shown}, far from the recorded {' '.join(map(str, known))}")


def _check_duplicates(report: Report, data: DataSet) -> None:
    """Compare images by a hash of their pixels: near-duplicates are not found."""
    in_train: dict[bytes, int] = {}
    for position, digest in enumerate(_digests(data.train)):
        in_train.setdefault(digest, position)
    duplicates = [(in_train[digest], i) for i, digest in enumerate(_digests(data.test)) if digest in in_train]
    report.facts["train images repeated"] = len(data.train) - len(in_train)
    report.facts["test images also in train"] = len(duplicates)
    if duplicates:
        other = sum(data.train.labels[a] != data.test.labels[b] for a, b in duplicates)
        first = ", ".join(f"test {b} = train {a}" for a, b in duplicates[:3])
        report.warnings.append(
            f"{len(duplicates)} test images are also training images, {other} of them with a different label ({first}"
            f"{', ...' if len(duplicates) > 3 else ''})"
        )


def _digests(images: ImageSet) -> list[bytes]:
    return [digest.tobytes() for digest in image_digests(images.images)]


def _range(counts: Mapping[int, int]) -> str:
    """The smallest and the largest count, as text."""
    low, high = min(counts.values()), max(counts.values())
    return f"{low}" if low == high else f"{low} to {high}"
