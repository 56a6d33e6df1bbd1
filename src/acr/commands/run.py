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
from acr.runs.run import Run, load_run
from acr.runs.writer import folder_name


def _run(
    *,
    config: Annotated[Path | None, Parameter(help="YAML file of fields; flags go before it.")] = None,
    resume: Annotated[
        Literal["ask", "auto"], Parameter(help="What to do with a run of the same config that was interrupted.")
    ] = "ask",
    fresh: Annotated[bool, Parameter(help="Run anew, beside the old run, if there is one.", negative=())] = False,
    **values: Any,
) -> None:
    """Learn a data set task by task with a method, and evaluate after each task."""
    complete = make_config(values, file=read_config_file(config) if config else None)
    path = complete.out / folder_name(complete)
    if not fresh and (path / "results.json").exists() and load_run(path).finished:
        print(f"This run is finished already: {path} (--fresh runs it anew)")
        finished = load_run(path)
    else:
        try:
            finished = run_config(complete, fresh=fresh, resume=resume)
        except Unfinished:
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                raise
            if input(f"{path} was begun before and not finished. Go on with it? [Y/n] ").strip().lower() in ("n", "no"):
                raise
            finished = run_config(complete, resume="auto")
    show(finished)


def resume(
    folder: Annotated[Path, Parameter(help="Folder of the run.")],
    *,
    device: Annotated[str | None, Parameter(help="Go on on another device.")] = None,
    threads: Annotated[int | None, Parameter(help="Go on with so many CPU threads.")] = None,
    quiet: Annotated[bool, Parameter(help="No progress.", negative=())] = False,
) -> None:
    """Finish a run that was interrupted."""
    changes = {"device": device, "threads": threads, "quiet": quiet or None}
    before = load_run(folder)
    if before.finished:
        print(f"This run is finished already: {folder}")
    show(resume_run(folder, **{name: value for name, value in changes.items() if value is not None}))


def show(finished: Run) -> None:
    """The figures of a run."""
    print_summary([finished])
    print(f"Everything about this run: {finished.folder}")


run = with_config_flags(_run)
