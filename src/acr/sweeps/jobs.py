"""Jobs: the runs of a sweep, how an attempt at one ended, and what an engine must be able to do with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from acr.config import RunConfig
from acr.runs.writer import folder_name

STOPPING_SECONDS = 120.0
"""How long a run may take to finish its step and save when a sweep is stopped."""


@dataclass
class Job:
    """One run of a sweep."""

    config: RunConfig
    attempts: int = 0
    not_before: float = 0.0
    """Time before which it is not started, by the monotonic clock."""
    started: float = 0.0
    place: Path | None = None
    """The run's folder, if it is not the one that its config names: that one may hold a run on other images."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.place or self.config.out / folder_name(self.config)

    @property
    def name(self) -> str:
        """The name of the run's folder, under which the job is reported."""
        return self.folder.name


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: an exit code as on the command line, and the reason if it is not 0."""

    job: Job
    code: int
    reason: str = ""


class Engine(Protocol):
    """Something that executes jobs."""

    def free(self) -> int:
        """How many jobs can be started now."""
        ...

    def start(self, job: Job) -> None:
        """Start a job."""
        ...

    def poll(self) -> list[Outcome]:
        """The jobs that ended since the last call; does not wait."""
        ...

    def stop(self) -> None:
        """Ask all jobs to save and end, and wait until they have done so."""
        ...
