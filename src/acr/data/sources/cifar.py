"""CIFAR-10 and CIFAR-100 as their publisher provides them: python or binary version, folder or archive.

Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009. Labels are the publisher's; for CIFAR-100
these are the fine labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from acr.data.catalog import CATALOG, Request, require
from acr.data.images import DataSet, Images, ImageSet, Labels
from acr.data.readers import pickles
from acr.data.readers.archives import is_archive, read_members
from acr.data.sources.build import Arrays, files_identity, from_arrays
from acr.errors import InputError

PIXELS = 3 * 32 * 32

BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
PYTHON = {10: (BATCHES, "test_batch", "batches.meta"), 100: (("train",), "test", "meta")}
"""By number of classes: training files (some may be missing, which leaves a part of the data set), test file, names."""
BINARY = {
    classes: (tuple(f"{name}.bin" for name in train), f"{test}.bin", names)
    for (classes, (train, test, _)), names in zip(
        PYTHON.items(), ("batches.meta.txt", "fine_label_names.txt"), strict=True
    )
}


def load_cifar10(request: Request) -> DataSet:
    """CIFAR-10."""
    return _load(request, 10)


def load_cifar100(request: Request) -> DataSet:
    """CIFAR-100 with its fine labels."""
    return _load(request, 100)


def _load(request: Request, classes: int) -> DataSet:
    spec = CATALOG[f"split-cifar{classes}"]
    where = require(spec, request.options.data_root, request.options.data_cache)
    known = {name for form in (PYTHON, BINARY) for name in (*form[classes][0], *form[classes][1:])}
    if where.is_dir():
        files = [where / name for name in sorted(known) if (where / name).is_file()]
    elif is_archive(where) and where.is_file():
        files = [where]
    else:
        raise InputError(f"{where} is neither a folder nor a .tar.gz, .tar or .zip archive of CIFAR-{classes}.")

    def read() -> Arrays:
        if where.is_dir():
            content = {file.name: file.read_bytes() for file in files}
        else:
            members = read_members(where, lambda name: Path(name).name in known)
            content = {Path(name).name: data for name, data in members.items()}
        return _parse(content, classes, where)

    return from_arrays(spec, request, where, files_identity(files), read)


def _parse(content: Mapping[str, bytes], classes: int, where: Path) -> Arrays:
    for layout, form, read in (("python", PYTHON, _read_python), ("binary", BINARY, _read_binary)):
        training, test, names = form[classes]
        present = [name for name in training if name in content]
        if present and test in content:
            parts = [read(content[name], classes, f"{where}: {name}") for name in present]
            images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            class_names = _names(content, names, where)
            return Arrays(
                layout,
                ImageSet(images, labels, class_names),
                ImageSet(*read(content[test], classes, f"{where}: {test}"), class_names),
            )
    wanted = " or ".join(f"{', '.join((*form[classes][0], form[classes][1]))}" for form in (PYTHON, BINARY))
    found = ", ".join(sorted(content)) or "none of these"
    raise InputError(
        f"{where} is not CIFAR-{classes}: it should hold {wanted}; it has {found}. "
        f"Remove it and run: acr data fetch split-cifar{classes}"
    )


def _read_python(data: bytes, classes: int, where: str) -> tuple[Images, Labels]:
    batch = pickles.load(data, where)
    images = _item(batch, "data", where)
    labels = _item(batch, "fine_labels" if classes == 100 else "labels", where)
    try:
        # Only flat lists: one that holds itself many times over would unfold to any size.
        flat = isinstance(labels, np.ndarray) or all(type(label) is int for label in labels)
        numbers = np.asarray(labels if flat else None, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{where}: labels are not a list of numbers.") from None
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape != (len(numbers), PIXELS):
        raise InputError(f"{where}: data is not an array of {len(numbers)} rows of {PIXELS} bytes.")
    return images.reshape(-1, 3, 32, 32), _check_labels(numbers, classes, where)


def _read_binary(data: bytes, classes: int, where: str) -> tuple[Images, Labels]:
    before = 2 if classes == 100 else 1  # bytes of labels before the pixels: coarse and fine, or one
    if not data or len(data) % (before + PIXELS):
        raise InputError(f"{where} is cut short: {len(data)} bytes are not a whole number of images.")
    rows = np.frombuffer(data, np.uint8).reshape(-1, before + PIXELS)
    labels = _check_labels(rows[:, before - 1].astype(np.int64), classes, where)
    return np.ascontiguousarray(rows[:, before:]).reshape(-1, 3, 32, 32), labels


def _check_labels(labels: Labels, classes: int, where: str) -> Labels:
    if labels.ndim != 1 or (labels.size and not 0 <= labels.min() <= labels.max() < classes):
        raise InputError(f"{where}: labels are not all in 0..{classes - 1}.")
    return labels


def _item(batch: Any, key: str, where: str) -> Any:
    if isinstance(batch, dict):
        for form in (key.encode(), key):
            if form in batch:
                return batch[form]
    raise InputError(f"{where} has no {key!r}.")


def _names(content: Mapping[str, bytes], file: str, where: Path) -> dict[int, str]:
    """Class names; empty if the file that holds them is missing, so that the numbers are used."""
    if file not in content:
        return {}
    if file.endswith(".txt"):
        lines: list[Any] = content[file].decode("utf-8", "replace").split()
    else:
        meta = pickles.load(content[file], f"{where}: {file}")
        lines = _item(meta, "fine_label_names" if file == "meta" else "label_names", f"{where}: {file}")
    if not isinstance(lines, list) or not all(isinstance(name, (bytes, str)) for name in lines):
        raise InputError(f"{where}: {file} does not hold a list of names.")
    return {i: name.decode("utf-8", "replace") if isinstance(name, bytes) else name for i, name in enumerate(lines)}
