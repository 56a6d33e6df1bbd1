"""``acr run`` and ``acr resume``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from acr.commands.flags import with_config_flags
from acr.launch import Unfinished, resume_run, run_config
from acr.report.columns import print_summary
from acr.runs.resolve import make_config, read_config_file
from acr.runs.run import Run, finished_run, load_run
from acr.runs.writer import folder_name


def _run(
    *,
    config: Annotated[Path | None, Parameter(help="YAML file with config fields; flags override its values.")] = None,
    resume: Annotated[
        Literal["ask", "auto"],
        Parameter(help="Whether to ask before an interrupted run of the same config is resumed."),
    ] = "ask",
    fresh: Annotated[bool, Parameter(help="Start a new run even if one of this config exists.", negative=())] = False,
    **values: Any,
) -> None:
    """Train a method on a data set, task by task, and evaluate it after each task."""
    complete = make_config(values, file=read_config_file(config) if config else None)
    path = complete.out / folder_name(complete)
    finished = None if fresh else finished_run(path)
    if finished is not None:
        print(f"This run is already finished: {path} (add --fresh to run it again)")
    else:
        try:
            finished = run_config(complete, fresh=fresh, resume=resume)
        except Unfinished:
            # Only a person at a terminal can be asked; elsewhere the error says how to resume.
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                raise
            answer = input(f"{path} was started before but not finished. Resume it? [Y/n] ")
            if answer.strip().lower() in ("n", "no"):
                raise
            finished = run_config(complete, resume="auto")
    show(finished)


def resume(
    folder: Annotated[Path, Parameter(help="Folder of the run.")],
    *,
    device: Annotated[str | None, Parameter(help="Device to resume on.")] = None,
    threads: Annotated[int | None, Parameter(help="Number of CPU threads to resume with.")] = None,
    quiet: Annotated[bool, Parameter(help="Show no progress.", negative=())] = False,
) -> None:
    """Finish an interrupted run."""
    changes = {"device": device, "threads": threads, "quiet": quiet or None}
    before = load_run(folder)
    if before.finished:
        print(f"This run is already finished: {folder}")
    show(resume_run(folder, **{name: value for name, value in changes.items() if value is not None}))


def show(finished: Run) -> None:
    """Print the figures of a run, and where its folder is."""
    print_summary([finished])
    print(f"Everything about this run: {finished.folder}")


run = with_config_flags(_run)
