"""``acr predict`` and ``acr export``: what a classifier answers, here and elsewhere."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from acr.commands.shared import Model, Quiet, whole
from acr.console import say
from acr.data.readers.decoding import SHOWN
from acr.errors import AcrError, InputError
from acr.learner.answering import Answer, answer_files, find_images
from acr.learner.labels import to_plain
from acr.learner.opening import open_classifier
from acr.report.screen import print_columns


def predict(
    model: Model,
    /,
    *images: Annotated[Path, Parameter(help="Image files, or folders that are searched for them.")],
    top: Annotated[int, Parameter(converter=whole, help="How many labels to show per image.")] = 1,
    as_json: Annotated[
        bool, Parameter(name="--json", help="Print one JSON array.", negative=(), show_default=False)
    ] = False,
    as_csv: Annotated[
        bool, Parameter(name="--csv", help="Print rows of CSV.", negative=(), show_default=False)
    ] = False,
    device: Annotated[str, Parameter(help="Where it computes: auto, cpu, cuda, mps.")] = "auto",
    quiet: Quiet = False,
) -> None:
    """Name what is in images: the most probable labels, with their probabilities."""
    if not images:
        raise InputError("No images given. Name image files, or folders that hold some.")
    if as_json and as_csv:
        raise InputError("--json and --csv exclude each other.")
    if top < 1:
        raise InputError(f"--top {top}: expected 1 or more.")
    classifier = open_classifier(model, device)
    answers, unread = answer_files(classifier, find_images(images), top, quiet=quiet)
    if as_json:
        say(json.dumps([in_json(answer) for answer in answers], indent=1))
    elif as_csv:
        say(in_csv(answers).rstrip("\n"))
    elif answers:
        print_columns(["file", "label", "probability"], [row for answer in answers for row in in_rows(answer)], 2)
    for file, reason in unread[:SHOWN]:
        say(f"cannot be read: {file}: {reason}", error=True)
    if unread:
        more = f" ({len(unread) - SHOWN} of them are not listed above)" if len(unread) > SHOWN else ""
        raise AcrError(f"{len(unread)} of {len(answers) + len(unread)} images cannot be read{more}.")


def in_json(answer: Answer) -> dict[str, object]:
    """An answer of types that JSON has."""
    predictions = [{"label": to_plain(label), "probability": share} for label, share in answer.predictions]
    return {"file": answer.file, "predictions": predictions}


def in_csv(answers: list[Answer]) -> str:
    """Answers as CSV, with a line of names first."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["file", "rank", "label", "probability"])
    for answer in answers:
        for rank, (label, share) in enumerate(answer.predictions, start=1):
            rows.writerow([answer.file, rank, label, f"{share:.6f}"])
    return text.getvalue()


def in_rows(answer: Answer) -> list[list[str]]:
    """An answer as rows of a table; the file is named in the first."""
    return [
        ["" if rank else answer.file, str(label), f"{share:.3f}"]
        for rank, (label, share) in enumerate(answer.predictions)
    ]


def export(
    model: Model,
    file: Annotated[Path, Parameter(help="File to write: NAME.onnx (ONNX) or NAME.pt2 (torch.export).")],
    /,
    *,
    overwrite: Annotated[
        bool, Parameter(help="Replace the file if it exists.", negative=(), show_default=False)
    ] = False,
) -> None:
    """Write a classifier as one file for use without this package, and check that it answers the same."""
    classifier = open_classifier(model, "cpu")
    if file.exists() and not overwrite:
        raise InputError(f"{file} exists already. Choose another name, or replace it with --overwrite.")
    written = classifier.export(file, overwrite=overwrite)
    channels, size, _ = classifier._needed().pictures.image_shape
    size_in_words = f"{written.stat().st_size / 2**20:.1f} MiB"
    say(f"{written}: {len(classifier.classes_)} classes, {size_in_words}, compared with {model}.")
    say(f"It takes uint8 images, N x {channels} x {size} x {size}, and returns probabilities.")
