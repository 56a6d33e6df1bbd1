"""A finished run as a classifier: it answers what the run learned, and can be taught more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acr.data.catalog import find
from acr.errors import InputError, command
from acr.learner.classifier import ContinualClassifier
from acr.learner.knowledge import Knowledge, Visit, method_of
from acr.learner.labels import Labels
from acr.runs.run import Run
from acr.training.building import Pictures
from acr.training.checkpoint import Checkpoints
from acr.values import RESNET18

PARAMETERS = (
    *("method", "buffer_size", "network", "width", "epochs", "learning_rate", "seed", "batch_size", "replay_size"),
    *("stem", "average_weights", "images_per_place", "precision"),
)
"""Parameters of the classifier that are fields of a run's config."""


def classifier_of(run: Run, device: str = "auto", network: str | None = None) -> ContinualClassifier:
    """The classifier that a finished run ended with.

    Args:
        run: the run.
        device: where the classifier computes.
        network: the function that makes the encoder, if the run has an encoder of the user's own: a folder never
            decides which code is run.

    Labels are the names of the classes, where the data set has names, and else its label values. Each task of the run
    counts as one visit.
    """
    if not run.finished:
        raise InputError(
            f"{run.folder} is not finished, so it is no classifier yet. "
            f"Finish it with: {command('acr', 'resume', run.folder)}"
        )
    if run.config.network not in (RESNET18, network):
        raise InputError(
            f"The encoder of {run.folder} is made by {run.config.network}, and loading it runs that code. If you trust "
            f"it: classifier(network={run.config.network!r})."
        )
    saved = Checkpoints(run.folder / "checkpoint", run.config.identity()).load()
    if saved is None:
        raise InputError(f"{run.folder} has no checkpoint any more, so its network is gone; only its results are left.")
    results, spec = run.results, find(run.config.dataset)[0]
    state = saved[1]["method"]
    mean, std = (state["network"][name].flatten() for name in ("mean", "std"))
    side = _side(run, state)
    config = run.config.model_copy(update={"device": device, "quiet": True})
    pictures = Pictures((len(mean), side, side), tuple(mean.tolist()), tuple(std.tolist()), spec.flip)
    labels = Labels(_labels(results.classes, results.class_names))
    place = {label: column for column, label in enumerate(results.classes)}
    classifier = ContinualClassifier(
        **{name: getattr(config, name) for name in PARAMETERS},
        image_size=side,
        device=device,
        options=config.options.model_dump(),
        flip=spec.flip,
    )
    classifier._knowledge = Knowledge(
        config=config.model_copy(update={"image_size": side}),
        labels=labels,
        tasks=tuple(tuple(place[label] for label in task) for task in results.tasks),
        pictures=pictures,
        method=method_of(config, pictures, len(labels), state),
        threads=run.threads or 1,
        history=_visits(run),
        origins={},
        seen=frozenset(),
    )
    return classifier


def _labels(values: list[int], names: list[str]) -> list[int | str]:
    """Names where the data set has them: where they are not simply the label values as text."""
    named = len(names) == len(values) and any(name != str(value) for name, value in zip(names, values, strict=True))
    return list(names) if named and len(set(names)) == len(names) else list(values)


def _side(run: Run, state: Mapping[str, Any]) -> int:
    """Side of the run's images in pixels: as recorded, or for a run of an earlier version, as it can be found out."""
    shape = run.results.data.image_shape
    if not shape:
        stored = state.get("buffer", {}).get("images") if isinstance(state.get("buffer"), Mapping) else None
        samples = run.arrays("samples.npz").get("images")
        known = next((array for array in (stored, samples) if array is not None and array.ndim == 4), None)
        side = run.config.image_size or find(run.config.dataset)[0].image_size
        shape = list(known.shape[1:]) if known is not None else [0, side, side] if side else []
    if not shape:
        raise InputError(f"{run.folder} does not say how large its images were, so it cannot be asked about others.")
    if shape[1] != shape[2]:
        raise InputError(f"The images of {run.folder} are {shape[1]} x {shape[2]} pixels; a classifier's are square.")
    return int(shape[1])


def _visits(run: Run) -> tuple[Visit, ...]:
    """What is known about every task of the run."""
    known: set[int] = set()
    visits = []
    for task in run.results.tasks:
        visits.append(
            Visit(
                images=None,
                held_out=0,
                classes=len(task),
                new_classes=len(set(task) - known),
                epochs=run.config.epochs,
                seconds=None,
                loss=None,
                held_out_accuracy=None,
            )
        )
        known |= set(task)
    return tuple(visits)
