"""``acr reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from acr.commands.shared import Address, DataCache, DataRoot, DryRun, EngineName, Jobs, Retries
from acr.commands.sweep import allowed_jobs, show_estimate, show_report
from acr.console import say
from acr.report.formats import print_table
from acr.report.screen import screen
from acr.reproduce.plan import ProtocolChoice, Scale, make_plan, write_reproduction
from acr.storage.workers import cores
from acr.sweeps.engines import make_engine
from acr.sweeps.progress import SweepProgress
from acr.sweeps.sweep import run_sweep

PIPED = 400
"""Columns of output that is not a terminal: room for the widest table of the paper."""


def reproduce(
    name: Annotated[
        str,
        Parameter(help="What to reproduce: acc, bwt, balance, stages, policies, sensitivity, time, resources or ood."),
    ],
    /,
    *,
    scale: Annotated[
        Scale, Parameter(help="quick: minutes, on digits; small, reduced: one night; full: as in the paper.")
    ] = "quick",
    out: Annotated[Path, Parameter(help="Folder for runs and results; tables in one folder share runs.")] = Path(
        "reproduction"
    ),
    protocol: Annotated[ProtocolChoice, Parameter(help="Protocol of the runs; both: one table each.")] = "sound",
    jobs: Jobs = None,
    retries: Retries = 1,
    engine: EngineName = "local",
    address: Address = None,
    data_root: DataRoot = None,
    data_cache: DataCache = None,
    dry_run: DryRun = False,
) -> None:
    """Reproduce a table or figure of the paper, with the printed values beside ours."""
    plan = make_plan(name, scale, protocol, out, data_root, data_cache)
    configs = plan.all_configs()
    jobs = jobs if plan.jobs is None else allowed_jobs(jobs, plan.jobs)
    say(f"{plan.title}, {scale} scale: {len(configs)} runs in {out / 'runs'}")
    if dry_run:
        show_estimate(configs, jobs)
        return
    with SweepProgress(jobs or cores()) as shown:
        report = run_sweep(configs, make_engine(engine, jobs, address), retries, shown)
    reproduction = write_reproduction(plan, out)
    console = screen(PIPED)
    for _, table in reproduction.tables:
        print_table(table, console)
    say("\nWritten: " + "\n         ".join(str(path) for path in reproduction.files))
    show_report(report)
