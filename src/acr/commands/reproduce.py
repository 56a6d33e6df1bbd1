"""``acr reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console

from acr.commands.sweep import allowed_jobs, show_estimate, show_report
from acr.report.formats import print_table
from acr.reproduce.plan import ProtocolChoice, Scale, make_plan, write_reproduction
from acr.storage.workers import cores
from acr.sweeps.engines import make_engine
from acr.sweeps.progress import SweepProgress
from acr.sweeps.sweep import run_sweep


def reproduce(
    name: Annotated[
        str,
        Parameter(help="What to reproduce: acc, bwt, balance, stages, policies, sensitivity, time, resources or ood."),
    ],
    *,
    scale: Annotated[
        Scale, Parameter(help="quick: minutes, on digits; reduced: one night; full: as in the paper.")
    ] = "quick",
    out: Annotated[Path, Parameter(help="Folder for runs and results; tables in one folder share runs.")] = Path(
        "reproduction"
    ),
    protocol: Annotated[ProtocolChoice, Parameter(help="Protocol of the runs; both: one table each.")] = "sound",
    jobs: Annotated[int | None, Parameter(help="Runs at a time; by default one per GPU, or one per core.")] = None,
    retries: Annotated[int, Parameter(help="How often to retry a failed run, from its last checkpoint.")] = 1,
    engine: Annotated[Literal["local", "ray"], Parameter(help="local: this machine; ray: many machines.")] = "local",
    address: Annotated[str | None, Parameter(help="Address of a Ray cluster, for --engine ray.")] = None,
    data_root: Annotated[Path | None, Parameter(help="Folder that holds data sets.")] = None,
    data_cache: Annotated[Path | None, Parameter(help="Folder for decoded images.")] = None,
    dry_run: Annotated[
        bool, Parameter(help="Run nothing; only estimate the number of runs, time and disk space.", negative=())
    ] = False,
) -> None:
    """Reproduce a table or figure of the paper, with the printed values beside ours."""
    plan = make_plan(name, scale, protocol, out, data_root, data_cache)
    configs = plan.all_configs()
    jobs = jobs if plan.jobs is None else allowed_jobs(jobs, plan.jobs)
    print(f"{plan.title}, {scale} scale: {len(configs)} runs in {out / 'runs'}", flush=True)
    if dry_run:
        show_estimate(configs, jobs)
        return
    with SweepProgress(jobs or cores()) as shown:
        report = run_sweep(configs, make_engine(engine, jobs, address), retries, shown)
    reproduction = write_reproduction(plan, out)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(console.width, 240))
    for _, table in reproduction.tables:
        print_table(table, console)
    print("\nWritten: " + "\n         ".join(str(path) for path in reproduction.files))
    show_report(report)
