"""Estimating what a sweep will cost, from a short trial: a few steps of every kind of run, at the recipe's settings.

The trial is in the middle of the stream, with the memory that the earlier tasks would have left, so that costs that
grow with tasks and memory have their average size. It takes steps in epochs that are spread over a task, because some
methods do more in the last ones; each stands for the epochs around it. Then it ends the task. Long work at the end of a
task is shortened, and its time multiplied (:meth:`acr.methods.method.Method.shortened`).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from acr.config import RunConfig
from acr.data.images import DataSet
from acr.data.loading import load_dataset
from acr.data.stream import Task, TaskStream
from acr.evaluation.evaluator import predict
from acr.evaluation.scenarios import StoredImages
from acr.launch import build_loop
from acr.methods.bases import MemoryMethod
from acr.methods.method import method_class
from acr.shift import PAPER_CORRUPTIONS
from acr.training.building import per_place
from acr.training.checkpoint import flatten
from acr.training.loop import TrainingLoop

STEPS = 3
"""Steps taken in each epoch of the trial; the first is not timed."""
PATIENCE = 20.0
"""Seconds after which no further epochs of the same kind of run are tried; the first and the last always are."""
INFERRED_IMAGES = 200
"""Number of images on which inference is timed."""
START_SECONDS = 4.0
"""Time to start a process and import what it needs."""
RESULT_BYTES = 300_000
"""Approximate size of the records, the confidence and other small files of a run."""


@dataclass(frozen=True)
class Cost:
    """The estimated cost of one run."""

    seconds: float
    bytes: float


@dataclass(frozen=True)
class Measured:
    """What was measured for one kind of run."""

    step_seconds: float
    """Time of a step, on average over the epochs."""
    end_seconds: float
    """Time of the end of a task."""
    image_seconds: float
    """Time of inference, per image."""
    state_bytes: int
    image_bytes: int


def estimate(
    configs: Sequence[RunConfig], threads: int = 1, before_trial: Callable[[RunConfig], None] | None = None
) -> list[Cost]:
    """The estimated cost of every run, from one trial of each kind of run.

    ``threads`` is the number of threads that each run will have; ``before_trial`` is called with the
    config of each trial.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    measured: dict[tuple[object, ...], Measured] = {}
    data: dict[tuple[object, ...], DataSet] = {}
    costs = []
    try:
        for config in configs:
            images = config.data_key()
            if images not in data:
                data[images] = load_dataset(config.dataset, config.model_copy(update={"quiet": True}))
            kind = (*images, config.method, config.buffer_size, config.network, config.width, config.stem,
                    config.batch_size, config.replay_size, config.epochs, config.options.model_dump_json(),
                    config.protocol, config.images_per_place, config.average_weights)  # fmt: skip
            if kind not in measured:
                if before_trial is not None:
                    before_trial(config)
                measured[kind] = measure(config, data[images])
            costs.append(cost(config, data[images], measured[kind]))
    finally:
        torch.set_num_threads(before)
    return costs


def measure(config: RunConfig, data: DataSet) -> Measured:
    """Time a few steps, the end of a task and some inference, in the middle of the stream."""
    stream = TaskStream.split(data, config.tasks, config.classes_per_task, config.class_order)
    options, times_longer = method_class(config.method).shortened(config)
    loop = build_loop(config.model_copy(update={"options": options, "quiet": True}), stream)
    method, task = loop.method, loop.tasks[len(loop.tasks) // 2]
    learn_earlier(loop, task.index)
    loop.begin_task(task)
    by_epoch: dict[int, float] = {}
    began = time.perf_counter()
    for epoch in epochs_to_try(config.epochs):
        if len(by_epoch) < 2 or time.perf_counter() - began < PATIENCE:
            # The fastest step after the first: the first one warms up, and others may be disturbed.
            by_epoch[epoch] = min(take_steps(loop, task, epoch, STEPS)[-(STEPS - 1) :])
    began = time.perf_counter()
    loop.end_task(task)
    end_seconds = (time.perf_counter() - began) * times_longer
    positions = np.arange(min(INFERRED_IMAGES, len(data.test)))
    began = time.perf_counter()
    with method.answering():
        predict(method.logits, StoredImages("clean", data.test.images), positions, 0, loop.context.device)
    averaged = [] if method.average is None else [method.average.network]  # both networks are evaluated and saved
    image_seconds = (1 + len(averaged)) * (time.perf_counter() - began) / len(positions)
    tensors: dict[str, torch.Tensor] = {}
    flatten([network.state_dict() for network in (method.network, *averaged)], tensors)
    return Measured(
        mean_over_epochs(by_epoch, config.epochs),
        end_seconds,
        image_seconds,
        sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()),
        math.prod(data.train.image_shape),
    )


def learn_earlier(loop: TrainingLoop, tasks: int) -> None:
    """Take one step of each of the first ``tasks`` tasks and end it; if that leaves the memory unfilled, fill it."""
    method = loop.method
    buffer = method.buffer if isinstance(method, MemoryMethod) else None
    ends_fill = False
    for task in (loop.tasks[index] for index in range(tasks)):
        loop.begin_task(task)
        take_steps(loop, task, 0, 1)
        stored = len(buffer) if buffer is not None else 0
        loop.end_task(task)
        ends_fill |= buffer is not None and len(buffer) > stored
        if buffer is not None and task.index == tasks - 1 and not ends_fill:
            # A reservoir has seen only one batch per task here: repeat samples until the memory is as full as in a run.
            rows = torch.arange(buffer.capacity - len(buffer)) % len(task)
            columns = {name: torch.ones(len(rows), *buffer.column(name).shape[1:]) for name in buffer.column_names}
            buffer.append(task.images(rows), task.targets[rows], task.index, **columns)


def take_steps(loop: TrainingLoop, task: Task, epoch: int, steps: int) -> list[float]:
    """Take the first ``steps`` steps of an epoch, or all if there are fewer; returns the seconds that each took."""
    seconds = []
    began = time.perf_counter()
    for step in itertools.islice(loop.steps(task, epoch), steps):
        _ = None if step.loss is None else float(step.loss)  # waits for the device
        seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
    return seconds


def epochs_to_try(epochs: int) -> list[int]:
    """The first and the last epoch, the ones beside them, and some in between; the most informative ones first.

    >>> epochs_to_try(50), epochs_to_try(3), epochs_to_try(1)
    ([0, 49, 48, 1, 9, 19, 29, 39], [0, 2, 1], [0])
    """
    last = epochs - 1
    between = [last * part // 5 for part in range(1, 5)]
    return [e for e in dict.fromkeys([0, last, last - 1, 1, *between]) if 0 <= e <= last]


def mean_over_epochs(seconds: Mapping[int, float], epochs: int) -> float:
    """The mean over all epochs; an epoch that was not tried counts as the nearest one that was.

    >>> mean_over_epochs({0: 1.0, 9: 2.0}, 10)
    1.5
    """
    nearest = [min(seconds, key=lambda known: abs(known - epoch)) for epoch in range(epochs)]
    return sum(seconds[epoch] for epoch in nearest) / epochs


def steps_of(config: RunConfig, data: DataSet) -> int:
    """Number of optimiser steps of a run."""
    stream = TaskStream.split(data, config.tasks, config.classes_per_task, config.class_order)
    learned = stream.merged() if method_class(config.method).sees_all_tasks else stream
    return sum(math.ceil(len(task) / config.batch_size) for task in learned) * config.epochs


def cost(config: RunConfig, data: DataSet, measured: Measured) -> Cost:
    """The cost of a run: its steps, evaluations and ends of tasks, multiplied by the measured time of each."""
    stream = TaskStream.split(data, config.tasks, config.classes_per_task, config.class_order)
    # After each task, all test images of the tasks so far are evaluated.
    tested = np.cumsum([len(positions) for positions in stream.test_positions])
    corruptions = len(PAPER_CORRUPTIONS) if config.ood_corruptions is None else len(config.ood_corruptions)
    shifted = {"never": 0, "end": int(tested[-1]), "stage": int(tested.sum())}[config.ood_every]
    evaluated = int(tested.sum()) + shifted * corruptions * len(config.ood_severities)
    seconds = steps_of(config, data) * measured.step_seconds + evaluated * measured.image_seconds + START_SECONDS
    seconds += (1 if method_class(config.method).sees_all_tasks else len(stream)) * measured.end_seconds
    memory = config.buffer_size * measured.image_bytes
    kept = config.keep * (measured.state_bytes + memory)
    # Checkpoints have what is stored of an image, and memory.npz the image itself.
    return Cost(seconds, kept + memory * per_place(config, data.train.image_shape) + RESULT_BYTES)
