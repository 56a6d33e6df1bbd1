"""``acr report`` and ``acr dashboard``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from acr.commands.shared import whole
from acr.console import say
from acr.errors import InputError, command
from acr.runs.run import find_runs, load_run


def report(
    *runs: Annotated[Path, Parameter(help="Run folders, or folders that contain runs.")],
    output: Annotated[Path, Parameter(name=["--output", "-o"], help="File for the report page.")] = Path("report.html"),
    csv: Annotated[Path | None, Parameter(help="Also write the tables as CSV files into this folder.")] = None,
    latex: Annotated[Path | None, Parameter(help="Also write the tables as LaTeX files into this folder.")] = None,
    figures: Annotated[Path | None, Parameter(help="Also draw figures as PDF, PNG and SVG into this folder.")] = None,
    baseline: Annotated[
        Path | None, Parameter(help="Folder of a finished run; mCE is reported relative to this run.")
    ] = None,
) -> None:
    """Show runs on one self-contained page: who wins, what is forgotten, what the memory holds, and the cost."""
    from acr.report.page.render import render_all
    from acr.storage import files

    if not runs:
        raise InputError("No runs given. Name run folders, or folders that contain runs, for example: acr report runs")
    found = find_runs(*runs)
    if not found:
        make = command("acr", "run", "--out", runs[0])
        raise InputError(f"There are no runs in {', '.join(map(str, runs))}. Make one with: {make}")
    gathered, page = render_all(found, None if baseline is None else load_run(baseline))
    try:
        files.write_text(output, page)
        if csv:
            from acr.report.exports import write_csv

            write_csv(gathered, csv)
        if latex:
            from acr.report.exports import write_latex

            write_latex(gathered, latex)
        if figures:
            from acr.report.figures import write_figures

            write_figures(gathered, figures)
    except OSError as error:
        raise InputError(f"Cannot write {error.filename or output}: {error.strerror}.") from None
    for problem in gathered.problems:
        say(f"  not counted: {problem.folder} ({problem.state}: {problem.reason})")
    say(f"{len(gathered.runs)} runs in {len(gathered.groups)} groups. Look at it: {output.resolve().as_uri()}")
    for name, folder in (("CSV files", csv), ("LaTeX tables", latex), ("Figures", figures)):
        if folder:
            say(f"{name}: {folder}")


def dashboard(
    *runs: Annotated[Path, Parameter(help="Folders of runs to watch; they may still be empty.")],
    port: Annotated[int, Parameter(converter=whole, help="Port on this machine that the page is served on.")] = 8642,
) -> None:
    """Watch runs in progress, in a browser on this machine. Ctrl-C stops the dashboard; the runs continue."""
    if not runs:
        raise InputError("No runs given. Name a folder that contains runs, for example: acr dashboard runs")
    for folder in runs:
        if not folder.is_dir():
            raise InputError(f"{folder} does not exist.")
    from acr.report.live.dashboard import serve

    serve(list(runs), port)
