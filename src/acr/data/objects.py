"""Data sets that are given as Python objects: stored once beside the runs, as arrays that ``npz:PATH`` reads.

A run is found again by what it was made from, and other processes resume it. Neither can be done with an object of this
process, so :func:`store` turns it into a file whose name is made of its content: the same images give the same file,
and with it the same run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from acr.data.adapters import Labelled, read_dataset
from acr.data.fingerprint import Part, fingerprint, image_digests
from acr.data.images import DataSet, ImageSet, label_column, number_labels, pixels_of
from acr.data.readers.file_tree import TEST, TRAIN, VALIDATION
from acr.data.sources.arrays import CLASS_LABELS, CLASS_NAMES, MEAN, MOST_BYTES, STD
from acr.errors import InputError
from acr.storage.files import write_atomically


class MapStyle(Protocol):
    """A data set of another library: it has a length and is indexed by number."""

    def __getitem__(self, index: int, /) -> Any:
        """One item: a pair (image, label), or a dict."""


DataLike: TypeAlias = str | os.PathLike[str] | DataSet | ImageSet | tuple[Any, ...] | Mapping[str, Any] | MapStyle
"""What :func:`acr.run` takes as a data set."""

FORMS = (
    "Give its name, (images, labels), (train_images, train_labels, test_images, test_labels), an ImageSet, a data set "
    'that has a length and is indexed by number, or a dict {"train": ..., "test": ...} of these.'
)


def store(given: DataLike, folder: Path, *, image_size: int | None = None, quiet: bool = True) -> str:
    """Store a data set as arrays, unless the same images are stored already; returns its name, ``npz:PATH``.

    Args:
        given: images and labels, an image set, a data set of this or another library, or a mapping of parts.
        folder: where the file is stored.
        image_size: side to which the images of another library's data set are resized; needed if they differ in size.
        quiet: show no progress.
    """
    parts = _numbered(_parts(given, image_size, quiet))
    arrays = _arrays(parts)
    if isinstance(given, DataSet):
        arrays |= {MEAN: np.array(given.mean, np.float64), STD: np.array(given.std, np.float64)}
    digest = _digest(parts, arrays)
    found = sorted(folder.glob(f"*-{digest}.npz"))
    path = found[0] if found else folder / f"{_name(given)}-{digest}.npz"
    if not found:
        _write(path, arrays)
    return f"npz:{path}"


def _parts(given: Any, size: int | None, quiet: bool) -> dict[str, Labelled]:
    """Images, labels and class names of the parts ``train`` and, if there is one, ``test``."""
    if isinstance(given, DataSet):
        return {"train": _part(given.train, size, quiet), "test": _part(given.test, size, quiet)}
    if isinstance(given, tuple) and len(given) == 4:
        return {"train": _part(given[:2], size, quiet), "test": _part(given[2:], size, quiet)}
    if not isinstance(given, Mapping):
        return {"train": _part(given, size, quiet)}
    train = next((name for name in TRAIN if name in given), None)
    test = next((name for name in (*TEST, *VALIDATION) if name in given), None)
    if train is None:
        raise InputError(f"The data set has the parts {', '.join(map(str, given)) or '(none)'}, but no part train.")
    parts = {"train": _part(given[train], size, quiet)}
    return parts if test is None else {**parts, "test": _part(given[test], size, quiet)}


def _part(given: Any, size: int | None, quiet: bool) -> Labelled:
    """Images, labels and class names of one part."""
    if isinstance(given, ImageSet):
        return given.images, given.labels, dict(given.class_names)
    if isinstance(given, tuple):
        if len(given) != 2 or isinstance(given[0], ImageSet) or isinstance(given[1], ImageSet):
            raise InputError(f"A tuple of {len(given)} things is not understood as a data set. {FORMS}")
        return pixels_of(given[0], "The array of images"), given[1], {}
    if not hasattr(given, "__len__") or not hasattr(given, "__getitem__"):
        raise InputError(f"A {type(given).__name__} is not understood as a data set. {FORMS}")
    return read_dataset(given, size, quiet=quiet)


def _numbered(parts: Mapping[str, Labelled]) -> dict[str, ImageSet]:
    """The parts as image sets. Labels that are text are numbered in one order for all parts."""
    columns = {split: label_column(labels, f"The {split} labels") for split, (_, labels, _) in parts.items()}
    kinds = {column.dtype.kind in "iu" for column in columns.values()}
    if len(kinds) > 1:
        raise InputError("The labels of one part are whole numbers, those of the other are not. Give both alike.")
    names = _class_names(parts)
    numbers = number_labels(list(columns.values()), names)
    return {
        split: ImageSet(images, labels, names)
        for (split, (images, _, _)), labels in zip(parts.items(), numbers, strict=True)
    }


def _class_names(parts: Mapping[str, Labelled]) -> dict[int, str]:
    """The names of the classes of all parts. A label that means different classes in two parts is an error."""
    names: dict[int, str] = {}
    for _, _, own in parts.values():
        for label, name in own.items():
            known = names.get(label, str(label))  # a class that nobody named is called by its number
            if str(label) not in (known, name) and known != name:
                raise InputError(
                    f"The label {label} is {known!r} in one part and {name!r} in the other: they were numbered apart."
                )
            names[label] = name if known == str(label) else known
    return names


def _arrays(parts: Mapping[str, ImageSet]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a file that ``npz:PATH`` reads."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    for split, part in parts.items():
        prefix = f"{split}_" if len(parts) > 1 else ""
        arrays |= {f"{prefix}images": part.images, f"{prefix}labels": part.labels}
    names = {label: name for part in parts.values() for label, name in part.class_names.items()}
    if any(name != str(label) for label, name in names.items()):
        arrays[CLASS_LABELS] = np.array(sorted(names), dtype=np.int64)
        arrays[CLASS_NAMES] = np.array([names[label] for label in sorted(names)])
    return arrays


def _digest(parts: Mapping[str, ImageSet], arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Twelve characters that are equal for equal images, labels, class names and constants."""
    found = {split: Part(image_digests(part.images), part.labels) for split, part in parts.items()}
    names = {label: name for part in parts.values() for label, name in part.class_names.items()}
    shapes = [part.image_shape for part in parts.values()]
    constants = [arrays[name].tolist() for name in (MEAN, STD) if name in arrays]
    content = json.dumps([fingerprint(found, names).digest, shapes, constants])
    return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()


def _name(given: Any) -> str:
    """A short name for people: what was given."""
    if isinstance(given, Mapping):
        return _name(next(given[name] for name in TRAIN if name in given))
    if isinstance(given, tuple):
        return "arrays"
    if isinstance(given, (ImageSet, list)):
        return "images"
    name = given.name.rpartition("/")[2] if isinstance(given, DataSet) else type(given).__name__
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:30].strip("-") or "images"


def _write(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write the file, completely or not at all."""
    largest = max(array.nbytes for array in arrays.values())
    if largest > MOST_BYTES:
        raise InputError(
            f"These images take {largest / 2**30:.1f} GiB; at most {MOST_BYTES >> 30} GiB are stored beside the runs. "
            "Save them as .npy files in a folder and give npz:FOLDER, which is mapped instead."
        )
    try:
        write_atomically(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
    except OSError as error:
        raise InputError(
            f"The images cannot be stored in {path.parent}: {error.strerror}. Choose another folder with out=..."
        ) from None
