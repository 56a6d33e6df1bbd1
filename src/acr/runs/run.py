"""Reading a run folder: :class:`Run`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from acr.config import RunConfig
from acr.errors import InputError
from acr.evaluation.counts import Over
from acr.runs import summary
from acr.runs.resolve import make_config, read_config_file
from acr.runs.schema import SCHEMA, Results, read_results
from acr.runs.summary import Matrix
from acr.runs.writer import CONFIG, ENVIRONMENT, EVENTS, RESULTS

REPAIR_RESULTS = (
    "Nothing was changed. Move the file away and run acr resume {folder}, which writes it again from the last "
    "checkpoint; or start a new run beside it with --fresh."
)


class Run:
    """A run, finished or not.

    ``run.accuracy["clean"]`` is the T x T accuracy matrix (fractions, NaN where not measured), ``run.accuracy["ood"]``
    the mean over the shifted scenarios, ``run.accuracy["fog/1"]`` one of them. ``run.summary()`` has the figures.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @cached_property
    def values(self) -> dict[str, Any]:
        """The config as it is stored in the folder."""
        return read_config_file(self.folder / CONFIG, of_a_run=True)

    @cached_property
    def config(self) -> RunConfig:
        """The validated config; its method must be installed."""
        return make_config(self.values)

    @cached_property
    def results(self) -> Results:
        """The content of ``results.json``."""
        path = self.folder / RESULTS
        content = read_json(path)
        try:
            return read_results(content)
        except ValueError as problem:
            advice = REPAIR_RESULTS.format(folder=self.folder)
            raise InputError(f"{path} is damaged: {problem}. {advice}") from None

    @cached_property
    def environment(self) -> dict[str, Any]:
        """The content of ``environment.json``: versions and machine."""
        return read_json(self.folder / ENVIRONMENT)

    @property
    def threads(self) -> int | None:
        """The number of CPU threads that the run used last; None if it has not begun or its record cannot be read."""
        try:
            threads = self.environment.get("threads")
        except InputError:
            return None
        return threads if isinstance(threads, int) and 0 < threads < 10_000 else None

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays of an ``.npz`` file of the folder, such as ``memory.npz``; empty if there is no such file."""
        path = self.folder / name
        return read_arrays(path) if path.exists() else {}

    @property
    def finished(self) -> bool:
        """Whether the run has finished."""
        return (self.folder / RESULTS).exists() and self.results.finished

    @cached_property
    def scenarios(self) -> list[str]:
        """``clean`` and the shifted scenarios that were evaluated."""
        return summary.scenarios(self.results)

    def accuracy_over(self, over: Over) -> Mapping[str, Matrix]:
        """Accuracy matrices by scenario, with predictions over the outputs ``seen``, ``all`` or of the ``task``."""
        return summary.accuracy_matrices(self.results, over)

    @cached_property
    def accuracy(self) -> Mapping[str, Matrix]:
        """Accuracy matrices by scenario, with predictions over the outputs that the run's protocol reports."""
        return self.accuracy_over(self.results.headline)

    def calibration_error(self, scenario: str = "clean") -> float:
        """Expected calibration error after the last task, over the classes seen; NaN if it was not measured."""
        return summary.calibration_error(self.results, scenario)

    def mean_corruption_error(self, baseline: Run) -> float:
        """mCE in percent after the last task: 100 is as good as the ``baseline`` run, less is better."""
        return summary.mean_corruption_error(self.results, baseline.results)

    def summary(self, baseline: Run | None = None) -> dict[str, Any]:
        """The figures of the run. Accuracies are fractions; coefficients of variation are in percent.

        With a ``baseline``, another finished run, they include the mean corruption error relative to it.
        """
        return summary.summarise(self.results, None if baseline is None else baseline.results)

    def events(self) -> Iterator[dict[str, Any]]:
        """The events in ``events.jsonl``; a line that a crash cut off, or that is not an event, is skipped."""
        path = self.folder / EVENTS
        if not path.exists():
            return
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    event = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if not isinstance(event, dict) or not isinstance(event.get("event"), str):
                    continue
                if event.get("schema") != SCHEMA:
                    found = str(event.get("schema"))[:20]
                    raise InputError(f"{path} has lines of schema {found}; this version reads schema {SCHEMA}.")
                yield event


def load_run(folder: str | Path) -> Run:
    """Open a run folder."""
    path = Path(folder)
    if not (path / CONFIG).is_file():
        raise InputError(f"{path} is not a run folder: it has no {CONFIG}.")
    return Run(path)


def finished_run(folder: Path) -> Run | None:
    """The run in a folder if it is finished; None if it is not, or if there is no run."""
    run = Run(folder)
    return run if run.finished else None


def find_runs(*folders: str | Path) -> list[Run]:
    """All runs in these folders, at any depth, in the order of their paths."""
    found: dict[Path, None] = {}
    for folder in map(Path, folders):
        if not folder.exists():
            raise InputError(f"{folder} does not exist.")
        found.update(dict.fromkeys(sorted(path.parent for path in folder.rglob(CONFIG))))
    return [Run(path) for path in found]


def read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file of a run folder; an error if its schema is not the one that this version reads."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError):
        advice = " " + REPAIR_RESULTS.format(folder=path.parent) if path.name == RESULTS else ""
        raise InputError(f"{path} is damaged: it is not JSON.{advice}") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = str(content.get("schema"))[:20] if isinstance(content, dict) else None
        raise InputError(f"{path} has schema {found}; this version reads schema {SCHEMA}.")
    return content


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an ``.npz`` file of a run folder, with the same check. Pickled objects are refused."""
    try:
        with np.load(path, allow_pickle=False) as file:
            content = {name: file[name] for name in file.files}
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from None
    except Exception as error:  # zipfile, zlib and numpy each have errors of their own for a damaged file
        why = str(error).partition(".")[0]  # numpy adds how to load unsafe files
        raise InputError(f"{path} is damaged, or not a file of this program: {why}.") from None
    schema = content.pop("schema", None)
    if schema is None or schema.shape != () or schema != SCHEMA:
        raise InputError(f"{path} has schema {str(schema)[:20]}; this version reads schema {SCHEMA}.")
    return content
