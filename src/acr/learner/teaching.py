"""Teaching a classifier that is kept in a folder: made if there is none, and given only what is new."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acr.errors import AcrError, InputError, command
from acr.learner.classifier import ContinualClassifier
from acr.learner.knowledge import Visit
from acr.learner.labelled import Labelled, read_labelled
from acr.learner.learning import config_of
from acr.learner.saving import LOCK, TEACHING, check_vacant, is_model
from acr.runs.writer import CONFIG
from acr.storage import files
from acr.storage.locks import try_lock


@dataclass(frozen=True)
class Lesson:
    """What came of teaching."""

    classifier: ContinualClassifier
    made: bool
    """Whether the classifier was made now."""
    known_before: int
    """Number of images that were left out because they had been learned before."""
    skipped: tuple[tuple[str, str], ...]
    """Files that were left out because they cannot be read, with the reasons."""
    visit: Visit | None
    """None if there was nothing new."""


def teach(
    folder: Path,
    data: Path,
    parameters: Mapping[str, Any],
    *,
    again: bool = False,
    skip_broken: bool = False,
    quiet: bool = False,
) -> Lesson:
    """Let the classifier in a folder learn the images of a folder or file that it has not learned, and save it.

    Args:
        folder: the classifier's folder; a classifier is made if there is none.
        data: as for :func:`acr.learner.labelled.read_labelled`.
        parameters: those of the classifier that are to be set; others are as they were, or have their defaults.
        again: learn images that were learned before, too.
        skip_broken: leave out files that cannot be read.
        quiet: show no progress.

    Whatever happens, the folder holds the classifier as it was before or as it is afterwards.
    """
    with being_taught(folder):
        classifier = _loaded(folder, parameters) if is_model(folder) else _made(folder, parameters)
        known = classifier._known()
        config_of(classifier, known)  # wrong values are reported before images are read
        channels = None if known is None else known.pictures.image_shape[0]
        given = read_labelled(data, classifier.image_size, channels, skip_broken=skip_broken, quiet=quiet)
        new = given if again or known is None else _not_learned(classifier, given)
        if len(new):
            verbose, classifier.verbose = classifier.verbose, not quiet
            try:
                classifier.partial_fit(new.batch, with_known_labels(classifier, new.labels))
            finally:
                classifier.verbose = verbose
            classifier.save(folder)
        visit = classifier._needed().history[-1] if len(new) else None
        return Lesson(classifier, known is None, len(given) - len(new), given.skipped, visit)


@contextmanager
def being_taught(folder: Path) -> Iterator[None]:
    """Hold the lock of whoever changes the classifier in a folder; an error if another program holds it.

    A folder that was made for it is removed again if the block fails before anything is saved.
    """
    there = folder.exists()
    try:
        files.refuse_link(folder)
        folder.mkdir(parents=True, exist_ok=True)
        lock = try_lock(folder / TEACHING)
    except NotImplementedError:
        # A file system without locks. Whoever saves second is told that the classifier has changed.
        yield
        return
    except OSError as error:
        raise InputError(f"Cannot write to {folder}: {error.strerror or error}.") from None
    if lock is None:
        raise AcrError(
            f"Another program is changing the classifier in {folder} just now. Wait for it to end, then try again."
        )
    try:
        yield
    except BaseException:
        if not there and all(path.name in (LOCK, TEACHING) for path in folder.iterdir()):
            files.remove_tree(folder)
        raise
    finally:
        lock.release()


def with_known_labels(classifier: ContinualClassifier, labels: Sequence[str]) -> list[Hashable]:
    """Labels given as text as the classifier has them: 7 for ``7`` if it has learned the number; new ones are text."""
    known = classifier._known()
    values: Iterable[Hashable] = () if known is None else known.labels.values
    by_text = {str(value): value for value in values}
    return [by_text.get(label, label) for label in labels]


def _made(folder: Path, parameters: Mapping[str, Any]) -> ContinualClassifier:
    """A new classifier for a folder; an error if the folder is not for one."""
    if (folder / CONFIG).exists():
        raise InputError(
            f"{folder} is the folder of a run, which stays as it is. Ask it with: {command('acr', 'predict', folder)} "
            "IMAGES; or make a classifier of it in Python: acr.load_run(folder).classifier().save(other_folder)."
        )
    check_vacant(folder)
    return ContinualClassifier(**parameters)


def _loaded(folder: Path, parameters: Mapping[str, Any]) -> ContinualClassifier:
    """The classifier in a folder, with other parameters."""
    if "weights" in parameters:
        raise InputError(f"{folder} has learned already, so it cannot start from other weights. Make a new one.")
    classifier = ContinualClassifier.load(folder, device=parameters.get("device", "auto"))
    return classifier.set_params(**parameters)


def _not_learned(classifier: ContinualClassifier, given: Labelled) -> Labelled:
    rows = np.flatnonzero(~classifier.has_learned(given.batch))
    return given.select(rows.tolist())
