"""Watching runs while they go on: what their events say so far, read a little at a time.

Nothing here raises: folders appear, finish, break and vanish while they are looked at, and each of these is a state.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from acr.runs.resolve import read_config_file
from acr.runs.writer import CONFIG, EVENTS, RESULTS

SILENT = 180.0
"""Seconds without an event after which a run is called silent: it may have been killed."""
STATES = ("running", "waiting", "silent", "interrupted", "diverged", "damaged", "finished")
"""In the order in which a watcher cares."""


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
        if self.state == "finished":
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


class Watch:
    """Looks at folders of runs again and again, reading only what is new."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = list(folders)
        self._known: dict[Path, tuple[LiveRun, int, int]] = {}
        """Run, how far its events are read, and the file's number, by folder."""

    def look(self) -> list[LiveRun]:
        """All runs that are there now."""
        found: dict[Path, LiveRun] = {}
        for path, name in self._find():
            try:
                found[path] = self._read(path, name)
            except Exception as error:  # a folder that vanishes or breaks under our eyes is news, not a failure
                broken = LiveRun(path, name, state="damaged", reason=f"{type(error).__name__}: {error}")
                found[path] = broken
                self._known.pop(path, None)
        self._known = {path: known for path, known in self._known.items() if path in found}
        return sorted(found.values(), key=lambda run: (STATES.index(run.state), run.name))

    def _find(self) -> Iterable[tuple[Path, str]]:
        """Folders that hold a config, at any depth."""
        for top in self.folders:
            for folder, folders, names in os.walk(top, onerror=None):
                folders[:] = sorted(f for f in folders if f not in ("checkpoint", "wandb", "tensorboard"))
                if CONFIG in names:
                    path = Path(folder)
                    yield path, str(path.relative_to(top)) if path != top else path.name

    def _read(self, path: Path, name: str) -> LiveRun:
        run, offset, number = self._known.get(path, (LiveRun(path, name), 0, 0))
        events = path / EVENTS
        run.reason = ""
        run.values = read_config_file(path / CONFIG)
        if events.exists():
            status = events.stat()
            if status.st_ino != number or status.st_size < offset:  # another file: begin again
                run.events, offset, number = [], 0, status.st_ino
            run.updated = status.st_mtime
            with open(events, "rb") as file:
                file.seek(offset)
                text = file.read()
            whole = text.rfind(b"\n") + 1  # a line that is still being written waits for the next look
            run.events += parsed(text[:whole])
            offset += whole
        else:
            run.events, offset, number = [], 0, 0
        run.state, run.reason = state_of(run)
        self._known[path] = (run, offset, number)
        return run


def parsed(text: bytes) -> list[dict[str, Any]]:
    """The events in these lines; what is not an event is passed over."""
    found = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            found.append(sane(event))
    return found


def sane(event: dict[str, Any]) -> dict[str, Any]:
    """An event without the values that are not what their name promises; a damaged file can hold anything.

    >>> sane({"event": "step", "taken": "x", "loss": 0.5, "parts": {"0/1": 3, "?": 1}})
    {'event': 'step', 'loss': 0.5, 'parts': {'0/1': 3}}
    """
    kept: dict[str, Any] = {}
    for name, value in event.items():
        if name == "parts" and isinstance(value, dict):
            pairs = [(part, n) for part, n in value.items() if isinstance(n, int)]
            kept[name] = {part: n for part, n in pairs if part.partition("/")[0].isdigit()}
        elif name == "accuracies" and isinstance(value, dict):
            kept[name] = {scenario: row for scenario, row in value.items() if is_row(row)}
        elif name in WHOLE:
            if isinstance(value, int) and value >= 0:
                kept[name] = value
        elif isinstance(value, str | int | float) or value is None:
            kept[name] = value
    return kept


WHOLE = ("task", "tasks", "epoch", "step", "steps", "taken", "stage", "memory")
"""Names of whole numbers."""


def is_row(value: Any) -> bool:
    """Whether a value is a list of accuracies."""
    return isinstance(value, list) and all(item is None or isinstance(item, int | float) for item in value)


def state_of(run: LiveRun) -> tuple[str, str]:
    """One of :data:`STATES`, and a word on it where one is needed."""
    results = run.folder / RESULTS
    if results.exists():
        try:
            content = json.loads(results.read_bytes())
            if isinstance(content, dict) and content.get("finished") and content.get("stages"):
                return "finished", ""
        except (OSError, ValueError):
            pass
        return "damaged", f"{RESULTS} cannot be read"
    if not run.events:
        return "waiting", "no event yet"
    last = run.events[-1]["event"]
    if last == "interrupted":
        return "interrupted", f"go on with: acr resume {run.folder}"
    if last == "diverged":
        return "diverged", f"the loss was lost at {run.events[-1].get('where', 'some step')}"
    quiet = time.time() - run.updated
    if quiet > SILENT:
        return "silent", f"no event for {quiet / 60:.0f} minutes; if it was killed: acr resume {run.folder}"
    return "running", ""
