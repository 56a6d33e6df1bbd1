"""Complete run folders made up in milliseconds: several methods, seeds, tasks and corruptions, with every file."""

import json
from pathlib import Path

import numpy as np
import yaml

from acr.runs.resolve import make_config
from acr.runs.writer import EVENTS, SCHEMA
from acr.shift import PAPER_CORRUPTIONS, corrupt

LEVEL = {"acr": 0.82, "er": 0.72, "gem": 0.6, "agem": 0.5, "gss": 0.55, "gdumb": 0.58, "hal": 0.62, "finetune": 0.2}
"""About where a method ends up, so that pictures look like something."""
BINS = 15


def make_run(
    out,
    method="acr",
    seed=0,
    *,
    tasks=5,
    classes_per_task=2,
    corruptions=PAPER_CORRUPTIONS,
    severities=(1,),
    class_names=None,
    name=None,
    buffer_size=50,
    side=8,
    channels=1,
    test_per_class=30,
    train_per_class=40,
    finished=True,
    **changes,
):
    """A run folder as a real run leaves it. ``name`` is the folder's, ``changes`` fields of its config."""
    rng = np.random.default_rng([seed, sum(map(ord, method)), buffer_size])
    base = method if method in ("acr", "er", "finetune", "joint") else "er"
    memoryless = method in ("finetune", "joint")
    config = make_config({"method": base, "seed": seed, "buffer_size": buffer_size, "tasks": tasks, **changes})
    values = {"schema": SCHEMA, **config.flat(), "method": method, "out": str(out)}
    path = Path(out) / (name or f"split-digits-{method}-b{buffer_size}-s{seed}-{config.identity()[:10]}")
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), encoding="utf-8")
    _write_json(path / "environment.json", {"acr": "0", "python": "3", "packages": {}, "command": ["acr", "run"]})

    labels = list(range(tasks * classes_per_task))
    split = [labels[t * classes_per_task : (t + 1) * classes_per_task] for t in range(tasks)]
    scenarios = ["clean", *(f"{c}/{s}" for c in corruptions for s in severities)]
    hardness = {s: 0.0 if s == "clean" else 0.08 + 0.3 * ((i * 7) % 11) / 11 for i, s in enumerate(scenarios)}
    quota = 0 if memoryless else buffer_size
    counts = np.zeros(len(labels), int)
    stages = []
    for stage in range(tasks):
        seen = len(split[0]) * (stage + 1)
        if quota:
            counts = np.zeros(len(labels), int)
            counts[:seen] = quota // seen
            if method != "acr":
                counts[:seen] = rng.multinomial(quota, np.full(seen, 1 / seen))
        parts = {f"{t}/{c}": int(counts[c]) for t, task in enumerate(split) for c in task if counts[c]}
        counted = {s: _counts(rng, method, stage, split, hardness[s], test_per_class) for s in scenarios}
        stages.append({"stage": stage, "scenarios": counted, "memory": parts})
    _events(path, rng, tasks, config.epochs, stages)
    if not finished:
        return path
    if method == "joint":  # it learns all tasks at once, so it has a last stage only
        stages = stages[-1:]

    stored = np.repeat(labels, counts)
    images = rng.integers(0, 255, (max(len(stored), 6), channels, side, side), dtype=np.uint8)
    images[:, :, side // 4 : side // 2] = 240
    memory = {}
    if quota:
        columns = {"images": images, "labels": stored, "tasks": stored // classes_per_task}
        if method == "acr":
            columns |= {"confidence_mean": rng.uniform(0.2, 0.9, len(stored)).astype(np.float32),
                        "confidence_variance": rng.uniform(0.0, 0.06, len(stored)).astype(np.float32)}  # fmt: skip
            _write_arrays(path / "confidence.npz", **_confidence(rng, tasks, train_per_class * classes_per_task))
        _write_arrays(path / "memory.npz", **columns)
        per_task = counts.reshape(tasks, -1).sum(1)
        memory = {"size": len(stored), "bytes": int(images.nbytes), "side_bytes": 0, "per_class": counts.tolist(),
                  "per_task": per_task.tolist(), "cv_classes": float(100 * counts.std() / counts.mean()),
                  "cv_tasks": float(100 * per_task.std() / per_task.mean())}  # fmt: skip
    if corruptions and seed == 0:  # one run with pictures is enough, and making them is slow
        few = images[:4]
        copies = {s: corrupt(few, *_parts(s)) for s in scenarios[1:]}
        _write_arrays(path / "samples.npz", images=few, labels=np.arange(len(few)), **copies)
    protocol = config.protocol_in_force()
    _write_json(
        path / "results.json",
        {
            "finished": True, "identity": config.identity(), "method": method, "dataset": config.dataset,
            "buffer_size": quota, "seed": seed, "protocol": protocol.name, "quirks": sorted(protocol.quirks),
            "headline": protocol.headline, "classes": labels,
            "class_names": class_names or [str(label) for label in labels], "tasks": split,
            "data": {"train": train_per_class * len(labels), "test": 0, "mean": [0.3], "std": [0.4], "notes": {}},
            "parameters": 176258, "stages": stages, "memory": memory,
            "timing": {"seconds": round(float(20 * LEVEL.get(method, 0.5) + rng.uniform(0, 3)), 3)},
        },
    )  # fmt: skip
    return path


def make_sweep(out, methods=("acr", "er", "gem", "finetune"), seeds=3, **changes):
    """Several methods and seeds."""
    return [make_run(out, method, seed, **changes) for method in methods for seed in range(seeds)]


def _write_json(path, content):
    """As ``RunWriter.write_json`` does, but on one line and without waiting for the disk."""
    path.write_text(json.dumps({"schema": SCHEMA, **content}, allow_nan=False))


def _write_arrays(path, **arrays):
    """As ``RunWriter.write_arrays`` does, but not compressed."""
    np.savez(path, schema=np.array(SCHEMA), **arrays)


def _parts(scenario):
    corruption, severity = scenario.split("/")
    return corruption, int(severity)


def _counts(rng, method, stage, split, hardness, per_class):
    level = LEVEL.get(method, 0.5)
    total, right, confusion = [], [], np.zeros((stage + 1, stage + 1), int)
    for task in range(stage + 1):
        kept = 0.97 - (0.97 - level) * 1.2 * (stage - task) / max(1, len(split) - 1)
        if method == "finetune":
            kept = 0.97 if task == stage else 0.02
        kept = min(max(kept - hardness, 0.02), 1.0)
        total.append([per_class for _ in split[task]])
        right.append([int(rng.binomial(per_class, kept)) for _ in split[task]])
        wrong = sum(total[-1]) - sum(right[-1])
        confusion[task, task] += sum(right[-1])
        confusion[task] += rng.multinomial(wrong, np.full(stage + 1, 1 / (stage + 1)))
    n = [per_class * (stage + 1) / BINS] * BINS
    centres = [(b + 0.5) / BINS for b in range(BINS)]
    calibration = {"count": n, "confidence": [k * c for k, c in zip(n, centres, strict=True)],
                   "correct": [k * c * 0.9 for k, c in zip(n, centres, strict=True)]}  # fmt: skip
    correct = {"seen": right, "all": right, "task": [[min(t, r + 2) for t, r in zip(*pair, strict=True)]
                                                     for pair in zip(total, right, strict=True)]}  # fmt: skip
    return {"total": total, "correct": correct, "confusion": confusion.tolist(), "calibration": calibration}


def _confidence(rng, tasks, samples):
    arrays = {}
    for task in range(tasks):
        mean = rng.beta(3, 1.5, samples)
        arrays[f"mean_{task}"] = mean
        arrays[f"variance_{task}"] = mean * (1 - mean) * rng.beta(2, 5, samples)
    return arrays


def _events(path, rng, tasks, epochs, stages):
    lines = [{"event": "start", "task": 0, "epoch": 0, "step": 0, "steps": tasks * epochs * 9, "tasks": tasks}]
    taken = 0
    for task in range(tasks):
        for epoch in range(epochs):
            taken += 9
            lines.append({"event": "step", "task": task, "epoch": epoch, "step": 0, "taken": taken - 8,
                          "loss": float(2.5 * np.exp(-epoch / 4) + rng.uniform(0, 0.3)), "seconds": taken * 0.03,
                          "images_per_second": float(900 + rng.normal(0, 40)), "cpu_percent": 99.0,
                          "rss_mib": float(420 + task * 3 + rng.uniform())})  # fmt: skip
        parts = stages[task]["memory"]
        clean = stages[task]["scenarios"]["clean"]
        right = [sum(c) / sum(t) for c, t in zip(clean["correct"]["seen"], clean["total"], strict=True)]
        lines.append({"event": "stage", "stage": task, "accuracy": float(np.mean(right)), "memory": sum(parts.values()),
                      "accuracies": {"clean": right}, "parts": parts})  # fmt: skip
    lines.append({"event": "end", "seconds": taken * 0.03})
    stamped = [{"schema": SCHEMA, "time": 1_700_000_000 + i, **line} for i, line in enumerate(lines)]
    (path / EVENTS).write_text("".join(json.dumps(line) + "\n" for line in stamped))
