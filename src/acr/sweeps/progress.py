"""The progress of a sweep: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import time
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from acr.console import Console
from acr.runs.writer import EVENTS
from acr.storage.progress import duration
from acr.sweeps.jobs import Job
from acr.sweeps.sweep import SweepState

REFRESH_SECONDS = 1.0
PLAIN_LINE_SECONDS = 30.0


class SweepProgress:
    """Shows how many runs are done, running and failed, and the time left.

    ``jobs`` is the number of runs at a time.
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.console = Console(stderr=True, highlight=False)
        self.live: Live | None = None
        self.last = 0.0
        self.over = -1

    def __enter__(self) -> SweepProgress:
        if self.console.is_terminal:
            self.live = Live(console=self.console, refresh_per_second=2, transient=True)
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def say(self, line: str) -> None:
        """Print a line that stays on the screen."""
        self.console.print(line, markup=False, soft_wrap=True)

    def update(self, state: SweepState) -> None:
        """Redraw the table; without a terminal, print a line when a run has ended or after some time."""
        now = time.monotonic()
        over = len(state.jobs) - state.left
        if self.live:
            if now - self.last >= REFRESH_SECONDS:
                self.last = now
                self.live.update(self.table(state))
        elif over != self.over or now - self.last >= PLAIN_LINE_SECONDS:
            self.last, self.over = now, over
            self.say(self.line(state))

    def line(self, state: SweepState) -> str:
        """The state of the sweep in one line."""
        finished = len(state.found) + len(state.done)
        running = len(state.running)
        waiting = state.left - running
        return (
            f"{finished} of {len(state.jobs)} done, {running} running, {waiting} waiting, "
            f"{len(state.failed)} failed; {time_left(state.seconds_left(self.jobs))}"
        )

    def table(self, state: SweepState) -> Group:
        """A bar, and one line per running job."""
        rows = Table(box=None, pad_edge=False, show_header=False)
        for job in state.running[:20]:
            rows.add_row(escape(job.name), place_in_run(job), duration(time.monotonic() - job.started))
        if len(state.running) > 20:
            rows.add_row(f"and {len(state.running) - 20} more", "", "")
        bar = Table.grid()  # a bar by itself does not end its line
        bar.add_row(ProgressBar(total=len(state.jobs), completed=len(state.jobs) - state.left, width=40))
        return Group(self.line(state), bar, rows)


def place_in_run(job: Job) -> str:
    """The current task and epoch of a run, from the end of its event file."""
    try:
        with open(job.folder / EVENTS, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return "starting"
    for line in reversed(lines):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("event") == "step":
            return f"task {event['task'] + 1}, epoch {event['epoch'] + 1} of {job.config.epochs}"
    return "starting"


def time_left(seconds: float | None) -> str:
    """The time left, as text."""
    return "time left not known yet" if seconds is None else f"about {duration(seconds)} left"
