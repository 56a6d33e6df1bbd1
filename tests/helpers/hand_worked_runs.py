"""Run folders made up on the spot, so that layouts can be checked without training anything."""

import json

import yaml

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
    results = {
        "schema": SCHEMA, "finished": True, "identity": config.identity(), "method": config.method,
        "dataset": config.dataset, "buffer_size": config.buffer_size, "seed": config.seed, "protocol": protocol.name,
        "quirks": [], "headline": protocol.headline, "tasks": [[2 * t, 2 * t + 1] for t in range(tasks)],
        "classes": list(range(2 * tasks)), "data": {"train": 64 * tasks, "test": IMAGES * tasks}, "stages": stages,
        "memory": memory, "timing": {"seconds": seconds},
    }  # fmt: skip
    folder = config.out / folder_name(config)
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(yaml.safe_dump({"schema": SCHEMA, **config.flat()}))
    (folder / RESULTS).write_text(json.dumps(results))
    lines = [{"event": "step", "schema": SCHEMA, **reading} for reading in readings]
    (folder / EVENTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def counts(stage, final, drop, last):
    """What the evaluator stores: the newest task at ``final + drop``, older ones at ``final``."""
    right = [[round(IMAGES * (final + (drop if task == stage and not last else 0)))] for task in range(stage + 1)]
    return {
        "total": [[IMAGES]] * (stage + 1),
        "correct": dict.fromkeys(("seen", "all", "task"), right),
        "confusion": [],
        "calibration": {"count": [1.0], "confidence": [0.5], "correct": [1.0]},
    }
