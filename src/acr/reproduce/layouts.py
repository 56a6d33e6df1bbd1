"""The layout of each of the paper's tables and figures, filled from runs. Figures have a table too: what they draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean
from typing import Any

import numpy as np

from acr import metrics
from acr.report.style import method_label
from acr.report.tables import Cell, ResultTable, mean_cell
from acr.reproduce.cells import SCENARIOS, PlannedRun, PlannedRuns, by_seed, dataset_label, printed

POLICY_LABELS = {
    "reservoir": "Reservoir", "balanced-random": "Balanced Random", "hard": "Hard", "challenging": "Challenging",
    "easy": "Easy",
}  # fmt: skip
PANELS = {
    "a": ("accuracy by task", lambda m: m[-1]),
    "b": ("accuracy by stage", metrics.stage_accuracy),
    "c": ("backward transfer by task", metrics.final_transfer),
    "d": ("backward transfer by stage", lambda m: metrics.stage_backward_transfer(m)[1:]),
}  # type: dict[str, tuple[str, Callable[[Any], Any]]]
"""The four curves of a matrix; (e) to (h) are the same under shift."""
FIRST_STAGE = {"a": 1, "b": 1, "c": 1, "d": 2}
STUDIED = "acr"
"""The paper's own method, which the others are tested against."""
AT_STEP = 5000
"""The training step at which the paper reads memory and CPU use."""


def values_of(planned: PlannedRuns, field: str) -> list[Any]:
    """The values of a config field that occur, in order of appearance."""
    return list(dict.fromkeys(getattr(one.config, field) for one in planned))


def where(planned: PlannedRuns, **fields: Any) -> list[PlannedRun]:
    """PlannedRuns with these values of config fields or options."""

    def holds(one: PlannedRun) -> bool:
        return all(getattr(one.config, n, one.option(n)) == value for n, value in fields.items())

    return [one for one in planned if holds(one)]


def main_table(planned: PlannedRuns, metric: str, title: str) -> ResultTable:
    """ACC or BWT: methods by data sets and buffer sizes, one block each for clean and shifted, with means."""
    methods, datasets = values_of(planned, "method"), values_of(planned, "dataset")
    buffers = {d: sorted(values_of(where(planned, dataset=d), "buffer_size")) for d in datasets}
    columns: list[tuple[str, str]] = []
    for dataset in datasets:
        heading = dataset_label(dataset)
        columns += [(heading, f"B = {size}") for size in buffers[dataset]] + [(heading, "mean")]
    columns.append(("all", "mean"))
    rows = [(name, method_label(m)) for name in SCENARIOS.values() for m in methods]
    table = ResultTable(metric, title, rows, columns, reference=method_label(STUDIED))
    for block, scenario in enumerate(SCENARIOS):
        for i, method in enumerate(methods):
            row, cells = block * len(methods) + i, []
            line: list[Cell] = []
            for dataset in datasets:
                own = [main_cell(planned, metric, scenario, method, dataset, size) for size in buffers[dataset]]
                line += [*own, mean_cell(own)]
                cells += own
            for column, cell in enumerate([*line, mean_cell(cells)]):
                table.cells[row, column] = cell
    return table.finish()


def main_cell(planned: PlannedRuns, metric: str, scenario: str, method: str, dataset: str, size: int) -> Cell:
    """One cell of the main tables."""
    chosen = where(planned, method=method, dataset=dataset, buffer_size=size)
    known = printed("main_results", "value", metric=metric, method=method, scenario=scenario, dataset=dataset,
                    buffer_size=size)  # fmt: skip
    return Cell(by_seed(chosen, lambda one: one.percent(metric, scenario)), known)


def acc(planned: PlannedRuns) -> list[ResultTable]:
    """The table of ACC."""
    return [main_table(planned, "acc", "ACC (%): mean accuracy over all tasks after the last")]


def bwt(planned: PlannedRuns) -> list[ResultTable]:
    """The table of BWT."""
    return [main_table(planned, "bwt", "BWT (%): change of the earlier tasks' accuracy since they were learned")]


def ood(planned: PlannedRuns) -> list[ResultTable]:
    """The bars: ACC under shift, mean over buffer sizes."""
    methods, datasets = values_of(planned, "method"), values_of(planned, "dataset")
    columns = [(dataset_label(d), "mean over B") for d in datasets] + [("all", "mean")]
    rows = [("", method_label(m)) for m in methods]
    table = ResultTable("ood", "ACC under shift (%), mean over buffer sizes", rows, columns,
                        reference=method_label(STUDIED))  # fmt: skip
    for i, method in enumerate(methods):
        every: list[Cell] = []
        for column, dataset in enumerate(datasets):
            sizes = sorted(values_of(where(planned, dataset=dataset), "buffer_size"))
            own = [main_cell(planned, "acc", "ood", method, dataset, size) for size in sizes]
            table.cells[i, column] = mean_cell(own)
            every += own
        table.cells[i, len(datasets)] = mean_cell(every)
    return [table.finish()]


def balance(planned: PlannedRuns) -> list[ResultTable]:
    """CV of tasks and classes in the final memory."""
    methods = values_of(planned, "method")
    rows = [("", method_label(m)) for m in methods]
    title = "Balance of the final memory: coefficient of variation (%), 0 is exact balance"
    table = ResultTable("balance", title, rows, [("CV", "tasks"), ("CV", "classes")], better="lower",
                        reference=method_label(STUDIED))  # fmt: skip
    for i, method in enumerate(methods):
        chosen = where(planned, method=method)
        for column, name in enumerate(("cv_tasks", "cv_classes")):
            known = printed("buffer_balance", name, method=method, dataset=chosen[0].config.dataset,
                            buffer_size=chosen[0].config.buffer_size)  # fmt: skip
            cell = Cell(by_seed(chosen, lambda one, name=name: one.percent(name) / 100), known)  # type: ignore[misc]
            table.cells[i, column] = cell
    return [table.finish()]


def policies(planned: PlannedRuns) -> list[ResultTable]:
    """ACC and BWT of the memory policies."""
    names = list(dict.fromkeys(one.option("policy") for one in planned))
    kinds = [(metric, scenario) for metric in ("acc", "bwt") for scenario in SCENARIOS]
    columns = [(metric.upper(), SCENARIOS[scenario]) for metric, scenario in kinds]
    rows = [("", POLICY_LABELS.get(str(name), str(name))) for name in names]
    table = ResultTable("policies", "Memory policies under ACR's loss (%)", rows, columns, reference="Challenging")
    for i, name in enumerate(names):
        chosen = where(planned, policy=name)
        for column, (metric, scenario) in enumerate(kinds):
            known = printed("update_policies", "value", policy=name, dataset=chosen[0].config.dataset, metric=metric,
                            buffer_size=chosen[0].config.buffer_size, scenario=scenario)  # fmt: skip
            table.cells[i, column] = Cell(by_seed(chosen, _percent(metric, scenario)), known)
    return [table.finish()]


def sensitivity(planned: PlannedRuns) -> list[ResultTable]:
    """ACC and BWT against E, the reservoir last."""
    rows, lines = [], []
    for one in planned:
        if (label := confidence_label(one)) not in lines:
            lines.append(label)
    lines.sort(key=lambda label: (label == "Reservoir", int(label[4:]) if label.startswith("E = ") else 0))
    rows = [("", label) for label in lines]
    datasets = values_of(planned, "dataset")
    kinds = [(d, metric, scenario) for d in datasets for metric in ("acc", "bwt") for scenario in SCENARIOS]
    columns = [(dataset_label(d), f"{metric.upper()} {SCENARIOS[s]}") for d, metric, s in kinds]
    title = "Sensitivity of ACR (%) to the number E of epochs over which confidence is recorded"
    table = ResultTable("sensitivity", title, rows, columns, reference="E = 5")
    for i, label in enumerate(lines):
        for column, (dataset, metric, scenario) in enumerate(kinds):
            chosen = [s for s in where(planned, dataset=dataset) if confidence_label(s) == label]
            size = planned[0].config.buffer_size
            known = None
            if label == "E = 5":
                known = main_cell([], metric, scenario, "acr", dataset, size).printed
            elif label == "Reservoir":
                known = printed("update_policies", "value", policy="reservoir", dataset=dataset, buffer_size=size,
                                metric=metric, scenario=scenario)  # fmt: skip
            table.cells[i, column] = Cell(by_seed(chosen, _percent(metric, scenario)), known)
    return [table.finish()]


def confidence_label(one: PlannedRun) -> str:
    """The row a run of the sensitivity belongs to."""
    if one.option("policy") == "reservoir":
        return "Reservoir"
    return f"E = {one.option('confidence_epochs')}"


def stages(planned: PlannedRuns) -> list[ResultTable]:
    """The eight panels, one block of rows per panel."""
    methods = values_of(planned, "method")
    letters = [(chr(ord(a) + 4 * (s == "ood")), a, s) for s in SCENARIOS for a in PANELS]
    curves = {
        (letter, method): {s.config.seed: stage_curve(s, panel, scenario) for s in where(planned, method=method)}
        for letter, panel, scenario in letters
        for method in methods
    }
    tasks = max([len(c) + FIRST_STAGE[p] - 1 for letter, p, _ in letters for m in methods
                 for c in curves[letter, m].values()] or [0]) or (planned[0].config.tasks or 1)  # fmt: skip
    rows: list[tuple[str, str]] = []
    columns = [("task or stage", str(place + 1)) for place in range(tasks)]
    table = ResultTable("stages", "Task by task and stage by stage (%)", rows, columns,
                        reference=method_label(STUDIED))  # fmt: skip
    for letter, panel, scenario in letters:
        for method in methods:
            rows.append((f"({letter}) {PANELS[panel][0]}, {SCENARIOS[scenario]}", method_label(method)))
            last = tasks - 1 if panel == "c" else tasks
            for place in range(FIRST_STAGE[panel] - 1, last):
                at = place - FIRST_STAGE[panel] + 1
                points = {seed: float(c[at]) for seed, c in curves[letter, method].items() if at < len(c)}
                cell = Cell({seed: value for seed, value in sorted(points.items()) if not math.isnan(value)})
                table.cells[len(rows) - 1, place] = cell
    table.notes.append("The paper shows curves and prints none of these values.")
    return [table.finish()]


def stage_curve(one: PlannedRun, panel: str, scenario: str) -> Any:
    """One curve of a run in percent; empty where it was not measured."""
    if not one.summary or one.run is None:
        return np.empty(0)
    matrix = one.run.accuracy.get("clean" if scenario == "iid" else scenario)
    return np.empty(0) if matrix is None else 100 * np.asarray(PANELS[panel][1](matrix))


def time(planned: PlannedRuns) -> list[ResultTable]:
    """Running time, and how many times that of ER."""
    methods = values_of(planned, "method")
    seconds = {m: by_seed(where(planned, method=m), lambda s: float(s.summary.get("seconds", math.nan)))
               for m in methods}  # fmt: skip
    longest = max((value for found in seconds.values() for value in found.values()), default=0.0)
    unit, size = ("hours", 3600.0) if longest >= 3600 else ("seconds", 1.0)
    rows = [("", method_label(m)) for m in methods]
    columns = [("running time", unit), ("running time", "times ER")]
    table = ResultTable("time", "Running time, one run at a time", rows, columns, better="lower",
                        reference=method_label(STUDIED))  # fmt: skip
    case = {"dataset": planned[0].config.dataset, "buffer_size": planned[0].config.buffer_size}
    er_hours = printed("running_time", "hours", method="er", **case)
    for i, method in enumerate(methods):
        hours = printed("running_time", "hours", method=method, **case)
        own, er = seconds[method], seconds.get("er", {})
        absolute = {seed: value / size for seed, value in own.items()}
        relative = {seed: value / er[seed] for seed, value in own.items() if er.get(seed)}
        known = None if hours is None or unit != "hours" else hours
        table.cells[i, 0] = Cell(absolute, known)
        table.cells[i, 1] = Cell(relative, hours / er_hours if hours is not None and er_hours else None)
    table.notes.append("Hours depend on the machine (the paper's: a Quadro RTX 8000); the ratio to ER less so.")
    return [table.finish()]


def resources(planned: PlannedRuns) -> list[ResultTable]:
    """Memory and CPU use, read where the paper reads them, or at the end of a shorter run."""
    methods = values_of(planned, "method")
    on_gpu = any("gpu_mib" in event for s in planned for event in readings(s)[:1])
    kind, key = ("GPU memory", "gpu_mib") if on_gpu else ("process memory", "rss_mib")
    rows = [("", method_label(m)) for m in methods]
    columns = [(kind, "GB"), ("CPU use", "%")]
    table = ResultTable("resources", "Memory and CPU use of a run", rows, columns, better="lower",
                        reference=method_label(STUDIED))  # fmt: skip
    case = {"dataset": planned[0].config.dataset, "buffer_size": planned[0].config.buffer_size}
    for i, method in enumerate(methods):
        chosen = where(planned, method=method)
        memory = by_seed(chosen, lambda s: reading_at(s, key) * 2**20 / 1e9)
        cpu = by_seed(chosen, lambda s: fmean([e["cpu_percent"] for e in readings(s)[1:]] or [math.nan]))
        known = printed("running_time", "gpu_memory_gb", method=method, **case) if on_gpu else None
        table.cells[i, 0] = Cell(memory, known)
        table.cells[i, 1] = Cell(cpu, printed("running_time", "cpu_percent", method=method, **case))
    table.notes.append("CPU use: 100 % is one core. Memory at step 5,000, or at the end of a shorter run.")
    if not on_gpu:
        table.notes.append("Without a GPU this is the memory of the whole process; the paper's number is GPU memory.")
    return [table.finish()]


def readings(one: PlannedRun) -> list[dict[str, Any]]:
    """What telemetry read at steps of the run, in order, with ``at``: the steps since the run began.

    A step that was made twice, because the run was resumed from before it, counts as it went the last time.
    """
    if not one.summary or one.run is None:
        return []
    events = {(e["task"], e["epoch"], e["step"]): e for e in one.run.events() if e.get("event") == "step"}
    results, config = one.run.results, one.config
    share = results.data.train / max(1, sum(map(len, results.tasks)))
    epoch_steps = [math.ceil(share * len(classes) / config.batch_size) for classes in results.tasks]
    starts = np.cumsum([0, *epoch_steps]) * config.epochs
    return [
        {**e, "at": int(starts[t]) + epoch * epoch_steps[t] + step} for (t, epoch, step), e in sorted(events.items())
    ]


def reading_at(one: PlannedRun, key: str, step: int = AT_STEP) -> float:
    """The last reading up to a step."""
    known = [event[key] for event in readings(one) if event["at"] <= step and key in event]
    return float(known[-1]) if known else math.nan


def _percent(metric: str, scenario: str) -> Callable[[PlannedRun], float]:
    return lambda one: one.percent(metric, scenario)


LAYOUTS: dict[str, Callable[[PlannedRuns], list[ResultTable]]] = {
    "acc": acc, "bwt": bwt, "balance": balance, "stages": stages, "policies": policies, "sensitivity": sensitivity,
    "time": time, "resources": resources, "ood": ood,
}  # fmt: skip
"""The paper's tables and figures by name."""
