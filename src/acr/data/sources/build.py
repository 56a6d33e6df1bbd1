"""Data sets in the cache: decoded once from whatever the source provides, and memory-mapped from then on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import PIL

from acr.data.catalog import DataSpec, Request
from acr.data.fingerprint import MOST_FILES, Part, fingerprint, image_digests, printable
from acr.data.images import DataSet, Images, ImageSet, Labels
from acr.data.readers.decoding import DECODER, FORMATS, SHOWN, decode_files, list_broken, resize
from acr.data.readers.file_tree import Tree
from acr.data.splits import hold_out
from acr.errors import InputError
from acr.storage.cache import Entry, Writer, open_or_build
from acr.storage.location import cache_folder

HOLD_OUT = 0.2
"""Share of each class that becomes the test set if the source has none."""

READER = 1
"""Version of the code that reads arrays; a new one discards what is in the cache."""


@dataclass(frozen=True)
class Listing:
    """The files of a data set and their labels, before any pixel is read.

    Without test files, some of the training images are held out as the test set.
    """

    layout: str
    class_names: Mapping[int, str]
    train: Sequence[tuple[str, int]]
    test: Sequence[tuple[str, int]]
    left_out: Sequence[tuple[str, str]] = ()
    """Folders of which something is not read, with the reason: an error unless broken files are skipped."""


Constants = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel, on the scale 0..1."""


@dataclass(frozen=True)
class Arrays:
    """The images of a data set as arrays. Without test images, some of the training images are held out."""

    layout: str
    train: ImageSet
    test: ImageSet | None
    constants: Constants | None = None
    """None: the data set's published ones or, if there are none, computed from the training images."""


def from_files(spec: DataSpec, request: Request, tree: Tree, listing: Listing) -> DataSet:
    """A data set of image files: the ``listing`` of a ``tree``. Read from the cache if it was decoded before."""
    size = request.options.image_size or spec.image_size
    assert size is not None, "data sets of image files have a default size"
    files = [name for name, _ in (*listing.train, *listing.test)]
    content = json.dumps([listing.train, listing.test, dict(listing.class_names)])
    key = {
        "files": tree.identity(files),
        "listing": hashlib.blake2b(content.encode(), digest_size=16).hexdigest(),
        "size": size,
        "decoder": DECODER,
    }

    def build(writer: Writer) -> None:
        broken: list[list[str]] = []
        for split, rows in (("train", listing.train), ("test", listing.test)):
            if rows or split == "train":
                broken += _decode_split(writer, tree, split, rows, size, request.options.quiet)
        _write_notes(writer, listing.layout, listing.class_names, broken)

    where = request.path or tree.root
    return _complete(spec, request, _open(spec, request, key, build), where, listing.left_out)


def from_arrays(spec: DataSpec, request: Request, where: Path, identity: str, read: Callable[[], Arrays]) -> DataSet:
    """A data set of arrays. Read from the cache if it was read before.

    Args:
        spec: the entry of the catalog.
        request: which images are wanted.
        where: the folder or file that holds the arrays, for messages.
        identity: changes when the files change.
        read: reads the arrays; called only if they are not in the cache.
    """
    size = request.options.image_size or spec.image_size
    key = {"files": identity, "size": size, "decoder": DECODER, "reader": READER}

    def build(writer: Writer) -> None:
        arrays = read()
        for split, images in (("train", arrays.train), ("test", arrays.test)):
            if images is not None:
                if size is None and images.image_shape[1] != images.image_shape[2]:
                    _, height, width = images.image_shape
                    raise InputError(f"{where}: images are {height}x{width}, not square; choose an --image-size.")
                pixels = images.images if size is None else resize(images.images, size, quiet=request.options.quiet)
                writer.save(f"{split}_images", pixels)
                writer.save(f"{split}_labels", images.labels)
                writer.save(f"{split}_digests", image_digests(pixels))
        names = {**arrays.train.class_names, **(arrays.test.class_names if arrays.test else {})}
        _write_notes(writer, arrays.layout, names, [])
        writer.notes["constants"] = arrays.constants

    return _complete(spec, request, _open(spec, request, key, build), where)


def files_identity(paths: Sequence[Path]) -> str:
    """A digest that changes when the path, size or modification time of any of these files changes."""
    marks = [(str(path.resolve()), (status := path.stat()).st_size, status.st_mtime_ns) for path in paths]
    return hashlib.blake2b(repr(marks).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _decode_split(
    writer: Writer, tree: Tree, split: str, rows: Sequence[tuple[str, int]], size: int, quiet: bool
) -> list[list[str]]:
    """Write the images, labels and file names of a split; returns the unreadable files with the reasons."""
    names, labels = [name for name, _ in rows], np.array([label for _, label in rows], dtype=np.int64)
    writer.create("decoding", (len(rows), 3, size, size), np.uint8)
    broken = decode_files(tree, names, writer.path("decoding"), size, quiet=quiet)
    if broken:
        good = np.setdiff1d(np.arange(len(rows)), np.array(sorted(broken), dtype=np.int64))
        pixels = np.load(writer.path("decoding"), mmap_mode="r", allow_pickle=False)
        kept = writer.create(f"{split}_images", (len(good), 3, size, size), np.uint8)
        for start in range(0, len(good), 4096):  # in parts: they may be larger than memory
            kept[start : start + 4096] = pixels[good[start : start + 4096]]
        del pixels, kept
        writer.discard("decoding")
    else:
        good = np.arange(len(rows))
        writer.path("decoding").rename(writer.path(f"{split}_images"))
    writer.save(f"{split}_labels", labels[good])
    written = np.load(writer.path(f"{split}_images"), mmap_mode="r" if len(good) else None, allow_pickle=False)
    writer.save(f"{split}_digests", image_digests(written))
    encoded = json.dumps([names[i] for i in good]).encode()
    writer.save(f"{split}_files", np.frombuffer(encoded, np.uint8))
    return [[names[row], reason] for row, reason in sorted(broken.items())]


def _write_notes(writer: Writer, layout: str, class_names: Mapping[int, str], broken: list[list[str]]) -> None:
    writer.notes.update(
        layout=layout,
        classes=[[int(label), str(name)] for label, name in class_names.items()],
        broken=broken,
        pillow=PIL.__version__,
    )


def _complete(
    spec: DataSpec, request: Request, entry: Entry, where: Path, left_out: Sequence[tuple[str, str]] = ()
) -> DataSet:
    """The data set of a cache entry: broken files reported, a test set held out if there is none, constants set."""
    name = request.name
    broken = entry.notes["broken"]
    if (broken or left_out) and not request.options.skip_broken:
        problems = [f"{len(broken)} unreadable files in {where}:{list_broken(broken)}"] if broken else []
        problems += [f"something would be left out of {where}:{list_broken(left_out)}"] if left_out else []
        raise InputError(
            f"{name}: " + "\n".join(problems) + "\nRepair or remove them, or leave them out with --skip-broken. "
            f"Formats that are read: {', '.join(FORMATS)}."
        )
    notes: dict[str, Any] = {"location": str(where), "layout": entry.notes["layout"], "cache": str(entry.folder)}
    if broken:
        notes["skipped"] = broken
    if left_out:
        notes["left_out"] = [[printable(folder), reason] for folder, reason in left_out]
    class_names = dict(entry.notes["classes"])
    train = ImageSet(_pixels(entry, "train"), _labels(entry, "train"), class_names)
    if "test_images" in entry.arrays:
        test = ImageSet(_pixels(entry, "test"), _labels(entry, "test"), class_names)
    else:
        train, test, notes["holdout"] = _held_out(name, request.options.data_seed, train, entry)
    present = {*train.classes, *test.classes}
    if lost := [class_name for label, class_name in class_names.items() if broken and label not in present]:
        notes["classes_without_images"] = [printable(class_name) for class_name in lost]
    unread = f" Unreadable files:{list_broken(broken)}" if broken else ""
    if len(train) == 0:
        raise InputError(f"{name}: there are no training images in {where}.{unread}")
    if missing := sorted(set(test.classes) - set(train.classes)):
        names = ", ".join(test.class_names[label] for label in missing[:SHOWN])
        raise InputError(f"{name}: classes with test images but no training images ({len(missing)}): {names}.{unread}")
    if missing := sorted(set(train.classes) - set(test.classes)):
        names = ", ".join(train.class_names[label] for label in missing[:SHOWN])
        raise InputError(f"{name}: classes with training images but no test images ({len(missing)}): {names}.{unread}")
    if spec.mean is not None and spec.std is not None:
        mean, std = spec.mean, spec.std
        notes["normalisation"] = "published constants"
    elif given := entry.notes.get("constants"):
        mean, std = (tuple(map(float, values)) for values in given)
        notes["normalisation"] = "constants that came with the images"
    else:
        mean, std = train.statistics()
        notes["normalisation"] = f"computed from {len(train)} training images"
    source = {split: _part(entry, split) for split in ("train", "test") if f"{split}_images" in entry.arrays}
    return DataSet(name, train, test, mean, std, notes, fingerprint(source, class_names))


def _part(entry: Entry, split: str) -> Part:
    """What a fingerprint needs to know of a split. Entries of earlier versions hold no digests: they are made now."""
    digests = entry.arrays.get(f"{split}_digests")
    files = None
    if f"{split}_files" in entry.arrays and len(entry.arrays[f"{split}_labels"]) <= MOST_FILES:
        files = json.loads(entry.arrays[f"{split}_files"].tobytes())
    return Part(image_digests(_pixels(entry, split)) if digests is None else digests, _labels(entry, split), files)


def _held_out(name: str, seed: int, train: ImageSet, entry: Entry) -> tuple[ImageSet, ImageSet, dict[str, Any]]:
    """Training set, held-out test set, and a note of which files or rows were held out."""
    if alone := [train.class_names[label] for label, count in train.counts().items() if count < 2]:
        raise InputError(
            f"{name}: one test image per class is held out, so every class needs two images; "
            f"these have only one: {', '.join(alone[:SHOWN])}."
        )
    kept, out = hold_out(train.labels, HOLD_OUT, seed, "holdout")
    note: dict[str, Any] = {"fraction": HOLD_OUT, "seed": seed, "count": len(out)}
    if "train_files" in entry.arrays:
        files = json.loads(entry.arrays["train_files"].tobytes())
        note["files"] = [files[i] for i in out]
    else:
        note["rows"] = out.tolist()
    return train.select(kept), train.select(out), note


def _pixels(entry: Entry, split: str) -> Images:
    return entry.arrays[f"{split}_images"]


def _labels(entry: Entry, split: str) -> Labels:
    return np.array(entry.arrays[f"{split}_labels"])


def _open(spec: DataSpec, request: Request, key: Mapping[str, Any], build: Callable[[Writer], None]) -> Entry:
    folder = cache_folder(request.options.data_cache) / "images"
    return open_or_build(folder, key, build, name=spec.name.removesuffix(":PATH"))
