"""The last files of a run: ``results.json``, its memory, its confidences, a few images."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from acr.errors import printable
from acr.metrics import coefficient_of_variation
from acr.runs.schema import Data, Memory, Results, Timing
from acr.runs.summary import summarise
from acr.training.trainer import Trainer

Arrays = dict[str, np.ndarray[Any, Any]]


def write_results(trainer: Trainer) -> None:
    """Write the last files of a run; ``results.json``, written at the very end, marks the run as finished."""
    folder, stored = trainer.folder, stored_samples(trainer)
    if stored:
        folder.write_arrays("memory.npz", **stored)
    if trainer.confidence:
        folder.write_arrays("confidence.npz", **{name: value.numpy() for name, value in trainer.confidence.items()})
    if len(trainer.scenarios) > 1:
        folder.write_arrays("samples.npz", **sample_images(trainer))
    results = collect(trainer, stored)
    figures = {name: value for name, value in summarise(results).items() if name != "seconds"}
    folder.write_results(results.model_copy(update={"summary": figures}))


def stored_samples(trainer: Trainer) -> Arrays:
    """The final memory, with the label values of the data set; empty if the method has no memory."""
    stored = {name: value.cpu().numpy() for name, value in trainer.method.memory().items()}
    if stored:
        stored["labels"] = np.asarray(trainer.stream.classes)[stored["labels"]]
    return stored


def collect(trainer: Trainer, stored: Arrays) -> Results:
    """The results of a finished run, without the summary."""
    config, stream, data = trainer.config, trainer.stream, trainer.stream.data
    protocol = config.protocol_in_force()
    return Results(
        finished=True,
        identity=config.identity(),
        method=config.method,
        dataset=config.dataset,
        buffer_size=config.buffer_size,
        seed=config.seed,
        protocol=protocol.name,
        quirks=sorted(protocol.quirks),
        headline=protocol.headline,
        classes=list(stream.classes),
        class_names=[printable(data.train.class_names[label]) for label in stream.classes],
        tasks=[list(task) for task in stream.task_classes],
        data=Data(
            train=len(data.train),
            test=len(data.test),
            mean=list(data.mean),
            std=list(data.std),
            image_shape=list(data.train.image_shape),
            fingerprint=data.fingerprint.digest,
            notes=dict(data.notes),
        ),
        parameters=sum(p.numel() for p in trainer.method.network.parameters()),
        stages=trainer.stages,
        memory=describe_memory(trainer, stored),
        facts=trainer.method.facts(),
        timing=Timing(seconds=round(trainer.seconds, 3), ended=round(time.time(), 3)),
    )


def describe_memory(trainer: Trainer, stored: Arrays) -> Memory:
    """Size and balance of the final memory."""
    if not stored:
        return Memory()
    stream = trainer.stream
    classes = [int((stored["labels"] == label).sum()) for label in stream.classes]
    tasks = [int((stored["tasks"] == task).sum()) for task in range(len(stream))]
    return Memory(
        size=len(stored["labels"]),
        bytes=sum(value.nbytes for value in trainer.method.memory_as_stored().values()),
        side_bytes=trainer.method.side_memory_bytes(),
        per_class=classes,
        per_task=tasks,
        cv_classes=coefficient_of_variation(classes),
        cv_tasks=coefficient_of_variation(tasks),
    )


def sample_images(trainer: Trainer, per_task: int = 2) -> Arrays:
    """A few test images of each task and their shifted copies, to be looked at."""
    positions = np.concatenate([rows[:per_task] for rows in trainer.stream.test_positions])[:20]
    test, last = trainer.stream.data.test, len(trainer.stream) - 1
    arrays: Arrays = {"images": test.images[positions], "labels": test.labels[positions]}
    for scenario in trainer.scenarios[1:]:
        shown = scenario.images(positions, last)
        if shown.is_floating_point():  # values of a quirk; shown as the network's normalisation sees them
            shown = (shown * 255).round().clamp(0, 255).to(torch.uint8)
        arrays[scenario.name] = shown.cpu().numpy()
    return arrays
