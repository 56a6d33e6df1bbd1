"""What a run folder holds: the version of its files, and the one model by which ``results.json`` is written and read.

A damaged or foreign file is refused with a reason, never read in part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError, model_validator

from acr.evaluation.counts import Counts, Figure

SCHEMA = 1
"""Version of the files of a run folder; each file states it, and files of other versions are refused."""


class _Part(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class Stage(_Part):
    """What was counted after one task."""

    stage: NonNegativeInt
    """The last task learned, counted from 0."""
    scenarios: dict[str, Counts]
    """``clean``, and ``corruption/severity``: what the network that answers got right."""
    as_trained: dict[str, Counts] = {}
    """The same of the network as trained, where the one that answers has averaged weights; empty otherwise."""
    memory: dict[str, int] = {}
    """Number of stored samples by ``task/class``."""


class Memory(_Part):
    """The memory at the end; every field keeps its default if the method has no memory."""

    size: int = 0
    bytes: int = 0
    side_bytes: int = 0
    """Bytes that the method keeps of past samples outside the memory."""
    per_class: list[int] = []
    per_task: list[int] = []
    cv_classes: Figure = math.nan
    cv_tasks: Figure = math.nan
    """Coefficients of variation in percent: 0 is exact balance."""


class Data(_Part):
    """The data set as it was when the run read it."""

    train: int = 0
    test: int = 0
    mean: list[Figure] = []
    std: list[Figure] = []
    image_shape: list[NonNegativeInt] = []
    """Channels, height, width; empty in runs of earlier versions."""
    fingerprint: str = ""
    """Digest of all images and labels; empty in runs of earlier versions."""
    notes: dict[str, Any] = {}


class Timing(_Part):
    """How long the run took."""

    seconds: float
    ended: float = 0.0
    """When it finished, in seconds since 1970; 0 in results of earlier versions."""


class Results(_Part):
    """The content of ``results.json``."""

    finished: bool
    identity: str = ""
    method: str
    dataset: str
    buffer_size: int
    seed: int
    protocol: str
    quirks: list[str]
    headline: Literal["seen", "all"]
    """The outputs among which predictions for the reported accuracy are made."""
    classes: list[int]
    """Label values in the order of the network's outputs."""
    class_names: list[str] = []
    tasks: list[list[int]] = Field(min_length=1)
    """Label values of each task."""
    data: Data = Data()
    parameters: int = 0
    stages: list[Stage] = Field(min_length=1)
    memory: Memory = Memory()
    facts: dict[str, float] = {}
    """What the method reports about itself (:meth:`acr.methods.method.Method.facts`)."""
    timing: Timing
    summary: dict[str, Any] = {}
    """The figures of :meth:`acr.Run.summary`, for readers without this package; None if one is not known."""

    @model_validator(mode="after")
    def _stages_are_of_the_tasks(self) -> Results:
        for stage in self.stages:
            if stage.stage >= len(self.tasks):
                raise ValueError(f"stage {stage.stage} of {len(self.tasks)} tasks")
            if "clean" not in stage.scenarios:
                raise ValueError(f"stage {stage.stage} has no clean evaluation")
            if stage.as_trained and stage.as_trained.keys() != stage.scenarios.keys():
                raise ValueError(f"stage {stage.stage} has other scenarios for the network as trained")
            counted = (*stage.scenarios.values(), *stage.as_trained.values())
            if any(len(counts.total) > len(self.tasks) for counts in counted):
                raise ValueError("more tasks were evaluated than there are")
        return self

    def to_json(self) -> dict[str, Any]:
        """The content as it is written; unknown numbers are null."""
        content = self.model_dump(mode="json")
        content["memory"] = self.memory.model_dump(mode="json") if self.memory.size else {}
        return content


def read_results(content: Mapping[str, Any]) -> Results:
    """The content of ``results.json`` as a model; if it is invalid, a ``ValueError`` states the reason in one line."""
    try:
        return Results.model_validate(content)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part)[:40] for part in problem["loc"])
        raise ValueError(f"{where or 'it'}: {problem['msg'].removeprefix('Value error, ')[:200]}") from None
