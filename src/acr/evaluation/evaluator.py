"""Counting what a model gets right on each task's test images, clean or shifted. Knows nothing of methods or files.

Only counts per task and class are stored; every metric is computed from them afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from acr.data.stream import TaskStream
from acr.evaluation.counts import Bin, Counts, Over
from acr.evaluation.scenarios import Positions, Scenario
from acr.transfer import send

CPU = torch.device("cpu")
BINS = 15
"""Number of bins of predicted confidence, of equal width, for calibration."""
OVER: tuple[Over, ...] = ("seen", "all", "task")
BIN_SUMS: tuple[Bin, ...] = ("count", "confidence", "correct")


def images_at_once(device: torch.device) -> int:
    """Images per forward pass without gradients.

    On a CPU the maps of 64 images stay in its caches, and in memory that the process has already: it is 1.2 to 1.5
    times as fast as with 500. An accelerator wants many images at a time.

    >>> images_at_once(torch.device("cpu"))
    64
    """
    return 64 if device.type == "cpu" else 500


def evaluate(
    logits: Callable[[Tensor], Tensor],
    scenario: Scenario,
    stream: TaskStream,
    stage: int,
    device: torch.device = CPU,
) -> Counts:
    """Count what is right on the test images of tasks 0..stage under one scenario.

    ``logits`` maps images to scores, one column per class of the stream; ``device`` is where it computes.
    """
    tasks = range(stage + 1)
    positions = np.concatenate([stream.test_positions[task] for task in tasks])
    image_tasks = torch.cat([torch.full((len(stream.test_positions[task]),), task) for task in tasks])
    column = {label: i for i, label in enumerate(stream.classes)}
    targets = torch.tensor([column[int(label)] for label in stream.data.test.labels[positions]], dtype=torch.int64)
    columns = [stream.columns(task) for task in tasks]
    seen = sorted({c for task in columns for c in task})
    return count(predict(logits, scenario, positions, stage, device), targets, image_tasks, columns, seen)


@torch.inference_mode()
def predict(
    logits: Callable[[Tensor], Tensor],
    scenario: Scenario,
    positions: Positions,
    stage: int,
    device: torch.device = CPU,
) -> Tensor:
    """Scores of the images at these positions of the test set, on the network's device."""
    size = images_at_once(device)
    parts = [positions[start : start + size] for start in range(0, len(positions), size)]
    return torch.cat([logits(scenario.images(part, stage)).float() for part in parts])


@torch.inference_mode()
def count(
    scores: Tensor, targets: Tensor, image_tasks: Tensor, task_columns: Sequence[Sequence[int]], seen: Sequence[int]
) -> Counts:
    """Count right answers. On a device everything is counted there, and the counts are read once, at the end.

    Args:
        scores: one row per image, one column per output.
        targets: the right column of each image, on the host.
        image_tasks: the task of each image, on the host.
        task_columns: the columns of each task that is evaluated.
        seen: the columns of the classes seen so far.
    """
    outputs, tasks = scores.shape[1], len(task_columns)
    task_of = torch.zeros(outputs, dtype=torch.int64)
    for task, columns in enumerate(task_columns):
        task_of[list(columns)] = task
    own_columns = torch.stack([only(columns, outputs) for columns in task_columns])
    parts = image_tasks * outputs + targets  # (task, class) as one number
    host = (targets, image_tasks, parts, task_of, only(seen, outputs), own_columns)
    right_column, task_of_image, part, task_of, among_seen, own_columns = send(host, scores.device)

    seen_scores = scores + among_seen
    best = seen_scores.argmax(1)
    # Task-incremental: the best among the outputs of the image's own task.
    within = (scores + own_columns.index_select(0, task_of_image)).argmax(1)
    right = torch.stack([best == right_column, scores.argmax(1) == right_column, within == right_column]).double()

    confidence = seen_scores.double().softmax(1).max(1).values
    bins = (confidence * BINS).long().clamp(0, BINS - 1)
    in_bins = torch.stack([torch.ones_like(confidence), confidence, right[0]])

    def add_up(values: Tensor, places: Tensor, size: int) -> Tensor:
        """Sums of the columns of ``values`` that have the same place, one row per row."""
        return torch.zeros(len(values), size, dtype=torch.float64, device=values.device).index_add_(1, places, values)

    hits = add_up(right, part, tasks * outputs)
    # Which task's classes the images of each task are taken for.
    taken_for = task_of_image * tasks + task_of.index_select(0, best)
    confusion = add_up(torch.ones_like(confidence)[None], taken_for, tasks * tasks)
    calibration = add_up(in_bins, bins, BINS)
    read = torch.cat([hits.flatten(), confusion.flatten(), calibration.flatten()]).cpu()
    sizes = [hits.numel(), confusion.numel(), calibration.numel()]
    hits, confusion, calibration = torch.split(read, sizes)

    def by_task(numbers: Tensor) -> list[list[int]]:
        """One number per (task, class), as lists of the classes of each task."""
        table = numbers.view(tasks, outputs).long()
        return [table[task, list(columns)].tolist() for task, columns in enumerate(task_columns)]

    return Counts(
        total=by_task(torch.bincount(parts, minlength=tasks * outputs)),
        correct=dict(zip(OVER, map(by_task, hits.view(len(OVER), -1)), strict=True)),
        confusion=confusion.view(tasks, tasks).long().tolist(),
        calibration=dict(zip(BIN_SUMS, calibration.view(len(BIN_SUMS), BINS).tolist(), strict=True)),
    )


def only(columns: Sequence[int], outputs: int) -> Tensor:
    """What to add to scores so that only these columns can be predicted: 0 there, -inf elsewhere."""
    mask = torch.full((outputs,), float("-inf"))
    mask[list(columns)] = 0.0
    return mask
