"""What a report is about: runs in groups that differ only in their seed, and groups in comparisons.

There is no drawing here. A run that cannot be read, or is not finished, is listed with the reason; it never
keeps the others from being shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from acr.config import NOT_PART_OF_IDENTITY
from acr.errors import AcrError, InputError, command, printable, shown
from acr.report.statistics import Estimate, estimate
from acr.report.style import Look, looks, method_caveat, method_label, method_rank
from acr.report.wording import config_value
from acr.runs.run import Run

Matrix = npt.NDArray[np.float64]

ASIDE = NOT_PART_OF_IDENTITY | {"seed", "schema"}
"""Fields in which the runs of a group may differ."""


@dataclass
class Group:
    """Finished runs of one config, one run per seed."""

    runs: list[Run]
    values: dict[str, Any]
    """The config they share."""
    label: str = ""
    """The method's label, with what sets the group apart where a comparison holds the same method more than once."""
    baseline: Run | None = None
    """The run that the mean corruption error is relative to."""

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.runs[0].results.method)

    @property
    def is_bound(self) -> bool:
        """Whether it saw all tasks at once: an upper bound to hold others against, not one that could come first."""
        results = self.runs[0].results
        return len(results.tasks) > 1 and len(results.stages) == 1

    @property
    def place(self) -> tuple[str, int, str]:
        """Data set, buffer size, protocol."""
        results = self.runs[0].results
        return str(results.dataset), int(results.buffer_size), str(results.protocol)

    @property
    def revision(self) -> int:
        """Revision of the method that made the runs."""
        return self.runs[0].revision

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs."""
        return [int(run.results.seed) for run in self.runs]

    @cached_property
    def summaries(self) -> list[dict[str, Any]]:
        """The runs' own summaries; every number of a report comes from these or from the matrices."""
        return [run.summary(self.baseline if self.comparable(run) else None) for run in self.runs]

    def comparable(self, run: Run) -> bool:
        """Whether a run has a mean corruption error: the baseline knows its data set and all its corruptions."""
        if self.baseline is None or self.baseline.results.dataset != run.results.dataset:
            return False
        return len(run.scenarios) > 1 and set(run.scenarios) <= set(self.baseline.scenarios)

    def estimate(self, name: str) -> Estimate:
        """Mean and interval over the seeds of a number of the summary."""
        return estimate([summary.get(name, float("nan")) for summary in self.summaries])

    @cached_property
    def scenarios(self) -> list[str]:
        """``clean`` and the shifted scenarios that any of the runs has."""
        return list(dict.fromkeys(name for run in self.runs for name in run.scenarios))

    def matrices(self, scenario: str) -> list[Matrix]:
        """Accuracy matrices of the runs that have the scenario."""
        return [run.accuracy[scenario] for run in self.runs if scenario in run.accuracy]

    def estimates(self, scenario: str, reduce: Callable[[Matrix], Any]) -> list[Estimate]:
        """A row of numbers computed from each run's matrix by ``reduce``, each with its mean over the seeds."""
        rows = [np.atleast_1d(reduce(matrix)) for matrix in self.matrices(scenario)]
        return [estimate(column) for column in np.array(rows).T.tolist()] if rows else []

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.runs[0].results.tasks)

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, in the order they arrive."""
        return [str(name) for name in self.runs[0].results.class_names]


@dataclass(frozen=True)
class Comparison:
    """Groups that may be compared: the same data set, buffer size and protocol."""

    key: str
    dataset: str
    buffer_size: int
    protocol: str
    groups: list[Group]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.dataset} · {self.buffer_in_words} · {self.protocol}"

    @property
    def buffer_in_words(self) -> str:
        """The buffer size for people."""
        return f"buffer {self.buffer_size}" if self.buffer_size else "no memory"

    @property
    def contenders(self) -> list[Group]:
        """The groups among which one can come first: those that learned task by task."""
        return [group for group in self.groups if not group.is_bound]

    @cached_property
    def scenarios(self) -> list[str]:
        """Scenarios that any group has; ``clean`` first, then ``ood``, their mean, where there is shift."""
        names = list(dict.fromkeys(name for group in self.groups for name in group.scenarios))
        shifted = [name for name in names if name != "clean"]
        return ["clean", *(["ood", *shifted] if shifted else [])]


@dataclass(frozen=True)
class Problem:
    """A run that is listed only."""

    folder: Path
    state: str
    """``unfinished``, ``damaged`` or ``superseded``."""
    reason: str


@dataclass
class Gathered:
    """Everything a report shows."""

    groups: list[Group] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def runs(self) -> list[Run]:
        """The runs that are shown."""
        return [run for group in self.groups for run in group.runs]

    @property
    def labels(self) -> list[str]:
        """All labels, in the order of the groups."""
        return list(dict.fromkeys(group.label for group in self.groups))

    @property
    def looks(self) -> dict[str, Look]:
        """How each label is drawn."""
        return looks((group.label, group.method) for group in self.groups)


def gather(runs: Sequence[Run], baseline: Run | None = None) -> Gathered:
    """Read the runs and put them in order.

    With a ``baseline``, another finished run, every run on its data set gets its mean corruption error against it.
    """
    if baseline is not None:
        check_baseline(baseline)
    gathered = Gathered()
    found: dict[str, dict[int, Run]] = {}
    values: dict[str, dict[str, Any]] = {}
    for run in runs:
        try:
            problem = check(run)
            if problem is None:
                config = {name: value for name, value in run.values.items() if name not in ASIDE}
                if (
                    ":" in run.results.dataset and run.results.data.fingerprint
                ):  # somebody's own images, which may change
                    config["images"] = run.results.data.fingerprint[:8]
                # A method that has changed is not averaged with what it was before.
                key = repr((run.revision, sorted(config.items(), key=lambda item: item[0])))
                seed = int(run.results.seed)
                problem = unlike(run, next(iter(found.get(key, {}).values()), None))
                if problem is None:
                    values[key] = config
                    twin = found.setdefault(key, {}).get(seed)
                    newest = run if twin is None or age(run) > age(twin) else twin
                    found[key][seed] = newest
                    if twin is not None:
                        problem = superseded(twin if newest is run else run, newest)
        except Exception as error:  # whatever a damaged folder brings, the others are shown
            problem = Problem(run.folder, "damaged", reason(error))
        if problem is not None:
            gathered.problems.append(problem)
    for key, by_seed in found.items():
        gathered.groups.append(Group([by_seed[seed] for seed in sorted(by_seed)], values[key], baseline=baseline))
    gathered.groups.sort(key=lambda group: (*order(group.place), method_rank(group.method)))
    name_groups(gathered.groups)
    gathered.comparisons = make_comparisons(gathered.groups)
    return gathered


def age(run: Run) -> tuple[float, int]:
    """What decides which of two runs of a config is newer: when it ended, then its number (the longer name)."""
    return run.ended, len(str(run.folder))


def superseded(run: Run, by: Run) -> Problem:
    """An older run of the same config and seed as one that is counted."""
    return Problem(run.folder, "superseded", f"{by.folder.name}, a newer run of the same config and seed, is counted")


def unlike(run: Run, other: Run | None) -> Problem | None:
    """A problem if a run claims the config of ``other``, but learned other tasks: their numbers cannot be averaged."""
    if other is None or run.results.tasks == other.results.tasks:
        return None
    return Problem(run.folder, "damaged", f"its tasks are not those of {other.folder.name}, which has the same config")


def check_baseline(run: Run) -> None:
    """Refuse a baseline that has no errors under shift to compare with."""
    if not run.finished:
        resume = command("acr", "resume", run.folder)
        raise InputError(f"The baseline {run.folder} is not finished. Resume it with: {resume}")
    if len(run.scenarios) < 2:
        raise InputError(f"The baseline {run.folder} was not evaluated under shift (--ood-every never).")


def order(place: tuple[str, int, str]) -> tuple[str, str, bool, int]:
    """The order of places in tables: by data set, protocol and buffer size, methods without memory last."""
    dataset, size, protocol = place
    return dataset, protocol, size == 0, size


def check(run: Run) -> Problem | None:
    """What keeps a run from being shown, if anything does. Raises what a damaged folder raises."""
    _ = run.values
    if run.finished:
        run.summary()
        return None
    events = list(run.events())
    stages = [event for event in events if event.get("event") == "stage"]
    last = events[-1].get("event") if events else None
    done = f"{len(stages)} tasks evaluated" if stages else "no task finished"
    how = {"interrupted": "interrupted", "diverged": "its loss diverged"}.get(str(last), "still running, or stopped")
    return Problem(run.folder, "unfinished", f"{how}; {done}")


def reason(error: Exception) -> str:
    """An error as a short clause."""
    if isinstance(error, AcrError):
        return printable(str(error))
    if isinstance(error, KeyError):
        return f"a part is missing: {shown(error.args[0] if error.args else '')}"
    return f"{type(error).__name__}: {printable(str(error)[:300])}"


def name_groups(groups: Sequence[Group]) -> None:
    """Label every group; where a place has a method more than once, the label says how the group differs."""
    for group in groups:
        twins = [other for other in groups if (other.method, other.place) == (group.method, group.place)]
        fields = [name for name in group.values if any(t.values.get(name) != group.values[name] for t in twins)]
        fields += [name for t in twins for name in t.values if name not in group.values]
        parts = [f"{name.replace('_', ' ')} {config_value(group.values.get(name))}" for name in dict.fromkeys(fields)]
        caveat = method_caveat(group.method, group.values)
        parts += [caveat] if caveat not in ("", *parts) else []
        if any(twin.revision != group.revision for twin in twins):
            parts.append(f"revision {group.revision}")
        group.label = ", ".join([method_label(group.method), *parts])


def make_comparisons(groups: Sequence[Group]) -> list[Comparison]:
    """The comparisons. A method without memory is part of every comparison of its data set and protocol."""
    places = sorted({group.place for group in groups})
    with_memory = [place for place in places if place[1]]
    alone = [p for p in places if not p[1] and not any((q[0], q[2]) == (p[0], p[2]) for q in with_memory)]
    comparisons: list[Comparison] = []
    for dataset, size, protocol in sorted([*with_memory, *alone], key=order):
        members = [g for g in groups if g.place in ((dataset, size, protocol), (dataset, 0, protocol))]
        members.sort(key=lambda group: method_rank(group.method))
        comparisons.append(Comparison(f"s{len(comparisons)}", dataset, size, protocol, members))
    return comparisons
