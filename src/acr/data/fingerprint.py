"""What a data set is made of, so that a run can tell whether it is given the images that it was made from.

Every image is hashed by its decoded pixels. The digest of all images, labels and class names is the data set's
fingerprint: a file that was only touched or copied changes nothing, a pixel or a label that changed does. Beside it,
the digests of single files (or of classes, where there are no files or too many) say what changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Digests = npt.NDArray[np.uint8]
"""One row of ``SIZE`` bytes per image."""

SIZE = 16
"""Bytes of a digest."""
MOST_FILES = 10_000
"""Data sets of more files than this are described by class: a description is stored with every run."""
MOST_CLASSES = 10_000
"""Parts of more classes than this are described by their digest alone."""
MOST_TEXT = 1 << 20
"""Most characters of all file names together in a description by file."""
NAMED = 5
"""How many changed files or classes a message names; the others are only counted."""


@dataclass(frozen=True)
class Fingerprint:
    """The digest of a data set, and short digests of its parts by name."""

    digest: str
    classes: Mapping[str, str]
    """By ``train/CLASS`` and ``test/CLASS``."""
    files: Mapping[str, str]
    """By file; empty if the data set is not made of files, or of too many."""

    def differences(self, other: Fingerprint) -> str:
        """What an ``other``, later state of this data set has changed, for people."""
        for one, many, before, after in (
            ("file", "files", self.files, other.files),
            ("class", "classes", self.classes, other.classes),
        ):
            if before and after and (found := _differences(before, after)):
                return "; ".join(f"{len(names):,} {one if len(names) == 1 else many} {what}: {_some(names)}"
                                 for what, names in found.items())  # fmt: skip
        return "the images are the same, but not their order"


@dataclass(frozen=True)
class Part:
    """The training or test images of a data set, as far as a fingerprint needs them."""

    digests: Digests
    labels: npt.NDArray[np.int64]
    files: Sequence[str] | None = None


def image_digests(images: npt.NDArray[np.uint8]) -> Digests:
    """The digest of each image's pixels."""
    rows = b"".join(hashlib.blake2b(np.ascontiguousarray(image).data, digest_size=SIZE).digest() for image in images)
    return np.frombuffer(rows, np.uint8).reshape(len(images), SIZE)


def fingerprint(parts: Mapping[str, Part], class_names: Mapping[int, str]) -> Fingerprint:
    """The fingerprint of a data set: its ``parts`` (``train``, ``test``), and the names of its classes."""
    state = hashlib.blake2b(digest_size=SIZE)
    names = {int(label): str(name) for label, name in sorted(class_names.items())}
    state.update(json.dumps(names).encode())
    classes: dict[str, str] = {}
    for split, part in parts.items():
        state.update(f"{split} {len(part.labels)}".encode())
        state.update(np.ascontiguousarray(part.labels, dtype="<i8").tobytes())
        state.update(part.digests.tobytes())
        labels, counts = np.unique(part.labels, return_counts=True)
        if len(labels) <= MOST_CLASSES:
            rows = np.split(part.digests[np.argsort(part.labels, kind="stable")], np.cumsum(counts)[:-1])
            for label, of_class in zip(labels.tolist(), rows, strict=True):
                short = hashlib.blake2b(of_class.tobytes(), digest_size=4).hexdigest()
                classes[f"{split}/{printable(names.get(label, str(label)))}"] = f"{len(of_class)} {short}"
    return Fingerprint(state.hexdigest(), classes, _by_file(parts))


def _by_file(parts: Mapping[str, Part]) -> dict[str, str]:
    """A short digest of the pixels and the label of every file."""
    if any(part.files is None for part in parts.values()):
        return {}
    listed = {split: list(part.files or ()) for split, part in parts.items()}
    names = [name for files in listed.values() for name in files]
    if len(names) > MOST_FILES or sum(map(len, names)) > MOST_TEXT:
        return {}
    return {
        printable(name): hashlib.blake2b(f"{label} ".encode() + digest.tobytes(), digest_size=4).hexdigest()
        for split, part in parts.items()
        for name, label, digest in zip(listed[split], part.labels, part.digests, strict=True)
    }


def printable(name: str) -> str:
    """A file name in which bytes that are not text are escaped, so that it can be stored and shown."""
    return name.encode("utf-8", "backslashreplace").decode()


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, list[str]]:
    found = {
        "changed": [name for name in before if name in after and before[name] != after[name]],
        "added": [name for name in after if name not in before],
        "removed": [name for name in before if name not in after],
    }
    return {what: names for what, names in found.items() if names}


def _some(names: Sequence[str]) -> str:
    """The first few names, with the number of the others."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(name[:120] for name in names[:NAMED]) + more
