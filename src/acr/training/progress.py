"""Progress of a run: a bar on a terminal, a line in a notebook, plain lines elsewhere, nothing if quiet."""

from __future__ import annotations

import time
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from acr.console import Console, say
from acr.storage.progress import NotebookLine, duration, in_notebook

PLAIN_LINE_SECONDS = 10.0
NOTEBOOK_SECONDS = 0.5


class RunProgress:
    """Shows task, epoch, loss, images per second and time left.

    ``steps`` is the number of steps of the whole run, ``done`` how many were taken before it was resumed.
    """

    def __init__(self, steps: int, done: int = 0, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.steps, self.done, self.quiet = steps, done, quiet
        self.bar: Progress | None = None
        self.started = self.last_line = time.monotonic()
        self.first = done
        self.notebook = NotebookLine() if not quiet and in_notebook() else None
        if not quiet and not self.notebook and self.console.is_terminal:
            self.bar = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps"),
                TextColumn("{task.fields[speed]}"), TimeRemainingColumn(), console=self.console, transient=True,
            )  # fmt: skip
            self.row = self.bar.add_task("starting", total=steps, completed=done, speed="")

    def __enter__(self) -> RunProgress:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()
        if self.notebook:
            spent = duration(time.monotonic() - self.started)
            self.notebook.show(f"{self.done} of {self.steps} steps in {spent}")

    def step(self, label: str, loss: float | None, images: int) -> None:
        """Show that one more step is done: ``label`` is its place in the run, ``images`` its number of images."""
        self.done += 1
        if self.quiet:
            return
        now = time.monotonic()
        # Steps before the run was resumed do not count: they took another process's time.
        rate = (self.done - self.first) / max(now - self.started, 1e-9)
        shown = "" if loss is None else f" loss {loss:.3f}"
        if self.bar:
            self.bar.update(self.row, completed=self.done, description=label + shown, speed=f"{rate * images:.0f} im/s")
        elif now - self.last_line >= (NOTEBOOK_SECONDS if self.notebook else PLAIN_LINE_SECONDS):
            self.last_line = now
            left = (self.steps - self.done) / rate
            line = f"{label}{shown}, {rate * images:.0f} images/s, {left:.0f} s left"
            if self.notebook:
                self.notebook.show(line)
            else:
                say(line, error=True)

    def say(self, line: str) -> None:
        """Print a line that stays on the screen."""
        if self.notebook:
            say(line)
        elif not self.quiet:
            self.console.print(line, markup=False)
