"""Whatever folder holds a classifier: one that was saved, or a finished run."""

from __future__ import annotations

from pathlib import Path

from acr.errors import InputError
from acr.learner.classifier import ContinualClassifier
from acr.learner.from_run import classifier_of
from acr.learner.saving import MODEL, is_model
from acr.runs.run import load_run
from acr.runs.writer import CONFIG


def open_classifier(folder: Path, device: str = "auto") -> ContinualClassifier:
    """The classifier in a folder that :meth:`acr.ContinualClassifier.save` or a run has written."""
    if is_model(folder):
        return ContinualClassifier.load(folder, device=device)
    if (folder / CONFIG).is_file():
        return classifier_of(load_run(folder), device)
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}.")
    raise InputError(f"{folder} holds neither a classifier ({MODEL}) nor a run ({CONFIG}).")
