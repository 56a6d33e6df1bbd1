"""``acr memory``: what a classifier remembers, as a list or a picture, and deleting from it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from cyclopts import Group, Parameter

from acr.commands.data import save_picture
from acr.commands.shared import Model, whole_numbers
from acr.console import say
from acr.data.images import ImageSet
from acr.data.sheets import draw_classes
from acr.errors import InputError
from acr.learner import ContinualClassifier
from acr.learner.labels import to_plain
from acr.learner.memory import MemoryView
from acr.learner.opening import open_classifier
from acr.learner.saving import is_model
from acr.learner.teaching import being_taught, with_known_labels
from acr.report.screen import print_columns

LIST = Group("For list", sort_key=1)
SHEET = Group("For sheet", sort_key=2)
DROP = Group("For drop: which images", sort_key=3)
WIDEST = 40
"""Most images per row of a sheet."""


def memory(
    model: Model,
    action: Annotated[
        Literal["list", "sheet", "drop"],
        Parameter(help="list the stored images, draw a sheet of them, or drop (delete) some for good."),
    ],
    /,
    *,
    as_json: Annotated[
        bool, Parameter(name="--json", help="Print one JSON array.", group=LIST, negative=(), show_default=False)
    ] = False,
    output: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="Image file to write; by default memory.png.", group=SHEET)
    ] = None,
    index: Annotated[
        list[int] | None,
        Parameter(
            help="Positions, as list shows them.",
            group=DROP,
            consume_multiple=True,
            negative=(),
            converter=whole_numbers,
        ),
    ] = None,
    label: Annotated[
        list[str] | None, Parameter(help="All images of these classes.", group=DROP, consume_multiple=True, negative=())
    ] = None,
    file: Annotated[
        list[Path] | None,
        Parameter(help="Those that were read from these files.", group=DROP, consume_multiple=True, negative=()),
    ] = None,
    yes: Annotated[
        bool, Parameter(help="Do not ask before deleting.", group=DROP, negative=(), show_default=False)
    ] = False,
) -> None:
    """Show the images that a classifier has stored, or delete some of them for good."""
    own = {"list": {"--json"}, "sheet": {"--output"}, "drop": {"--index", "--label", "--file", "--yes"}}
    values = {"--json": as_json, "--output": output, "--index": index, "--label": label, "--file": file, "--yes": yes}
    for flag, value in values.items():
        if value and flag not in own[action]:
            where = next(name for name, flags in own.items() if flag in flags)
            raise InputError(f"{flag} is for acr memory MODEL {where}, not for {action}.")
    if action == "drop":
        return drop(model, index or [], label or [], file or [], yes)
    stored = open_classifier(model, "cpu").memory_
    if action == "list":
        return show(model, stored, as_json)
    if not len(stored):
        raise InputError(f"{model} has no stored images to draw.")
    save_picture(sheet(model, stored), output or Path("memory.png"))


def show(model: Path, stored: MemoryView, as_json: bool) -> None:
    """Print one line per stored image."""
    entries = list(zip(stored.labels.tolist(), (stored.visits + 1).tolist(), stored.files, strict=True))
    if as_json:
        rows = [
            {"index": index, "label": to_plain(label), "visit": visit, "files": list(files)}
            for index, (label, visit, files) in enumerate(entries)
        ]
        say(json.dumps(rows, indent=1))
    elif not entries:
        say(f"{model} has no stored images.")
    else:
        table = [
            [str(index), str(label), str(visit), ", ".join(files) or "–"]
            for index, (label, visit, files) in enumerate(entries)
        ]
        print_columns(["index", "label", "visit", "file"], table, 4)


def sheet(model: Path, stored: MemoryView) -> object:
    """A picture with one row of stored images per class."""
    labels = stored.labels.tolist()
    number = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    columns = np.array([number[label] for label in labels], dtype=np.int64)
    images = ImageSet(stored.images, columns, {place: str(label) for label, place in number.items()})
    most = int(np.bincount(columns).max())
    title = f"memory of {model.name}: {len(stored)} images" + (f", {WIDEST} per class" if most > WIDEST else "")
    return draw_classes(images, title, columns=min(most, WIDEST))


def drop(model: Path, indices: list[int], labels: list[str], files: list[Path], yes: bool) -> None:
    """Delete stored images, after asking."""
    if not is_model(model):
        raise InputError(f"{model} is not a folder that acr learn has made; images can be deleted only from one.")
    if not (indices or labels or files):
        raise InputError("Say which images to delete: --index, --label or --file.")
    with being_taught(model):
        classifier = ContinualClassifier.load(model, device="cpu")
        stored = classifier.memory_
        known = with_known_labels(classifier, labels)
        found = stored.find(indices, known, [str(path.absolute()) for path in files])
        what = f"{len(found)} of {len(stored)} images"
        if not yes and not agreed(f"Delete {what} from the memory of {model} for good?"):
            say("Nothing was deleted.")
            return
        gone = classifier.drop_from_memory(found)
        classifier.save(model)
    left = classifier.memory_
    say(f"Deleted {gone} image{'' if gone == 1 else 's'}; {len(left)} are left in the memory of {model}.")
    lost = sorted({str(label) for label in stored.labels.tolist()} - {str(label) for label in left.labels.tolist()})
    if lost:
        say(f"No image is stored any more of: {', '.join(lost)}. What comes next will make it forget them.")


def agreed(question: str) -> bool:
    """Whether the person at the terminal says yes; without a terminal nobody can be asked, which is an error."""
    if not at_a_terminal():
        raise InputError(f"{question} Nobody can be asked here; add --yes.")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def at_a_terminal() -> bool:
    """Whether a person sees the question and can answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()
