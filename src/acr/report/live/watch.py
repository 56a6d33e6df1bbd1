"""Watching runs while they go on: what their events say so far, read a little at a time.

Nothing here raises: folders appear, finish, break and vanish while they are looked at, and each of these is a state.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from acr.config import NOT_PART_OF_IDENTITY
from acr.errors import AcrError, command, printable
from acr.runs.reading import RESULTS, newest_lines, parse_event
from acr.runs.resolve import read_stored_config
from acr.runs.run import Run
from acr.runs.writer import CONFIG, EVENTS
from acr.storage import files

SILENT = 180.0
"""Seconds without an event after which a run is called silent: it may have been killed."""
STATES = ("running", "waiting", "silent", "interrupted", "diverged", "damaged", "finished", "superseded")
"""In the order in which a watcher cares."""


MOST_EVENTS = 200_000
"""Events of a run that are kept in memory: the newest."""
LONGEST_VALUE = 500
"""Characters of a config value that are shown."""
Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Outcome:
    """What the results of a run say about its end."""

    finished: bool
    ended: float
    problem: str
    images: str = ""
    """Digest of the images that it was made from."""


@dataclass
class LiveRun:
    """A run as it stands now."""

    folder: Path
    name: str
    """Path of the folder below the watched one: what tells it from others."""
    values: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    state: str = "waiting"
    reason: str = ""
    updated: float = 0.0
    results: Outcome | None = None
    """None if there are no results yet."""

    @property
    def label(self) -> str:
        """Method and seed."""
        return f"{self.values.get('method', '?')}, seed {self.values.get('seed', '?')}"

    def last(self, kind: str, name: str) -> Any:
        """The newest value of a name in events of a kind."""
        return next((e[name] for e in reversed(self.events) if e.get("event") == kind and name in e), None)

    @property
    def progress(self) -> float:
        """Share of the steps that are taken, 0 to 1."""
        if self.state in ("finished", "superseded"):
            return 1.0
        steps = self.last("start", "steps")
        taken = next((e["taken"] for e in reversed(self.events) if "taken" in e), 0)
        return min(1.0, taken / steps) if isinstance(steps, int | float) and steps else 0.0

    @property
    def stages(self) -> list[dict[str, Any]]:
        """The newest event of every stage, in order."""
        found = {e["stage"]: e for e in self.events if e.get("event") == "stage" and isinstance(e.get("stage"), int)}
        return [found[stage] for stage in sorted(found)]

    @property
    def seconds_left(self) -> float | None:
        """At the pace since the last start; None if it cannot be told."""
        if self.state != "running":
            return None
        begun = next((i for i in range(len(self.events) - 1, -1, -1) if self.events[i].get("event") == "start"), None)
        if begun is None:
            return None
        first, last = self.events[begun], self.events[-1]
        taken = next((e["taken"] for e in reversed(self.events) if "taken" in e), 0) - first.get("taken", 0)
        spent = moment(last) - moment(first)
        left = first.get("steps", 0) - first.get("taken", 0) - taken
        return spent / taken * left if taken > 0 and spent > 0 else None


def moment(event: dict[str, Any]) -> float:
    """When an event was written, in seconds."""
    value = event.get("time")
    return float(value) if isinstance(value, int | float) else 0.0


def why(error: Exception) -> str:
    """What is wrong with a run, for the page."""
    said = str(error) if isinstance(error, AcrError) else f"{type(error).__name__}: {error}"
    return printable(said[:500])


class Watch:
    """Looks at folders of runs again and again, reading only what is new."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = list(folders)
        self._known: dict[Path, tuple[LiveRun, int, int]] = {}
        """Run, how far its events are read, and the file's number, by folder."""
        self._files: dict[Path, tuple[Any, Any]] = {}
        """What files held, and how to tell whether they have changed."""

    def look(self) -> list[LiveRun]:
        """All runs that are there now."""
        found: dict[Path, LiveRun] = {}
        for path, name in self._find():
            try:
                found[path] = self._read(path, name)
            except Exception as error:  # a folder that vanishes or breaks under our eyes is news, not a failure
                broken = LiveRun(path, name, state="damaged", reason=why(error))
                found[path] = broken
                self._known.pop(path, None)
        self._known = {path: known for path, known in self._known.items() if path in found}
        self._files = {file: kept for file, kept in self._files.items() if file.parent in found}
        mark_superseded(found.values())
        return sorted(found.values(), key=lambda run: (STATES.index(run.state), run.name))

    def _find(self) -> Iterable[tuple[Path, str]]:
        """Folders that hold a config, at any depth."""
        for top in self.folders:
            for folder, folders, names in os.walk(top, onerror=None):
                folders[:] = sorted(f for f in folders if f not in ("checkpoint", "wandb", "tensorboard"))
                if CONFIG in names:
                    path = Path(folder)
                    yield path, printable(str(path.relative_to(top)) if path != top else path.name)

    def _read(self, path: Path, name: str) -> LiveRun:
        run, offset, number = self._known.get(path, (LiveRun(path, name), 0, 0))
        run.reason = ""
        run.values = self._parsed(
            path / CONFIG, lambda file: shown_values(read_stored_config(file, of_a_run=True).values)
        )
        events = path / EVENTS
        if os.path.lexists(events):
            with os.fdopen(files.open_regular(events), "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != number or status.st_size < offset:  # another file: begin again
                    run.events, offset, number = [], 0, status.st_ino
                run.updated = status.st_mtime
                run.events += [sane(event) for event in map(parse_event, newest_lines(file, offset)) if event]
                offset = file.tell()
            del run.events[:-MOST_EVENTS]
        else:
            run.events, offset, number = [], 0, 0
        results = path / RESULTS
        run.results = self._parsed(results, outcome) if os.path.lexists(results) else None
        run.state, run.reason = state_of(run)
        self._known[path] = (run, offset, number)
        return run

    def _parsed(self, file: Path, parse: Callable[[Path], Parsed]) -> Parsed:
        """What a file holds; parsed again only if the file has changed."""
        status = os.lstat(file)
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        kept = self._files.get(file)
        if kept is None or kept[0] != stamp:
            self._files[file] = kept = (stamp, parse(file))
        return cast(Parsed, kept[1])


def shown_values(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a config as a page can show them."""
    return {
        printable(name): printable(value[:LONGEST_VALUE]) if isinstance(value, str) else value
        for name, value in values.items()
    }


def outcome(file: Path) -> Outcome:
    """What the results of a run say about its end; they are read whole, so that damage anywhere shows."""
    run = Run(file.parent)
    try:
        run.summary()
        problem = "" if run.finished else f"{RESULTS} is not complete"
        return Outcome(run.finished, run.ended, problem, run.results.data.fingerprint)
    except AcrError as error:
        return Outcome(False, 0.0, printable(str(error)))


def sane(event: dict[str, Any]) -> dict[str, Any]:
    """An event without the values that are not what their name promises; a damaged file can hold anything.

    >>> sane({"event": "step", "taken": "x", "loss": 0.5, "parts": {"0/1": 3, "?": 1}})
    {'event': 'step', 'loss': 0.5, 'parts': {'0/1': 3}}
    """
    kept: dict[str, Any] = {}
    for name, value in event.items():
        if name == "parts":
            if isinstance(value, dict):
                kept[name] = {part: n for part, n in value.items() if PART.fullmatch(part) and is_count(n)}
        elif name == "accuracies":
            if isinstance(value, dict):
                kept[name] = {printable(scenario): row for scenario, row in value.items() if is_row(row)}
        elif name in WHOLE:
            if is_count(value):
                kept[name] = value
        elif isinstance(value, str):
            kept[printable(name)] = printable(value)
        elif value is None or is_number(value):
            kept[printable(name)] = value
    return kept


WHOLE = ("task", "tasks", "epoch", "step", "steps", "taken", "stage", "memory")
"""Names of whole numbers."""
PART = re.compile(r"[0-9]{1,9}/.{0,40}", re.ASCII)
"""The name of a part of the memory: task and class."""


def is_count(value: Any) -> bool:
    """Whether a value is a whole number that counts something."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12


def is_number(value: Any) -> bool:
    """Whether a value is a number that can be shown and sent."""
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) < 1e15


def is_row(value: Any) -> bool:
    """Whether a value is a list of accuracies."""
    return isinstance(value, list) and all(item is None or (is_number(item) and 0 <= item <= 1) for item in value)


def state_of(run: LiveRun) -> tuple[str, str]:
    """One of :data:`STATES`, and a word on it where one is needed."""
    if run.results is not None:
        return ("finished" if run.results.finished else "damaged"), run.results.problem
    if not run.events:
        return "waiting", "no event yet"
    resume = command("acr", "resume", run.folder)
    last = run.events[-1]["event"]
    if last == "interrupted":
        return "interrupted", f"go on with: {resume}"
    if last == "diverged":
        return "diverged", f"its numbers were lost at {run.events[-1].get('where', 'some step')}"
    quiet = time.time() - run.updated
    if quiet > SILENT:
        return "silent", f"no event for {quiet / 60:.0f} minutes; if it was killed: {resume}"
    return "running", ""


def mark_superseded(runs: Iterable[LiveRun]) -> None:
    """Of finished runs with the same config and seed the newest counts; the others are called superseded."""
    newest: dict[str, LiveRun] = {}
    finished = [run for run in runs if run.state == "finished" and run.results is not None]
    for run in sorted(finished, key=lambda run: run.results.ended if run.results else 0.0):
        config = sorted((n, v) for n, v in run.values.items() if n not in NOT_PART_OF_IDENTITY)
        key = repr((run.results.images if run.results else "", config))
        older = newest.get(key)
        if older is not None:
            older.state, older.reason = "superseded", f"{run.name} is a newer run of the same config"
        newest[key] = run
