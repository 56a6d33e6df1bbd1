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

BINS = 15
"""Number of bins of predicted confidence, of equal width, for calibration."""
BATCH = 500
"""Images per forward pass."""


def evaluate(logits: Callable[[Tensor], Tensor], scenario: Scenario, stream: TaskStream, stage: int) -> Counts:
    """Count what is right on the test images of tasks 0..stage under one scenario.

    ``logits`` maps images to scores, one column per class of the stream.
    """
    tasks = range(stage + 1)
    positions = np.concatenate([stream.test_positions[task] for task in tasks])
    image_tasks = torch.cat([torch.full((len(stream.test_positions[task]),), task) for task in tasks])
    column = {label: i for i, label in enumerate(stream.classes)}
    targets = torch.tensor([column[int(label)] for label in stream.data.test.labels[positions]], dtype=torch.int64)
    columns = [stream.columns(task) for task in tasks]
    seen = sorted({c for task in columns for c in task})
    return count(predict(logits, scenario, positions, stage), targets, image_tasks, columns, seen)


@torch.inference_mode()
def predict(logits: Callable[[Tensor], Tensor], scenario: Scenario, positions: Positions, stage: int) -> Tensor:
    """Scores of the images at these positions of the test set, on the CPU."""
    parts = [positions[start : start + BATCH] for start in range(0, len(positions), BATCH)]
    return torch.cat([logits(scenario.images(part, stage)).float().cpu() for part in parts])


def count(
    scores: Tensor, targets: Tensor, image_tasks: Tensor, task_columns: Sequence[Sequence[int]], seen: Sequence[int]
) -> Counts:
    """Count right answers.

    Args:
        scores: one row per image, one column per output.
        targets: the right column of each image.
        image_tasks: the task of each image.
        task_columns: the columns of each task that is evaluated.
        seen: the columns of the classes seen so far.
    """
    outputs = scores.shape[1]
    among_seen = masked(scores, seen)
    best_seen = among_seen.argmax(1)
    right: dict[Over, Tensor] = {"seen": best_seen == targets, "all": scores.argmax(1) == targets}
    # Task-incremental: the best among the outputs of the image's own task.
    within = torch.zeros(len(scores), dtype=torch.int64)
    for task, columns in enumerate(task_columns):
        rows = image_tasks == task
        within[rows] = masked(scores[rows], columns).argmax(1)
    right["task"] = within == targets

    # Images and right answers, per task and class.
    total: list[list[int]] = []
    correct: dict[Over, list[list[int]]] = {name: [] for name in right}
    for task, columns in enumerate(task_columns):
        chosen = [(image_tasks == task) & (targets == column) for column in columns]
        total.append([int(rows.sum()) for rows in chosen])
        for name, hits in right.items():
            correct[name].append([int(hits[rows].sum()) for rows in chosen])

    # Which task's classes the images of each task are taken for.
    task_of = torch.full((outputs,), -1)
    for task, columns in enumerate(task_columns):
        task_of[list(columns)] = task
    confusion = torch.zeros(len(task_columns), len(task_columns), dtype=torch.int64)
    confusion.index_put_((image_tasks, task_of[best_seen]), torch.tensor(1), accumulate=True)
    calibration = calibration_bins(among_seen, right["seen"])
    return Counts(total=total, correct=correct, confusion=confusion.tolist(), calibration=calibration)


def masked(scores: Tensor, columns: Sequence[int]) -> Tensor:
    """Scores in which all other columns are -inf, so that they cannot be predicted."""
    mask = torch.full((scores.shape[1],), float("-inf"))
    mask[list(columns)] = 0.0
    return scores + mask


def calibration_bins(scores: Tensor, right: Tensor) -> dict[Bin, list[float]]:
    """Per bin of predicted confidence: number of images, sum of confidences, number of right answers."""
    confidence = scores.double().softmax(1).max(1).values
    place = (confidence * BINS).long().clamp(0, BINS - 1)
    sums: dict[Bin, list[float]] = {}
    columns: dict[Bin, Tensor] = {"count": torch.ones_like(confidence), "confidence": confidence, "correct": right}
    for name, values in columns.items():
        sums[name] = torch.zeros(BINS, dtype=torch.float64).index_add_(0, place, values.double()).tolist()
    return sums
