"""``acr data``: which data sets there are, where they are stored, whether they are complete, what they look like."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from acr.commands.shared import DataCache, DataRoot, Dataset, Quiet, Sheet
from acr.console import say
from acr.data import listing
from acr.errors import InputError
from acr.report.screen import screen

PIPED = 200
"""Columns of output that is not a terminal."""


def list_datasets(
    name: Annotated[str | None, Parameter(help="A data set to describe; by default all are listed.")] = None,
    /,
    *,
    data_root: DataRoot = None,
    data_cache: DataCache = None,
) -> None:
    """List the data sets and where they were found; or describe one, with its defaults and how to get it."""
    if name is not None:
        return describe(name, data_root, data_cache)
    table = Table(box=None, pad_edge=False)
    for head in ("name", "what it is", "found"):
        table.add_column(head, overflow="fold", no_wrap=head == "name")
    for row in listing.list_datasets(data_root, data_cache):
        where = "embedded" if row.where is None else str(row.where)
        found = where if row.present else ("by its path" if row.present is None else "not here")
        table.add_row(*map(escape, (row.name, row.title, found)))
    screen(PIPED).print(table)
    say("\nDefaults of one, and how to get it: acr data list NAME")


def describe(name: str, data_root: Path | None, data_cache: Path | None) -> None:
    """Print what is known about a data set: its size, the defaults of its runs, where it is, or how to get it."""
    row = listing.describe(name, data_root, data_cache)
    where = "embedded" if row.where is None else str(row.where)
    facts = {
        "what it is": row.title,
        "classes": row.classes or "–",
        "tasks": row.tasks or "as many as give two classes per task",
        "epochs": row.epochs,
        "width": row.width,
        "learning rate": f"{row.learning_rate:g}",
        "buffer size": row.buffer_size,
        "shift": row.shift,
        "found": where if row.present else ("given by its path" if row.present is None else "not here"),
        "how to get it": row.next_step,
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for fact, value in facts.items():
        if value:
            table.add_row(fact, escape(str(value)))
    screen(PIPED).print(table)


def fetch(
    name: Dataset,
    /,
    *,
    data_root: Annotated[
        Path | None, Parameter(help="Folder to download into; by default ACR_DATA, or else the cache.")
    ] = None,
    data_cache: DataCache = None,
    quiet: Quiet = False,
) -> None:
    """Download a data set from its publisher, or explain how to get it."""
    from acr.data.loading import fetch as download

    say(f"{name} is stored in {download(name, data_root, data_cache=data_cache, quiet=quiet)}")


def check(
    name: Dataset,
    /,
    *,
    data_root: DataRoot = None,
    data_cache: DataCache = None,
    image_size: Annotated[int | None, Parameter(help="Side of the images in pixels.")] = None,
    quiet: Quiet = False,
) -> None:
    """Check a data set: counts, classes, sizes, mean and deviation, duplicates, unreadable files."""
    from acr.data.inspect import check as look

    report = look(name, data_root=data_root, data_cache=data_cache, image_size=image_size, quiet=quiet)
    for fact, value in report.facts.items():
        say(f"{fact}: {value}")
    for kind, lines in (("warning", report.warnings), ("error", report.errors)):
        for line in lines:
            say(f"{kind}: {line}", error=True)
    if not report.ok:
        raise InputError(f"{name} has {len(report.errors)} error(s), listed above.")
    say(f"{name} can be used." + (f" {len(report.warnings)} warning(s)." if report.warnings else ""))


def show(
    name: Dataset,
    /,
    *,
    output: Sheet = Path("sheet.png"),
    by: Annotated[
        Literal["class", "task", "view"],
        Parameter(help="What a row shows: a class, a task, or one kind of random view that methods train on."),
    ] = "class",
    split: Annotated[Literal["train", "test"], Parameter(help="Which images to show.")] = "train",
    columns: Annotated[int | None, Parameter(help="Images per row; by default at least 12.")] = None,
    data_root: DataRoot = None,
    data_cache: DataCache = None,
    quiet: Quiet = False,
) -> None:
    """Draw a sheet of images from a data set."""
    from acr.data.catalog import find
    from acr.data.loading import load_dataset
    from acr.data.sheets import draw, draw_views
    from acr.data.stream import TaskStream
    from acr.data.views import Views

    data = load_dataset(name, data_root=data_root, data_cache=data_cache, quiet=quiet)
    spec, _ = find(name)
    if by == "view":
        views = Views.for_side(min(data.train.image_shape[1:]), spec.flip)
        return save_picture(draw_views(data, views, columns=columns, split=split), output)
    # Without tasks the sheet has one row per class.
    tasks = TaskStream.split(data, spec.tasks).task_classes if by == "task" else None
    save_picture(draw(data, tasks=tasks, columns=columns, split=split), output)


def save_picture(picture: object, path: Path) -> None:
    """Write a picture in the format that its file name ends with, and print where it is."""
    from PIL import Image

    assert isinstance(picture, Image.Image)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)
    except ValueError:
        raise InputError(f"Cannot write {path}: the file name must end in .png, .jpg or .webp.") from None
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}.") from None
    say(f"Look at it: {path}")
