"""``acr learn``: make a classifier, or teach it what is new."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from acr.commands.flags import in_words
from acr.commands.shared import Quiet, SkipBroken, whole
from acr.console import say
from acr.errors import command, complain
from acr.learner import ContinualClassifier
from acr.learner.saving import is_model
from acr.learner.teaching import Lesson, teach
from acr.report.screen import print_columns
from acr.storage.progress import duration

FIXED = Group("Chosen when the classifier is made", sort_key=1)
HOW = Group("How it learns; what is not given stays as it was", sort_key=2)
LISTED = 5
"""Files that could not be read of which a line is printed; the others are counted."""


def flag(text: str, name: str, group: Group, *, number: bool = False) -> Parameter:
    """A flag for a parameter of the classifier, with its default."""
    default = inspect.signature(ContinualClassifier).parameters[name].default
    text = text if default is None else f"{text} [default: {in_words(default)}]"
    return Parameter(help=text, group=group, converter=whole if number else None)


def learn(
    model: Annotated[Path, Parameter(help="Folder of the classifier; it is made if it does not exist.")],
    data: Annotated[
        Path,
        Parameter(help="Labelled images: a folder with one folder per class, a CSV file (path,label) or an .npz file."),
    ],
    /,
    *,
    method: Annotated[str | None, flag("How it learns; acr methods lists all.", "method", FIXED)] = None,
    width: Annotated[
        int | None,
        flag("Channels of the first stage; 16 is much faster and less accurate.", "width", FIXED, number=True),
    ] = None,
    image_size: Annotated[
        int | None, flag("Side to which images are resized, in pixels.", "image_size", FIXED, number=True)
    ] = None,
    stem: Annotated[
        Literal["cifar", "imagenet"] | None,
        flag("First layers; imagenet is for images of 64 pixels and more.", "stem", FIXED),
    ] = None,
    weights: Annotated[
        Path | None, flag("File (safetensors) with weights of the encoder to start from.", "weights", FIXED)
    ] = None,
    seed: Annotated[int | None, flag("Seed of everything random.", "seed", FIXED, number=True)] = None,
    average_weights: Annotated[
        str | None,
        flag("Answer with averaged weights: half-life of a step, such as auto, 0.2t or 300.", "average_weights", FIXED),
    ] = None,
    no_flip: Annotated[
        bool,
        Parameter(
            help="Never mirror images: for digits, text and the like.", group=FIXED, negative=(), show_default=False
        ),
    ] = False,
    images_per_place: Annotated[
        str | None,
        flag("Images that share a place of the memory, compressed: 1 to 16, or auto.", "images_per_place", FIXED),
    ] = None,
    buffer_size: Annotated[
        int | None, flag("Places in its memory, each as large as an image.", "buffer_size", HOW, number=True)
    ] = None,
    epochs: Annotated[int | None, flag("Passes over the new images.", "epochs", HOW, number=True)] = None,
    learning_rate: Annotated[float | None, flag("Of SGD.", "learning_rate", HOW)] = None,
    batch_size: Annotated[int | None, flag("New images per step.", "batch_size", HOW, number=True)] = None,
    replay_size: Annotated[
        int | None, flag("Images from the memory per step.", "replay_size", HOW, number=True)
    ] = None,
    validation_fraction: Annotated[
        float | None,
        flag("Share of the new images that decides when to stop early instead.", "validation_fraction", HOW),
    ] = None,
    patience: Annotated[
        int | None, flag("Epochs without improvement after which it stops early.", "patience", HOW, number=True)
    ] = None,
    precision: Annotated[
        Literal["32", "bf16-mixed", "16-mixed"] | None, flag("Precision of the computation.", "precision", HOW)
    ] = None,
    device: Annotated[str | None, flag("Where it computes: cpu, cuda, mps.", "device", HOW)] = None,
    threads: Annotated[
        int | None, flag("CPU threads; by default as many as are fastest.", "threads", HOW, number=True)
    ] = None,
    skip_broken: SkipBroken = False,
    all: Annotated[
        bool, Parameter(help="Learn images that were learned before, too.", negative=(), show_default=False)
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Make a classifier, or teach it the images and classes that are new."""
    given = {"method": method, "width": width, "image_size": image_size, "stem": stem, "weights": weights,
             "seed": seed, "flip": False if no_flip else None, "buffer_size": buffer_size, "epochs": epochs,
             "learning_rate": learning_rate, "batch_size": batch_size, "replay_size": replay_size,
             "validation_fraction": validation_fraction, "patience": patience, "precision": precision,
             "average_weights": average_weights, "images_per_place": images_per_place,
             "device": device, "threads": threads}  # fmt: skip
    parameters: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    try:
        lesson = teach(model, data, parameters, again=all, skip_broken=skip_broken, quiet=quiet)
    except KeyboardInterrupt:
        left = f"{model} is as it was last saved." if is_model(model) else "Nothing was saved."
        complain(f"Interrupted. {left}", 130)
    show(lesson, model, data)


def show(lesson: Lesson, model: Path, data: Path) -> None:
    """Print what was learned, and what can be done next."""
    for file, reason in lesson.skipped[:LISTED]:
        say(f"left out: {file}: {reason}", error=True)
    if len(lesson.skipped) > LISTED:
        say(f"left out: {len(lesson.skipped) - LISTED} more", error=True)
    visit, known = lesson.visit, lesson.classifier
    if visit is None:
        say(f"{data} holds nothing new: all {lesson.known_before} images were learned before. {model} is unchanged.")
        say("Learn them once more with --all.")
        return
    heads = ["visit", "images", "classes", "new classes", "epochs", "time"]
    row = [str(known.n_visits_), str(visit.images), str(visit.classes), str(visit.new_classes), str(visit.epochs),
           duration(visit.seconds)]  # fmt: skip
    if visit.held_out_accuracy is not None:
        heads.append("held-out accuracy")
        row.append(f"{100 * visit.held_out_accuracy:.1f} % of {visit.held_out}")
    if lesson.known_before:
        heads.append("learned before")
        row.append(str(lesson.known_before))
    print_columns(heads, [row])
    stored = len(known.memory_)
    memory = f" and keeps {stored} images in its memory" if stored else ""
    say(f"{model} knows {len(known.classes_)} classes{memory}.")
    say(f"Ask it: {command('acr', 'predict', model)} IMAGES")
