"""Which parts of averaged replay earn their place: variants measured on held-out training images, never on test images.

    python benchmarks/research.py QUESTION ... --data-root DATA [--jobs 2]
    python benchmarks/research.py show                     what the file has so far, as the tables of docs/research.md
    python benchmarks/research.py draw                     docs/half-life.svg

The scale is ``small``: CIFAR-100 labels 0-19 in five tasks of four, 250 training images per class, width 8, 20 epochs,
200 places in the memory. Half of CIFAR's training images are held out, and 100 of them per class are evaluated, clean
and at severity 1 of the paper's eleven corruptions, after the last task. The seeds are others than those of the final
comparison. Every run gives one row per network: as trained, and averaged with several half-lives, in shares of a task
(0.35t) or of the run so far (0.07r).
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
from statistics import fmean
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))  # a child process imports this file from anywhere

from acr.config import RunConfig, validated
from acr.data.loading import load_dataset
from acr.data.stream import TaskStream, seen_through
from acr.evaluation.evaluator import evaluate
from acr.evaluation.scenarios import Scenario
from acr.launch import build_loop, make_scenarios
from acr.methods.method import method_class
from acr.networks import Network
from acr.networks.averaging import WeightAverage
from acr.randomness import generator
from acr.training.loop import Step, TrainingLoop
from acr.values import AUTO, HalfLife
from research_methods import lab_class

HALF_LIVES = ("0.1t", "0.2t", "0.35t", "0.5t", "1t", "0.04r", "0.07r", "0.1r", AUTO)
"""Shares of a task, shares of the run so far, and the rule that came of them."""
FEW = ("0.2t", "0.35t", AUTO)
"""Those of questions that are not about half-lives."""
RECOMPUTED = ("0.2t", "0.35t")
"""Averages that are also evaluated with statistics of batch norm that are recomputed instead of averaged."""
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
DIGITS = {
    **SMALL,
    "dataset": "split-digits",
    "samples_per_class": None,
    "validation_fraction": 0.3,
    "test_samples_per_class": None,
    "buffer_size": 50,
    "ood_constants": "cifar-c",
}
COLUMNS = (
    *("question", "variant", "settings", "options", "seed", "network", "clean", "shifted", "steps", "seconds"),
    *("by_task", "answers", "stored", "last_task", "ceiling"),
)
"""The last five, in percent: clean accuracy on each task; answers that name a class of each task; accuracy on images
of the memory and on training images of the last task, as they are; and what a linear classifier of the embeddings would
reach that knew the training images of all tasks. Rows of the first questions lack some or all of them."""
Cell = dict[str, Any]


def variants(
    *named: tuple[str, dict[str, Any]],
    seeds: tuple[int, ...] = (100, 101),
    half_lives: tuple[str, ...] = HALF_LIVES,
    **settings: Any,
) -> list[Cell]:
    """One cell per variant and seed; options are those of LabOptions, or of the ``method`` that they name."""
    return [
        {"variant": name, "settings": settings, "options": options, "seed": seed, "half_lives": half_lives}
        for seed in seeds
        for name, options in named
    ]


PROXY, SUM = {"loss": "proxy"}, {"loss": "sum"}
TWO_VIEWS = {"method": "er", "second_view": "strong"}
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
    + variants(("sum", SUM), learning_rate=HALF, seeds=(100, 101, 102)),
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
    # Learning goes on from the averaged network instead of ending in it.
    "restart": variants(("restart", {**SUM, "restart": True, "teacher": "0.35t"}), learning_rate=HALF),
    # Current images carry what the averaged network knows about old classes.
    "keep": variants(("keep", {**SUM, "keep": 1.0, "teacher": "0.35t"}), learning_rate=HALF, seeds=(100,))
    + variants(
        ("keep, frozen", {**SUM, "keep": 1.0, "frozen": True, "teacher": "0.35t"}), learning_rate=HALF, seeds=(100,)
    ),
    # Half as many epochs: what is behind ER's lead there?
    "short": variants(("sum", SUM), ("ER, two views", TWO_VIEWS), seeds=(100,), epochs=10)
    + variants(("sum", SUM), seeds=(100,), epochs=10, learning_rate=HALF),
    # Few images per class, and so short tasks of 140 steps, as in the parts of Tiny-ImageNet.
    "sparse": [
        cell
        for seeds in ((100, 101), (102, 103))
        for rate in (0.1, 0.2, HALF)
        for cell in variants(
            ("sum", SUM),
            *([("ER, two views", TWO_VIEWS), ("proxy", PROXY)] if rate > HALF else []),
            seeds=seeds,
            samples_per_class=50,
            learning_rate=rate,
        )
    ],
    # The averaged network knows all stored images by heart (and only two thirds of the last task's): what helps?
    "by heart": variants(("cutmix of second views", {**SUM, "cutmix": "second"}), samples_per_class=50)
    + variants(
        ("cutmix of replayed images", {**SUM, "cutmix": "replayed"}),
        ("strong replay", {**SUM, "strong_replay": True}),
        seeds=(100,),
        samples_per_class=50,
    ),
    # Classes of different tasks are what is confused: better embeddings, or proxies that begin where their images are?
    # On the digits, where a run takes less than a minute.
    "between tasks": variants(
        ("sum", SUM),
        ("imprint", {**SUM, "imprint": True}),
        ("contrast", {**SUM, "contrast": 0.5}),
        seeds=(100, 101, 102, 103),
        dataset="split-digits",
        learning_rate=HALF,
    )
    + variants(("imprint", {**SUM, "imprint": True}), seeds=(100,), samples_per_class=50),
    # A third view costs half a step more; group norm has no statistics of batches.
    "views and norms": variants(
        ("three views", {**SUM, "views": 3}),
        ("group norm", {**SUM, "norm": "group"}),
        seeds=(100,),
        samples_per_class=50,
    ),
    # What costs nothing: weight decay, the temperature, the rate.
    "optimiser": [
        cell
        for seed in (100, 101)
        for name, options, settings in (
            ("sum", {}, {"weight_decay": 5e-4}),
            ("sum", {}, {"weight_decay": 2e-3}),
            ("temperature 0.05", {"temperature": 0.05}, {}),
            ("temperature 0.18", {"temperature": 0.18}, {}),
            ("sum", {}, {"learning_rate": 0.2}),
            ("sum", {}, {"learning_rate": HALF}),
        )
        for cell in variants(
            (name, {**SUM, **options}), seeds=(seed,), half_lives=FEW, samples_per_class=50, **settings
        )
    ],
    # Each alone on top of the mean of both losses: second views that are turned, with classes of their own; memory of
    # what the averaged network said of an image when it was stored; tasks that count alike; other shares of the views;
    # other samples in the memory. With few images per class; what might need longer tasks also with many.
    "second round": [
        cell
        for name, options in (
            ("turned", {"turn": 0.5}),
            ("turned more", {"turn": 0.75}),
            ("dark", {"dark": 0.5}),
            ("fair", {"fair": True}),
            ("contrast", {"contrast": 0.5}),
            ("three views of new, one of replayed", {"current_views": 3, "views": 1}),
            ("one view of new, three of replayed", {"current_views": 1, "views": 3}),
            ("random memory", {"policy": "balanced-random"}),
            ("easy memory", {"policy": "easy"}),
        )
        for cell in variants(
            (name, {**SUM, **options}),
            seeds=(100, 101) if name == "turned" else (100,),
            half_lives=FEW,
            samples_per_class=50,
        )
    ]
    + variants(
        ("turned", {**SUM, "turn": 0.5}),
        ("easy memory", {**SUM, "policy": "easy"}),
        seeds=(100,),
        half_lives=FEW,
        learning_rate=0.15,
    ),
    # The loss once more, at the rate that the search chose for both: 0.3, which for a sum is 0.15.
    "loss again": [
        cell
        for seed in (100, 101, 102)
        for name, options, rate in (("proxy", PROXY, 0.3), ("sum", SUM, 0.15))
        for cell in variants((name, options), seeds=(seed,), half_lives=FEW, learning_rate=rate)
    ],
    # Several compressed images in a place of the memory: how many, with which loss, and whether current images should
    # look like them. At the rate that the search chose; the digits and short tasks at theirs.
    "dense": variants(("sum", SUM), half_lives=FEW, learning_rate=0.15, images_per_place=8)
    + variants(("proxy", PROXY), half_lives=FEW, learning_rate=0.3, images_per_place=8)
    + variants(
        ("current images as they are", {**SUM, "coded": 0.0}),
        seeds=(100,),
        half_lives=FEW,
        learning_rate=0.15,
        images_per_place=8,
    )
    # As many images as without compression, in an eighth of the places.
    + variants(("sum", SUM), seeds=(100,), half_lives=FEW, learning_rate=0.15, images_per_place=8, buffer_size=25)
    + [
        cell
        for number in (2, 4)
        for cell in variants(
            ("sum", SUM),
            ("half of current images as they are", {**SUM, "coded": 0.5}),
            half_lives=FEW,
            dataset="split-digits",
            learning_rate=HALF,
            images_per_place=number,
        )
    ]
    + [
        cell
        for number in (4, 16)
        for cell in variants(("sum", SUM), half_lives=FEW, learning_rate=0.15, images_per_place=number)
    ],
    # The first question once more: with a dense memory, which loss, and which samples? ER with two views has
    # cross-entropy over a linear head and a reservoir.
    "dense loss": [
        cell
        for seed in (100, 101)
        for name, options, rate in (
            ("ER, two views", TWO_VIEWS, 0.3),
            ("sum, random memory", {**SUM, "policy": "balanced-random"}, 0.15),
            ("cross-entropy", {"loss": "ce"}, 0.3),
            ("cross-entropy, random memory", {"loss": "ce", "policy": "balanced-random"}, 0.3),
            ("ER, two views", TWO_VIEWS, 0.1),
        )
        for cell in variants((name, options), seeds=(seed,), half_lives=FEW, learning_rate=rate, images_per_place=8)
    ],
    # Random samples on the digits, whose memory holds whole images, in balance like boundary samples.
    "digits, random memory": variants(
        ("sum, random memory", {**SUM, "policy": "balanced-random"}),
        seeds=(100, 101, 102, 103),
        half_lives=FEW,
        dataset="split-digits",
        learning_rate=HALF,
    ),
    # Does the best half-life depend on the number of tasks? All tasks have 140 steps.
    "tasks": [
        cell
        for seed in (100, 101)
        for tasks, images in ((2, 20), (5, 50), (10, 100))
        for cell in variants(("sum", SUM), seeds=(seed,), tasks=tasks, samples_per_class=images)
    ],
}


def run(cell: Cell, data_root: Path) -> list[list[Any]]:
    """The rows of one run."""
    torch.set_num_threads(1)
    began = time.monotonic()
    options = dict(cell["options"])
    name = options.pop("method", None)
    cls = lab_class(options) if name is None else method_class(name)
    place = DIGITS if cell["settings"].get("dataset") == DIGITS["dataset"] else SMALL
    values: Cell = {**place, **cell["settings"], "seed": cell["seed"], "data_root": data_root}
    config = cls.complete_config(
        validated(RunConfig, {**values, "method": cls.name, "options": cls.Options(**options)})
    )
    data = load_dataset(config.dataset, config)
    stream = TaskStream.split(data, config.tasks or 5, None, tuple(range(10 if place is DIGITS else 20)))
    loop = build_loop(config, stream, cls)
    if options.get("coded", 1.0) < 1:
        loop.tasks = seen_through(None, loop.tasks)
    network = loop.method.network
    averages = {text: WeightAverage(deepcopy(network), half_life(text, 1)) for text in cell["half_lives"]}
    loop.method.averages = averages.values()
    loop.method.teacher = averages[getattr(config.options, "teacher", cell["half_lives"][0])]
    for event in loop:
        if isinstance(event, Step):
            task = loop.tasks[event.batch.task]
            for text, average in averages.items():
                average.half_life = half_life(text, loop.steps_taken())
                average.update(loop.method.network, loop.steps_per_epoch(task) * config.epochs, task.index + 1)
    networks: dict[str, Network] = {"as trained": loop.method.network}
    networks |= {text: average.network for text, average in averages.items()}
    for text in RECOMPUTED if cell["half_lives"] == HALF_LIVES else ():
        networks[f"{text}, statistics recomputed"] = recomputed(averages[text].network, loop)
    scenarios = make_scenarios(config, data)
    rows = []
    for label, network in networks.items():
        network.eval()
        clean, *shifted = (evaluate(network, s, stream, len(stream) - 1) for s in scenarios)
        figures = [round(fmean(counts.accuracy() for counts in part), 4) for part in ([clean], shifted)]
        rows.append([label, *figures, loop.steps_in_all(), round(time.monotonic() - began)])
        by_task = [percent(share) for share in clean.accuracies()]
        answers = [percent(sum(column) / sum(map(sum, clean.total))) for column in zip(*clean.confusion, strict=True)]
        last = loop.tasks[len(loop.tasks) - 1]
        known = [accuracy(network, *samples) for samples in (stored(loop), (last.images(), last.targets))]
        rows[-1] += [" ".join(by_task), " ".join(answers), *known, ceiling(network, loop, stream, scenarios[0])]
    return rows


def half_life(text: str, steps: int) -> HalfLife:
    """A half-life after so many steps of the run; only the laboratory knows shares of the run so far, such as 0.07r."""
    return HalfLife(float(text[:-1]) * steps, "") if text.endswith("r") else HalfLife.parse(text)


def percent(share: float | None) -> str:
    """A share in whole percent."""
    return "" if share is None else f"{100 * share:.0f}"


@torch.no_grad()
def accuracy(network: Network, images: torch.Tensor, labels: torch.Tensor) -> str:
    """The share of images that a network knows, in percent; empty if there are none."""
    right = [network(part).argmax(1) for part in images.split(500)]
    return percent((torch.cat(right) == labels).float().mean().item()) if right and len(images) else ""


@torch.no_grad()
def ceiling(network: Network, loop: TrainingLoop, stream: TaskStream, test: Scenario) -> str:
    """Accuracy of linear discriminant analysis on the embeddings of all training images: what the encoder is worth."""
    images, labels = (torch.cat(parts) for parts in zip(*((t.images(), t.targets) for t in loop.tasks), strict=True))
    known = torch.cat([network.features(part) for part in images.split(500)]).double()
    means = torch.stack([known[labels == label].mean(0) for label in range(len(stream.classes))])
    within = known - means[labels]
    spread = within.T @ within / len(within) + 1e-3 * torch.eye(known.shape[1], dtype=known.dtype)
    weights = torch.linalg.solve(spread, means.T)
    bias = -(means.T * weights).sum(0) / 2

    def scores(images: torch.Tensor) -> torch.Tensor:
        return network.features(images).double() @ weights + bias

    return percent(evaluate(scores, test, stream, len(stream) - 1).accuracy())


def stored(loop: TrainingLoop) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels of the memory."""
    memory = loop.method.memory()
    shape = loop.context.image_shape
    return memory.get("images", torch.zeros(0, *shape, dtype=torch.uint8)), memory.get("labels", torch.zeros(0).long())


def recomputed(network: Network, loop: TrainingLoop) -> Network:
    """A copy with statistics of batch norm from images at hand: the memory's, and as many of the last task."""
    copy = deepcopy(network)
    norms = [module for module in copy.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over batches
    kept, _ = stored(loop)
    task = loop.tasks[len(loop.tasks) - 1]
    draws = generator(loop.context.seed, "statistics")
    chosen = torch.randperm(len(task), generator=draws)[: max(len(kept), 200)]
    images = torch.cat([kept, task.images(chosen)])
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
    """Print one table per question: clean / shifted accuracy in percent of every variant and network, over seeds.

    Where only some of the seeds were evaluated with a network, their number is in brackets.
    """
    found: dict[str, dict[tuple[str, str], dict[str, list[tuple[float, float]]]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            of_question = found.setdefault(row["question"], {})
            of_variant = of_question.setdefault((row["variant"], row["settings"]), {})
            of_variant.setdefault(row["network"], []).append((float(row["clean"]), float(row["shifted"])))
    for question, of_question in found.items():
        columns = ["as trained", *HALF_LIVES, *(f"{text}, statistics recomputed" for text in RECOMPUTED)]
        print(f"\n{question}\n\n| variant | settings | seeds | {' | '.join(columns)} |")
        print("|---" * (3 + len(columns)) + "|")
        for (variant, settings), networks in of_question.items():
            told = json.loads(settings)
            seeds = len(networks["as trained"])
            cells = []
            for column in columns:
                values = networks.get(column, [])
                means = [100 * sum(pair[i] for pair in values) / len(values) for i in (0, 1)] if values else []
                fewer = f" ({len(values)})" if 0 < len(values) < seeds else ""
                cells.append(" / ".join(f"{mean:.1f}" for mean in means) + fewer)
            print(f"| {variant} | {', '.join(f'{k} {v}' for k, v in told.items())} | {seeds} | {' | '.join(cells)} |")


DRAWN = {
    ("rate", "sum", json.dumps({"learning_rate": HALF})): "5 tasks of 640 steps",
    ("tasks", "sum", json.dumps({"samples_per_class": 20, "tasks": 2})): "2 tasks of 140 steps",
    ("tasks", "sum", json.dumps({"samples_per_class": 50, "tasks": 5})): "5 tasks of 140 steps",
    ("tasks", "sum", json.dumps({"samples_per_class": 100, "tasks": 10})): "10 tasks of 140 steps",
    ("between tasks", "sum", json.dumps({"dataset": "split-digits", "learning_rate": HALF})): "digits, 5 of 140 steps",
}
"""Question, variant and settings of the runs in the picture of half-lives, and what they are called there."""


def draw(path: Path, picture: Path) -> None:
    """What averaging brings, clean and shifted, against the half-life: one line per kind of run, one dot per seed."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "half-life"
    from matplotlib import pyplot

    runs: dict[str, dict[str, dict[str, tuple[float, ...]]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            label = DRAWN.get((row["question"], row["variant"], row["settings"]))
            if label is not None:
                of_seed = runs.setdefault(label, {}).setdefault(row["seed"], {})
                of_seed[row["network"]] = tuple(100 * float(row[name]) for name in ("clean", "shifted"))
    kinds = {
        "half-life in tasks": [text for text in HALF_LIVES if text.endswith("t")],
        "in shares of the run so far": [text for text in HALF_LIVES if text.endswith("r")],
        "rule": [AUTO],
    }
    widths = [len(half_lives) for half_lives in kinds.values()]
    figure, axes = pyplot.subplots(2, len(kinds), figsize=(9, 7), sharex="col", sharey="row", width_ratios=widths)
    for column, (title, half_lives) in enumerate(kinds.items()):
        for number in range(2):
            axis = axes[number][column]
            for label, colour in zip(
                DRAWN.values(), pyplot.rcParams["axes.prop_cycle"].by_key()["color"], strict=False
            ):
                networks = runs.get(label, {}).values()
                gains = [
                    [n[text][number] - n["as trained"][number] for n in networks if text in n] for text in half_lives
                ]
                known = [place for place, values in enumerate(gains) if values]
                for place in known:
                    axis.plot([place] * len(gains[place]), gains[place], ".", color=colour, alpha=0.5)
                if known:
                    means = [fmean(gains[place]) for place in known]
                    axis.plot(
                        known, means, "-" if len(half_lives) > 1 else "_", markersize=20, color=colour, label=label
                    )
            axis.axhline(0, color="grey", linewidth=0.8)
            axis.set_xticks(range(len(half_lives)), half_lives)
        axes[1][column].set_xlabel(title)
    for number, name in enumerate(("clean", "shifted")):
        axes[number][0].set_ylabel(f"points gained by averaging, {name}")
    axes[0][0].legend(frameon=False, fontsize="small", loc="lower left")
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
                csv.writer(file, lineterminator="\n").writerows([*identity, *row] for row in rows)
            print(*identity, *(f"{row[0]} {100 * row[1]:.1f}/{100 * row[2]:.1f}" for row in rows), flush=True)


if __name__ == "__main__":
    main()
