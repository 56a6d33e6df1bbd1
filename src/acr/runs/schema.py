"""What ``results.json`` must hold for its figures to be computed. A damaged file is refused with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, NonNegativeInt, ValidationError, model_validator

Table = list[list[NonNegativeInt]]


class _Counts(BaseModel):
    total: Table
    correct: dict[Literal["seen", "all", "task"], Table]
    calibration: dict[Literal["count", "confidence", "correct"], list[float]]

    @model_validator(mode="after")
    def _shapes(self) -> _Counts:
        if len(self.correct) < 3 or len(self.calibration) < 3:
            raise ValueError("counts are missing")
        shape = [len(row) for row in self.total]
        if any([len(row) for row in table] != shape for table in self.correct.values()):
            raise ValueError("counts of right answers and of images do not match")
        if len({len(values) for values in self.calibration.values()}) != 1:
            raise ValueError("bins of confidence do not match")
        return self


class _Stage(BaseModel):
    stage: NonNegativeInt
    scenarios: dict[str, _Counts]


class _Memory(BaseModel):
    cv_classes: float = 0.0
    cv_tasks: float = 0.0


class _Timing(BaseModel):
    seconds: float


class _Results(BaseModel):
    finished: bool
    method: str
    dataset: str
    buffer_size: int
    seed: int
    protocol: str
    quirks: list[str]
    headline: Literal["seen", "all"]
    classes: list[int]
    class_names: list[str] = []
    tasks: list[list[int]] = Field(min_length=1)
    stages: list[_Stage] = Field(min_length=1)
    memory: _Memory
    timing: _Timing

    @model_validator(mode="after")
    def _stages_are_of_the_tasks(self) -> _Results:
        for stage in self.stages:
            if stage.stage >= len(self.tasks):
                raise ValueError(f"stage {stage.stage} of {len(self.tasks)} tasks")
            if "clean" not in stage.scenarios:
                raise ValueError(f"stage {stage.stage} has no clean evaluation")
            if any(len(counts.total) > len(self.tasks) for counts in stage.scenarios.values()):
                raise ValueError("more tasks were evaluated than there are")
        return self


def results_problem(content: Mapping[str, Any]) -> str | None:
    """What is wrong with the content of ``results.json``, in one line; None if nothing is."""
    try:
        _Results.model_validate(content)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part)[:40] for part in problem["loc"])
        return f"{where or 'it'}: {problem['msg'].removeprefix('Value error, ')[:200]}"
    return None
