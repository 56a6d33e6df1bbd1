"""``acr sweep``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.markup import escape

from acr.commands.shared import Address, DataCache, DataRoot, DryRun, EngineName, Jobs, Retries
from acr.config import RunConfig
from acr.console import Console, say
from acr.errors import AcrError, InputError, command
from acr.report.wording import UNKNOWN
from acr.reproduce.plan import RECIPES
from acr.storage.progress import duration
from acr.storage.workers import cores
from acr.sweeps.engines import make_engine
from acr.sweeps.jobs import Job
from acr.sweeps.progress import SweepProgress
from acr.sweeps.recipe import find_recipe
from acr.sweeps.sweep import SweepState, find_jobs, is_finished, run_sweep, superseded


def sweep(
    recipe: Annotated[str, Parameter(help="Recipe file, or name of a recipe that comes with acr.")],
    /,
    *,
    engine: EngineName = "local",
    jobs: Jobs = None,
    retries: Retries = 1,
    out: Annotated[Path, Parameter(help="Folder for the runs.")] = Path("runs"),
    scale: Annotated[str, Parameter(help="Variant of the recipe; full is the unchanged recipe.")] = "full",
    protocol: Annotated[Literal["sound", "published"] | None, Parameter(help="Protocol for all runs.")] = None,
    dry_run: DryRun = False,
    address: Address = None,
    data_root: DataRoot = None,
    data_cache: DataCache = None,
) -> None:
    """Run a grid of configs; finished runs are not repeated."""
    chosen = find_recipe(recipe, RECIPES).at_scale(scale).with_fixed(protocol=protocol)
    configs = chosen.expand(out=out, data_root=data_root, data_cache=data_cache)
    jobs = allowed_jobs(jobs, chosen.jobs)
    say(f"{chosen.title}: {len(configs)} runs in {out}")
    if dry_run:
        show_estimate(configs, jobs)
        return
    if retries < 0:
        raise InputError(f"--retries {retries}: expected 0 or more.")
    at_a_time = jobs or cores()
    with SweepProgress(at_a_time) as shown:
        report = run_sweep(configs, make_engine(engine, jobs, address), retries, shown)
    show_table(report)
    show_report(report)
    say(f"Look at all of them: {command('acr', 'report', out, '-o', 'report.html')}")


def show_table(report: SweepState) -> None:
    """Print the results of the finished runs: one line per config, with means over its seeds."""
    from acr.report.columns import COLUMNS
    from acr.report.groups import gather
    from acr.report.screen import print_columns
    from acr.report.wording import with_interval
    from acr.runs.run import load_run

    groups = gather([load_run(job.folder) for job in (*report.found, *report.done)]).groups
    shown = {name: column for name, column in COLUMNS.items() if any(group.estimate(name).known for group in groups)}
    rows = [
        [group.label, group.place[0], str(group.place[1] or UNKNOWN), str(len(group.seeds)),
         *(with_interval(group.estimate(name), column.scale, column.digits) for name, column in shown.items())]
        for group in groups
    ]  # fmt: skip
    if rows:
        say()
        print_columns(["method", "data set", "buffer", "seeds", *(c.heading for c in shown.values())], rows, 4)
        say()


def allowed_jobs(wanted: int | None, limit: int | None) -> int | None:
    """The number of runs at a time: ``wanted``, unless the recipe has a ``limit`` because it measures time.

    Asking for more than the limit is an error.
    """
    if limit is None:
        return wanted
    if wanted is not None and wanted > limit:
        raise InputError(f"This recipe measures time and memory, so --jobs may be at most {limit}; leave out --jobs.")
    return limit


def show_estimate(configs: list[RunConfig], jobs: int | None) -> None:
    """Print how many runs are finished, and an estimate of the time and disk space of the others."""
    from acr.sweeps.cost_estimate import estimate

    missing = [job.config for job in find_jobs(configs) if not finished_or_damaged(job)]
    say(f"{len(configs) - len(missing)} already finished, {len(missing)} to run.")
    if not missing:
        return
    at_a_time = jobs or cores()
    with Console(stderr=True).status("Timing a few steps …") as status:
        costs = estimate(
            missing,
            max(1, cores() // at_a_time),
            lambda one: status.update(escape(f"Timing {one.method} on {one.dataset}, B = {one.buffer_size} …")),
        )
    by_method: Counter[str] = Counter()
    for config, cost in zip(missing, costs, strict=True):
        by_method[config.method] += round(cost.seconds)
    total = sum(cost.seconds for cost in costs)
    # However many run at a time, the sweep takes as long as its longest run.
    longest = max(cost.seconds for cost in costs)
    say(f"About {duration(max(longest, total / at_a_time))} with {at_a_time} at a time ({duration(total)} in total), "
          f"and {sum(cost.bytes for cost in costs) / 2**20:,.0f} MiB of disk space.")  # fmt: skip
    say("By method: " + ", ".join(f"{name} {duration(seconds)}" for name, seconds in by_method.most_common()) + ".")
    say("Estimated from a few steps of each kind of run on this machine, in the middle of its stream.")


def finished_or_damaged(job: Job) -> bool:
    """Whether a run would not be started; a damaged one is reported."""
    try:
        return is_finished(job)
    except AcrError as error:
        say(f"{job.name}: {error}", error=True)
        return True


def show_report(report: SweepState) -> None:
    """Print how the sweep ended; failed runs are an error that lists their names and reasons."""
    say(f"{len(report.found) + len(report.done)} of {len(report.jobs)} runs finished "
          f"({len(report.found)} before this sweep), {len(report.failed)} failed.")  # fmt: skip
    for older, newest in superseded([*report.found, *report.done]):
        say(f"  superseded: {older.folder.name} ({newest.folder.name}, a newer run of the same config, is counted)")
    reasons: dict[str, list[str]] = {}
    for outcome in report.failed:
        reasons.setdefault(outcome.reason, []).append(outcome.job.name)
    if reasons:
        lines = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
        raise AcrError("These runs failed:\n  " + "\n  ".join(lines))
