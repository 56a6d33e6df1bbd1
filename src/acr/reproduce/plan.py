"""``acr reproduce``: run what a table or figure of the paper needs and is not there yet, then write it.

All nine share one pool of runs: a run's folder name holds its identity, so what one of them has run, another finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal, get_args

from acr.config import RunConfig
from acr.errors import AcrError, unknown
from acr.report.formats import to_csv, to_markdown
from acr.report.latex import document, table_environments
from acr.report.tables import ResultTable
from acr.reproduce.cells import PlannedRun
from acr.reproduce.figures import write_figures
from acr.reproduce.layouts import LAYOUTS
from acr.runs.run import load_run
from acr.storage import files
from acr.sweeps.jobs import Job
from acr.sweeps.recipe import find_recipe
from acr.sweeps.sweep import find_jobs, is_finished

RECIPES = Path(str(resources.files("acr.reproduce"))) / "recipes"
"""The recipes that come with the package."""
Scale = Literal["quick", "small", "reduced", "full"]
ProtocolChoice = Literal["sound", "published", "both"]
NOTES = {
    "quick": "Quick scale: split-digits stands in for the paper's data sets, so its printed values do not apply.",
    "small": "Small scale: 20 classes of CIFAR-100, half of their images, a network an eighth as wide, 20 epochs. No "
    "printed value applies.",
    "reduced": "Reduced scale: part of the data, a smaller network, fewer epochs. The printed values are those of the "
    "full scale, so the difference shows the scale as well as the method.",
    "full": "",
}
PUBLISHED_ONLY = (
    "Protocol sound: the paper's evaluation under shift feeds the networks images that were not normalised, so its "
    "shifted values can be met under --protocol published only."
)


@dataclass(frozen=True)
class Plan:
    """The runs of a reproduction, by protocol."""

    name: str
    scale: Scale
    title: str
    configs: dict[str, list[RunConfig]]
    jobs: int | None
    """The most runs at a time; None: no limit."""

    def all_configs(self) -> list[RunConfig]:
        """The runs of all protocols."""
        return [config for configs in self.configs.values() for config in configs]


@dataclass(frozen=True)
class Reproduction:
    """What was written."""

    tables: list[tuple[str, ResultTable]]
    """Protocol and table."""
    files: list[Path]


def names() -> list[str]:
    """What can be reproduced."""
    return list(LAYOUTS)


def make_plan(
    name: str,
    scale: Scale = "quick",
    protocol: ProtocolChoice = "sound",
    out: Path = Path("reproduction"),
    data_root: Path | None = None,
    data_cache: Path | None = None,
) -> Plan:
    """Which runs a table or figure needs. Their folders are in ``out/runs``, where missing ones will be made."""
    if name not in LAYOUTS:
        raise unknown("table or figure", name, LAYOUTS)
    if scale not in get_args(Scale):
        raise unknown("scale", scale, get_args(Scale))
    recipe = find_recipe(RECIPES / f"{name}.yaml").at_scale(scale)
    protocols = ["sound", "published"] if protocol == "both" else [protocol]
    places = {"out": out / "runs", "data_root": data_root, "data_cache": data_cache}
    configs = {one: recipe.with_fixed(protocol=one).expand(**places) for one in protocols}
    return Plan(name, scale, recipe.title, configs, recipe.jobs)


def find_planned_runs(configs: Sequence[RunConfig]) -> list[PlannedRun]:
    """The runs of these configs, those that are there and finished with their results."""
    return [planned_run(job) for job in find_jobs(configs)]


def planned_run(job: Job) -> PlannedRun:
    """The finished run of a job. One that is damaged counts as missing, and says why."""
    try:
        return PlannedRun(job.config, load_run(job.folder) if is_finished(job) else None)
    except AcrError as error:
        return PlannedRun(job.config, None, f"{job.name} is left out: {error}")


def write_reproduction(plan: Plan, out: Path) -> Reproduction:
    """The paper's layout from whatever is finished: CSV, LaTeX with a document around it, Markdown, figures."""
    folder = out / f"{plan.name}-{plan.scale}"
    tables: list[tuple[str, ResultTable]] = []
    written: list[Path] = []
    figures: list[str] = []
    for protocol, configs in plan.configs.items():
        planned = find_planned_runs(configs)
        own = LAYOUTS[plan.name](planned)
        suffix = f"-{protocol}" if len(plan.configs) > 1 else ""
        for table in own:
            annotate(table, plan, protocol)
            table.notes += [run.problem for run in planned if run.problem]
            tables.append((protocol, table))
        drawn = write_figures(plan.name, own, planned, folder, suffix)
        figures += [path.name for path in drawn if path.suffix == ".pdf"]
        written += drawn
    title = f"{plan.title} ({plan.scale} scale)"
    texts = {
        f"{plan.name}.csv": to_csv(tables),
        f"{plan.name}.md": f"## {title}\n\n" + "\n".join(to_markdown(table) for _, table in tables),
        f"{plan.name}.tex": "\n".join(table_environments(table) for _, table in tables),
        f"{plan.name}-document.tex": document([plan.name], title, figures),
    }
    for file, text in texts.items():
        files.write_text(folder / file, text)
        written.append(folder / file)
    return Reproduction(tables, sorted(written))


def annotate(table: ResultTable, plan: Plan, protocol: str) -> None:
    """Note beside a table which printed values its numbers may be compared with."""
    if len(plan.configs) > 1:
        table.title = f"{table.title}, protocol {protocol}"
    if NOTES[plan.scale]:
        table.notes.append(NOTES[plan.scale])
    shifted = any("OOD" in word for place in (*table.rows, *table.columns) for word in place) or plan.name == "ood"
    if table.has_printed and shifted and protocol == "sound":
        table.notes.append(PUBLISHED_ONLY)
