"""Where a config's run is, or is to be made: one folder per config and per set of images."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from acr.config import RunConfig
from acr.data.fingerprint import Fingerprint
from acr.data.loading import load_dataset
from acr.errors import InputError
from acr.runs.data_record import recorded_fingerprint, what_changed
from acr.runs.run import Run, attempts, finished_runs
from acr.runs.writer import folder_name


@dataclass(frozen=True)
class Place:
    """Where a run is, or is to be made."""

    folder: Path
    finished: Run | None = None
    """The run, if it is finished."""
    remark: str = ""
    """What a person should know about the images of the runs that are there."""

    def warn(self) -> None:
        """Say what a person should know."""
        if self.remark:
            warnings.warn(self.remark, stacklevel=3)


def find_place(
    config: RunConfig, *, fresh: bool = False, fingerprint: Callable[[RunConfig], Fingerprint] | None = None
) -> Place:
    """The folder of a config's run on its images as they are now; a new one if there is none, or if ``fresh``.

    A run on other images is another run, although its config is the same: it keeps its folder, and the next free name
    (NAME-2, NAME-3, ...) is used. ``fingerprint`` reads the images of a config; callers with many configs may remember
    what it returned. Images are read only if a folder of this name exists.
    """
    base = config.out / folder_name(config)
    older = attempts(base)[::-1]  # the newest first
    free = next_attempt(base)
    if fresh or not older:
        return Place(free if fresh else base)
    finished = finished_runs(base)
    try:
        now = (fingerprint or read_fingerprint)(config)
    except InputError as error:
        if not finished:
            return Place(older[-1])  # to load the data set fails there again, with the same error
        remark = f"{finished[0].folder} is finished, but its images cannot be compared. {error}"
        return Place(finished[0].folder, finished[0], remark)
    begun = [Run(path) for path in older]
    for run in (*finished, *begun):
        # A run that was killed before it had recorded anything has nothing that could be mixed with other images.
        known = recorded_fingerprint(run) or (
            "" if run.finished or (run.folder / "checkpoint").exists() else now.digest
        )
        remark = "" if known else (
            f"{run.folder} was made by a version that kept no record of the images, so it is not known whether they "
            "are still the same."
        )  # fmt: skip
        if known in ("", now.digest):
            return Place(run.folder, run if run.finished else None, remark)
    changed = what_changed(begun[0].folder, now)
    remark = f"{begun[0].folder} is a run on other images: {changed}. This run gets its own folder, {free}."
    return Place(free, remark=remark)


def read_fingerprint(config: RunConfig) -> Fingerprint:
    """The fingerprint of a config's images as they are now."""
    return load_dataset(config.dataset, config).fingerprint


def next_attempt(path: Path) -> Path:
    """The first name that is free: NAME, NAME-2, NAME-3, ..."""
    if not os.path.lexists(path):
        return path
    return next(p for n in count(2) if not os.path.lexists(p := path.with_name(f"{path.name}-{n}")))
