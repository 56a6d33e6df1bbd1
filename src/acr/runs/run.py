"""Reading a run folder: :class:`Run`."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from acr import extensions
from acr.config import RunConfig
from acr.errors import InputError, printable, shown
from acr.evaluation.counts import Over
from acr.runs import summary
from acr.runs.notebook import html_table, percent, to_frame
from acr.runs.reading import RESULTS, newest_lines, parse_event, read_arrays, read_json, repair
from acr.runs.resolve import StoredConfig, make_config, read_stored_config
from acr.runs.schema import SCHEMA, Results, read_results
from acr.runs.summary import Matrix
from acr.runs.writer import CONFIG, ENVIRONMENT, EVENTS
from acr.storage import files

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure

    from acr.learner import ContinualClassifier

MOST_SITTINGS = 1000
"""Sittings of a run whose number of threads is remembered."""


class Run:
    """A run, finished or not.

    ``run.accuracy["clean"]`` is the T x T accuracy matrix (fractions, NaN where not measured), ``run.accuracy["ood"]``
    the mean over the shifted scenarios, ``run.accuracy["fog/1"]`` one of them. ``run.summary()`` has the figures.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __repr__(self) -> str:
        try:
            what = f"{self.values['method']} on {self.values['dataset']}, seed {self.values['seed']}"
            figures = self.summary() if self.finished else None
        except (LookupError, TypeError, ValueError):  # an object that cannot be read must still be printable
            return f"Run({str(self.folder)!r})"
        result = "not finished" if figures is None else f"ACC {percent(figures['acc'])} %"
        if figures is not None and "ood_acc" in figures:
            result += f", shifted {percent(figures['ood_acc'])} %"
        return printable(f"Run({what}: {result}; {str(self.folder)!r})")

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        try:
            return html_table(self.values, self.summary() if self.finished else None, str(self.folder))
        except (LookupError, TypeError, ValueError):
            return f"<code>{escape(printable(repr(self)))}</code>"

    @cached_property
    def values(self) -> dict[str, Any]:
        """The config as it is stored in the folder, in today's terms."""
        return self._stored.values

    @property
    def revision(self) -> int:
        """The revision of the method that made the run; see :class:`acr.config.MethodOptions`."""
        return self._stored.revision or 1

    @cached_property
    def _stored(self) -> StoredConfig:
        return read_stored_config(self.folder / CONFIG, of_a_run=True)

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
            raise InputError(f"{path} is damaged: {problem}. {repair(self.folder)}") from None

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

    @property
    def threads_before(self) -> list[int]:
        """The numbers of CPU threads of all sittings of the run so far, as far as they are recorded."""
        try:
            kept = self.environment.get("threads_of_sittings")
        except InputError:
            return []
        known = [n for n in kept[-MOST_SITTINGS:] if isinstance(n, int)] if isinstance(kept, list) else []
        return known or [n for n in (self.threads,) if n is not None]

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays of an ``.npz`` file of the folder, such as ``memory.npz``; empty if there is no such file."""
        path = self.folder / name
        return read_arrays(path) if os.path.lexists(path) else {}

    @property
    def finished(self) -> bool:
        """Whether the run has finished."""
        return os.path.lexists(self.folder / RESULTS) and self.results.finished

    @cached_property
    def ended(self) -> float:
        """When the run finished, in seconds since 1970; in earlier versions, when its results were written."""
        return self.results.timing.ended or (self.folder / RESULTS).lstat().st_mtime

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

    @cached_property
    def accuracy_as_trained(self) -> Mapping[str, Matrix]:
        """As ``accuracy``, of the network as trained, in a run that answers with averaged weights; empty in others."""
        return summary.accuracy_matrices(self.results, self.results.headline, as_trained=True)

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

    def to_frame(self) -> DataFrame:
        """The counts as a pandas table: one row per stage, scenario and task, both counted from 0.

        Its columns are ``method``, ``dataset``, ``buffer_size``, ``seed`` and ``protocol`` (the same in every row, so
        that the tables of several runs can be put together), ``stage``, ``scenario``, ``corruption``, ``severity``,
        ``task``, ``weights``, ``total``, ``correct``, ``accuracy``, and ``correct_seen``, ``correct_all`` and
        ``correct_task``: see :func:`acr.runs.notebook.count_rows`. pandas is not installed with this package.
        """
        return to_frame(self.results)

    def plot(self, kind: str = "stages", scenario: str = "clean") -> Figure:
        """A chart of the finished run, as a plotly figure, which a notebook shows.

        Args:
            kind: ``stages`` (accuracy after every task, clean and shifted), ``tasks`` (accuracy and forgetting task by
                task), ``matrix``, ``confusion`` (between tasks), ``corruptions`` (accuracy under each), ``classes``
                (accuracy after every task), ``memory`` (samples stored per class), ``confidence`` or ``training``
                (loss, throughput and memory step by step).
            scenario: the images of ``matrix`` and ``confusion``: ``clean``, ``ood``, or one such as ``fog/1``.
        """
        return extensions.call("plot", self, kind, scenario)

    def classifier(self, device: str = "auto", network: str | None = None) -> ContinualClassifier:
        """What the finished run has learned, as a classifier that can be asked, saved and taught more.

        Args:
            device: where the classifier computes.
            network: the function that makes the encoder, for a run with an encoder of one's own. A folder never
                decides which code is run.
        """
        return extensions.call("classifier", self, device, network)

    def events(self) -> Iterator[dict[str, Any]]:
        """The events in ``events.jsonl``; a line that a crash cut off, or that is not an event, is skipped.

        Of a file that is longer than :data:`acr.runs.limits.EVENTS_BYTES`, the newest part is read.
        """
        path = self.folder / EVENTS
        if not os.path.lexists(path):
            return
        try:
            with os.fdopen(files.open_regular(path), "rb") as file:
                for event in filter(None, map(parse_event, newest_lines(file, torn=True))):
                    if event.get("schema") != SCHEMA:
                        found = shown(event.get("schema"), 20)
                        raise InputError(f"{path} has lines of schema {found}; this version reads schema {SCHEMA}.")
                    yield event
        except OSError as error:
            raise InputError(f"Cannot read {path}: {error.strerror}.") from None


def load_run(folder: str | Path) -> Run:
    """Open a run folder."""
    path = Path(folder)
    if not (path / CONFIG).is_file():
        raise InputError(f"{path} is not a run folder: it has no {CONFIG}.")
    return Run(path)


def load_runs(folder: str | Path) -> list[Run]:
    """All runs below a folder, at any depth, in the order of their paths, finished (``run.finished``) or not.

    Those that are damaged are left out, with a warning that names them and says what is wrong.
    """
    readable: list[Run] = []
    damaged: list[str] = []
    for run in find_runs(folder):
        try:
            _ = run.values
            if run.finished:
                run.summary()
            readable.append(run)
        except Exception as error:  # whatever a damaged folder brings, the others can be read
            damaged.append(f"\n  {run.folder}: {' '.join((str(error) or type(error).__name__).split())[:300]}")
    if damaged:
        warnings.warn(printable(f"{len(damaged)} damaged run(s) left out:{''.join(damaged)}"), stacklevel=2)
    return readable


def attempts(folder: Path) -> list[Path]:
    """The folders of all runs of one config: ``folder`` and those that ``--fresh`` made beside it, oldest first."""
    later = re.compile(re.escape(folder.name) + r"-([1-9][0-9]{0,8})", re.ASCII)
    numbers: dict[int, Path] = {1: folder} if (folder / CONFIG).exists() else {}
    with suppress(OSError):
        for path in folder.parent.iterdir():
            if (match := later.fullmatch(path.name)) and (path / CONFIG).exists():
                numbers[int(match[1])] = path
    return [numbers[number] for number in sorted(numbers)]


def finished_runs(folder: Path) -> list[Run]:
    """The finished runs of the config whose folder this is, the newest first: that one counts, the others are history.

    Runs that are damaged are passed over as long as another has finished; if none has, the first one's error is raised.
    """
    finished: list[tuple[float, int, Run]] = []
    problems: list[InputError] = []
    for place, path in enumerate(attempts(folder)):
        run = Run(path)
        try:
            if run.finished:
                finished.append((run.ended, place, run))
        except InputError as problem:
            problems.append(problem)
    if problems and not finished:
        raise problems[0]
    return [run for *_, run in sorted(finished, key=lambda found: found[:2], reverse=True)]


def finished_run(folder: Path) -> Run | None:
    """The run that counts for the config whose folder this is: its newest finished one; None if there is none."""
    return next(iter(finished_runs(folder)), None)


def successor(run: Run) -> Run | None:
    """The newer finished run of the same config beside a finished run, if there is one: that one counts."""
    name = re.sub(r"-[1-9][0-9]{0,8}$", "", run.folder.name)
    for first in (run.folder, run.folder.with_name(name)):
        newest = finished_run(first) if (first / CONFIG).exists() else None
        if newest is not None and newest.folder != run.folder and same_run(newest, run):
            return newest
    return None


def same_run(first: Run, second: Run) -> bool:
    """Whether two finished runs have the same config, as far as results depend on it, and the same images.

    Runs of earlier versions, which kept no record of their images, are taken to be.
    """
    images = {run.results.data.fingerprint for run in (first, second)} - {""}
    return bool(first.results.identity) and first.results.identity == second.results.identity and len(images) < 2


def find_runs(*folders: str | Path) -> list[Run]:
    """All runs in these folders, at any depth, in the order of their paths."""
    found: dict[Path, None] = {}
    for folder in map(Path, folders):
        if not folder.exists():
            raise InputError(f"{folder} does not exist.")
        found.update(dict.fromkeys(sorted(path.parent for path in folder.rglob(CONFIG))))
    return [Run(path) for path in found]
