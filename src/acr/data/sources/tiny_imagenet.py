"""Tiny-ImageNet: the official ``tiny-imagenet-200`` folder or zip, or its form as 20 shards of float arrays.

200 classes of 500 training images of 64x64 pixels; the official validation split, 50 images per class, is the test set
(the official test labels are not public). Classes are numbered in the order of ``wnids.txt``; shards keep the labels
that they come with.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from acr.data.catalog import CATALOG, DataSpec, Request, require
from acr.data.images import DataSet, ImageSet
from acr.data.readers.decoding import image_files, resize, to_images
from acr.data.readers.file_tree import Tree, by_class, file_name, natural, open_tree, read_text
from acr.data.sources.arrays import read_array
from acr.data.sources.build import Arrays, Listing, from_arrays, from_files
from acr.errors import InputError

ANNOTATIONS = "val/val_annotations.txt"


def load(request: Request) -> DataSet:
    """Tiny-ImageNet, from whichever form is there."""
    spec = CATALOG["split-tiny-imagenet"]
    tree = open_tree(require(spec, request.options.data_root, request.options.data_cache))
    try:
        if any(re.fullmatch(r"x_train_\d+\.npy", file_name(name)) for name in tree.names):
            return _load_shards(spec, request, tree)
        return from_files(spec, request, tree, list_files(tree))
    finally:
        tree.close()


def list_files(tree: Tree) -> Listing:
    """The files of the official layout, or of one in which ``val`` was sorted into class folders."""
    prefix = next((name.removesuffix("wnids.txt") for name in tree.names if file_name(name) == "wnids.txt"), None)
    if prefix is None:
        raise InputError(f"{tree.root} is not Tiny-ImageNet: it has no wnids.txt and no arrays x_train_01.npy, ...")
    known = set(tree.names)
    files = [name.removeprefix(prefix) for name in image_files(tree.names) if name.startswith(prefix)]
    wnids = _lines(tree, prefix + "wnids.txt")
    number = {wnid: i for i, wnid in enumerate(wnids)}
    train = by_class(files, "train")
    test = _annotated(tree, prefix, files) if prefix + ANNOTATIONS in known else by_class(files, "val")
    if unknown := sorted({wnid for wnid, _ in (*train, *test)} - set(number), key=natural):
        raise InputError(f"{tree.root}: wnids.txt does not list {', '.join(unknown[:5])}.")
    if not train or not test:
        raise InputError(f"{tree.root} lacks images: it has {len(train)} in train and {len(test)} with a label in val.")
    words = _lines(tree, prefix + "words.txt") if prefix + "words.txt" in known else []
    return Listing(
        "official folders",
        _names(wnids, dict(line.split("\t", 1) for line in words if "\t" in line)),
        [(prefix + name, number[wnid]) for wnid, name in train],
        [(prefix + name, number[wnid]) for wnid, name in test],
    )


def _annotated(tree: Tree, prefix: str, files: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs (class, file) of the validation images, from the file that lists their classes."""
    wnid_of = dict(line.split("\t")[:2] for line in _lines(tree, prefix + ANNOTATIONS) if "\t" in line)
    rows = []
    for name in files:
        wnid = wnid_of.get(file_name(name))
        if name.startswith("val/") and wnid is not None:
            rows.append((wnid, name))
    return rows


def _lines(tree: Tree, name: str) -> list[str]:
    return [line.strip() for line in read_text(tree, name).splitlines() if line.strip()]


def _names(wnids: Iterable[str], words: Mapping[str, str]) -> dict[int, str]:
    """The first name of each class, followed by the class's id if two classes would share it."""
    names = [(wnid, words.get(wnid, wnid).split(",")[0].strip()) for wnid in wnids]
    often = Counter(name for _, name in names)
    return {i: name if often[name] == 1 else f"{name} ({wnid})" for i, (wnid, name) in enumerate(names)}


def _load_shards(spec: DataSpec, request: Request, tree: Tree) -> DataSet:
    """``x_train_01``, ..., ``y_train_01``, ..., ``x_val_01``, ..., ``y_val_01``, ...: floats in [0, 1]."""
    paths = {file_name(name): name for name in tree.names}
    size = request.options.image_size or spec.image_size

    def read_split(split: str) -> ImageSet:
        shards = sorted(name for name in paths if re.fullmatch(rf"x_{split}_\d+\.npy", name))
        if not shards:
            raise InputError(f"{tree.root} has no arrays x_{split}_01.npy, ...")
        images, labels = [], []
        for shard in shards:
            partner = "y" + shard[1:]
            if partner not in paths:
                raise InputError(f"{tree.root} has {shard} but not {partner}.")
            part = to_images(read_array(tree, paths[shard]), f"{tree.root}: {shard}")
            images.append(resize(part, size) if size else part)
            labels.append(read_array(tree, paths[partner]).reshape(-1))
        return ImageSet.from_arrays(np.concatenate(images), np.concatenate(labels).astype(np.int64))

    def read() -> Arrays:
        return Arrays("float shards", read_split("train"), read_split("val"))

    shards = [name for name in tree.names if name.endswith(".npy")]
    return from_arrays(spec, request, tree.root, tree.identity(shards), read)
