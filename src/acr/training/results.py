"""What a run leaves behind when it is over: ``results.json``, its memory, its confidences, a few pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from acr.data.images import DataSet
from acr.metrics import coefficient_of_variation
from acr.runs.run import Run, load_run
from acr.runs.writer import RESULTS
from acr.training.trainer import Trainer


def write_results(trainer: Trainer, data: DataSet) -> None:
    """The last files of a run; ``results.json``, written at the very end, marks it finished."""
    config, stream, folder = trainer.config, trainer.stream, trainer.folder
    stored = {name: value.cpu().numpy() for name, value in trainer.method.memory().items()}
    memory: dict[str, Any] = {}
    if stored:
        stored["labels"] = np.asarray(stream.classes)[stored["labels"]]
        classes = [int((stored["labels"] == label).sum()) for label in stream.classes]
        tasks = [int((stored["tasks"] == task).sum()) for task in range(len(stream))]
        memory = {
            "size": len(stored["labels"]),
            "bytes": sum(value.nbytes for value in stored.values()),
            "side_bytes": trainer.method.side_memory_bytes(),
            "per_class": classes,
            "per_task": tasks,
            "cv_classes": coefficient_of_variation(classes),
            "cv_tasks": coefficient_of_variation(tasks),
        }
        folder.write_arrays("memory.npz", **stored)
    if trainer.confidence:
        folder.write_arrays("confidence.npz", **{name: value.numpy() for name, value in trainer.confidence.items()})
    if len(trainer.scenarios) > 1:
        folder.write_arrays("samples.npz", **sample_images(trainer))
    protocol = config.protocol_in_force()
    results = {
        "finished": True,
        "identity": config.identity(),
        "method": config.method,
        "dataset": config.dataset,
        "buffer_size": config.buffer_size,
        "seed": config.seed,
        "protocol": protocol.name,
        "quirks": sorted(protocol.quirks),
        "headline": protocol.headline,
        "classes": list(stream.classes),
        "class_names": [data.train.class_names[label] for label in stream.classes],
        "tasks": [list(task) for task in stream.task_classes],
        "data": {
            "train": len(data.train),
            "test": len(data.test),
            "mean": data.mean,
            "std": data.std,
            "notes": dict(data.notes),
        },
        "parameters": sum(p.numel() for p in trainer.method.network.parameters()),
        "stages": trainer.stages,
        "memory": memory,
        "timing": {"seconds": round(trainer.seconds, 3)},
    }
    run = Run(folder.path)
    run.results = results
    if config.ood_baseline is not None:
        error = run.mean_corruption_error(load_run(config.ood_baseline))
        results["baseline"] = {"run": str(config.ood_baseline), "mean_corruption_error": error}
    figures = {name: value for name, value in run.summary().items() if name != "seconds"}
    results["summary"] = {name: None if value != value else value for name, value in figures.items()}  # NaN: none
    folder.write_json(RESULTS, results)


def sample_images(trainer: Trainer, per_task: int = 2) -> dict[str, np.ndarray[Any, Any]]:
    """A few test images of each task and their shifted copies, for people to look at."""
    positions = np.concatenate([rows[:per_task] for rows in trainer.stream.test_positions])[:20]
    test, last = trainer.stream.data.test, len(trainer.stream) - 1
    arrays: dict[str, np.ndarray[Any, Any]] = {"images": test.images[positions], "labels": test.labels[positions]}
    for scenario in trainer.scenarios[1:]:
        shown = scenario.images(positions, last)
        if shown.is_floating_point():  # a quirk's values; shown as the network's normalisation will see them
            shown = (shown * 255).round().clamp(0, 255).to(torch.uint8)
        arrays[scenario.name] = shown.numpy()
    return arrays
