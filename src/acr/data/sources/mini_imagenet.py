"""Mini-ImageNet, in the forms in which it is distributed.

Vinyals et al., Matching Networks for One Shot Learning, 2016: 100 classes of 600 images. For class-incremental
learning each class is split into 500 training and 100 test images. Forms, as a folder or a zip:

* ``train/<wnid>/*`` and ``val/<wnid>/*`` (or ``test``) with the same classes: this split is kept;
* one folder per class; or ``train``, ``val`` and ``test`` with different classes each (few-shot learning); or an
  ``images`` folder with the lists ``train.csv``, ``val.csv`` and ``test.csv``: every class is split anew, with
  its images in sorted order, five of six (500 of 600) for training;
* the arrays ``train_x``, ``train_y``, ``test_x`` and ``test_y`` (``.npy``).

Classes are numbered in the order of their WordNet ids, whatever the form; arrays keep the labels that they come with.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable

from acr.data.catalog import CATALOG, Request, require
from acr.data.images import DataSet
from acr.data.readers.decoding import image_files
from acr.data.readers.file_tree import Tree, by_class, common_prefix, file_name, natural, open_tree, read_text
from acr.data.sources.arrays import load_named
from acr.data.sources.build import Listing, from_files
from acr.data.sources.folder import PARTS, parts
from acr.errors import InputError

TRAIN_IMAGES, TEST_IMAGES = 500, 100


def load(request: Request) -> DataSet:
    """Mini-ImageNet, from whichever form is there."""
    spec = CATALOG["split-mini-imagenet"]
    tree = open_tree(require(spec, request.options.data_root, request.options.data_cache))
    try:
        if any(file_name(name) == "train_x.npy" for name in tree.names):
            return load_named(spec, request, tree, ("train_x", "train_y", "test_x", "test_y"))
        return from_files(spec, request, tree, list_files(tree))
    finally:
        tree.close()


def list_files(tree: Tree) -> Listing:
    """The image files by class and part."""
    files = image_files(tree.names)
    if not files:
        raise InputError(f"{tree.root} is not Mini-ImageNet: it holds neither images nor train_x.npy.")
    lists = [name for name in tree.names if name.lower().endswith(".csv")]
    prefix = common_prefix(files, stop=lambda part: part.lower() in (*PARTS, "images"))
    short = [name.removeprefix(prefix) for name in files]
    train, test = parts(short)
    if lists and any("images" in name.split("/")[:-1] for name in files):
        layout, rows = "images and CSV lists", _by_lists(tree, files, lists)
    elif train is not None and test is not None:
        rows, held = by_class(short, train), by_class(short, test)
        if {label for label, _ in rows} == {label for label, _ in held}:  # a split for classification: keep it
            number = _numbers(label for label, _ in rows)
            return Listing(
                f"{train} and {test} folders with class folders",
                {i: label for label, i in number.items()},
                [(prefix + name, number[label]) for label, name in rows],
                [(prefix + name, number[label]) for label, name in held],
            )
        tops = {name.split("/")[0] for name in short if "/" in name}
        layout = "class folders in parts, split anew"
        rows = [(label, prefix + name) for top in sorted(tops) for label, name in by_class(short, top)]
    else:
        layout = "class folders, split anew"
        rows = [(label, prefix + name) for label, name in by_class(short, "")]
    return _split_anew(layout, rows, tree)


def _split_anew(layout: str, rows: list[tuple[str, str]], tree: Tree) -> Listing:
    """Split every class by the order of its file names, so that all forms of the data set give the same split."""
    groups: dict[str, list[str]] = defaultdict(list)
    for label, name in rows:
        groups[label].append(name)
    if not groups:
        raise InputError(f"{tree.root} is not Mini-ImageNet: its images are not in class folders.")
    number = _numbers(groups)
    train, test = [], []
    for label, i in number.items():
        names = sorted(groups[label], key=lambda name: (file_name(name), name))
        count = min(TRAIN_IMAGES, len(names) * TRAIN_IMAGES // (TRAIN_IMAGES + TEST_IMAGES))
        train += [(name, i) for name in names[:count]]
        test += [(name, i) for name in names[count : count + TEST_IMAGES]]
    return Listing(layout, {i: label for label, i in number.items()}, train, test)


def _by_lists(tree: Tree, files: list[str], lists: list[str]) -> list[tuple[str, str]]:
    """Pairs (class, file) from the rows ``filename,label`` of the CSV files."""
    path_of = {file_name(name): name for name in files}
    rows = []
    for path in lists:
        try:
            table = list(csv.DictReader(io.StringIO(read_text(tree, path), newline="")))
        except csv.Error as error:
            raise InputError(f"{tree.root}: {path} is not a CSV file ({error}).") from None
        for row in table:
            if row.get("filename") is None or row.get("label") is None:
                raise InputError(f"{tree.root}: {path} lacks the columns filename and label.")
            if row["filename"] in path_of:  # files may be missing: a part of the data set can be used too
                rows.append((row["label"], path_of[row["filename"]]))
    return rows


def _numbers(labels: Iterable[str]) -> dict[str, int]:
    return {label: i for i, label in enumerate(sorted(set(labels), key=natural))}
