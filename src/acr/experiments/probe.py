"""What a sweep will cost, from a short probe: a few steps of every kind of run, at the recipe's own settings.

The probe trains on two tasks for a few steps each, so replay is under way when the clock runs, and multiplies. It
leaves out what grows with the number of tasks (the constraints of GEM) and what a method does between tasks; a note
says so where the figures are shown.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from acr.config import RunConfig
from acr.data.images import DataSet
from acr.data.stream import TaskStream
from acr.evaluation.evaluator import predict
from acr.evaluation.scenarios import StoredImages
from acr.experiments.folder import RunFolder
from acr.experiments.launch import build, load_data
from acr.training.checkpoint import Checkpoints, flatten
from acr.training.trainer import Trainer

STEPS = 4
"""Steps of each of the two tasks; the first of each is not timed."""
PROBE_IMAGES = 200
PAPER_CORRUPTIONS = 11
START_SECONDS = 4.0
"""To start a process and import what it needs."""
RESULT_BYTES = 300_000
"""Records, confidence and a little more, about."""


@dataclass(frozen=True)
class Cost:
    """What one run takes, about."""

    seconds: float
    bytes: float


@dataclass(frozen=True)
class Probe:
    """Measured on one kind of run."""

    step_seconds: float
    image_seconds: float
    """Inference, an image."""
    state_bytes: int
    image_bytes: int


def estimate(configs: Sequence[RunConfig], threads: int = 1) -> list[Cost]:
    """The cost of every run, probing each kind once."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    probes: dict[tuple[object, ...], Probe] = {}
    data: dict[tuple[object, ...], DataSet] = {}
    costs = []
    try:
        for config in configs:
            images = (config.dataset, config.image_size, config.samples_per_class, config.test_samples_per_class,
                      config.validation_fraction, config.data_root, config.data_cache)  # fmt: skip
            if images not in data:
                data[images] = load_data(config.model_copy(update={"quiet": True}))
            kind = (*images, config.method, config.width, config.batch_size, config.replay_size, config.protocol)
            if kind not in probes:
                probes[kind] = probe(config, data[images])
            costs.append(cost(config, data[images], probes[kind]))
    finally:
        torch.set_num_threads(before)
    return costs


def probe(config: RunConfig, data: DataSet) -> Probe:
    """Time a few steps and some inference."""
    whole = TaskStream.split(data, config.tasks, config.classes_per_task, config.class_order)
    stream = TaskStream(data, whole.task_classes[:2])
    room = max(len(stream.classes), 2 * config.batch_size)
    short = config.model_copy(update={"epochs": 1, "buffer_size": min(config.buffer_size, room), "quiet": True})
    short = short.model_copy(update={"options": options_for_one_epoch(short)})
    method, context = build(short, stream)
    seconds: list[float] = []
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place), short)
        trainer = Trainer(short, stream, method, context, [], folder, Checkpoints(Path(place), "probe"))
        for task in trainer.learned:
            trainer.place(task)
            method.begin_task(task)
            for batch in trainer.batches(task, 0):
                if batch.step == STEPS:
                    break
                trainer.place(task, 0, batch.step)
                method.network.train()
                started = time.perf_counter()
                loss = method.observe(batch)
                _ = None if loss is None else float(loss)  # waits for the device
                if batch.step:
                    seconds.append(time.perf_counter() - started)
    method.network.eval()
    positions = np.arange(min(PROBE_IMAGES, len(data.test)))
    started = time.perf_counter()
    predict(method.logits, StoredImages("clean", data.test.images), positions, 0)
    image_seconds = (time.perf_counter() - started) / len(positions)
    tensors: dict[str, torch.Tensor] = {}
    flatten(method.network.state_dict(), tensors)
    step_seconds = statistics.median(seconds[len(seconds) // 2 :]) if seconds else 0.0
    return Probe(
        step_seconds,
        image_seconds,
        sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()),
        math.prod(data.train.image_shape),
    )


def options_for_one_epoch(config: RunConfig) -> object:
    """Options that hold for more epochs than the probe has are left at their defaults."""
    if getattr(config.options, "confidence_epochs", None) is None:
        return config.options
    return config.options.model_copy(update={"confidence_epochs": 1})


def steps_of(config: RunConfig, data: DataSet) -> int:
    """Optimiser steps of a run."""
    from acr.methods.method import method_class

    stream = TaskStream.split(data, config.tasks, config.classes_per_task, config.class_order)
    learned = stream.merged() if method_class(config.method).sees_all_tasks else stream
    return sum(math.ceil(len(task) / config.batch_size) for task in learned) * config.epochs


def cost(config: RunConfig, data: DataSet, measured: Probe) -> Cost:
    """Steps and evaluations of a run times what one was measured to take."""
    stream = TaskStream.split(data, config.tasks, config.classes_per_task, config.class_order)
    tested = np.cumsum([len(positions) for positions in stream.test_positions])
    corruptions = PAPER_CORRUPTIONS if config.ood_corruptions is None else len(config.ood_corruptions)
    shifted = {"never": 0, "end": int(tested[-1]), "stage": int(tested.sum())}[config.ood_every]
    evaluated = int(tested.sum()) + shifted * corruptions * len(config.ood_severities)
    seconds = steps_of(config, data) * measured.step_seconds + evaluated * measured.image_seconds + START_SECONDS
    memory = config.buffer_size * measured.image_bytes
    kept = config.keep * (measured.state_bytes + memory)
    return Cost(seconds, kept + memory + RESULT_BYTES)
