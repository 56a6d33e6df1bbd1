"""Which parts of averaged replay earn their place: variants measured on held-out training images, never on test images.

    python benchmarks/research.py QUESTION ... --data-root DATA [--jobs 2]
    python benchmarks/research.py show                     what the file has so far, as the tables of docs/research.md
    python benchmarks/research.py draw                     docs/half-life.svg

The scale is ``small``: CIFAR-100 labels 0-19 in five tasks of four, 250 training images per class, width 8, 20 epochs,
200 places in the memory. Half of CIFAR's training images are held out, and 100 of them per class are evaluated, clean
and at severity 1 of the paper's eleven corruptions, after the last task. The seeds are others than those of the final
comparison. Every run gives one row per network: as trained, and averaged with several half-lives (shares of a task).
Rows are appended to results/research.csv as runs end, and runs that the file already contains are not repeated.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import sys
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))  # a child process imports this file from anywhere

from acr.config import RunConfig, validated
from acr.data.loading import load_dataset
from acr.data.stream import TaskStream
from acr.evaluation.evaluator import evaluate
from acr.launch import build_loop, make_scenarios
from acr.methods.method import method_class
from acr.networks import Network
from acr.networks.averaging import WeightAverage
from acr.randomness import generator
from acr.training.loop import Step, TrainingLoop
from acr.values import HalfLife
from research_methods import lab_class

HALF_LIVES = ("0.1t", "0.2t", "0.35t", "0.5t", "1t")
RECOMPUTED = ("0.2t", "0.35t")
"""Averages that are also evaluated with statistics of batch norm that are recomputed instead of averaged."""
TEACHER = "0.2t"
"""Half-life of the average that a variant uses while it learns."""
SMALL = {
    "dataset": "split-cifar100",
    "samples_per_class": 250,
    "validation_fraction": 0.5,
    "test_samples_per_class": 100,
    "width": 8,
    "epochs": 20,
    "buffer_size": 200,
    "learning_rate": 0.1,
    "threads": 1,
    "quiet": True,
    "device": "cpu",
}
COLUMNS = ("question", "variant", "settings", "options", "seed", "network", "clean", "shifted", "steps", "seconds")
Cell = dict[str, Any]


def variants(*named: tuple[str, dict[str, Any]], seeds: tuple[int, ...] = (100, 101), **settings: Any) -> list[Cell]:
    """One cell per variant and seed; options are those of LabOptions, or of the ``method`` that they name."""
    return [
        {"variant": name, "settings": settings, "options": options, "seed": seed}
        for seed in seeds
        for name, options in named
    ]


PROXY, SUM = {"loss": "proxy"}, {"loss": "sum"}
HALF = 0.05
"""Half the usual rate: a step on the sum of two losses is then one on their mean at the usual rate."""
QUESTIONS: dict[str, list[Cell]] = {
    "loss": variants(
        ("proxy", PROXY),
        ("ce", {"loss": "ce"}),
        ("balanced", {"loss": "balanced"}),
        ("sum", SUM),
        ("cosine", {"loss": "cosine"}),
        seeds=(100,),
    )
    + variants(("proxy", PROXY), seeds=(101,)),
    # A sum of two losses has about twice the gradient of one: is it the loss or the rate?
    "rate": variants(("proxy", PROXY), learning_rate=0.2, seeds=(100,))
    + variants(("sum", SUM), learning_rate=HALF, seeds=(100, 101)),
    # Each alone on top of the winner, the mean of both losses.
    "parts": variants(
        ("confidence from average", {**SUM, "confidence_from_average": True}),
        ("distil", {**SUM, "distil": 0.1}),
        ("asymmetric", {**SUM, "asymmetric": True}),
        ("mix", {**SUM, "mix": True}),
        seeds=(100,),
        learning_rate=HALF,
    )
    + variants(("more replay", {**SUM, "current_views": 1}), replay_size=48, seeds=(100,), learning_rate=HALF)
    + variants(("rate falls", SUM), lr_milestones=(15,), seeds=(100,), learning_rate=HALF),
}


def run(cell: Cell, data_root: Path) -> list[list[Any]]:
    """The rows of one run."""
    torch.set_num_threads(1)
    began = time.monotonic()
    options = dict(cell["options"])
    name = options.pop("method", None)
    cls = lab_class(options) if name is None else method_class(name)
    values: Cell = {**SMALL, **cell["settings"], "seed": cell["seed"], "data_root": data_root}
    config = cls.complete_config(
        validated(RunConfig, {**values, "method": cls.name, "options": cls.Options(**options)})
    )
    data = load_dataset(config.dataset, config)
    stream = TaskStream.split(data, 5, None, tuple(range(20)))
    loop = build_loop(config, stream, cls)
    averages = {}
    for half_life in HALF_LIVES:
        copy = loop.context.build_network("average")
        copy.load_state_dict(loop.method.network.state_dict())
        if hasattr(loop.method.network.head, "temperature"):
            copy.head.temperature = loop.method.network.head.temperature
        averages[half_life] = WeightAverage(copy, HalfLife.parse(half_life))
    loop.method.teacher = averages[TEACHER]
    # A method that sees all tasks at once has one task of five times the steps; a share is of a task of the stream.
    tasks = len(stream) // len(loop.tasks)
    for event in loop:
        if isinstance(event, Step):
            steps = loop.steps_per_epoch(loop.tasks[event.batch.task]) * config.epochs // tasks
            for average in averages.values():
                average.update(loop.method.network, steps)
    networks: dict[str, Network] = {"as trained": loop.method.network}
    networks |= {half_life: average.network for half_life, average in averages.items()}
    for half_life in RECOMPUTED:
        networks[f"{half_life}, statistics recomputed"] = recomputed(averages[half_life].network, loop)
    scenarios = make_scenarios(config, data)
    rows = []
    for label, network in networks.items():
        network.eval()
        clean, *shifted = (evaluate(network, s, stream, len(stream) - 1).accuracy() for s in scenarios)
        figures = [round(clean, 4), round(sum(shifted) / len(shifted), 4)]
        rows.append([label, *figures, loop.steps_in_all(), round(time.monotonic() - began)])
    return rows


def recomputed(network: Network, loop: TrainingLoop) -> Network:
    """A copy with statistics of batch norm from images at hand: the memory's, and as many of the last task."""
    copy = deepcopy(network)
    norms = [module for module in copy.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over batches
    stored = loop.method.memory().get("images", torch.zeros(0, *loop.context.image_shape, dtype=torch.uint8))
    task = loop.tasks[len(loop.tasks) - 1]
    draws = generator(loop.context.seed, "statistics")
    chosen = torch.randperm(len(task), generator=draws)[: max(len(stored), 200)]
    images = torch.cat([stored, task.images(chosen)])
    copy.train()
    with torch.no_grad():
        for part in images[torch.randperm(len(images), generator=draws)].split(64):
            copy(part)
    return copy.eval()


def key(question: str, cell: Cell) -> tuple[str, ...]:
    """What identifies a run in the file."""
    settings, options = (json.dumps(cell[name], sort_keys=True) for name in ("settings", "options"))
    return question, cell["variant"], settings, options, str(cell["seed"])


def job(work: tuple[str, Cell, Path]) -> tuple[tuple[str, ...], list[list[Any]]]:
    """One run in a process of its own."""
    question, cell, data_root = work
    return key(question, cell), run(cell, data_root)


def show(path: Path) -> None:
    """Print one table per question: clean / shifted accuracy in percent of every variant and network, over seeds."""
    found: dict[str, dict[tuple[str, str], dict[str, list[tuple[float, float]]]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            of_question = found.setdefault(row["question"], {})
            of_variant = of_question.setdefault((row["variant"], row["settings"]), {})
            of_variant.setdefault(row["network"], []).append((float(row["clean"]), float(row["shifted"])))
    for question, of_question in found.items():
        columns = ["as trained", *HALF_LIVES, *(f"{half_life}, statistics recomputed" for half_life in RECOMPUTED)]
        print(f"\n{question}\n\n| variant | settings | seeds | {' | '.join(columns)} |")
        print("|---" * (3 + len(columns)) + "|")
        for (variant, settings), networks in of_question.items():
            told = json.loads(settings)
            cells = []
            for column in columns:
                values = networks.get(column, [])
                means = [100 * sum(pair[i] for pair in values) / len(values) for i in (0, 1)] if values else []
                cells.append(" / ".join(f"{mean:.1f}" for mean in means))
            seeds = len(networks["as trained"])
            print(f"| {variant} | {', '.join(f'{k} {v}' for k, v in told.items())} | {seeds} | {' | '.join(cells)} |")


DRAWN = {("rate", "sum", HALF): "AVER's loss", ("loss", "proxy", SMALL["learning_rate"]): "ACR's loss"}
"""Question, variant and rate of the runs in the picture of half-lives."""


def draw(path: Path, picture: Path) -> None:
    """Accuracy against the half-life: one line per loss, clean and shifted, with one dot per seed."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "half-life"
    from matplotlib import pyplot

    figure, both = pyplot.subplots(1, 2, figsize=(9, 3.4), sharex=True)
    places = dict(zip(("as trained", *HALF_LIVES), range(len(HALF_LIVES) + 1), strict=True))
    for (question, variant, rate), label in DRAWN.items():
        points: dict[str, list[tuple[float, float]]] = {}
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                own_rate = json.loads(row["settings"]).get("learning_rate", SMALL["learning_rate"])
                if (row["question"], row["variant"], own_rate) == (question, variant, rate) and row[
                    "network"
                ] in places:
                    points.setdefault(row["network"], []).append((float(row["clean"]), float(row["shifted"])))
        known = [name for name in places if name in points]
        for axis, number, title in ((both[0], 0, "clean"), (both[1], 1, "shifted")):
            values = [[100 * pair[number] for pair in points[name]] for name in known]
            (line,) = axis.plot([places[n] for n in known], [sum(v) / len(v) for v in values], label=label)
            for name, of_seeds in zip(known, values, strict=True):
                axis.plot([places[name]] * len(of_seeds), of_seeds, ".", color=line.get_color(), alpha=0.6)
            axis.set_title(title)
            axis.set_xticks(list(places.values()), list(places))
            axis.set_xlabel("half-life of the average")
    both[0].set_ylabel("accuracy in percent")
    both[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="+", choices=["show", "draw", *sorted(QUESTIONS)])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--file", type=Path, default=Path("results/research.csv"))
    given = parser.parse_args()
    if given.questions == ["show"]:
        return show(given.file)
    if given.questions == ["draw"]:
        return draw(given.file, Path("docs/half-life.svg"))
    if given.data_root is None or not set(given.questions) <= set(QUESTIONS):
        parser.error("name questions and --data-root, or show or draw alone")
    done = set()
    if given.file.exists():
        with given.file.open(newline="") as file:
            done = {tuple(row[name] for name in COLUMNS[:5]) for row in csv.DictReader(file)}
    else:
        given.file.write_text(",".join(COLUMNS) + "\n")
    cells = [(q, cell, given.data_root) for q in given.questions for cell in QUESTIONS[q] if key(q, cell) not in done]
    with multiprocessing.get_context("spawn").Pool(given.jobs, maxtasksperchild=1) as pool:
        for identity, rows in pool.imap_unordered(job, cells):
            with given.file.open("a", newline="") as file:
                csv.writer(file).writerows([*identity, *row] for row in rows)
            print(*identity, *(f"{row[0]} {100 * row[1]:.1f}/{100 * row[2]:.1f}" for row in rows), flush=True)


if __name__ == "__main__":
    main()
