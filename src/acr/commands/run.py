"""``acr run`` and ``acr resume``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from acr.commands.flags import with_config_flags
from acr.commands.shared import whole
from acr.console import say
from acr.launch import Unfinished, resume_run, run_at
from acr.report.columns import print_summary
from acr.runs.places import find_place
from acr.runs.resolve import foreign_options, make_config, placed, read_config_file
from acr.runs.run import Run, load_run, successor


def _run(
    *,
    config: Annotated[Path | None, Parameter(help="YAML file with config fields; flags override its values.")] = None,
    resume: Annotated[
        Literal["ask", "auto"],
        Parameter(help="Whether to ask before an interrupted run of the same config is resumed."),
    ] = "ask",
    fresh: Annotated[
        bool, Parameter(help="Start a new run even if one of this config exists.", negative=(), show_default=False)
    ] = False,
    other_method: Annotated[
        bool,
        Parameter(
            help="Leave out options of the --config file that the method does not have.",
            negative=(),
            show_default=False,
        ),
    ] = False,
    help_all: Annotated[
        bool,
        Parameter(
            help="Show every flag, those of the methods' options included, and exit.", negative=(), show_default=False
        ),
    ] = False,
    **values: Any,
) -> None:
    """Train a method on a data set, task by task, and evaluate it after each task."""
    if help_all:
        return show_every_flag()
    complete = placed(make_config(values, file=file_values(config, values, other_method)))
    place = find_place(complete, fresh=fresh)
    place.warn()
    finished = place.finished
    if finished is not None:
        say(f"This run is already finished: {place.folder} (add --fresh to run it again)")
    else:
        try:
            finished = run_at(complete, place, resume)
        except Unfinished:
            # Only a person at a terminal can be asked; elsewhere the error says how to resume.
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                raise
            answer = input(f"{place.folder} was started before but not finished. Resume it? [Y/n] ")
            if answer.strip().lower() in ("n", "no"):
                raise
            finished = run_at(complete, place)
    show(finished)


def resume(
    folder: Annotated[Path, Parameter(help="Folder of the run.")],
    /,
    *,
    device: Annotated[str | None, Parameter(help="Device to resume on.")] = None,
    threads: Annotated[int | None, Parameter(converter=whole, help="Number of CPU threads to resume with.")] = None,
    dataset: Annotated[
        str | None, Parameter(help="Where the images are now, if they were moved, such as folder:PATH.")
    ] = None,
    data_root: Annotated[Path | None, Parameter(help="Folder that holds data sets, if they were moved.")] = None,
    quiet: Annotated[bool, Parameter(help="Show no progress.", negative=())] = False,
    network: Annotated[
        str | None, Parameter(help="Encoder of the run, if it is your own: allows to run its code.")
    ] = None,
    weights: Annotated[Path | None, Parameter(help="The run's --weights file, if it has been moved.")] = None,
) -> None:
    """Finish an interrupted run."""
    changes = {"device": device, "threads": threads, "quiet": quiet, "network": network, "weights": weights,
               "data_root": data_root}  # fmt: skip
    before = load_run(folder)
    if before.finished:
        say(f"This run is already finished: {folder}")
        newer = successor(before)
        if newer is not None:
            say(f"It is superseded: {newer.folder} is a newer run of the same config, and the one that counts.")
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    show(resume_run(folder, dataset=dataset, **given))


def file_values(path: Path | None, flags: dict[str, Any], other_method: bool) -> dict[str, Any]:
    """The values of a config file; with ``other_method``, those that the method to run does not have are left out."""
    if path is None:
        return {}
    found = read_config_file(path)
    if other_method:
        left_out = foreign_options(found, str(flags.get("method", found.get("method", "acr"))))
        if left_out:
            say(f"Left out of {path}: {', '.join(f'{name} {found[name]}' for name in left_out)}")
        return {name: value for name, value in found.items() if name not in left_out}
    return found


def show_every_flag() -> None:
    """Print the help with all flags."""
    everything = App(name="acr run", help=_run.__doc__, help_format="plaintext", version_flags=[], help_flags=[])
    everything.default(with_config_flags(_run, everything=True))
    everything.help_print([])


def show(finished: Run) -> None:
    """Print the figures of a run, and where its folder is."""
    print_summary([finished])
    say(f"Everything about this run: {finished.folder}")


run = with_config_flags(_run)
