"""The user's own images: a folder (or zip) with one folder per class, with or without a test part."""

from __future__ import annotations

from collections.abc import Sequence

from acr.data.catalog import CATALOG, Request
from acr.data.images import DataSet
from acr.data.readers.decoding import image_files, left_out
from acr.data.readers.file_tree import TEST, TRAIN, VALIDATION, Tree, by_class, common_prefix, natural, open_tree
from acr.data.sources.build import Listing, from_files
from acr.errors import InputError

HELD_OUT = (*TEST, *VALIDATION)
"""Names of the folders of test parts; of several, the first in this order is used."""
PARTS = (*TRAIN, *HELD_OUT)


def load(request: Request) -> DataSet:
    """``PATH/<class>/*`` or ``PATH/train/<class>/*`` and ``PATH/test/<class>/*``, at any depth below the class."""
    assert request.path is not None
    if not request.path.exists():
        raise InputError(f"There is no folder {request.path}.")
    tree = open_tree(request.path)
    try:
        return from_files(CATALOG["folder:PATH"], request, tree, list_files(tree))
    finally:
        tree.close()


def list_files(tree: Tree) -> Listing:
    """The image files of a tree, by class. Classes are numbered in the natural order of their names."""
    files = image_files(tree.names)
    if not files:
        raise InputError(f"{tree.root} holds no image files.")
    prefix = common_prefix(files, stop=lambda part: part.lower() in PARTS) if tree.root.is_file() else ""
    files = [name.removeprefix(prefix) for name in files]
    train, test = parts(files)
    if train is None:
        rows, layout = by_class(files, ""), "class folders"
        held: list[tuple[str, str]] = []
    else:
        rows, layout = by_class(files, train), f"{train} folder with class folders"
        held = by_class(files, test) if test is not None else []
        layout = f"{train} and {test} folders with class folders" if test is not None else layout
    classes = sorted({label for label, _ in (*rows, *held)}, key=natural)
    if not classes:
        raise InputError(
            f"{tree.root} holds images but no class folders: put the images of each class into a folder of its own."
        )
    number = {name: i for i, name in enumerate(classes)}
    # Beside the parts that are used there may be others with images, but none without.
    unread = left_out(tree, prefix, empty_only=train is not None)
    for part in (train, test):
        unread += left_out(tree, prefix + part) if part is not None else []
    return Listing(
        layout,
        dict(enumerate(classes)),
        [(prefix + name, number[label]) for label, name in rows],
        [(prefix + name, number[label]) for label, name in held],
        unread,
    )


def parts(files: Sequence[str]) -> tuple[str | None, str | None]:
    """The folders of the training and the test part, None where there is none.

    A folder ``train`` is a part only if it holds folders and all folders beside it have names of parts: otherwise it
    may be a class, for example of vehicles.
    """
    tops = {name.split("/")[0] for name in files if "/" in name}
    deep = {name.split("/")[0] for name in files if name.count("/") >= 2}
    if not tops or not all(top in deep and top.lower() in PARTS for top in tops):
        return None, None
    train = next((top for name in TRAIN for top in sorted(tops) if top.lower() == name), None)
    test = next((top for name in HELD_OUT for top in sorted(tops) if top.lower() == name), None)
    return (train, test) if train is not None else (None, None)
