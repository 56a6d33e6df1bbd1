"""``acr sweep``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from acr.commands.shared import Address, DataCache, DataRoot, DryRun, EngineName, Jobs, Retries
from acr.config import RunConfig
from acr.errors import AcrError, InputError
from acr.reproduce.plan import RECIPES
from acr.storage.progress import duration
from acr.storage.workers import cores
from acr.sweeps.engines import make_engine
from acr.sweeps.jobs import Job
from acr.sweeps.progress import SweepProgress
from acr.sweeps.recipe import find_recipe
from acr.sweeps.sweep import SweepState, is_finished, placed, run_sweep


def sweep(
    recipe: Annotated[str, Parameter(help="Recipe file, or name of a recipe that comes with acr.")],
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
    print(f"{chosen.title}: {len(configs)} runs in {out}", flush=True)
    if dry_run:
        show_estimate(configs, jobs)
        return
    if retries < 0:
        raise InputError(f"--retries {retries}: expected 0 or more.")
    at_a_time = jobs or cores()
    with SweepProgress(at_a_time) as shown:
        report = run_sweep(configs, make_engine(engine, jobs, address), retries, shown)
    show_report(report)


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

    missing = [config for config in configs if not is_finished(Job(placed(config)))]
    print(f"{len(configs) - len(missing)} already finished, {len(missing)} to run.")
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
    print(f"About {duration(max(longest, total / at_a_time))} with {at_a_time} at a time ({duration(total)} in total), "
          f"and {sum(cost.bytes for cost in costs) / 2**20:,.0f} MiB of disk space.")  # fmt: skip
    print("By method: " + ", ".join(f"{name} {duration(seconds)}" for name, seconds in by_method.most_common()) + ".")
    print("Estimated from a few steps of each kind of run on this machine, in the middle of its stream.")


def show_report(report: SweepState) -> None:
    """Print how the sweep ended; failed runs are an error that lists their names and reasons."""
    print(f"{len(report.found) + len(report.done)} of {len(report.jobs)} runs finished "
          f"({len(report.found)} before this sweep), {len(report.failed)} failed.")  # fmt: skip
    reasons: dict[str, list[str]] = {}
    for outcome in report.failed:
        reasons.setdefault(outcome.reason, []).append(outcome.job.name)
    if reasons:
        lines = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
        raise AcrError("These runs failed:\n  " + "\n  ".join(lines))
