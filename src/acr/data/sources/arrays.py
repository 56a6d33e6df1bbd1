"""The user's own arrays: a ``.npz`` file, or a folder (or zip) of ``.npy`` files.

Names that are recognised (the first match is used): ``train_x train_y test_x test_y``, ``x_train y_train x_test
y_test``, ``train_images train_labels test_images test_labels``; without a test part ``images labels``, ``x y`` or
``data labels``. An array ``class_names`` may name the classes 0, 1, ... or, if there is one, those of ``class_labels``.
``channel_mean`` and ``channel_std`` may set the constants of the normalisation, on the scale 0..1.
Images are uint8 or floats in [0, 1]; ``N x H x W``, ``N x H x W x C`` or ``N x C x H x W`` with C = 1 or 3.
Pickled objects are refused.
"""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np

from acr.data.catalog import CATALOG, DataSpec, Request
from acr.data.images import DataSet, ImageSet, label_column, number_labels
from acr.data.readers.decoding import to_images
from acr.data.readers.file_tree import FolderTree, Tree, open_tree
from acr.data.sources.build import Arrays, Constants, from_arrays
from acr.errors import InputError

MOST_BYTES = 8 << 30
"""Most bytes of an array inside a zip or ``.npz``, which is read into memory; arrays in folders are mapped."""

NAMES = (
    ("train_x", "train_y", "test_x", "test_y"),
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("images", "labels"),
    ("x", "y"),
    ("data", "labels"),
)

CLASS_NAMES, CLASS_LABELS = "class_names", "class_labels"
MEAN, STD = "channel_mean", "channel_std"
"""Names of arrays that may be there besides."""


def load(request: Request) -> DataSet:
    """The arrays of ``npz:PATH``."""
    assert request.path is not None
    tree = _opened(request.path)
    try:
        return load_named(CATALOG["npz:PATH"], request, tree, _known_names(tree))
    finally:
        tree.close()


def read(path: Path) -> Arrays:
    """The arrays of a file or folder as they are: nothing is cached, resized or held out."""
    tree = _opened(path)
    try:
        return read_named(tree, _known_names(tree))
    finally:
        tree.close()


def _opened(path: Path) -> Tree:
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    return open_tree(path)


def _known_names(tree: Tree) -> tuple[str, ...]:
    """The names of the arrays that are used."""
    present = _paths(tree)
    for names in NAMES:
        if set(names) <= set(present):
            return names
    forms = "; ".join(", ".join(names) for names in NAMES)
    raise InputError(f"{tree.root} has the arrays {', '.join(sorted(present)) or 'none'}; it needs one of: {forms}.")


def _paths(tree: Tree) -> dict[str, str]:
    """The files of arrays, by the name of the array."""
    return {PurePosixPath(name).stem.lower(): name for name in tree.names if name.endswith(".npy")}


def load_named(spec: DataSpec, request: Request, tree: Tree, names: tuple[str, ...]) -> DataSet:
    """The data set of the arrays with these names: images and labels for training and, if there are four, for test."""
    paths = _paths(tree)
    used = [paths[name] for name in (*names, CLASS_NAMES, CLASS_LABELS, MEAN, STD) if name in paths]
    return from_arrays(spec, request, tree.root, tree.identity(used), lambda: read_named(tree, names))


def read_named(tree: Tree, names: tuple[str, ...]) -> Arrays:
    """The arrays with these names: images and labels for training and, if there are four, for test."""
    paths = _paths(tree)
    if lacking := [name for name in names if name not in paths]:
        raise InputError(f"{tree.root} has no arrays {', '.join(lacking)}.")
    class_names = _class_names(tree, paths)
    columns = [label_column(read_array(tree, paths[name]), f"{tree.root}: {name}") for name in names[1::2]]
    numbers = number_labels(columns, class_names)
    sets = []
    for name, labels in zip(names[::2], numbers, strict=True):
        where = f"{tree.root}: {name}"
        images = to_images(read_array(tree, paths[name]), where)
        if len(images) != len(labels):
            raise InputError(f"{where} has {len(images)} images, but there are {len(labels)} labels.")
        sets.append(ImageSet(images, labels, class_names))
    constants = _constants(tree, paths, sets[0].image_shape[0])
    return Arrays(f"arrays {', '.join(names)}", sets[0], sets[1] if len(sets) > 1 else None, constants)


def read_array(tree: Tree, name: str) -> np.ndarray[Any, Any]:
    """An ``.npy`` file of a tree; memory-mapped if the tree is a plain folder."""
    try:
        with tree.open(name) as file:
            if isinstance(tree, FolderTree):
                return np.load(tree.root / name, mmap_mode="r", allow_pickle=False)
            check_header(file, tree.size(name))
        with tree.open(name) as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # numpy, zipfile, zlib and Python's parser each have errors of their own
        raise InputError(f"{tree.root}: {name} is not a valid array of numbers ({error}).") from error


def check_header(file: IO[bytes], size: int) -> None:
    """Refuse an array that is too large, or whose header claims more than a file of this size holds.

    numpy would reserve all the memory that the header claims.
    """
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if (version := np.lib.format.read_magic(file)) not in read:
        raise ValueError(f"its format {version} is not known")
    shape, _, dtype = read[version](file)
    if math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"its header claims the shape {str(shape)[:80]}, but the file is shorter")
    if size > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 30} GiB: unpack it and use the folder, which is mapped")


def _class_names(tree: Tree, paths: dict[str, str]) -> dict[int, str]:
    if CLASS_NAMES not in paths:
        return {}
    names = np.asarray(read_array(tree, paths[CLASS_NAMES])).tolist()
    labels = label_column(read_array(tree, paths[CLASS_LABELS]), CLASS_LABELS) if CLASS_LABELS in paths else None
    if labels is not None and (len(labels) != len(names) or labels.dtype.kind not in "iu"):
        raise InputError(f"{tree.root}: {CLASS_LABELS} must be one whole number per name in {CLASS_NAMES}.")
    return {int(i): str(name) for i, name in zip(range(len(names)) if labels is None else labels, names, strict=True)}


def _constants(tree: Tree, paths: dict[str, str], channels: int) -> Constants | None:
    """Mean and standard deviation of each channel, if the arrays set them."""
    if MEAN not in paths or STD not in paths:
        return None
    mean, std = (np.asarray(read_array(tree, paths[name])) for name in (MEAN, STD))
    if not all(c.shape == (channels,) and c.dtype.kind in "iuf" and np.isfinite(c).all() for c in (mean, std)):
        raise InputError(f"{tree.root}: {MEAN} and {STD} must hold {channels} numbers, one per channel.")
    if (std < 0).any():
        raise InputError(f"{tree.root}: {STD} has a number below 0.")
    return tuple(map(float, mean)), tuple(map(float, std))
