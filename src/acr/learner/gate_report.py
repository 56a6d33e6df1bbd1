"""What a gate has found: measures of two classifiers on the same images, limits, and whether they were kept."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scipy import stats

from acr.errors import printable, shown
from acr.learner.labels import to_plain

CONFIDENCE = 0.95
"""Of the upper bound on the rate of negative flips."""
SHOWN = 20
"""Classes that the text of a report lists; ``classes`` has all of them."""


@dataclass(frozen=True)
class Measures:
    """How good a classifier is on some images; all but their number are fractions."""

    images: int
    accuracy: float
    calibration_error: float
    """Expected calibration error over 15 bins of confidence (Guo et al. 2017)."""
    shifted_accuracy: float | None
    """Mean accuracy over the corruptions and severities; None if it was not measured."""


@dataclass(frozen=True)
class ClassChange:
    """One class that both classifiers know, as counts of its images."""

    label: Hashable
    images: int
    old_correct: int
    new_correct: int
    lost: int
    """Images that the old classifier gets right and the new one wrong: negative flips."""

    @property
    def gained(self) -> int:
        """Images that the old classifier gets wrong and the new one right."""
        return self.new_correct - self.old_correct + self.lost

    @property
    def drop(self) -> float:
        """Accuracy of the old classifier minus that of the new one."""
        return (self.old_correct - self.new_correct) / self.images

    @property
    def p_value(self) -> float:
        """Probability of as many losses among the changed images if losses and gains were equally likely."""
        return sign_test(self.lost, self.gained)

    def as_dict(self) -> dict[str, Any]:
        """Counts and what follows from them, by name."""
        return {
            "label": to_plain(self.label),
            "images": self.images,
            "old_correct": self.old_correct,
            "new_correct": self.new_correct,
            "lost": self.lost,
            "gained": self.gained,
            "drop": self.drop,
            "p_value": self.p_value,
        }


@dataclass(frozen=True)
class NewClass:
    """One class that only the new classifier knows."""

    label: Hashable
    images: int
    correct: int


@dataclass(frozen=True)
class Check:
    """One limit."""

    name: str
    """The argument of :func:`acr.gate`; ``lost_classes`` always has the limit 0."""
    value: float | None
    """What was measured; None if it could not be."""
    limit: float
    passed: bool
    note: str = ""
    """Which class, or why it could not be measured."""


@dataclass(frozen=True, repr=False)
class GateReport:
    """The result of :func:`acr.gate`. Print it for a table; ``passed`` is the verdict."""

    old: Measures
    """The old classifier, on the images whose class both know."""
    new: Measures
    """The new classifier, on the same images."""
    new_all: Measures
    """The new classifier, on all images."""
    classes: tuple[ClassChange, ...]
    """The classes that both know and that have images, largest drop first."""
    new_classes: tuple[NewClass, ...]
    """The classes that only the new classifier knows and that have images."""
    lost_classes: tuple[Hashable, ...]
    """Classes that only the old classifier knows."""
    untested_classes: tuple[Hashable, ...]
    """Classes of the new classifier without an image here."""
    learned_images: int
    """Number of images that the old or the new classifier has learned: what is measured on these is too good."""
    checks: tuple[Check, ...]
    """One per limit."""

    @property
    def passed(self) -> bool:
        """Whether every limit was kept."""
        return all(check.passed for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """The limits that were not kept."""
        return tuple(check for check in self.checks if not check.passed)

    @cached_property
    def lost(self) -> int:
        """Number of negative flips."""
        return sum(change.lost for change in self.classes)

    @cached_property
    def gained(self) -> int:
        """Number of positive flips: images that only the new classifier gets right."""
        return sum(change.gained for change in self.classes)

    @property
    def negative_flips(self) -> float:
        """Share of the images that the old classifier gets right and the new one wrong (Yan et al. 2021)."""
        return self.lost / self.old.images

    @property
    def negative_flips_bound(self) -> float:
        """With 95 % confidence, the rate of negative flips on all such images is below this (Clopper-Pearson)."""
        rest = self.old.images - self.lost
        return float(stats.beta.ppf(CONFIDENCE, self.lost + 1, rest)) if rest else 1.0

    @property
    def p_value(self) -> float:
        """One-sided exact McNemar test: small if the new classifier is worse on the classes that both know."""
        return sign_test(self.lost, self.gained)

    def as_dict(self) -> dict[str, Any]:
        """Everything by name, of types that JSON has; labels of other types as text."""
        return {
            "passed": self.passed,
            "checks": [vars(check) for check in self.checks],
            "old": vars(self.old),
            "new": vars(self.new),
            "new_all": vars(self.new_all),
            "negative_flips": self.negative_flips,
            "negative_flips_bound": self.negative_flips_bound,
            "lost": self.lost,
            "gained": self.gained,
            "p_value": self.p_value,
            "classes": [change.as_dict() for change in self.classes],
            "new_classes": [{**vars(new), "label": to_plain(new.label)} for new in self.new_classes],
            "lost_classes": [to_plain(label) for label in self.lost_classes],
            "untested_classes": [to_plain(label) for label in self.untested_classes],
            "learned_images": self.learned_images,
        }

    def to_json(self) -> str:
        """:meth:`as_dict` as JSON."""
        return json.dumps(self.as_dict(), indent=1, allow_nan=False)

    def rows(self) -> list[list[str]]:
        """The measures as text, one row each: name, old, new, new on all classes, limit, verdict. First the heads."""
        three = (self.old, self.new, self.new_all)
        drop = next((check.value for check in self.checks if check.name == "max_drop_per_class"), self.classes[0].drop)
        rows = [
            ["", "old", "new", "new, all classes", "limit", ""],
            self._row("images", [str(each.images) for each in three]),
            self._row("accuracy", [percent(each.accuracy) for each in three], "min_accuracy"),
            self._row(
                "calibration error", [percent(each.calibration_error) for each in three], "max_calibration_error"
            ),
            self._row("negative flips", ["", percent(self.negative_flips), ""], "max_negative_flips"),
            self._row("largest drop of a class", ["", percent(drop), ""], "max_drop_per_class"),
        ]
        if self.new_all.shifted_accuracy is not None:
            cells = [percent(each.shifted_accuracy) for each in three]
            rows.insert(3, self._row("accuracy under shift", cells, "min_shifted_accuracy"))
        if self.lost_classes:
            rows.append(self._row("lost classes", ["", str(len(self.lost_classes)), ""], "lost_classes"))
        return rows

    def _row(self, name: str, cells: Sequence[str], limit: str = "") -> list[str]:
        """A measure with its limit, if there is one."""
        check = next((check for check in self.checks if check.name == limit), None)
        if check is None:
            return [name, *cells, "", ""]
        words = "at least" if limit.startswith("min") else "at most"
        allowed = f"{words} {percent(check.limit)}" if check.limit else "none"
        return [name, *cells, allowed, "passed" if check.passed else "FAILED"]

    def notes(self) -> list[str]:
        """What the numbers do not say: counts behind them, classes that were not judged, lost or not tested."""
        bound, changed = percent(self.negative_flips_bound), self.lost + self.gained
        said = [
            f"Of {self.old.images} images of classes that both know, {changed} changed: {self.lost} from right to "
            f"wrong, {self.gained} from wrong to right (McNemar test that it got worse: p = {self.p_value:.2g}). The "
            f"rate of negative flips is below {bound} with {100 * CONFIDENCE:.0f} % confidence."
        ]
        said += [check.note for check in self.checks if check.note]
        if self.learned_images:
            said.append(
                f"{self.learned_images} of the {self.new_all.images} images were learned by one of the classifiers, so "
                "they are no test: use others."
            )
        if self.untested_classes:
            said.append(f"Without an image here, so not tested: {named(self.untested_classes)}.")
        return said

    def class_rows(self) -> list[list[str]]:
        """The classes that got worse as text, largest drop first; first the heads."""
        rows = [["class", "images", "old right", "new right", "drop", "p"]]
        for change in self.classes:
            if change.drop > 0:
                counts = (change.images, change.old_correct, change.new_correct)
                rows.append([name(change.label), *map(str, counts), percent(change.drop), f"{change.p_value:.2g}"])
        return rows

    def __str__(self) -> str:
        parts = [verdict(self), aligned(self.rows()), *self.notes()]
        worse = self.class_rows()
        if len(worse) > 1:
            parts.append("Classes that got worse:\n" + aligned(worse[: SHOWN + 1]))
        if len(worse) > SHOWN + 1:
            parts.append(f"and {len(worse) - SHOWN - 1} more")
        return "\n".join(parts)

    __repr__ = __str__


def verdict(report: GateReport) -> str:
    """The result in one line."""
    if report.passed:
        return "Gate: passed."
    return f"Gate: FAILED ({', '.join(check.name for check in report.failures)})."


def sign_test(lost: int, gained: int) -> float:
    """P(X ≥ lost) for X binomial with ``lost + gained`` trials of probability 1/2; 1 if nothing changed.

    >>> sign_test(0, 0), sign_test(3, 0), sign_test(2, 2)
    (1.0, 0.125, 0.6875)
    """
    return float(stats.binomtest(lost, lost + gained, alternative="greater").pvalue) if lost + gained else 1.0


def percent(value: float | None) -> str:
    """A fraction as text.

    >>> percent(0.0123), percent(None)
    ('1.2 %', '–')
    """
    return "–" if value is None else f"{100 * value:.1f} %"


def name(label: Hashable) -> str:
    """A label as it is shown in a table."""
    return printable(str(label).replace("\n", " "))


def named(labels: Sequence[Hashable], most: int = 5) -> str:
    """Some of the labels, and how many more there are."""
    listed = ", ".join(shown(label) for label in labels[:most])
    return f"{listed} and {len(labels) - most} more" if len(labels) > most else listed


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text with their columns below each other: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
