"""A sweep: many runs, carried out by an engine until all are finished or have failed for good.

What is finished is found and not run again, so a sweep that was stopped or killed goes on where it was by starting it
again. A run that fails is tried again, from its last checkpoint, and then reported; the others go on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from acr.config import RunConfig
from acr.data.loading import load_dataset
from acr.errors import AcrError, InputError
from acr.runs.run import Run, load_run
from acr.runs.writer import RESULTS, Busy
from acr.storage.signals import StopSignal
from acr.sweeps.engines import LocalEngine
from acr.sweeps.jobs import Engine, Job, Outcome

POLL_SECONDS = 0.1
BUSY_SECONDS = 2.0
"""Pause before looking again at a run that another process is writing."""
BAD_INPUT = InputError.exit_code
"""Exit code of a try that would fail the same way again."""


class Stopped(AcrError):
    """A signal ended the sweep; every run has saved what it had."""

    def __init__(self, number: int) -> None:
        super().__init__("Stopped; every run has saved its work. The same command goes on from here.")
        self.exit_code = 128 + number


@dataclass
class SweepState:
    """Where a sweep stands."""

    jobs: list[Job]
    found: list[Job] = field(default_factory=list)
    """Runs that were finished before."""
    done: list[Job] = field(default_factory=list)
    """Runs that this sweep finished."""
    running: list[Job] = field(default_factory=list)
    failed: list[Outcome] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Wall-clock time of the runs finished here, by kind."""
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> int:
        """Runs neither finished nor failed."""
        return len(self.jobs) - len(self.found) - len(self.done) - len(self.failed)

    def seconds_left(self, at_a_time: int) -> float | None:
        """From what runs of the same kind took; None before anything is known."""
        known = [value for values in self.seconds.values() for value in values]
        if not known:
            return None
        over = {id(job) for job in (*self.found, *self.done, *(outcome.job for outcome in self.failed))}
        total, now = 0.0, time.monotonic()
        for job in self.jobs:
            if id(job) not in over:
                own = self.seconds.get(kind(job), known)
                expected = sum(own) / len(own)
                total += max(0.0, expected - (now - job.started)) if job in self.running else expected
        return total / max(1, at_a_time)


class Watcher(Protocol):
    """Somebody who shows how a sweep goes."""

    def update(self, state: SweepState) -> None:
        """The sweep stands here now."""
        ...

    def say(self, line: str) -> None:
        """Something a person should know."""
        ...


class Silent:
    """Shows nothing."""

    def update(self, state: SweepState) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""


def kind(job: Job) -> str:
    """Runs of one kind take about the same time."""
    return f"{job.config.method}/{job.config.dataset}/{job.config.width}"


def is_finished(job: Job) -> bool:
    """Whether the run lies complete in its folder."""
    return (job.folder / RESULTS).exists() and load_run(job.folder).finished


def run_sweep(
    configs: Sequence[RunConfig],
    engine: Engine,
    retries: int = 1,
    watcher: Watcher | None = None,
    on_done: Callable[[Job], None] | None = None,
) -> SweepState:
    """Carry out all runs that are not finished. A signal stops them cleanly and raises :class:`Stopped`."""
    watcher = watcher or Silent()
    state = SweepState([Job(placed(config)) for config in configs])
    state.found = [job for job in state.jobs if is_finished(job)]
    pending = deque(job for job in state.jobs if job not in state.found)
    if on_done:
        for job in state.found:
            on_done(job)
    with StopSignal() as asked:
        try:
            for outcome in unreachable_data([job for job in pending if not job.folder.exists()]):
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
                watcher.say("Stopping: the runs save their work.")
            engine.stop()
    if asked.received is not None:
        raise Stopped(asked.received)
    return state


def placed(config: RunConfig) -> RunConfig:
    """A config whose folders mean the same in every process."""
    places = {name: getattr(config, name) for name in ("out", "data_root", "data_cache")}
    return config.model_copy(update={name: path.resolve() for name, path in places.items() if path is not None})


def start_jobs(pending: deque[Job], state: SweepState, engine: Engine) -> None:
    """Fill the free places with jobs whose time has come."""
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
    """Decide what becomes of a job that ended: done, tried again, or failed."""
    job = outcome.job
    state.running.remove(job)
    if outcome.code == 0 and not is_finished(job):
        outcome = replace(outcome, code=1, reason="its worker ended, but the run folder is not complete")
    if outcome.code == 0:
        state.done.append(job)
        state.seconds.setdefault(kind(job), []).append(time.monotonic() - job.started)
    elif outcome.code == Busy.exit_code:  # another process is at it: look again later
        job.not_before = time.monotonic() + BUSY_SECONDS
        pending.append(job)
    elif outcome.code != BAD_INPUT and job.attempts < retries:
        job.attempts += 1
        watcher.say(f"{job.name}: {outcome.reason}. Trying again ({job.attempts} of {retries}).")
        pending.appendleft(job)
    else:
        state.failed.append(outcome)
        watcher.say(f"{job.name} failed: {outcome.reason}")


def unreachable_data(jobs: Sequence[Job]) -> list[Outcome]:
    """Jobs whose data set is missing or unreadable. Each is looked at once, which also decodes it for all jobs."""
    problems: dict[tuple[Any, ...], str] = {}
    outcomes = []
    for job in jobs:
        config = job.config
        key = (config.dataset, config.image_size, config.data_root, config.data_cache, config.validation_fraction)
        if key not in problems:
            try:
                load_dataset(config.dataset, config)
                problems[key] = ""
            except AcrError as error:
                problems[key] = str(error)
        if problems[key]:
            outcomes.append(Outcome(job, BAD_INPUT, problems[key]))
    return outcomes


def run_local(configs: Sequence[RunConfig], jobs: int, on_done: Callable[[Run], None] | None = None) -> list[Run]:
    """Run configs in processes of their own, ``jobs`` at a time; finished ones are found, not run again.

    The short way for a handful of runs that all must succeed; :func:`run_sweep` is the long one.
    """

    def done(job: Job) -> None:
        if on_done:
            on_done(load_run(job.folder))

    state = run_sweep(configs, LocalEngine(jobs), on_done=done)
    if state.failed:
        raise AcrError("; ".join(f"{outcome.job.name}: {outcome.reason}" for outcome in state.failed))
    return [load_run(Job(config).folder) for config in configs]
