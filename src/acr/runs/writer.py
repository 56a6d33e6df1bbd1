"""Writing a run folder.

``config.yaml``, ``environment.json``, ``events.jsonl`` (append-only, one line per event), ``results.json``,
``memory.npz`` (the final memory), ``confidence.npz`` (mean and variance of every sample), ``checkpoint/``. Every file
is written completely or not at all, states its schema version, and can be read without this package.
"""

from __future__ import annotations

import io
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
import yaml
from filelock import BaseFileLock

from acr._version import __version__
from acr.config import RunConfig
from acr.errors import AcrError, InputError
from acr.runs import limits
from acr.runs.reading import RESULTS, json_text, parse_json
from acr.runs.schema import SCHEMA, Results
from acr.storage import files
from acr.storage.locks import try_lock
from acr.storage.workers import cores

CONFIG, EVENTS, ENVIRONMENT = "config.yaml", "events.jsonl", "environment.json"
LOCK = ".lock"


def folder_name(config: RunConfig) -> str:
    """The name of a run's folder: readable, and unique because it contains the config's identity.

    A config therefore always finds its own folder.
    """
    kind, colon, path = config.dataset.partition(":")
    data = f"{kind}-{Path(path).name}" if colon else kind
    size = f"-b{config.buffer_size}" if config.buffer_size else ""
    return f"{data[:60]}-{config.method}{size}-s{config.seed}-{config.identity()[:10]}"


class Busy(AcrError):
    """Another process is writing this run. Not a failure: a sweep waits and tries again."""

    exit_code = 75  # the system's code for "try again later"


class FolderGone(AcrError):
    """The folder of a run was deleted or moved while the run was writing to it."""


class RunWriter:
    """A run folder being written, by one process at a time."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.config = config
        self._events: IO[bytes] | None = None
        self._folder: tuple[int, int] | None = None
        """What the system knows the folder by: another folder of the same name is not it."""
        self._lock: BaseFileLock | None = None
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        """Called with every event after it is written."""

    @classmethod
    def open(cls, path: Path, config: RunConfig, notes: Mapping[str, Any] | None = None) -> RunWriter:
        """Create the folder if it does not exist, lock it, and write config and environment."""
        folder = cls(path, config)
        try:
            path.mkdir(parents=True, exist_ok=True)
            folder._folder = number_of(path)
            folder._take_lock()
            for left_over in path.glob(".*.part"):  # by a process that was killed while writing
                left_over.unlink()
            files.check_regular(path / CONFIG)
            if not (path / CONFIG).exists():
                header = {"schema": SCHEMA, "revision": config.options.revision}
                text = yaml.safe_dump({**header, **config.flat()}, sort_keys=False)
                files.write_text(path / CONFIG, text)
            folder.write_json(ENVIRONMENT, {**environment(), **(notes or {})})
        except (OSError, ValueError) as error:  # ValueError: a name with a null byte
            folder.close()
            why = getattr(error, "strerror", None) or error
            if isinstance(error, files.NotRegular):
                raise InputError(f"{error.filename} is not used: {why}. Remove it, or choose another --out.") from None
            raise InputError(f"Cannot write to the output folder {path}: {why}. Choose another with --out.") from None
        return folder

    def _take_lock(self) -> None:
        """Allow one writer at a time. The system releases the lock when its process ends, however it ends."""
        self._lock = try_lock(self.path / LOCK)
        if self._lock is None:
            raise Busy(f"{self.path} is being written by {owner(self.path)}. Wait for it, or stop it first.")

    def close(self) -> None:
        """Close the event file and release the lock."""
        if self._events is not None:
            with suppress(OSError):  # a full disk was reported when the line was written
                self._events.close()
        if self._lock is not None:
            self._lock.release()
        self._events = self._lock = None

    def check_there(self) -> None:
        """Raise :class:`FolderGone` if the folder was deleted or moved since it was opened.

        Open files can be written to after they were deleted, and missing folders be made again, so without this check
        a run would go on for hours and leave nothing, or pieces.
        """
        try:
            there = number_of(self.path)
        except OSError:
            there = None
        if there is None or there != self._folder:
            raise FolderGone(
                f"The run folder {self.path} was deleted, moved or replaced while the run was writing to it, so the "
                "run has stopped. If it was moved, resume it where it is now with acr resume; otherwise start it again."
            )

    def event(self, event: str, **values: Any) -> None:
        """Add a line to ``events.jsonl``."""
        self.check_there()
        path = self.path / EVENTS
        if self._events is not None and not os.path.lexists(path):
            self._events.close()  # only this file was deleted: the next line begins a new one
            self._events = None
        if self._events is None:
            self._events = files.append_to(path)
            if not ends_with_newline(self._events):
                self._events.write(b"\n")  # a line that a crash cut off must not swallow the next one
        line = {"event": event, "schema": SCHEMA, "time": round(time.time(), 3), **values}
        self._events.write(json_text(line).encode() + b"\n")
        self._events.flush()
        for listener in self.listeners:
            listener(line)

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write a JSON file, completely or not at all."""
        self.check_there()
        files.write_text(self.path / name, json_text({"schema": SCHEMA, **content}, indent=1) + "\n")

    def write_results(self, results: Results) -> None:
        """Write ``results.json``, the last file of a run: it marks the run as finished."""
        self.write_json(RESULTS, results.to_json())

    def write_arrays(self, name: str, **arrays: np.ndarray[Any, Any]) -> None:
        """Write an ``.npz`` file, completely or not at all."""
        self.check_there()
        buffer = io.BytesIO()
        np.savez_compressed(buffer, schema=np.array(SCHEMA), **arrays)  # type: ignore[arg-type]
        files.write_bytes(self.path / name, buffer.getvalue())


def owner(folder: Path) -> str:
    """The process that writes a run folder, according to its ``environment.json``."""
    try:
        content = parse_json(files.read_bytes(folder / ENVIRONMENT, limits.JSON_BYTES))
        return f"process {int(content['process'])} on {str(content['host'])[:80]}"
    except (OSError, ValueError, LookupError, TypeError):
        return "another process"


def ends_with_newline(file: IO[bytes]) -> bool:
    """Whether the last line of an open file is complete, or it has none."""
    if os.fstat(file.fileno()).st_size == 0:
        return True
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def number_of(folder: Path) -> tuple[int, int]:
    """What the system knows a folder by, whatever its name."""
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def environment() -> dict[str, Any]:
    """Versions and machine, so that a result can be traced."""
    packages = {name: version(name) for name in ("torch", "numpy", "scikit-learn", "pillow")}
    return {
        "acr": __version__,
        "python": platform.python_version(),
        "packages": packages,
        "system": platform.platform(),
        "processor": platform.machine(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "process": os.getpid(),
        "host": platform.node(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }
