"""``acr data``: what there is, where it lies, whether it is whole, and what it looks like."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from acr.data import listing
from acr.errors import InputError

Name = Annotated[str, Parameter(help="Name of the data set; `acr data list` shows them.")]
Root = Annotated[Path | None, Parameter(help="Where data sets lie; then ACR_DATA, then the cache.")]
Cache = Annotated[Path | None, Parameter(help="Where decoded images are kept.")]
Quiet = Annotated[bool, Parameter(help="No progress.", negative=())]
Sheet = Annotated[Path, Parameter(name=["--output", "-o"], help="The picture file to write.")]


def list_datasets(*, data_root: Root = None, data_cache: Cache = None) -> None:
    """List the data sets, where they were found, and their defaults."""
    table = Table(box=None, pad_edge=False)
    for head in ("name", "what it is", "classes", "tasks", "epochs", "width", "rate", "shift", "found"):
        table.add_column(head, overflow="fold")
    for row in listing.list_datasets(data_root, data_cache):
        where = "embedded" if row.present and row.where is None else str(row.where or "")
        found = where if row.present else ("by its path" if row.present is None else f"no: {row.next_step}")
        numbers = [str(value or "–") for value in (row.classes, row.tasks, row.epochs, row.width)]
        cells = [row.name, row.title, *numbers, f"{row.learning_rate:g}", row.shift, found]
        table.add_row(*map(escape, cells))
    console = Console(highlight=False)
    (console if console.is_terminal else Console(highlight=False, width=200)).print(table)


def fetch(name: Name, *, data_root: Root = None, data_cache: Cache = None, quiet: Quiet = False) -> None:
    """Download a data set from its publisher, or say how to get it."""
    from acr.data.loading import fetch as download

    print(f"{name} lies in {download(name, data_root, data_cache=data_cache, quiet=quiet)}")


def check(
    name: Name,
    *,
    data_root: Root = None,
    data_cache: Cache = None,
    image_size: Annotated[int | None, Parameter(help="Side of the images.")] = None,
    quiet: Quiet = False,
) -> None:
    """Check a data set: counts, classes, sizes, mean and deviation, duplicates, unreadable files."""
    from acr.data.inspect import check as look

    report = look(name, data_root=data_root, data_cache=data_cache, image_size=image_size, quiet=quiet)
    for fact, value in report.facts.items():
        print(f"{fact}: {value}")
    for kind, lines in (("warning", report.warnings), ("error", report.errors)):
        for line in lines:
            print(f"{kind}: {line}", file=sys.stderr)
    if not report.ok:
        raise InputError(f"{name} has {len(report.errors)} error(s), listed above.")
    print(f"{name} can be used." + (f" {len(report.warnings)} warning(s)." if report.warnings else ""))


def show(
    name: Name,
    *,
    output: Sheet = Path("sheet.png"),
    by: Annotated[
        Literal["class", "task", "view"],
        Parameter(help="A row for each class, for each task, or for each random view that methods train on."),
    ] = "class",
    split: Annotated[Literal["train", "test"], Parameter(help="Which images.")] = "train",
    columns: Annotated[int | None, Parameter(help="Images in a row.")] = None,
    data_root: Root = None,
    data_cache: Cache = None,
    quiet: Quiet = False,
) -> None:
    """Draw a sheet of a data set's images."""
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
    tasks = TaskStream.split(data, spec.tasks).task_classes if by == "task" else None
    save_picture(draw(data, tasks=tasks, columns=columns, split=split), output)


def save_picture(picture: object, path: Path) -> None:
    """Write a picture in the format of its file's ending, and say where it is."""
    from PIL import Image

    assert isinstance(picture, Image.Image)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)
    except ValueError:
        raise InputError(f"{path}: a picture's name ends in .png, .jpg or .webp.") from None
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}.") from None
    print(f"Look at it: {path}")
