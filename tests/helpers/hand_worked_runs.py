"""Run folders made up on the spot, so that layouts can be checked without training anything."""

import json
from functools import cache

import yaml

from acr.data.loading import load_dataset
from acr.reproduce.cells import PlannedRun
from acr.runs.resolve import make_config
from acr.runs.run import load_run
from acr.runs.writer import CONFIG, EVENTS, RESULTS, SCHEMA, folder_name

IMAGES = 1000
"""Test images of a task: accuracies are multiples of a thousandth."""


def fabricate(config, final, *, drop=0.2, ood=None, ood_drop=0.1, per_class=None, per_task=None, seconds=10.0,
              tasks=3, readings=()):  # fmt: skip
    """A finished run whose every task is at ``final`` in the end and was at ``final + drop`` when learned.

    ACC is then ``final`` and BWT ``-drop``; under shift the same with ``ood`` and ``ood_drop``, if given.
    """
    stages = []
    for stage in range(tasks):
        last = stage == tasks - 1
        scenarios = {"clean": counts(stage, final, drop, last)}
        if ood is not None:
            scenarios["fog/1"] = counts(stage, ood, ood_drop, last)
        stages.append({"stage": stage, "scenarios": scenarios, "memory": {}})
    memory = {}
    if per_class is not None:
        from acr.metrics import coefficient_of_variation as cv

        memory = {"per_class": per_class, "per_task": per_task, "cv_classes": cv(per_class), "cv_tasks": cv(per_task)}
    protocol = config.protocol_in_force()
    data = {"train": 64 * tasks, "test": IMAGES * tasks}
    if config.dataset == "split-digits":
        data["fingerprint"] = digits_fingerprint()
    results = {
        "schema": SCHEMA, "finished": True, "identity": config.identity(), "method": config.method,
        "dataset": config.dataset, "buffer_size": config.buffer_size, "seed": config.seed, "protocol": protocol.name,
        "quirks": [], "headline": protocol.headline, "tasks": [[2 * t, 2 * t + 1] for t in range(tasks)],
        "classes": list(range(2 * tasks)), "data": data, "stages": stages,
        "memory": memory, "timing": {"seconds": seconds},
    }  # fmt: skip
    folder = config.out / folder_name(config)
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(yaml.safe_dump({"schema": SCHEMA, **config.flat()}))
    (folder / RESULTS).write_text(json.dumps(results))
    lines = [{"event": "step", "schema": SCHEMA, **reading} for reading in readings]
    (folder / EVENTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@cache
def digits_fingerprint():
    """That of the embedded data set: runs on other images are not the runs that a plan asks for."""
    return load_dataset("split-digits").fingerprint.digest


def counts(stage, final, drop, last):
    """What the evaluator stores: the newest task at ``final + drop``, older ones at ``final``."""
    right = [[round(IMAGES * (final + (drop if task == stage and not last else 0)))] for task in range(stage + 1)]
    return {
        "total": [[IMAGES]] * (stage + 1),
        "correct": dict.fromkeys(("seen", "all", "task"), right),
        "confusion": [],
        "calibration": {"count": [1.0], "confidence": [0.5], "correct": [1.0]},
    }


def make_planned(out, method, seed, final, *, dataset="split-cifar100", buffer_size=500, **made_up):
    """A finished run that a reproduction asks for."""
    config = make_config({"method": method, "dataset": dataset, "buffer_size": buffer_size, "seed": seed, "out": out})
    fabricate(config, final, **made_up)
    return PlannedRun(config, load_run(out / folder_name(config)))


def fill(plan, skip=lambda config: False):
    """A made-up run for every run a reproduction asks for."""
    for number, config in enumerate(plan.all_configs()):
        if not skip(config) and not (config.out / folder_name(config)).exists():
            steps = [{"task": t, "epoch": e, "step": 0, "cpu_percent": 100.0, "rss_mib": 500.0 + t, "seconds": 1.0}
                     for t in range(3) for e in range(2)]  # fmt: skip
            fabricate(config, 0.3 + number % 7 / 100, ood=0.2 + number % 5 / 100, per_class=[3, 4, 5, 4, 4, 4],
                      per_task=[7, 9, 8], seconds=10.0 + number, readings=steps)  # fmt: skip
