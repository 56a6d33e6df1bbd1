"""What a classifier says about image files, however many there are."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acr.data.readers.decoding import image_files
from acr.data.readers.file_tree import FolderTree
from acr.errors import InputError
from acr.learner.classifier import ContinualClassifier
from acr.learner.images import read_files
from acr.storage.progress import progress

AT_ONCE = 1000
"""Files that are read at a time: their pixels are held in memory."""


@dataclass(frozen=True)
class Answer:
    """The most probable labels of one file."""

    file: str
    """As it was given, or found."""
    predictions: tuple[tuple[Hashable, float], ...]
    """Labels with their probabilities, most probable first."""


def find_images(places: Iterable[Path]) -> list[Path]:
    """The files among these places, and the image files in and below the folders, each in natural order."""
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            inside = image_files(FolderTree(place).names)
            if not inside:
                raise InputError(f"{place} holds no image files.")
            found += [place / name for name in inside]
        else:
            found.append(place)
    return found


def answer_files(
    classifier: ContinualClassifier, paths: list[Path], top: int = 1, *, quiet: bool = True
) -> tuple[list[Answer], list[tuple[str, str]]]:
    """The ``top`` most probable labels of each file, and the files that cannot be read, with the reasons."""
    known = classifier._needed()
    channels, size, _ = known.pictures.image_shape
    labels = known.labels.values
    answers: list[Answer] = []
    unread: list[tuple[str, str]] = []
    with progress("Predicting", len(paths), quiet=quiet) as advance:
        for start in range(0, len(paths), AT_ONCE):
            part = paths[start : start + AT_ONCE]
            batch, broken = read_files(part, size, channels)
            unread += [(str(part[row]), reason) for row, reason in sorted(broken.items())]
            good = [path for row, path in enumerate(part) if row not in broken]
            if good:
                shares = classifier.predict_proba(batch)
                best = np.argsort(-shares, axis=1, kind="stable")[:, :top]
                for path, columns, row in zip(good, best, shares, strict=True):
                    chosen = tuple((labels[column], float(row[column])) for column in columns)
                    answers.append(Answer(str(path), chosen))
            advance(len(part))
    return answers, unread
