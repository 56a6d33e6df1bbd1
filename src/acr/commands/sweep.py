"""``acr sweep``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

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

Engine = Literal["local", "ray"]


def sweep(
    recipe: Annotated[str, Parameter(help="Recipe file, or the name of a recipe that comes with acr.")],
    *,
    engine: Annotated[Engine, Parameter(help="local: processes on this machine; ray: many machines.")] = "local",
    jobs: Annotated[int | None, Parameter(help="Runs at a time; one a GPU, or one a core, if not given.")] = None,
    retries: Annotated[int, Parameter(help="How often a failed run is tried again, from its checkpoint.")] = 1,
    out: Annotated[Path, Parameter(help="Folder for the runs.")] = Path("runs"),
    scale: Annotated[str, Parameter(help="Variant of the recipe; full is the recipe as it stands.")] = "full",
    protocol: Annotated[Literal["sound", "published"] | None, Parameter(help="Protocol of all runs.")] = None,
    dry_run: Annotated[bool, Parameter(help="Only say how many runs, how long and how large.", negative=())] = False,
    address: Annotated[str | None, Parameter(help="Address of a Ray cluster.")] = None,
    data_root: Annotated[Path | None, Parameter(help="Where data sets lie.")] = None,
    data_cache: Annotated[Path | None, Parameter(help="Where decoded images are kept.")] = None,
) -> None:
    """Run a grid of configs; what is finished is not run again."""
    chosen = find_recipe(recipe, RECIPES).at_scale(scale).with_fixed(protocol=protocol)
    configs = chosen.expand(out=out, data_root=data_root, data_cache=data_cache)
    jobs = allowed_jobs(jobs, chosen.jobs)
    print(f"{chosen.title}: {len(configs)} runs in {out}", flush=True)
    if dry_run:
        show_estimate(configs, jobs)
        return
    if retries < 0:
        raise InputError(f"--retries {retries}: 0 or more.")
    at_a_time = jobs or cores()
    with SweepProgress(at_a_time) as shown:
        report = run_sweep(configs, make_engine(engine, jobs, address), retries, shown)
    show_report(report)


def allowed_jobs(wanted: int | None, limit: int | None) -> int | None:
    """The number of jobs, where a recipe measures time and so allows one only."""
    if limit is None:
        return wanted
    if wanted is not None and wanted > limit:
        raise InputError(f"This recipe measures time and memory, so it runs {limit} at a time; leave out --jobs.")
    return limit


def show_estimate(configs: list[RunConfig], jobs: int | None) -> None:
    """Number of runs, how many are finished, and about how long and how large the rest is."""
    from acr.sweeps.cost_estimate import estimate

    missing = [config for config in configs if not is_finished(Job(placed(config)))]
    print(f"{len(configs) - len(missing)} finished already, {len(missing)} to run.")
    if not missing:
        return
    at_a_time = jobs or cores()
    with Console(stderr=True).status("Trying a few steps …") as status:
        costs = estimate(
            missing,
            max(1, cores() // at_a_time),
            lambda one: status.update(escape(f"Trying {one.method} on {one.dataset}, B = {one.buffer_size} …")),
        )
    by_method: Counter[str] = Counter()
    for config, cost in zip(missing, costs, strict=True):
        by_method[config.method] += round(cost.seconds)
    total = sum(cost.seconds for cost in costs)
    longest = max(cost.seconds for cost in costs)
    print(f"About {duration(max(longest, total / at_a_time))} with {at_a_time} at a time ({duration(total)} in all), "
          f"and {sum(cost.bytes for cost in costs) / 2**20:,.0f} MiB of disk.")  # fmt: skip
    print("By method: " + ", ".join(f"{name} {duration(seconds)}" for name, seconds in by_method.most_common()) + ".")
    print("From a few steps of each kind of run on this machine, in the middle of its stream.")


def show_report(report: SweepState) -> None:
    """How the sweep ended; failures by name and reason, and then exit code 1."""
    print(f"{len(report.found) + len(report.done)} of {len(report.jobs)} runs finished "
          f"({len(report.found)} were before), {len(report.failed)} failed.")  # fmt: skip
    reasons: dict[str, list[str]] = {}
    for outcome in report.failed:
        reasons.setdefault(outcome.reason, []).append(outcome.job.name)
    if reasons:
        lines = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
        raise AcrError("These runs failed:\n  " + "\n  ".join(lines))
