"""A sweep: many runs, executed by an engine until each has finished or has failed for good.

Finished runs are found and not repeated, so a sweep that was stopped or killed resumes when it is started again. A run
that fails is retried from its last checkpoint, and reported if it fails again; the other runs continue.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from acr.config import RunConfig
from acr.data.fingerprint import Fingerprint
from acr.data.loading import load_dataset
from acr.errors import AcrError, InputError
from acr.runs.places import Place, find_place, read_fingerprint
from acr.runs.resolve import placed
from acr.runs.run import Run, finished_runs, load_run, same_run
from acr.runs.writer import Busy, folder_name
from acr.storage.signals import StopSignal
from acr.sweeps.engines import LocalEngine
from acr.sweeps.jobs import Engine, Job, Outcome

POLL_SECONDS = 0.1
BUSY_SECONDS = 2.0
"""Pause before another attempt at a run that another process is writing."""
BAD_INPUT = InputError.exit_code
"""Exit code of an attempt that would fail in the same way again."""


class Stopped(AcrError):
    """A signal ended the sweep; every run has saved its work."""

    def __init__(self, number: int) -> None:
        super().__init__("Stopped; every run has saved its work. Run the same command again to resume.")
        self.exit_code = 128 + number


@dataclass
class SweepState:
    """The state of a sweep."""

    jobs: list[Job]
    found: list[Job] = field(default_factory=list)
    """Runs that were already finished."""
    done: list[Job] = field(default_factory=list)
    """Runs that this sweep finished."""
    running: list[Job] = field(default_factory=list)
    failed: list[Outcome] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Wall-clock times of the runs that this sweep finished, by kind."""

    @property
    def left(self) -> int:
        """Number of runs that have neither finished nor failed."""
        return len(self.jobs) - len(self.found) - len(self.done) - len(self.failed)

    def seconds_left(self, at_a_time: int) -> float | None:
        """Estimated time left, from the times of runs of the same kind; None before any run has finished.

        ``at_a_time`` is the number of runs at a time.
        """
        known = [value for values in self.seconds.values() for value in values]
        if not known:
            return None
        over = {id(job) for job in (*self.found, *self.done, *(outcome.job for outcome in self.failed))}
        total, now = 0.0, time.monotonic()
        for job in self.jobs:
            if id(job) not in over:
                own = self.seconds.get(kind(job), known)  # without runs of its kind, all runs
                expected = sum(own) / len(own)
                total += max(0.0, expected - (now - job.started)) if job in self.running else expected
        return total / max(1, at_a_time)


class Watcher(Protocol):
    """Shows the progress of a sweep."""

    def update(self, state: SweepState) -> None:
        """Show the current state."""
        ...

    def say(self, line: str) -> None:
        """Show a message."""
        ...


class Silent:
    """Shows nothing."""

    def update(self, state: SweepState) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""


def kind(job: Job) -> str:
    """The kind of a run; runs of one kind take about the same time."""
    return f"{job.config.method}/{job.config.dataset}/{job.config.width}"


def is_finished(job: Job) -> bool:
    """Whether the job's folder holds a finished run."""
    return Run(job.folder).finished


def superseded(jobs: Iterable[Job]) -> list[tuple[Run, Run]]:
    """Finished runs of these jobs that are not counted, each with the newer one that is."""
    pairs = []
    for job in jobs:
        counted = load_run(job.folder)
        others = finished_runs(job.config.out / folder_name(job.config))
        pairs += [(run, counted) for run in others if run.folder != counted.folder and same_run(run, counted)]
    return pairs


def run_sweep(
    configs: Sequence[RunConfig],
    engine: Engine,
    retries: int = 1,
    watcher: Watcher | None = None,
    on_done: Callable[[Job], None] | None = None,
) -> SweepState:
    """Execute all runs that are not finished. A signal stops them cleanly and raises :class:`Stopped`.

    Args:
        configs: the runs.
        engine: what executes them.
        retries: how often a run that failed is tried again.
        watcher: shows progress; by default nothing is shown.
        on_done: called for every finished run, including those that were finished before.
    """
    watcher = watcher or Silent()
    state = SweepState(find_jobs(configs))
    pending: deque[Job] = deque()
    for job in state.jobs:
        try:
            (state.found if is_finished(job) else pending).append(job)
        except AcrError as error:  # a damaged folder concerns its own run only
            state.failed.append(Outcome(job, BAD_INPUT, str(error)))
            watcher.say(f"{job.name} failed: {error}")
    if on_done:
        for job in state.found:
            on_done(job)
    with StopSignal() as asked:
        try:
            # Data sets are loaded before any run starts: runs without data fail at once, and nothing is decoded twice.
            for outcome in missing_data([job for job in pending if not job.folder.exists()]):
                state.failed.append(outcome)
                pending.remove(outcome.job)
            while (pending or state.running) and asked.received is None:
                start_jobs(pending, state, engine)
                for outcome in engine.poll():
                    settle(outcome, pending, state, retries, watcher)
                    if outcome.code == 0 and on_done:
                        on_done(outcome.job)
                watcher.update(state)
                time.sleep(POLL_SECONDS)
        finally:
            if state.running:
                watcher.say("Stopping: the runs are saving their work.")
            engine.stop()
    if asked.received is not None:
        raise Stopped(asked.received)
    return state


def find_jobs(configs: Sequence[RunConfig]) -> list[Job]:
    """The jobs of these configs, each in the folder of its run on the images as they are now.

    Folders are absolute, so that they mean the same in every process. Each data set is read once, and only if there are
    folders of its runs to compare it with.
    """
    read: dict[tuple[Any, ...], Fingerprint | InputError] = {}

    def fingerprint(config: RunConfig) -> Fingerprint:
        key = config.data_key()
        if key not in read:
            try:
                read[key] = read_fingerprint(config)
            except InputError as error:
                read[key] = error
        known = read[key]
        if isinstance(known, InputError):
            raise known
        return known

    jobs, remarks = [], []
    for config in configs:
        absolute = placed(config).model_copy(update={"out": config.out.resolve()})
        try:
            place = find_place(absolute, fingerprint=fingerprint)
        except AcrError:  # a damaged folder concerns its own run only, and is reported when that is looked at
            place = Place(absolute.out / folder_name(absolute))
        jobs.append(Job(absolute, place=place.folder))
        remarks += [place.remark] if place.remark else []
    if remarks:
        more = f" (There is something like this to say about {len(remarks) - 1} more.)" if len(remarks) > 1 else ""
        warnings.warn(remarks[0] + more, stacklevel=2)
    return jobs


def start_jobs(pending: deque[Job], state: SweepState, engine: Engine) -> None:
    """Start as many pending jobs as the engine has room for, skipping those that are to be tried later."""
    for _ in range(min(len(pending), max(0, engine.free()))):
        now = time.monotonic()
        job = next((job for job in pending if job.not_before <= now), None)
        if job is None:
            return
        pending.remove(job)
        job.started = now
        engine.start(job)
        state.running.append(job)


def settle(outcome: Outcome, pending: deque[Job], state: SweepState, retries: int, watcher: Watcher) -> None:
    """Decide what happens to a job whose attempt ended: it is done, is tried again, or has failed."""
    job = outcome.job
    state.running.remove(job)
    if outcome.code == 0:
        outcome = confirmed(outcome)
    if outcome.code == 0:
        state.done.append(job)
        state.seconds.setdefault(kind(job), []).append(time.monotonic() - job.started)
    elif outcome.code == Busy.exit_code:  # another process is writing it: try again later
        job.not_before = time.monotonic() + BUSY_SECONDS
        pending.append(job)
    elif outcome.code != BAD_INPUT and job.attempts < retries:
        job.attempts += 1
        watcher.say(f"{job.name}: {outcome.reason}. Retrying ({job.attempts} of {retries}).")
        pending.appendleft(job)
    else:
        state.failed.append(outcome)
        watcher.say(f"{job.name} failed: {outcome.reason}")


def confirmed(outcome: Outcome) -> Outcome:
    """The outcome of a worker that says it is done, if its run folder says so too."""
    try:
        if is_finished(outcome.job):
            return outcome
    except AcrError as error:
        return replace(outcome, code=BAD_INPUT, reason=str(error))
    return replace(outcome, code=1, reason="its worker ended, but the run folder is not complete")


def missing_data(jobs: Sequence[Job]) -> list[Outcome]:
    """Jobs whose data set is missing or unreadable. Each data set is loaded once, which decodes it for all jobs."""
    problems: dict[tuple[Any, ...], str] = {}
    outcomes = []
    for job in jobs:
        config = job.config
        key = config.data_key()
        if key not in problems:
            try:
                load_dataset(config.dataset, config)
                problems[key] = ""
            except AcrError as error:
                problems[key] = str(error)
        if problems[key]:
            outcomes.append(Outcome(job, BAD_INPUT, problems[key]))
    return outcomes


def run_local(
    configs: Sequence[RunConfig],
    jobs: int,
    on_done: Callable[[Run], None] | None = None,
    watcher: Watcher | None = None,
) -> list[Run]:
    """Run configs in separate processes, ``jobs`` at a time; finished ones are found and not repeated.

    A short form of :func:`run_sweep` for a few runs, all of which must succeed. ``on_done`` is called with each run,
    and ``watcher`` shows progress.
    """

    def done(job: Job) -> None:
        if on_done:
            on_done(load_run(job.folder))

    state = run_sweep(configs, LocalEngine(jobs), watcher=watcher, on_done=done)
    if state.failed:
        raise AcrError("; ".join(f"{outcome.job.name}: {outcome.reason}" for outcome in state.failed))
    return [load_run(job.folder) for job in state.jobs]
