"""Counts: the outcome of one evaluation, in whole numbers. Every metric is computed from them afterwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, BeforeValidator, ConfigDict, NonNegativeInt, PlainSerializer, model_validator


def _or_nan(value: Any) -> Any:
    return math.nan if value is None else value


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


Figure = Annotated[float, BeforeValidator(_or_nan), PlainSerializer(_or_none, return_type=float | None)]
"""A number that may turn out not to be one, as where the outputs of a network overflow; then null in JSON."""

Over = Literal["seen", "all", "task"]
"""Outputs among which a prediction is made: those of the classes ``seen`` so far (class-incremental), ``all`` outputs,
unseen classes included, or those of the image's own ``task`` (task-incremental)."""
Bin = Literal["count", "confidence", "correct"]
Table = list[list[NonNegativeInt]]
"""One row per task, one number per class of that task."""


class Counts(BaseModel):
    """The outcome of one scenario (clean, or one corruption and severity) at one stage, for tasks 0..stage."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    total: Table
    """Number of test images."""
    correct: dict[Over, Table]
    """Number of images predicted correctly."""
    confusion: Table = []
    """Images of task i (row) predicted as a class of task j (column), over the classes seen."""
    calibration: dict[Bin, list[Figure]]
    """Per bin of confidence, over the classes seen: ``count``, ``confidence`` (sum), ``correct``."""

    @model_validator(mode="after")
    def _shapes_match(self) -> Counts:
        if len(self.correct) < 3 or len(self.calibration) < 3:
            raise ValueError("counts are missing")
        shape = [len(row) for row in self.total]
        if any([len(row) for row in table] != shape for table in self.correct.values()):
            raise ValueError("counts of correct answers and of images do not match")
        if len({len(values) for values in self.calibration.values()}) != 1:
            raise ValueError("bins of confidence do not match")
        return self

    def accuracies(self, over: Over = "seen") -> list[float | None]:
        """The fraction correct on each task; None for a task without images."""
        pairs = zip(self.correct[over], self.total, strict=True)
        return [sum(correct) / sum(total) if sum(total) else None for correct, total in pairs]

    def accuracy(self, over: Over = "seen") -> float:
        """The mean over tasks of the fraction correct; NaN without images."""
        known = [share for share in self.accuracies(over) if share is not None]
        return sum(known) / len(known) if known else float("nan")


def accuracy_matrix(stages: Sequence[Counts | None], over: Over = "seen") -> npt.NDArray[np.float64]:
    """Fractions correct on task j after task i, from the counts of one scenario; NaN where not measured.

    ``stages`` has one entry per task of the stream: what was counted after that task, or None.
    """
    matrix = np.full((len(stages), len(stages)), np.nan)
    for i, counts in enumerate(stages):
        for j, share in enumerate(counts.accuracies(over) if counts is not None else []):
            matrix[i, j] = np.nan if share is None else share
    return matrix
