"""``acr gate``: may a new classifier replace the one in use?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from acr.commands.shared import SkipBroken
from acr.commands.shift import shift_config
from acr.console import say
from acr.learner.gate import gate_on
from acr.learner.gate_report import GateReport, verdict
from acr.report.screen import print_columns

LIMITS = Group("Limits; a number from 0 to 1, or none", sort_key=1)
LISTED = 20
"""Classes that got worse of which a line is printed; --json has all."""


def limit(kind: Any, tokens: Sequence[Any]) -> float | None:
    """The value of a flag that takes a number, or ``none``."""
    text = tokens[0].value
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError("expected a number from 0 to 1, or none") from None


def flag(text: str) -> Parameter:
    """A flag for a limit."""
    return Parameter(help=text, group=LIMITS, converter=limit)


def gate(
    old: Annotated[Path, Parameter(help="Folder of the classifier in use.")],
    new: Annotated[Path, Parameter(help="Folder of the classifier that is to replace it.")],
    data: Annotated[
        Path,
        Parameter(help="Labelled images that neither has learned: class folders, a CSV file or an .npz file."),
    ],
    /,
    *,
    max_negative_flips: Annotated[
        float | None, flag("Largest share of images that the old one gets right and the new one wrong.")
    ] = 0.02,
    max_drop_per_class: Annotated[
        float | None, flag("Largest drop in accuracy of a class, where one image is not more than that.")
    ] = 0.1,
    min_accuracy: Annotated[float | None, flag("Least accuracy of the new one.")] = None,
    min_shifted_accuracy: Annotated[float | None, flag("Least accuracy of the new one under shift.")] = None,
    max_calibration_error: Annotated[float | None, flag("Largest calibration error of the new one.")] = None,
    ood_corruptions: Annotated[
        str | None,
        Parameter(help="Measure accuracy under these, such as fog,snow; `acr shift list` lists them."),
    ] = None,
    ood_severities: Annotated[
        str | None, Parameter(help="Severities of the corruptions, such as 1,3 or 1-5; by default 1.")
    ] = None,
    skip_broken: SkipBroken = False,
    as_json: Annotated[
        bool, Parameter(name="--json", help="Print the report as JSON.", negative=(), show_default=False)
    ] = False,
) -> None:
    """Compare a new classifier with the one in use. Exit code 0: it may replace it; 1: it may not."""
    limits = {
        "max_negative_flips": max_negative_flips,
        "max_drop_per_class": max_drop_per_class,
        "min_accuracy": min_accuracy,
        "min_shifted_accuracy": min_shifted_accuracy,
        "max_calibration_error": max_calibration_error,
    }
    shift = None
    if any(asked is not None for asked in (ood_corruptions, ood_severities, min_shifted_accuracy)):
        chosen = shift_config("split-digits", ood_corruptions, ood_severities, None, None, None, True)
        shift = (chosen.ood_corruptions if ood_corruptions else None, chosen.ood_severities)
    report = gate_on(old, new, data, limits, shift, skip_broken=skip_broken)
    if as_json:
        say(report.to_json())
    else:
        show(report)
    if not report.passed:
        raise SystemExit(1)


def show(report: GateReport) -> None:
    """Print the report."""
    heads, *rows = report.rows()
    print_columns(heads, rows)
    for note in report.notes():
        say(note)
    heads, *worse = report.class_rows()
    if worse:
        say("\nClasses that got worse:")
        print_columns(heads, worse[:LISTED])
        if len(worse) > LISTED:
            say(f"and {len(worse) - LISTED} more; --json lists all")
    say("\n" + verdict(report))
